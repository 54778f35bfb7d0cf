"""A page's words as passages: whole sentences, table rows, headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Box, Page, Word
from visar.results import Passage

_SENTENCE_END = re.compile(r"[.!?]['\"”’)]*$")
_ABBREVIATION = re.compile(
    r"^(?:[A-Za-z]|[A-Z][a-z]|No|Mr|Mrs|Ms|Dr|St|vs|etc|approx|Inc|Ltd|Co|Fig|e\.g|i\.e)\.$"
)
_NUMBER = re.compile(r"^[(\-–−+$€£]*\d[\d,.]*[)%]*$")
# Longer runs without a full stop are cut at a line's end, so that a passage stays readable.
LONGEST_PASSAGE = 60
# More than this is no answer but a page.
MOST_PASSAGES = 3
# A passage that weighs less than this share of the best one adds nothing.
WORTH_QUOTING = 0.4
# Another passage of a page that was quoted counts less than one of another page.
SAME_PAGE_AGAIN = 0.5


@dataclass(frozen=True, slots=True)
class Span:
    """Words of a page that belong together, in reading order."""

    words: tuple[int, ...]
    """Their indices in ``Page.words``."""
    text: str


def spans(page: Page) -> Iterator[Span]:
    """The passages of a page in reading order; every word is in exactly one."""
    lines = page.lines()
    passage: list[int] = []
    for number, line in enumerate(lines):
        here = [page.words[index] for index in line]
        for place, index in enumerate(line):
            passage.append(index)
            if place + 1 < len(line) and _ends_sentence(here[place].text, here[place + 1].text):
                yield _span(page, passage)
                passage = []
        following = lines[number + 1] if number + 1 < len(lines) else []
        below = [page.words[index] for index in following]
        if not below or _breaks_between(here, below, len(passage)):
            yield _span(page, passage)
            passage = []


def boxes_of(page: Page, span: Span) -> tuple[Box, ...]:
    """One box per line that the passage touches."""
    touched = [page.words[index] for index in span.words]
    return tuple(_around([word.box for word in line]) for _, line in groupby(touched, _line_of))


def _line_of(word: Word) -> int:
    return word.line


def _ends_sentence(text: str, following: str) -> bool:
    return (
        bool(_SENTENCE_END.search(text))
        and not _ABBREVIATION.match(text)
        and not following[:1].islower()
    )


def _breaks_between(here: Sequence[Word], below: Sequence[Word], length: int) -> bool:
    """Whether a passage of this length ends between two lines."""
    if here[-1].text.endswith(":") and length < LONGEST_PASSAGE:
        return False
    if _ends_sentence(here[-1].text, below[0].text) or length >= LONGEST_PASSAGE:
        return True
    if _is_row(here) or _is_row(below) or _is_heading(here, below):
        return True
    _, top, _, bottom = _around([word.box for word in here])
    _, next_top, _, next_bottom = _around([word.box for word in below])
    # Boxes hold the ink alone: a line of small letters is lower than one of capitals.
    size_changes = not 0.6 < (next_bottom - next_top) / max(bottom - top, 1e-6) < 1.6
    far_below = next_top - bottom > 1.2 * (bottom - top)
    next_column = next_bottom < top and not below[0].text[:1].islower()
    return size_changes or far_below or next_column


def _is_heading(words: Sequence[Word], below: Sequence[Word]) -> bool:
    """Whether a line is a heading: short, above a longer line that begins anew."""
    here, there = (line[-1].box[2] - line[0].box[0] for line in (words, below))
    return here < 0.5 * there and len(words) <= 6 and not below[0].text[:1].islower()


def _is_row(words: Sequence[Word]) -> bool:
    """Whether a line is a table's row: numbers at its end, or wide gaps between its words."""
    if len(words) < 2:
        return False
    trailing = sum(bool(_NUMBER.match(word.text)) for word in words[-2:])
    height = max(word.box[3] - word.box[1] for word in words)
    gaps = [after.box[0] - before.box[2] for before, after in pairwise(words)]
    return trailing == 2 or max(gaps) > 2.5 * height


def _span(page: Page, indices: Sequence[int]) -> Span:
    return Span(tuple(indices), " ".join(page.words[index].text for index in indices))


def _around(boxes: Sequence[Box]) -> Box:
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPage:
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


def best_passages(passages: Iterable[Passage], most: int = MOST_PASSAGES) -> tuple[Passage, ...]:
    """Choose the passages that speak most of what was asked, best first.

    A second passage of a page counts less than the first of another page, and one that weighs
    much less than the best is left out. Passages that say the same are taken once.
    """
    candidates = _distinct(passages)
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


def weight_passages(weighted: WeightedPage) -> list[Passage]:
    """Every passage of a page with its weight: the sum over its words, damped by its length."""
    weights = weighted.word_weights()
    return [
        Passage(
            text=span.text,
            document=weighted.document,
            page=weighted.page.number,
            weight=float(weights[list(span.words)].sum() / np.sqrt(len(span.words) + 4)),
            boxes=boxes_of(weighted.page, span),
        )
        for span in spans(weighted.page)
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
