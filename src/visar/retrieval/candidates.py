"""First stage of a search in a large library: candidates for an exact comparison.

Each page has small summaries: a few mean vectors, and one bit per dimension of each vector (its
sign after a random rotation). A question is compared with the means of all pages, then with the
bits of the best of them, then with the vectors of the remaining few. ``docs/documents.md`` has
measurements.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float32, Float64, Integers, decode
from visar.errors import InvalidOption, VisarError
from visar.files import write_whole
from visar.results import Document, EncoderRef
from visar.retrieval.corpus import Corpus
from visar.store import DocumentVectors, Store
from visar.store.database import SUMMARIES
from visar.store.summaries import Summaries, sign_bits, summarize_pages, view
from visar.text import clean_line
from visar.trace import PageId

CODED = 1000
CODED_ROOT = 12
"""Number of pages whose bits are compared with the question's: at least `CODED`, and `CODED_ROOT`
times the square root of the number of pages. The rank by means of the truly best pages grows with
this root."""
ENGINE_VARIABLE = "VISAR_CANDIDATES"
"""Environment variable with the address of another engine: a Qdrant cluster (``http://…``), or a
folder or address of LanceDB tables. An engine can only be used with one index."""
COMPARED = 4
"""Number of pages to compare exactly per page of the result."""

MAX_FLOAT32_BYTES = 512 * 2**20
"""Maximum memory for means in float32, which are twice as fast to compare as float16."""

# Batch sizes that keep the products small.
_PAGES_PER_BATCH = 256
_ROWS_PER_BATCH = 8192
# Number of summaries that are read in parallel from object storage, which has a high latency.
_PARALLEL_READS = 8

Key: TypeAlias = str
"""Identifier of a version of a document: its id and the time it was added."""


def document_key(document: Document) -> Key:
    """Return the key of a document; adding it again, perhaps with other pages, changes it."""
    return f"{document.id}-{int(document.added.timestamp() * 1e6)}"


class Candidate(NamedTuple):
    """A page that can be among the best."""

    document: str
    page: int
    """Page number, from 1."""
    score: float
    """Estimate of late interaction; only comparable within one question."""


class CandidateIndex(Protocol):
    """An index that finds pages by the vectors of one encoder, with estimated scores."""

    def known(self) -> AbstractSet[Key]:
        """Return the keys of all documents in the index."""

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Add a document. ``vectors`` reads its vectors and is only called if necessary."""

    def remove(self, documents: Iterable[Key]) -> None:
        """Remove documents; unknown ones are ignored."""

    def candidates(self, query: Float32, n: int, documents: Sequence[Document]) -> list[Candidate]:
        """Return at most ``n`` pages of these documents, best first.

        ``query`` has the (m, D) unit vectors of the question. Documents that aren't known are
        ignored.
        """


class Candidates:
    """Candidate indexes of a store's documents, by encoder. Thread-safe.

    A document is summarized, or its summary read from the store, when it is first searched
    together with others. Summaries are stored in the folder of the index, or in the user's cache
    folder if the index is remote.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._indexes: dict[EncoderRef, CandidateIndex] = {}

    def find(self, corpus: Corpus, query: Float32, n: int) -> list[PageId]:
        """Return candidates for the best ``n`` pages of a corpus.

        Documents added since the last `prepare` are not searched.
        """
        index = self._indexes.get(corpus.encoder) or self.prepare(corpus)
        found = index.candidates(query, COMPARED * n, corpus.documents)
        # Two processes that add a document to an engine at the same time duplicate its pages.
        return list(dict.fromkeys((one.document, one.page) for one in found))

    def read_catalog(self) -> list[Document]:
        """Return all documents of the store, and remove deleted ones from the indexes."""
        # Read before the catalog, so that known documents missing from it were removed. Without the
        # lock, since it is held while a large library is prepared.
        known = [(index, index.known()) for index in list(self._indexes.values())]
        documents = self._store.documents()
        if any(keys for _, keys in known):
            present = {document_key(document) for document in documents}
            for index, keys in known:
                if removed := keys - present:
                    index.remove(removed)
        return documents

    def prepare(self, corpus: Corpus) -> CandidateIndex:
        """Add the new documents of a corpus to the index of its encoder, and return the index."""
        encoder = corpus.encoder
        with self._lock:
            if encoder not in self._indexes:
                self._indexes[encoder] = self._open(encoder)
            index = self._indexes[encoder]
            known = index.known()
            new = [one for one in corpus.documents if document_key(one) not in known]
            remote = "://" in self._store.location and isinstance(index, PageSummaries)
            with ThreadPoolExecutor(_PARALLEL_READS if remote else 1) as pool:
                vectors = (partial(self._store.vectors, one.id, encoder) for one in new)
                list(pool.map(index.add, new, vectors))
            return index

    def _open(self, encoder: EncoderRef) -> CandidateIndex:
        """Open the engine in `ENGINE_VARIABLE`, or the local summaries."""
        engine = os.environ.get(ENGINE_VARIABLE)
        if engine:
            from visar.retrieval.engines import LanceCandidates, QdrantCandidates

            try:
                if engine.startswith(("http://", "https://")):
                    return QdrantCandidates.open(engine, encoder)
                return LanceCandidates(engine, encoder, dict(self._store.storage_options))
            except VisarError:
                raise
            except Exception as error:  # the library of an engine can raise anything
                reason = clean_line(str(error).strip().partition("\n")[0])
                raise InvalidOption(f"Can't open {ENGINE_VARIABLE}={engine}: {reason}") from error
        summaries = PageSummaries(
            _folder(self._store.location, encoder),
            encoder.dimension,
            lambda document: self._store.summaries(document, encoder),
        )
        summaries.sweep({document_key(document) for document in self._store.documents()})
        return summaries

    def clear(self) -> None:
        with self._lock:
            self._indexes.clear()


def _folder(location: str, encoder: EncoderRef) -> Path:
    name = hashlib.sha256(str(encoder).encode()).hexdigest()[:16]
    if "://" not in location:
        return Path(location) / SUMMARIES / name
    from platformdirs import user_cache_path

    digest = hashlib.sha256(location.encode()).hexdigest()[:16]
    return user_cache_path("visar") / SUMMARIES / digest / name


@dataclass(frozen=True, slots=True, eq=False)
class _StackedMeans:
    """Means of several documents in one array, for a single matrix product."""

    documents: dict[Key, slice]
    """Range of pages of each document."""
    starts: Integers
    """First row of each page, and the number of rows."""
    means: NDArray[Any]
    """Means in float32, or in float16 if there are many."""


class PageSummaries(CandidateIndex):
    """Candidate index with mean vectors and bits of pages; it needs no training.

    If the folder of the summaries isn't writable, they are only kept in memory. ``stored`` returns
    the summaries in the store for a document id, or None.
    """

    def __init__(
        self,
        folder: Path,
        dimension: int,
        stored: Callable[[str], bytes | None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._dimension = dimension
        self._stored = stored
        self._lock = threading.Lock()
        self._summaries: dict[Key, Summaries] = {}
        self._stacked: _StackedMeans | None = None

    def known(self) -> AbstractSet[Key]:
        with self._lock:
            return set(self._summaries)

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Add a document; vectors are only read if folder and store have no summaries of it."""
        key = document_key(document)
        path = self._folder / key
        summary = self._read(path, document)
        if summary is None:
            content = self._stored(document.id)
            if content is None:
                whole = vectors()
                content = summarize_pages(np.split(whole.vectors, whole.offsets[1:-1]))
            with contextlib.suppress(OSError):
                write_whole(path, content)
            # A mapped file only loads the bits that are compared.
            summary = self._read(path, document) or view(
                np.frombuffer(content, np.uint8), document.pages, self._dimension
            )
        with self._lock:
            self._summaries[key] = summary
            self._stacked = None

    def remove(self, documents: Iterable[Key]) -> None:
        """Remove documents and delete their summaries."""
        with self._lock:
            for key in documents:
                self._summaries.pop(key, None)
                with contextlib.suppress(OSError):
                    (self._folder / key).unlink(missing_ok=True)
            self._stacked = None

    def sweep(self, present: AbstractSet[Key]) -> None:
        """Delete the summaries of documents that are not present."""
        with contextlib.suppress(OSError):
            self.remove(path.name for path in self._folder.iterdir() if path.name not in present)

    def _read(self, path: Path, document: Document) -> Summaries | None:
        """Map a file of summaries; None if it is missing or damaged."""
        try:
            content = np.memmap(path, np.uint8, "r").view(np.ndarray)
            return view(content, document.pages, self._dimension)
        except (OSError, ValueError):
            return None

    def candidates(self, query: Float32, n: int, documents: Sequence[Document]) -> list[Candidate]:
        """Return the best pages by bits among the best by means."""
        with self._lock:
            if not self._summaries:
                return []
            if self._stacked is None:
                self._stacked = _stack(self._summaries)
            stacked = self._stacked
            names = {document_key(document): document.id for document in documents}
            ordered = sorted(
                names.keys() & self._summaries.keys(), key=lambda key: stacked.documents[key].start
            )
            summaries = [self._summaries[key] for key in ordered]
        edges = np.cumsum([0, *(len(one.numbers) for one in summaries)])
        positions = np.arange(edges[-1])
        coded = max(n, CODED, int(CODED_ROOT * len(positions) ** 0.5))
        if len(positions) > coded:
            runs = _runs([stacked.documents[key] for key in ordered])
            scores = np.concatenate([_mean_scores(query, stacked, pages) for pages in runs])
            positions = np.sort(_largest(scores, coded))
        if not len(positions):
            return []
        owners = (np.searchsorted(edges, positions, side="right") - 1).tolist()
        within = (positions - edges[owners]).tolist()
        scores = _code_scores(
            query, [(summaries[owner], page) for owner, page in zip(owners, within, strict=True)]
        )
        return [
            Candidate(
                names[ordered[owners[best]]],
                int(summaries[owners[best]].numbers[within[best]]),
                float(scores[best]),
            )
            for best in _largest(scores, n).tolist()
        ]


def _largest(scores: Float64, n: int) -> Integers:
    """Return the positions of the n largest scores in descending order, ties by position."""
    return np.argsort(-scores, kind="stable")[:n]


def _stack(summaries: dict[Key, Summaries]) -> _StackedMeans:
    """Return the means of all documents in one array, in the order of their keys."""
    summaries = dict(sorted(summaries.items()))
    documents, starts, pages, rows = {}, [np.zeros(0, np.int64)], 0, 0
    for key, one in summaries.items():
        documents[key] = slice(pages, pages + len(one.numbers))
        starts.append(one.mean_starts[:-1] + rows)
        pages += len(one.numbers)
        rows += len(one.means)
    numbers = sum(one.means.size for one in summaries.values())
    kind = np.float32 if 4 * numbers <= MAX_FLOAT32_BYTES else np.float16
    means = np.concatenate([one.means for one in summaries.values()], dtype=kind)
    return _StackedMeans(documents, np.append(np.concatenate(starts), rows), means)


def _runs(documents: Sequence[slice]) -> Iterator[slice]:
    """Yield the pages of documents as few slices, none longer than a batch."""
    joined: list[slice] = []
    for pages in documents:
        if joined and joined[-1].stop == pages.start:
            joined[-1] = slice(joined[-1].start, pages.stop)
        else:
            joined.append(pages)
    for pages in joined:
        for first in range(pages.start, pages.stop, _PAGES_PER_BATCH):
            yield slice(first, min(first + _PAGES_PER_BATCH, pages.stop))


def _mean_scores(query: Float32, stacked: _StackedMeans, pages: slice) -> Float64:
    """Return the late interaction of the question with the means of pages."""
    first, last = stacked.starts[pages.start], stacked.starts[pages.stop]
    stored = stacked.means[first:last]
    means: Float32 = stored if stored.dtype == np.float32 else np.empty(stored.shape, np.float32)
    if means is not stored:
        decode(stored, means)
    products = query @ means.T
    starts = stacked.starts[pages] - first
    return np.asarray(np.maximum.reduceat(products, starts, axis=1).sum(axis=0, dtype=np.float64))


def _code_scores(query: Float32, pages: Sequence[tuple[Summaries, int]]) -> Float64:
    """Return the late interaction of bits: the number of equal bits minus the unequal ones."""
    query_bits = sign_bits(query)
    scores: list[Float64] = []
    waiting: list[NDArray[np.uint64]] = []
    rows = 0
    for position, (one, page) in enumerate(pages):
        waiting.append(one.codes[one.code_starts[page] : one.code_starts[page + 1]])
        rows += len(waiting[-1])
        if rows >= _ROWS_PER_BATCH or position == len(pages) - 1:
            starts = np.cumsum([0, *(len(codes) for codes in waiting[:-1])])
            # Going word by word keeps the counts of a batch in the CPU cache.
            words = np.concatenate(waiting).T
            unequal = np.zeros((len(query_bits), rows), np.uint16)
            for word, each in zip(words, query_bits.T, strict=True):
                unequal += np.bitwise_count(each[:, None] ^ np.ascontiguousarray(word))
            least = np.minimum.reduceat(unequal, starts, axis=1)
            scores.append(query.shape[1] - 2 * least.mean(axis=0, dtype=np.float64))
            waiting, rows = [], 0
    return np.concatenate(scores)
