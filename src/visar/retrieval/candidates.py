"""The first stage of a question over a library: which pages are worth an exact comparison.

Of every page small summaries are kept: a few mean vectors, and one bit a dimension of each vector
(its sign after a random rotation). A question meets the means of all pages, then the bits of the
best of these, then the vectors of the few that are left. ``docs/library.md`` has what it finds.
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
from visar.store.summaries import Summaries, sign_bits, summarise, view
from visar.text import clean_line
from visar.trace import PageId

CODED = 1000
CODED_ROOT = 12
"""Pages whose bits are compared with those of the question, the best by their means: so many, or
so many times the root of the number of pages. The rank by means of pages that belong to the best
grows with the root of a library's size."""
ENGINE = "VISAR_CANDIDATES"
"""The environment variable that names another engine: a Qdrant cluster (``http://…``), or a folder
or address of LanceDB tables. It serves one index, and knows no other."""
COMPARED = 4
"""Pages compared exactly for each one that is wanted, the best by their bits."""

DECODED = 512 * 2**20
"""Bytes of means kept in float32, which are compared twice as fast; more are kept in float16."""

# Pages and vectors that are compared at a time: their products stay small.
_PAGES_AT_A_TIME = 256
_ROWS_AT_A_TIME = 8192
# Documents whose summaries are read at once from object storage, which answers late.
_READ_AT_ONCE = 8

Key: TypeAlias = str
"""A state of a document: its id, and when it was added."""


def document_key(document: Document) -> Key:
    """Return what tells a document from the same one added again, with other pages."""
    return f"{document.id}-{int(document.added.timestamp() * 1e6)}"


class Candidate(NamedTuple):
    """A page that may be among the best."""

    document: str
    page: int
    """1 for the first."""
    score: float
    """Comparable within one question; an estimate of late interaction."""


class CandidateIndex(Protocol):
    """Finds pages by the vectors of one encoder. Its scores are estimates: callers rescore."""

    def known(self) -> AbstractSet[Key]:
        """Return the documents that were added, by `document_key`."""
        ...

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Take a document in. ``vectors`` reads all its vectors, if they are needed."""
        ...

    def remove(self, documents: Iterable[Key]) -> None:
        """Forget documents; those that are not known are left out."""
        ...

    def candidates(
        self, query: Float32, question: str, n: int, documents: Sequence[Document]
    ) -> list[Candidate]:
        """Return at most ``n`` pages of known documents, best first.

        Parameters
        ----------
        query
            (m, D) unit vectors of the question.
        question
            The same in words, for an index that has words.
        n
            How many pages are wanted.
        documents
            Whose pages are wanted.
        """
        ...


class Candidates:
    """The candidates of a store's documents, by encoder. Safe for threads.

    Summaries of a document are made, or read from the store, when it is first asked about together
    with others, and kept beside the index, or for an index elsewhere in the user's cache.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._indexes: dict[EncoderRef, CandidateIndex] = {}

    def find(self, corpus: Corpus, query: Float32, question: str, n: int) -> list[PageId]:
        """Return the pages of a corpus that an exact comparison should choose ``n`` of.

        Documents that are new since `prepare` was called are not among them.
        """
        index = self._indexes.get(corpus.encoder) or self.prepare(corpus)
        found = index.candidates(query, question, COMPARED * n, corpus.documents)
        # Once, also where two processes have added a document to an engine at the same moment.
        return list(dict.fromkeys((one.document, one.page) for one in found))

    def read_catalog(self) -> list[Document]:
        """Return all documents of the store, and forget those that were removed from it."""
        # Before the catalog is read: one that is known and not in it was removed. Without the lock,
        # which is held while a large library is prepared.
        known = [(index, index.known()) for index in list(self._indexes.values())]
        documents = self._store.documents()
        if any(keys for _, keys in known):
            present = {document_key(document) for document in documents}
            for index, keys in known:
                if removed := keys - present:
                    index.remove(removed)
        return documents

    def prepare(self, corpus: Corpus) -> CandidateIndex:
        """Take in the documents of a corpus that are new."""
        encoder = corpus.encoder
        with self._lock:
            if encoder not in self._indexes:
                self._indexes[encoder] = self._open(encoder)
            index = self._indexes[encoder]
            known = index.known()
            new = [one for one in corpus.documents if document_key(one) not in known]
            remote = "://" in self._store.location and isinstance(index, PageSummaries)
            with ThreadPoolExecutor(_READ_AT_ONCE if remote else 1) as pool:
                vectors = (partial(self._store.vectors, one.id, encoder) for one in new)
                list(pool.map(index.add, new, vectors))
            return index

    def _open(self, encoder: EncoderRef) -> CandidateIndex:
        """Open the engine that `ENGINE` names, or the summaries that are kept here."""
        engine = os.environ.get(ENGINE)
        if engine:
            from visar.retrieval.engines import LanceCandidates, QdrantCandidates

            try:
                if engine.startswith(("http://", "https://")):
                    return QdrantCandidates.open(engine, encoder)
                return LanceCandidates(engine, encoder, dict(self._store.storage_options))
            except VisarError:
                raise
            except Exception as error:  # of whatever kind the engine's own library has
                reason = clean_line(str(error).strip().partition("\n")[0])
                raise InvalidOption(f"{ENGINE}={engine} cannot be opened: {reason}") from error
        summaries = PageSummaries(
            _folder(self._store.location, encoder),
            encoder.dimension,
            lambda document: self._store.summaries(document, encoder),
        )
        summaries.sweep({document_key(document) for document in self._store.documents()})
        return summaries

    def clear(self) -> None:
        """Free the memory of all summaries."""
        with self._lock:
            self._indexes.clear()


