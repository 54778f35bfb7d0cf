"""The pages that a question is asked about, as one sequence: whole documents, or single pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, maxsim
from visar.core.vectors import Float32, Float64
from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.errors import InvalidOption, NotInIndex
from visar.ingest.stored_pages import StoredPages
from visar.results import Document, EncoderRef
from visar.retrieval.methods import DocumentPages
from visar.store import Store
from visar.store.checks import find_document
from visar.store.filters import filtered
from visar.text import counted
from visar.trace import PageId

# Corpora kept loaded: questions mostly come back to the same documents.
KEPT_CORPORA = 4
# Documents that an error names.
_NAMED = 5

T = TypeVar("T")


class Corpus:
    """Pages of some documents under one encoder, as one sequence counted from 0.

    Vectors are loaded when first needed, once, whichever thread asks.

    Parameters
    ----------
    store
        Store of the documents.
    stored_pages
        Reads their pages.
    documents
        The documents that are asked about, as the store's catalog had them.
    encoder
        Encoder whose vectors are compared.
    page_ids
        The pages; by default all pages of the documents.
    """

    def __init__(
        self,
        store: Store,
        stored_pages: StoredPages,
        documents: Sequence[Document],
        encoder: EncoderRef,
        page_ids: Sequence[PageId] | None = None,
    ) -> None:
        self.documents = tuple(documents)
        self.encoder = encoder
        self._store = store
        self._stored_pages = stored_pages
        self._known = {document.id: document for document in self.documents}
        self._whole = page_ids is None
        if page_ids is None:
            page_ids = [(d.id, number) for d in documents for number in range(1, d.pages + 1)]
        self.page_ids = tuple(page_ids)
        self._lock = threading.RLock()
        self._embeddings: Sequence[PageEmbedding] | None = None
        self._loaded: DocumentPages | None = None

    def __len__(self) -> int:
        return len(self.page_ids)

    @cached_property
    def _positions(self) -> dict[PageId, int]:
        return {page_id: position for position, page_id in enumerate(self.page_ids)}

    @property
    def pages(self) -> DocumentPages:
        """The vectors of the pages."""
        with self._lock:
            if self._loaded is None:
                if self._whole and len(self.documents) == 1:
                    # As they are stored, without a copy.
                    whole = self._store.vectors(self.documents[0].id, self.encoder)
                    self._embeddings = [whole.page(number) for _, number in self.page_ids]
                    vectors = PageVectors(whole.vectors, whole.offsets)
                else:
                    vectors = PageVectors([self.vectors(n) for n in range(len(self))])
                self._loaded = DocumentPages(vectors)
            return self._loaded

    @property
    def invalid_pages(self) -> int:
        """The number of pages of the documents that the encoder could not encode."""
        return sum(document.count_invalid(self.encoder.name) for document in self.documents)

    def only(self, page_ids: Sequence[PageId]) -> Corpus:
        """Return these pages of the same documents as a corpus; itself if they are all.

        Vectors that are loaded and checked are neither loaded nor checked again.
        """
        if self.page_ids == tuple(page_ids):
            return self
        chosen = Corpus(self._store, self._stored_pages, self.documents, self.encoder, page_ids)
        with self._lock:
            if self._embeddings is None or not self._positions.keys() >= set(page_ids):
                return chosen
            positions = [self._positions[page_id] for page_id in page_ids]
            chosen._embeddings = [self._embeddings[position] for position in positions]
            if self._loaded is not None:
                chosen._loaded = DocumentPages(self._loaded.vectors.only(positions))
        return chosen

    def remaining(self) -> Corpus:
        """Return the corpus without the documents that were removed or replaced since.

        Raises NotInIndex if none remains.
        """
        present = {(one.id, one.added) for one in self._store.documents() if one.has(self.encoder)}
        documents = [one for one in self.documents if (one.id, one.added) in present]
        if not documents:
            names = ", ".join(one.name for one in self.documents[:_NAMED])
            more = " and others" if len(self.documents) > _NAMED else ""
            raise NotInIndex(f"Removed from the index meanwhile: {names}{more}.")
        if self._whole:
            return Corpus(self._store, self._stored_pages, documents, self.encoder)
        ids = {one.id for one in documents}
        page_ids = [page_id for page_id in self.page_ids if page_id[0] in ids]
        return Corpus(self._store, self._stored_pages, documents, self.encoder, page_ids)

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
        """Read pages, or all, with words and blocks, with one request to the store per document."""
        page_ids = self.page_ids
        if positions is not None:
            page_ids = tuple(self.page_ids[position] for position in positions)
        numbers: dict[str, list[int]] = {}
        for document, number in page_ids:
            numbers.setdefault(document, []).append(number)
        found = {
            (document, page.number): page
            for document in numbers
            for page in self._stored_pages.read(self._known[document], numbers[document])
        }
        return [found[page_id] for page_id in page_ids]

    def _embedding(self, position: int) -> PageEmbedding:
        with self._lock:
            if self._embeddings is None:
                self._embeddings = self._store.embeddings(self.page_ids, self.encoder)
            return self._embeddings[position]


def read_remaining(corpus: Corpus, read: Callable[[Corpus], T]) -> T:
    """Call a function with a corpus, and again without documents that are removed meanwhile.

    Raises NotInIndex if no document remains.
    """
    while True:
        try:
            return read(corpus)
        except NotInIndex:
            remaining = corpus.remaining()
            if len(remaining.documents) == len(corpus.documents):
                raise
            corpus = remaining


def choose_documents(
    catalog: Sequence[Document],
    location: str,
    *,
    documents: Sequence[str] | None = None,
    collection: str | None = None,
    where: str | None = None,
) -> list[Document]:
    """Return the documents of a catalog with these ids or names, or all, that match.

    Raises
    ------
    NotInIndex
        If there are none.
    InvalidOption
        If ``documents`` is empty, or the filter cannot be read.
    """
    asked = list(catalog)
    if documents is not None:
        if not documents:
            raise InvalidOption("No documents were named: name one, or leave documents out.")
        known = {one.id: one for one in catalog}
        named = [find_document(known, document, location) for document in documents]
        asked = list({one.id: one for one in named}.values())
    if collection is not None:
        asked = [one for one in asked if collection in one.collections]
    chosen = filtered(asked, where)
    if chosen:
        return chosen
    collections = sorted({name for one in catalog for name in one.collections})
    if collection is not None and collection not in collections:
        there = ", ".join(collections) or "none"
        raise NotInIndex(f"There is no collection {collection!r}. Those there are: {there}.")
    if where is not None and asked:
        raise NotInIndex(f"None of {counted(len(asked), 'document')} matches the filter {where!r}.")
    if collection is not None:
        raise NotInIndex(f"None of these documents is in the collection {collection!r}.")
    raise NotInIndex(f"The index {location} is empty: add a document first.")


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
        names = ", ".join(document.name for document in others[:_NAMED])
        raise NotInIndex(
            f"No vectors of {encoder} in the index for {names}"
            f"{' and others' if len(others) > _NAMED else ''}: add the files again with that "
            f"encoder (visar add FILE --encoder {encoder.name})."
        )
    return able, others


class CorpusCache:
    """The corpora asked about last. Safe for threads."""

    def __init__(self, store: Store, stored_pages: StoredPages, size: int = KEPT_CORPORA) -> None:
        self._store = store
        self._stored_pages = stored_pages
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Corpus] = OrderedDict()

    def get(self, documents: Sequence[Document], encoder: EncoderRef) -> Corpus:
        """Return the corpus of these documents as they are now."""
        key = tuple((known.id, known.added, known.encoders) for known in documents), encoder
        with self._lock:
            corpus = self._kept.pop(key, None)
            if corpus is None:
                corpus = Corpus(self._store, self._stored_pages, documents, encoder)
            self._kept[key] = corpus
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return corpus

    def clear(self) -> None:
        """Drop all corpora and their memory."""
        with self._lock:
            self._kept.clear()
