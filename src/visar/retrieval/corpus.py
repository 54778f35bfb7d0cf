"""Corpora: the pages that a question searches, as one sequence; and caches of recent searches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, maxsim
from visar.core.vectors import Float32, Float64, find_invalid
from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding
from visar.errors import InvalidOption, NotInIndex, StoreError
from visar.ingest.sources import StoredPages
from visar.query import unknown_collection
from visar.results import Document, EncoderRef, Explanation, SearchResult
from visar.retrieval.methods import DocumentPages
from visar.store import Store
from visar.store.checks import damage_error, find_document
from visar.store.filters import filter_documents
from visar.text import counted
from visar.trace import PageId

# Corpora to keep loaded: most questions are about the same documents as previous ones.
MAX_CORPORA = 4
# Searches to keep, so that several views of one question share a search.
MAX_SEARCHES = 8
# Maximum number of documents in an error message.
_MAX_NAMES = 5

T = TypeVar("T")


class Corpus:
    """Pages of documents with the vectors of one encoder; positions start at 0.

    Documents are as in the store's catalog. ``page_ids`` are the pages to search, by default all of
    them. Vectors are loaded on first use, and only once. Thread-safe.
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
        """Vectors of the pages."""
        with self._lock:
            if self._loaded is None:
                if self._whole and len(self.documents) == 1:
                    # Use the stored array without a copy.
                    whole = self._store.vectors(self.documents[0].id, self.encoder)
                    self._embeddings = [whole.page(number) for _, number in self.page_ids]
                    vectors = PageVectors(whole.vectors, whole.offsets)
                else:
                    vectors = PageVectors([self.vectors(n) for n in range(len(self))])
                self._loaded = DocumentPages(vectors)
            return self._loaded

    @property
    def invalid_pages(self) -> int:
        """Number of pages of the documents that couldn't be read or encoded."""
        return sum(len(document.failed_pages(self.encoder.name)) for document in self.documents)

    def find_damage(self) -> StoreError | None:
        """Return the error that names the first page with a vector that can't be compared."""
        for position, (document, number) in enumerate(self.page_ids):
            if find_invalid(self.vectors(position)) is not None:
                what = f"page {number} has a vector that is not finite or not of length 1"
                return damage_error(self._store.location, self.document(document), what)
        return None

    def only(self, page_ids: Sequence[PageId]) -> Corpus:
        """Return a corpus with only these pages; the same corpus if they are all its pages.

        Vectors that are already loaded are reused.
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
                chosen._loaded = DocumentPages(self._loaded.vectors.subset(positions))
        return chosen

    def remaining(self) -> Corpus:
        """Return the corpus without documents that have been removed or replaced.

        Raises NotInIndex if no document remains.
        """
        present = {(one.id, one.added) for one in self._store.documents() if one.has(self.encoder)}
        documents = [one for one in self.documents if (one.id, one.added) in present]
        if not documents:
            names = ", ".join(one.name for one in self.documents[:_MAX_NAMES])
            more = " and others" if len(self.documents) > _MAX_NAMES else ""
            raise NotInIndex(f"Removed from the index during the search: {names}{more}.")
        if self._whole:
            return Corpus(self._store, self._stored_pages, documents, self.encoder)
        ids = {one.id for one in documents}
        page_ids = [page_id for page_id in self.page_ids if page_id[0] in ids]
        return Corpus(self._store, self._stored_pages, documents, self.encoder, page_ids)

    def late_interaction(self, query: Float32) -> Float64:
        """Return the MaxSim score of each page of whole documents.

        Only one document at a time is in memory.
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
        return self._known[document]

    def find(self, document: str, number: int) -> int | None:
        """Return the position of a page, or None if it isn't in the corpus."""
        return self._positions.get((document, number))

    def page(self, document: str, number: int) -> Corpus:
        """Return a corpus with a single page; page numbers start at 1.

        Raises NotInIndex if the page isn't in the corpus.
        """
        if self.find(document, number) is None:
            raise NotInIndex(f"Page {number} of {document} wasn't searched.")
        return self.only([(document, number)])

    def patches(self, position: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        page = self._embedding(position)
        return page.boxes, page.words

    def vectors(self, position: int) -> NDArray[np.float16]:
        return self._embedding(position).vectors

    def read(self, positions: Sequence[int] | None = None) -> list[Page]:
        """Return pages with words and blocks, by default all pages."""
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
    """Call a function with a corpus, retrying without documents that are removed meanwhile.

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
    """Return the documents of a catalog that match ids or names, a collection and a filter.

    Raises NotInIndex if no document matches, and InvalidOption if ``documents`` is empty or the
    filter is invalid.
    """
    candidates = list(catalog)
    if documents is not None:
        if not documents:
            raise InvalidOption("The list of documents is empty. Name at least one, or omit it.")
        known = {one.id: one for one in catalog}
        named = [find_document(known, document, location) for document in documents]
        candidates = list({one.id: one for one in named}.values())
    if collection is not None:
        candidates = [one for one in candidates if collection in one.collections]
    chosen = filter_documents(candidates, where)
    if chosen:
        return chosen
    collections = sorted({name for one in catalog for name in one.collections})
    if collection is not None and collection not in collections:
        raise unknown_collection(collection, collections)
    if where is not None and candidates:
        documents_searched = counted(len(candidates), "document")
        raise NotInIndex(f"None of {documents_searched} matches the filter {where!r}.")
    if collection is not None:
        raise NotInIndex(f"None of these documents is in the collection {collection!r}.")
    raise NotInIndex(f"The index {location} is empty: add a document first.")


def split_by_encoder(
    documents: Sequence[Document], encoder: EncoderRef
) -> tuple[list[Document], list[Document]]:
    """Return the documents with vectors of an encoder, and those without.

    Raises NotInIndex if no document has vectors of the encoder.
    """
    encoded = [document for document in documents if document.has(encoder)]
    others = [document for document in documents if not document.has(encoder)]
    if not encoded:
        names = ", ".join(document.name for document in others[:_MAX_NAMES])
        raise NotInIndex(
            f"The index has no vectors of {encoder} for {names}"
            f"{' and others' if len(others) > _MAX_NAMES else ''}. Add the files again: "
            f"visar add FILE --encoder {encoder.name}"
        )
    return encoded, others


class CorpusCache:
    """Cache of recently used corpora. Thread-safe."""

    def __init__(self, store: Store, stored_pages: StoredPages, size: int = MAX_CORPORA) -> None:
        self._store = store
        self._stored_pages = stored_pages
        self._size = size
        self._lock = threading.Lock()
        self._corpora: OrderedDict[Any, Corpus] = OrderedDict()

    def get(self, documents: Sequence[Document], encoder: EncoderRef) -> Corpus:
        """Return the corpus of these versions of documents."""
        key = tuple((one.id, one.added, one.encoders) for one in documents), encoder
        with self._lock:
            corpus = self._corpora.pop(key, None)
            if corpus is None:
                corpus = Corpus(self._store, self._stored_pages, documents, encoder)
            self._corpora[key] = corpus
            while len(self._corpora) > self._size:
                self._corpora.popitem(last=False)
            return corpus

    def clear(self) -> None:
        with self._lock:
            self._corpora.clear()


@dataclass(slots=True)
class _Search:
    """A result with its explanation; the lock is held while they are computed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: SearchResult | None = None
    explanation: Explanation | None = None


class RecentSearches:
    """Cache of search results and their explanations. Keys must cover all inputs. Thread-safe."""

    def __init__(self, size: int = MAX_SEARCHES) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Search] = OrderedDict()

    def find(self, key: Hashable, search: Callable[[], SearchResult]) -> SearchResult:
        """Return the result for a key; concurrent requests for the same key share one search."""
        with self._lock:
            entry = self._entries.setdefault(key, _Search())
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.found is None:
                entry.found = search()
            return entry.found

    def explain(self, found: SearchResult, explain: Callable[[], Explanation]) -> Explanation:
        """Return the explanation of a result, computed only once while the result is cached."""
        with self._lock:
            known = [entry for entry in self._entries.values() if entry.found is found]
        if not known:
            return explain()
        with known[0].lock:
            if known[0].explanation is None:
                known[0].explanation = explain()
            return known[0].explanation

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
