"""From a question to the pages it needs, over one document or several."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, Selection, select
from visar.core.baselines import largest_gap, score_cluster, top_k
from visar.documents.page import Page
from visar.encoders.protocol import Encoder
from visar.errors import InvalidOption
from visar.results import Method, PageHit, Passage, SearchResult, Strength
from visar.retrieval.passages import WeighedPage, weigh_passages
from visar.store import DocumentVectors, EncoderRef, Store, StoredDocument

# What fixed top-k retrieves unless told otherwise.
USUAL_K = 5
# Below this share of what an encoder calls a weak match, there is none: docs/embedded-encoder.md
# says how many questions that is right and wrong for.
NO_MATCH = 5 / 6


@dataclass(frozen=True)
class Library:
    """The documents searched, as one run of pages counted from 0."""

    store: Store
    documents: tuple[StoredDocument, ...]
    encoder: EncoderRef

    @cached_property
    def parts(self) -> list[DocumentVectors]:
        return [self.store.vectors(document.id, self.encoder) for document in self.documents]

    @cached_property
    def first_pages(self) -> NDArray[np.int64]:
        """Where in the run each document begins, then the end."""
        return np.cumsum([0, *(document.pages for document in self.documents)])

    @cached_property
    def vectors(self) -> PageVectors:
        if len(self.parts) == 1:
            return PageVectors(self.parts[0].vectors, self.parts[0].offsets)
        pages = [page for part in self.parts for page in np.split(part.vectors, part.offsets[1:-1])]
        return PageVectors(pages)

    def count_invalid(self) -> int:
        """How many pages the encoder could make nothing of."""
        return sum(document.count_invalid(self.encoder.name) for document in self.documents)

    def place(self, position: int) -> tuple[int, int]:
        """Which document a page of the run belongs to, and its number there from 1."""
        document = int(np.searchsorted(self.first_pages, position, side="right")) - 1
        return document, position - int(self.first_pages[document]) + 1

    def position(self, hit: PageHit) -> int:
        ids = [document.id for document in self.documents]
        return int(self.first_pages[ids.index(hit.document)]) + hit.page - 1

    def page(self, position: int) -> Page:
        document, number = self.place(position)
        return self.store.pages(self.documents[document].id, [number])[0]

    def patches(self, position: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The boxes and words of a page's vectors."""
        document, number = self.place(position)
        part = self.parts[document]
        rows = slice(part.offsets[number - 1], part.offsets[number])
        return part.boxes[rows], part.words[rows]


class Searcher:
    """Answers questions about one library with one encoder."""

    def __init__(self, library: Library, encoder: Encoder) -> None:
        self._library = library
        self._encoder = encoder

    @property
    def pages(self) -> PageVectors:
        """The vectors of all pages searched."""
        return self._library.vectors

    def search(
        self,
        question: str,
        *,
        method: Method = "visar",
        k: int | None = None,
        max_k: int | None = None,
        neighbors: int = 0,
    ) -> SearchResult:
        started = time.perf_counter()
        if neighbors < 0:
            raise InvalidOption(f"neighbors must be at least 0, not {neighbors}.")
        if k is not None and method != "top-k":
            raise InvalidOption(f"k goes with the method top-k; {method} decides k itself (max_k).")
        query = self._encoder.encode_query(question)
        selection = select(query, self._library.vectors, max_k=max_k)
        chosen = _choose(selection, method, k, max_k)
        hits = tuple(self._hits(selection, chosen, neighbors))
        match = float(selection.late_interaction.max() / len(query))
        return SearchResult(
            question=question,
            method=method,
            pages=hits,
            documents=self._library.documents,
            pages_searched=len(self._library.vectors),
            pages_invalid=self._library.count_invalid(),
            k=len(chosen),
            k_star=selection.k_star,
            match=match,
            strength=_strength(match, self._encoder.weak_match),
            encoder=self._library.encoder,
            seconds=time.perf_counter() - started,
            selection=selection,
        )

    def weighed(self, found: SearchResult) -> Iterator[WeighedPage]:
        """The found pages with the weights the question gave to their patches."""
        return self.weigh(found.selection, map(self._library.position, found.pages))

    def weigh(self, selection: Selection, positions: Iterable[int]) -> Iterator[WeighedPage]:
        """Pages, by their positions in the library, with the weights of a selection."""
        for position in positions:
            yield self._weighed(selection, position)

    def _hits(self, selection: Selection, chosen: list[int], neighbors: int) -> Iterator[PageHit]:
        for position in chosen:
            yield self._hit(selection, position, None)
        taken = set(chosen)
        for position in chosen:
            document, number = self._library.place(position)
            last = self._library.documents[document].pages
            for other in range(number - neighbors, number + neighbors + 1):
                beside = position + other - number
                if 1 <= other <= last and beside not in taken:
                    taken.add(beside)
                    yield self._hit(selection, beside, number)

    def _hit(self, selection: Selection, position: int, beside: int | None) -> PageHit:
        document, number = self._library.place(position)
        passage = self._snippet(selection, position)
        return PageHit(
            document=self._library.documents[document].id,
            name=self._library.documents[document].name,
            page=number,
            score=float(selection.scores[position]),
            snippet=passage.text if passage else "",
            boxes=passage.boxes if passage else (),
            beside=beside,
        )

    def _snippet(self, selection: Selection, position: int) -> Passage | None:
        passages = weigh_passages(self._weighed(selection, position))
        return max(passages, key=lambda passage: passage.weight, default=None)

    def _weighed(self, selection: Selection, position: int) -> WeighedPage:
        document, _ = self._library.place(position)
        boxes, words = self._library.patches(position)
        return WeighedPage(
            document=self._library.documents[document].id,
            page=self._library.page(position),
            vector_words=words,
            vector_boxes=boxes,
            vector_weights=selection.patch_weights[position],
        )


def _strength(match: float, weak: float) -> Strength:
    if match >= weak:
        return "good"
    return "weak" if match >= NO_MATCH * weak else "none"


def _choose(selection: Selection, method: Method, k: int | None, max_k: int | None) -> list[int]:
    late = selection.late_interaction
    if method == "visar":
        pages = selection.pages
    elif method == "top-k":
        pages = top_k(late, USUAL_K if k is None else k).pages
    elif method == "largest-gap":
        pages = largest_gap(late).pages
    else:
        pages = score_cluster(late).pages
    return [int(page) for page in pages[:max_k]]
