"""The pages that a question is asked about, as one sequence: whole documents, or single pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, maxsim
from visar.core.vectors import Float32, Float64
from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.errors import NotInIndex
from visar.results import Document, EncoderRef
from visar.retrieval.methods import DocumentPages
from visar.store import Store
from visar.store.filters import filtered
from visar.text import counted
from visar.trace import PageId

# Corpora kept loaded: questions mostly come back to the same documents.
KEPT_CORPORA = 4


class Corpus:
    """Pages of some documents under one encoder, as one sequence counted from 0.

    Vectors are loaded when first needed, once, whichever thread asks.

    Parameters
    ----------
    store
        Where the documents are.
    documents
        All that are asked about.
    encoder
        Whose vectors are compared.
    places
        The pages; by default all pages of the documents.
    """

    def __init__(
        self,
        store: Store,
        documents: Sequence[Document],
        encoder: EncoderRef,
        places: Sequence[PageId] | None = None,
    ) -> None:
        self.documents = tuple(documents)
        self.encoder = encoder
        self._store = store
        self._known = {document.id: document for document in self.documents}
        self._whole = places is None
        if places is None:
            places = [(d.id, number) for d in documents for number in range(1, d.pages + 1)]
        self.places = tuple(places)
        self._lock = threading.RLock()
        self._embeddings: Sequence[PageEmbedding] | None = None
        self._loaded: DocumentPages | None = None

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def _positions(self) -> dict[PageId, int]:
        return {place: position for position, place in enumerate(self.places)}

    @property
    def pages(self) -> DocumentPages:
        """The vectors of the pages."""
        with self._lock:
            if self._loaded is None:
                if self._whole and len(self.documents) == 1:
                    # As they are stored, without a copy.
                    whole = self._store.vectors(self.documents[0].id, self.encoder)
                    self._embeddings = [whole.page(number) for _, number in self.places]
                    vectors = PageVectors(whole.vectors, whole.offsets)
                else:
                    vectors = PageVectors([self.vectors(n) for n in range(len(self))])
                self._loaded = DocumentPages(vectors)
            return self._loaded

    @property
    def invalid_pages(self) -> int:
        """The number of pages of the documents that the encoder could not encode."""
        return sum(document.count_invalid(self.encoder.name) for document in self.documents)

    def only(self, places: Sequence[PageId]) -> Corpus:
        """Return these pages of the same documents as a corpus; itself if they are all."""
        if self.places == tuple(places):
            return self
        chosen = Corpus(self._store, self.documents, self.encoder, places)
        if self._embeddings is not None and all(place in self._positions for place in places):
            # What is loaded is not loaded again; what the other loads is not kept here.
            chosen._embeddings = [self._embeddings[self._positions[place]] for place in places]
        return chosen

    def late_interaction(self, query: Float32) -> Float64:
        """Return the MaxSim score of each page of whole documents, read one after the other.

        No more than one document is in memory at a time, whatever the size of the library.
        """
        scores = np.empty(len(self))
        first = 0
        for document in self.documents:
            part = self._store.vectors(document.id, self.encoder)
            last = first + document.pages
            scores[first:last] = maxsim(query, PageVectors(part.vectors, part.offsets))
            first = last
        return scores

    def document(self, document: str) -> Document:
        """Return one of the documents by its id."""
        return self._known[document]

    def find(self, document: str, number: int) -> int | None:
        """Return the position of a page, or None if it is not among the pages."""
        return self._positions.get((document, number))

    def page(self, document: str, number: int) -> Corpus:
        """Return a single page, by its document's id and its number from 1.

        Raises NotInIndex if it is not among the pages.
        """
        if self.find(document, number) is None:
            raise NotInIndex(f"Page {number} of {document} was not searched.")
        return self.only([(document, number)])

    def patches(self, position: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the boxes and word indices of a page's vectors."""
        page = self._embedding(position)
        return page.boxes, page.words

    def vectors(self, position: int) -> NDArray[np.float16]:
        """Return the vectors of a page."""
        return self._embedding(position).vectors

    def read(self, positions: Sequence[int] | None = None) -> list[Page]:
        """Read pages, or all, with their words, with one request to the store per document."""
        places = self.places if positions is None else [self.places[at] for at in positions]
        wanted: dict[str, list[int]] = {}
        for document, number in places:
            wanted.setdefault(document, []).append(number)
        found = {
            (document, page.number): page
            for document, numbers in wanted.items()
            for page in self._store.pages(document, numbers)
        }
        return [found[place] for place in places]

    def _embedding(self, position: int) -> PageEmbedding:
        with self._lock:
            if self._embeddings is None:
                self._embeddings = self._store.embeddings(self.places, self.encoder)
            return self._embeddings[position]


def choose_documents(
    store: Store,
    documents: Sequence[str] | None,
    collection: str | None,
    where: str | None,
) -> list[Document]:
    """Return the documents of these ids or names, or all, that are of a collection and match.

    Raises
    ------
    NotInIndex
        If there are none.
    InvalidOption
        If the filter cannot be read.
    """
    if documents is None:
        asked = store.documents(collection=collection)
    else:
        named = {one.id: one for one in map(store.get, documents)}.values()
        asked = [one for one in named if collection is None or collection in one.collections]
    chosen = filtered(asked, where)
    if chosen:
        return chosen
    if collection is not None and collection not in store.collections():
        there = ", ".join(store.collections()) or "none"
        raise NotInIndex(f"There is no collection {collection!r}. Those there are: {there}.")
    if where is not None and asked:
        raise NotInIndex(f"None of {counted(len(asked), 'document')} matches the filter {where!r}.")
    if collection is not None:
        raise NotInIndex(f"None of these documents is in the collection {collection!r}.")
    raise NotInIndex(f"The index {store.location} is empty: add a document first.")


def split_by_encoder(
    documents: Sequence[Document], encoder: EncoderRef
) -> tuple[list[Document], list[Document]]:
    """Return the documents that have vectors of an encoder, and those that have none.

    Raises
    ------
    NotInIndex
        If none has.
    """
    able = [document for document in documents if document.has(encoder)]
    others = [document for document in documents if not document.has(encoder)]
    if not able:
        names = ", ".join(document.name for document in others[:5])
        raise NotInIndex(
            f"No vectors of {encoder} in the index for {names}"
            f"{' and others' if len(others) > 5 else ''}: add the files again with that "
            f"encoder (visar add FILE --encoder {encoder.name})."
        )
    return able, others


class CorpusCache:
    """The corpora asked about last. Safe for threads."""

    def __init__(self, store: Store, size: int = KEPT_CORPORA) -> None:
        self._store = store
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Corpus] = OrderedDict()

    def get(self, documents: Sequence[Document], encoder: EncoderRef) -> Corpus:
        """Return the corpus of these documents as they are now."""
        key = tuple((known.id, known.added, known.encoders) for known in documents), encoder
        with self._lock:
            corpus = self._kept.pop(key, None)
            if corpus is None:
                corpus = Corpus(self._store, documents, encoder)
            self._kept[key] = corpus
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return corpus

    def clear(self) -> None:
        """Drop all corpora and their memory."""
        with self._lock:
            self._kept.clear()