def _folder(location: str, encoder: EncoderRef) -> Path:
    name = hashlib.sha256(str(encoder).encode()).hexdigest()[:16]
    if "://" not in location:
        return Path(location) / SUMMARIES / name
    from platformdirs import user_cache_path

    place = hashlib.sha256(location.encode()).hexdigest()[:16]
    return user_cache_path("visar") / SUMMARIES / place / name


@dataclass(frozen=True, slots=True, eq=False)
class _Stacked:
    """The means of several documents in one array, so that one product meets them all."""

    documents: dict[Key, slice]
    """By document: its pages."""
    starts: Integers
    means: NDArray[Any]
    """In float32, or float16 if there are many."""


class PageSummaries:
    """Mean vectors and bits of all pages: nothing is trained, and a document changes no other.

    Parameters
    ----------
    folder
        Where the summaries are kept; what is there is not made again. They are kept in memory
        alone if it cannot be written.
    dimension
        Of the vectors.
    stored
        Returns the summaries that the store has of a document, given its id, or None.
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
        self._kept: dict[Key, Summaries] = {}
        self._stacked: _Stacked | None = None

    def known(self) -> AbstractSet[Key]:
        """Return the documents that were added."""
        with self._lock:
            return set(self._kept)

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Take a document in; summaries in the folder or the store save reading its vectors."""
        key = document_key(document)
        path = self._folder / key
        summary = self._read(path, document)
        if summary is None:
            content = self._stored(document.id)
            if content is None:
                read = vectors()
                content = summarise(np.split(read.vectors, read.offsets[1:-1]))
            with contextlib.suppress(OSError):
                write_whole(path, content)
            # From a file the bits are read when they are compared; without one they are in memory.
            summary = self._read(path, document) or view(
                np.frombuffer(content, np.uint8), document.pages, self._dimension
            )
        with self._lock:
            self._kept[key] = summary
            self._stacked = None

    def remove(self, documents: Iterable[Key]) -> None:
        """Forget documents, and delete their summaries."""
        with self._lock:
            for key in documents:
                self._kept.pop(key, None)
                with contextlib.suppress(OSError):
                    (self._folder / key).unlink(missing_ok=True)
            self._stacked = None

    def sweep(self, there: AbstractSet[Key]) -> None:
        """Delete the summaries of all documents but these."""
        with contextlib.suppress(OSError):
            self.remove(path.name for path in self._folder.iterdir() if path.name not in there)

    def _read(self, path: Path, document: Document) -> Summaries | None:
        """Map a file of summaries; None if there is none of this document."""
        try:
            content = np.memmap(path, np.uint8, "r").view(np.ndarray)
            return view(content, document.pages, self._dimension)
        except (OSError, ValueError):
            return None

    def candidates(
        self,
        query: Float32,
        question: str,  # noqa: ARG002 - for indexes that have words
        n: int,
        documents: Sequence[Document],
    ) -> list[Candidate]:
        """Return the best pages by their bits, of the best by their means."""
        with self._lock:
            if not self._kept:
                return []
            if self._stacked is None:
                self._stacked = _stack(self._kept)
            stacked = self._stacked
            names = {document_key(document): document.id for document in documents}
            ordered = sorted(
                names.keys() & self._kept.keys(), key=lambda key: stacked.documents[key].start
            )
            summaries = [self._kept[key] for key in ordered]
        edges = np.cumsum([0, *(len(one.numbers) for one in summaries)])
        positions = np.arange(edges[-1])
        coded = max(n, CODED, int(CODED_ROOT * len(positions) ** 0.5))
        if len(positions) > coded:
            runs = _runs([stacked.documents[key] for key in ordered])
            scores = np.concatenate([_mean_scores(query, stacked, pages) for pages in runs])
            positions = np.sort(_largest(scores, coded))
        if not len(positions):
            return []
        places = (np.searchsorted(edges, positions, side="right") - 1).tolist()
        within = (positions - edges[places]).tolist()
        scores = _code_scores(
            query, [(summaries[place], page) for place, page in zip(places, within, strict=True)]
        )
        return [
            Candidate(
                names[ordered[places[best]]],
                int(summaries[places[best]].numbers[within[best]]),
                float(scores[best]),
            )
            for best in _largest(scores, n).tolist()
        ]


