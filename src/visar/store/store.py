"""The index on disk, as the rest of the program sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from os import PathLike, fspath
from typing import TypeVar

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.errors import NotInIndex, StoreError
from visar.store.cache import VectorCache
from visar.store.catalog import LiveDocument, VectorsEntry
from visar.store.leftovers import find_leftovers
from visar.store.log import CatalogLog
from visar.store.maintenance import compact, find_problems
from visar.store.reading import load_pages, load_vectors
from visar.store.records import (
    Compaction,
    DocumentVectors,
    EncoderRef,
    NewDocument,
    Problem,
    StoredDocument,
)
from visar.store.tables import RowsMissing, Tables, open_tables
from visar.store.writing import Addition, delete_useless, removal

CACHE_BYTES = 1 << 30
GRACE = timedelta(hours=1)
READ_ATTEMPTS = 5
# Each add makes the catalog one file longer; it is small and read whole, so it is kept short.
CATALOG_FRAGMENTS = 64
KEEP_VERSIONS = timedelta(days=1)

T = TypeVar("T")


class Store:
    """Documents, their pages with words, and their vectors by any number of encoders.

    Several processes may use the same index at once, several threads the same ``Store``. Each
    document is always seen in its old or its new state, whatever happens to a process that
    changes it. ``docs/index-format.md`` tells how.
    """

    def __init__(self, location: str, tables: Tables, cache_bytes: int) -> None:
        self.location = location
        self._tables = tables
        self._log = CatalogLog(tables.catalog)
        self._cache = VectorCache(cache_bytes)

    @classmethod
    def open(
        cls,
        location: str | PathLike[str],
        *,
        create: bool = True,
        cache_bytes: int = CACHE_BYTES,
    ) -> Store:
        """Open the index in a folder, or make one there unless ``create`` is false.

        ``cache_bytes`` bounds the memory kept for the vectors of documents used last.
        """
        place = fspath(location)
        return cls(place, open_tables(place, create), cache_bytes)

    def __repr__(self) -> str:
        return f"Store({self.location!r})"

    def documents(self) -> list[StoredDocument]:
        """All documents, in the order they were added."""
        return [document.stored() for document in self._log.read().live.values()]

    def get(self, document: str) -> StoredDocument:
        """The document with this id, or whose id alone begins like this."""
        return self._find(document).stored()

    def add(
        self,
        document: NewDocument,
        encoder: EncoderRef,
        pages: Iterable[tuple[Page, PageEmbedding]],
    ) -> StoredDocument:
        """Add a document, or the vectors of another encoder to one that is there.

        ``pages`` are taken one by one, in any order (in page order they are stored best), and
        written as they come. Pages that an interrupted call has already written may be left out
        (:meth:`unfinished` names them). A document that is there keeps its pages and words: only
        the vectors are taken, which must have been made from :meth:`pages`. Vectors of another
        version of the encoder are replaced; where those of this version are there, nothing is
        read or changed, except that the name and source are brought up to date. Another document
        with the same source is replaced.
        """
        if document.pages < 1 or not document.id:
            raise StoreError(f"{document.name} needs an id and at least one page to be added")
        added = Addition(self._tables, self._log, document, encoder).run(pages)
        self._keep_catalog_short()
        return added.stored()

    def unfinished(self, document: str, encoder: EncoderRef) -> frozenset[int]:
        """The numbers of the pages an interrupted :meth:`add` has written; empty if none."""
        catalog = self._log.read()
        return frozenset(find_leftovers(self._tables, catalog, document, encoder).blocks)

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """The pages with these numbers, in that order; all if none are given."""

        def load(live: LiveDocument) -> tuple[Page, ...]:
            entry = live.entry
            wanted = range(1, entry.pages + 1) if numbers is None else numbers
            for number in wanted:
                if not 1 <= number <= entry.pages:
                    raise NotInIndex(f"{entry.name} has pages 1 to {entry.pages}, not {number}")
            return tuple(load_pages(self._tables.pages, entry, wanted))

        return self._read(document, load)

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """All vectors of a document by an encoder: from memory if used lately."""

        def load(live: LiveDocument) -> DocumentVectors:
            entry = _vectors_of(live, encoder)
            key = entry.document, encoder.name, entry.revision
            vectors = self._cache.get(*key)
            if vectors is None:
                vectors = load_vectors(self._tables.vectors, entry)
                self._cache.put(*key, vectors)
            return vectors

        return self._read(document, load)

    def remove(self, document: str) -> StoredDocument:
        """Remove the document with everything that belongs to it."""
        live = self._find(document)
        self._log.append([removal(live)])
        self._cache.forget(live.entry.document)
        vectors = {v.revision for v in live.vectors.values()}
        delete_useless(self._tables, self._log.read(), {live.entry.revision}, vectors)
        return live.stored()

    def verify(self) -> list[Problem]:
        """Read everything and report what is wrong. Changes nothing."""
        return list(find_problems(self._tables, self._log))

    def compact(self, *, grace: timedelta = GRACE) -> Compaction:
        """Drop what interrupted writes have left and merge small files.

        Safe beside other processes: what is younger than ``grace`` stays, also the files of
        versions replaced since. A shorter grace can break their reads and adds.
        """
        return compact(self._tables, self._log, grace)

    def _find(self, document: str) -> LiveDocument:
        live = self._log.read().live
        if document in live:
            return live[document]
        matches = [known for known in live.values() if known.entry.document.startswith(document)]
        if not document or not matches:
            raise NotInIndex(f"no document {document!r} among the {len(live)} of {self.location}")
        if len(matches) > 1:
            names = ", ".join(f"{m.entry.document} ({m.entry.name})" for m in matches[:5])
            raise NotInIndex(f"{document!r} begins the ids of {len(matches)} documents: {names}")
        return matches[0]

    def _read(self, document: str, load: Callable[[LiveDocument], T]) -> T:
        """Load something of a document, again if it was replaced in between."""
        for _ in range(READ_ATTEMPTS):
            live = self._find(document)
            try:
                return load(live)
            except RowsMissing as error:
                if self._log.read().live.get(live.entry.document) == live:
                    raise StoreError(
                        f"the index {self.location} is damaged at {live.entry.name} "
                        f"({live.entry.document}): {error}. Remove the document and add it again"
                    ) from error
        raise StoreError(f"other processes keep changing {document!r}: try again")

    def _keep_catalog_short(self) -> None:
        if self._tables.catalog.fragments > CATALOG_FRAGMENTS:
            self._tables.catalog.compact(KEEP_VERSIONS)


def _vectors_of(live: LiveDocument, encoder: EncoderRef) -> VectorsEntry:
    entry = live.vectors.get(encoder.name)
    if entry is not None and entry.encoder == encoder:
        return entry
    held = ", ".join(str(vectors.encoder) for vectors in live.vectors.values())
    raise NotInIndex(
        f"{live.entry.name} has no vectors of {encoder}, only of {held}: add it with that encoder"
    )
