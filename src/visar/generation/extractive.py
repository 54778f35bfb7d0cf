"""The answer without a language model: the passages that weigh most, quoted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.generation.passages import boxes_of, spans
from visar.results import Passage

NAME = "extractive"
# More than this is no answer but a page.
MOST_PASSAGES = 3
# A passage that weighs less than this share of the best one adds nothing.
WORTH_QUOTING = 0.4
# Another passage of a page that was quoted counts less than one of another page.
SAME_PAGE_AGAIN = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class WeighedPage:
    """A selected page with what the method found in it."""

    document: str
    page: Page
    vector_words: NDArray[np.int32]
    """The word that each vector of the page belongs to, -1 for none."""
    vector_weights: NDArray[np.float32]
    """ŵ_pj."""
    vector_boxes: NDArray[np.float32]
    """(n, 4): where each vector stands; all zero for nowhere."""

    def word_weights(self) -> NDArray[np.float64]:
        """The weight of each word: that of its heaviest vector, or of the patches over it."""
        weights = np.zeros(len(self.page.words))
        placed = self.vector_words >= 0
        np.maximum.at(weights, self.vector_words[placed], self.vector_weights[placed])
        return np.maximum(weights, self._under_patches(~placed & (self.vector_weights > 0)))

    def _under_patches(self, patches: NDArray[np.bool_]) -> NDArray[np.float64]:
        """For each word: the heaviest of these vectors whose box the word's centre lies in."""
        words = np.array([word.box for word in self.page.words]).reshape(-1, 4)
        weights = np.zeros(len(words))
        across, down = (words[:, 0] + words[:, 2]) / 2, (words[:, 1] + words[:, 3]) / 2
        boxes, heavy = self.vector_boxes[patches], self.vector_weights[patches]
        for (left, top, right, bottom), weight in zip(boxes, heavy, strict=True):
            under = (left <= across) & (across < right) & (top <= down) & (down < bottom)
            weights[under] = np.maximum(weights[under], weight)
        return weights


def best_passages(pages: Iterable[WeighedPage], most: int = MOST_PASSAGES) -> tuple[Passage, ...]:
    """The passages that speak most of what was asked, best first, rather from different pages."""
    candidates = _distinct(passage for page in pages for passage in weigh_passages(page))
    taken: list[Passage] = []

    def worth(passage: Passage) -> float:
        from_there = sum((p.document, p.page) == (passage.document, passage.page) for p in taken)
        return passage.weight * SAME_PAGE_AGAIN**from_there

    while candidates and len(taken) < most:
        best = max(candidates, key=worth)
        if worth(best) <= WORTH_QUOTING * (taken[0].weight if taken else 0):
            break
        taken.append(best)
        candidates.remove(best)
    return tuple(taken)


def weigh_passages(weighed: WeighedPage) -> list[Passage]:
    """Every passage of a page with its weight: the sum over its words, damped by its length."""
    weights = weighed.word_weights()
    return [
        Passage(
            text=span.text,
            document=weighed.document,
            page=weighed.page.number,
            weight=float(weights[list(span.words)].sum() / np.sqrt(len(span.words) + 4)),
            boxes=boxes_of(weighed.page, span),
        )
        for span in spans(weighed.page)
        # The labels of a chart's axis say nothing on their own.
        if any(character.isalpha() for character in span.text)
    ]


def _distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Without those that say the same in the same words, like a heading repeated on each page."""
    seen: set[str] = set()
    kept = []
    for passage in passages:
        key = "".join(c for c in passage.text.casefold() if c.isalnum())
        if key not in seen:
            seen.add(key)
            kept.append(passage)
    return kept


def quote(passages: Sequence[Passage]) -> str:
    """The answer's text."""
    return "\n".join(passage.text for passage in passages)