def _largest(scores: Float64, n: int) -> Integers:
    """The positions of the n largest scores, largest first; of equal ones the first."""
    return np.argsort(-scores, kind="stable")[:n]


def _stack(kept: dict[Key, Summaries]) -> _Stacked:
    """Put the means of all documents into one array, in an order that does not change."""
    kept = dict(sorted(kept.items()))
    documents, starts, pages, rows = {}, [np.zeros(0, np.int64)], 0, 0
    for key, one in kept.items():
        documents[key] = slice(pages, pages + len(one.numbers))
        starts.append(one.mean_starts[:-1] + rows)
        pages += len(one.numbers)
        rows += len(one.means)
    numbers = sum(one.means.size for one in kept.values())
    kind = np.float32 if 4 * numbers <= DECODED else np.float16
    means = np.concatenate([one.means for one in kept.values()], dtype=kind)
    return _Stacked(documents, np.append(np.concatenate(starts), rows), means)


def _runs(documents: Sequence[slice]) -> Iterator[slice]:
    """The pages of documents as few slices, none longer than what is compared at a time."""
    joined: list[slice] = []
    for pages in documents:
        if joined and joined[-1].stop == pages.start:
            joined[-1] = slice(joined[-1].start, pages.stop)
        else:
            joined.append(pages)
    for pages in joined:
        for first in range(pages.start, pages.stop, _PAGES_AT_A_TIME):
            yield slice(first, min(first + _PAGES_AT_A_TIME, pages.stop))


def _mean_scores(query: Float32, stacked: _Stacked, pages: slice) -> Float64:
    """Late interaction of the question with the means of pages."""
    first, last = stacked.starts[pages.start], stacked.starts[pages.stop]
    kept = stacked.means[first:last]
    means: Float32 = kept if kept.dtype == np.float32 else np.empty(kept.shape, np.float32)
    if means is not kept:
        decode(kept, means)
    products = query @ means.T
    starts = stacked.starts[pages] - first
    return np.asarray(np.maximum.reduceat(products, starts, axis=1).sum(axis=0, dtype=np.float64))


def _code_scores(query: Float32, pages: Sequence[tuple[Summaries, int]]) -> Float64:
    """Late interaction of the question's bits with those of pages: equal bits less unequal ones."""
    asked = sign_bits(query)
    scores: list[Float64] = []
    waiting: list[NDArray[np.uint64]] = []
    rows = 0
    for position, (one, page) in enumerate(pages):
        waiting.append(one.codes[one.code_starts[page] : one.code_starts[page + 1]])
        rows += len(waiting[-1])
        if rows >= _ROWS_AT_A_TIME or position == len(pages) - 1:
            starts = np.cumsum([0, *(len(codes) for codes in waiting[:-1])])
            # Word by word: the counts of a block stay in the cache.
            words = np.concatenate(waiting).T
            unequal = np.zeros((len(asked), rows), np.uint16)
            for word, each in zip(words, asked.T, strict=True):
                unequal += np.bitwise_count(each[:, None] ^ np.ascontiguousarray(word))
            least = np.minimum.reduceat(unequal, starts, axis=1)
            scores.append(query.shape[1] - 2 * least.mean(axis=0, dtype=np.float64))
            waiting, rows = [], 0
    return np.concatenate(scores)
