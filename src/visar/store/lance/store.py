"""The index in object storage: LanceDB tables, written by many machines at once."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import numpy as np

from visar.core.vectors import find_invalid
from visar.documents.page import Page
from visar.errors import NotInIndex, StoreError
from visar.files import made_whole
from visar.results import Document, EncoderRef
from visar.store import checks
from visar.store.arrays import PATCH, VECTOR
from visar.store.lance.addition import LanceAddition, bytes_to_embedding, bytes_to_page, page_to_row
from visar.store.lance.catalog import (
    Catalog,
    CatalogLog,
    DocumentState,
    Entry,
    Rows,
    Vectors,
    droppable,
    now,
)
from visar.store.lance.tables import LanceTable, Row, RowsMissing, open_tables
from visar.store.records import Compaction, DocumentVectors, Problem
from visar.store.summaries import join_pages

if TYPE_CHECKING:
    from visar.encoders.protocol import PageEmbedding

# Of pages and their vectors, those used last are kept in memory.
CACHE_BYTES = 1 << 30
# How long an addition may be silent before it is taken for dead.
GRACE = timedelta(hours=1)
# Each change makes the catalog one file longer; its files are merged after so many.
COMPACT_EVERY = 64
_KEEP_VERSIONS = timedelta(days=1)
_ATTEMPTS = 10
_PAGE_COLUMNS = ("content", "blocks")

T = TypeVar("T")


class LanceStore:
    """An index in object storage, which processes on several machines may use at once."""

    def __init__(self, location: str, catalog: LanceTable, rows: LanceTable) -> None:
        self.location, self.rows = location, rows
        self.log = CatalogLog(catalog)
        self.grace = GRACE
        self.storage_options: dict[str, str] = {}
        self._cache: dict[tuple[str, int], bytes] = {}
        """Pages, and vectors of pages, by revision and number; those used last at the end."""
        self._cached = 0
        """Bytes of these."""
        self._lock = Lock()

    @classmethod
    def open(
        cls,
        location: str | PathLike[str],
        *,
        create: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> LanceStore:
        """Open the index at an address such as ``s3://bucket/prefix``, or make one there."""
        place, given = fspath(location), dict(options or {})
        store = cls(place, *open_tables(place, create, given))
        store.storage_options = given
        return store

    def close(self) -> None:
        """Let what is in memory go; LanceDB keeps nothing open."""
        with self._lock:
            self._cache, self._cached = {}, 0

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added, all or those that match."""
        stored = (state.stored for state in self.log.read().live.values())
        return checks.matching(stored, where, collection)

    def get(self, document: str) -> Document:
        """Return the document with this id or name, or whose id alone begins like this."""
        return self._find(document).stored

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages with these numbers, in that order; all if none are given."""

        def load(state: DocumentState) -> tuple[Page, ...]:
            wanted = checks.page_numbers(state.stored, numbers)
            pages = [(state.pages, number) for number in wanted]
            try:
                return tuple(map(bytes_to_page, self._kept_values(pages, self._read_pages)))
            except (ValueError, TypeError) as error:
                what = f"a page cannot be read: {error}"
                raise checks.damaged(self.location, state.stored, what) from error

        return self._read(document, load)

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        """Keep the blocks of pages that are stored without any."""
        state = self.log.latest.live.get(document)
        if state is None:
            return
        stored = dict(enumerate(zip(state.pages.ids, state.pages.checksums, strict=True), start=1))
        blocks = {}
        for page in pages:
            row = page_to_row(page)
            row_id, checksum = stored.get(page.number, (0, None))
            # The checksum tells that the words are still those which the blocks were found in.
            if crc32(row["content"]) == checksum and row["blocks"] is not None:
                blocks[page.number] = row_id, row["blocks"]
        self.rows.set_blocks(blocks)
        with self._lock:
            for number in blocks:
                self._cached -= len(self._cache.pop((state.pages.revision, number), b""))

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder: from memory if used lately."""
        return self._read(document, lambda state: self._load(_held(state, encoder)))

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of pages by an encoder: from memory, or all in one request."""
        live = self.log.latest.live
        try:
            pages = [(_held(live[id_], encoder), number) for id_, number in page_ids]
            read = list(self._kept_values(pages, self._read_blobs))
        except (KeyError, NotInIndex, RowsMissing):
            # Of a document that was removed or replaced meanwhile, or is damaged.
            vectors = {id_: self.vectors(id_, encoder) for id_ in {id_ for id_, _ in page_ids}}
            return [vectors[id_].page(number) for id_, number in page_ids]
        return [bytes_to_embedding(content, encoder.dimension) for content in read]

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:
        """Return the summaries of a document, which were written with its vectors."""

        def load(state: DocumentState) -> bytes | None:
            pages = self.rows.contents(_held(state, encoder).ids)
            try:
                return join_pages([page or b"" for page in pages], encoder.dimension)
            except ValueError:  # of an older version
                return None

        return self._read(document, load)

    def original(self, document: str) -> Path | None:
        """Return what was kept of a document, if anything was: a download in the user's cache."""
        return self._read(document, lambda state: self._download(state.original))

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> LanceAddition:
        """Begin to add a document, or go on with an interrupted addition of it."""
        checks.check_new_document(document)
        return LanceAddition(self, document, encoder, original)

    def remove(self, document: str) -> Document:
        """Remove the document with everything that belongs to it."""
        state = self._find(document)
        self.change([state.id], lambda _: None)
        return state.stored

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        """Replace the metadata of a document."""
        values = checks.check_metadata(metadata)
        state = self._find(document)
        self.change([state.id], lambda known: known and known.changed(metadata=values))
        return self.get(state.id)

    def collections(self) -> dict[str, int]:
        """Return the names of the collections, and how many documents each has."""
        live = self.log.read().live.values()
        return dict(sorted(Counter(name for state in live for name in state.collections).items()))

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Put documents into a collection, which begins with its first document."""
        self._set_collections(documents, lambda names: names | {collection})

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Take documents, or all, out of a collection; the documents stay."""
        if documents is None:
            documents = [stored.id for stored in self.documents(collection=collection)]
        self._set_collections(documents, lambda names: names - {collection})

    def verify(self) -> list[Problem]:
        """Read everything and report what is wrong. Changes nothing."""
        return list(self._problems())

    def compact(self) -> Compaction:
        """Drop what additions that were given up or have died have left; merge small files."""
        unneeded = self._unneeded()
        self.rows.delete("revision", list(unneeded))
        kept = {row["revision"] for row in self.rows.scan(("revision",))}
        dropped = droppable(self.log.entries(), now() - self.grace, kept)
        self.log.table.delete("uid", [entry.uid for entry in dropped])
        for table in (self.rows, self.log.table):
            # LanceDB warns when it shall forget every version but the last.
            table.compact(max(self.grace, timedelta(milliseconds=1)))
        rows = [row for of_revision in unneeded.values() for row in of_revision]
        pages = sum(row["kind"] == "vectors" for row in rows)
        return Compaction(pages=pages, files=len(rows), bytes=sum(row["size"] for row in rows))

    def change(
        self,
        documents: Iterable[str],
        make: Callable[[DocumentState | None], DocumentState | None],
    ) -> Catalog:
        """Replace what the catalog says of documents (None: they are gone); return what it says.

        ``make`` is asked again where another process was faster.
        """
        waiting = list(documents)
        for _ in range(_ATTEMPTS):
            before = self.log.read()
            entries = []
            for document in waiting:
                known = before.live.get(document)
                state = make(known)
                if state is not known:
                    entries.append(Entry(document=document, content=state, seen=before.seen))
            if entries:
                self.log.append(entries)
            after = self.log.read()
            changed = after.changed_since(before.seen)
            self.drop(before.revisions(changed) - after.revisions(changed))
            waiting = [entry.document for entry in entries if entry.uid in after.rejected]
            if before.seen // COMPACT_EVERY != after.seen // COMPACT_EVERY:
                # What fails here is done another time.
                with contextlib.suppress(StoreError):
                    self.log.table.compact(_KEEP_VERSIONS)
            if not waiting:
                return after
            time.sleep(random.uniform(0, 0.1))
        raise StoreError(f"other processes keep changing {waiting[0]}: try again")

    def drop(self, revisions: Iterable[str]) -> None:
        """Delete rows that no document can need again; what fails is left to compacting."""
        with contextlib.suppress(StoreError):
            self.rows.delete("revision", list(revisions))

    def _set_collections(
        self, documents: Iterable[str], edit: Callable[[set[str]], set[str]]
    ) -> None:
        def make(known: DocumentState | None) -> DocumentState | None:
            return known and known.changed(collections=sorted(edit({*known.collections})))

        self.change([self._find(document).id for document in documents], make)

    def _find(self, document: str) -> DocumentState:
        live = self.log.read().live
        if document in live:
            return live[document]
        stored = {id_: state.stored for id_, state in live.items()}
        return live[checks.find_document(stored, document, self.location).id]

    def _read(self, document: str, load: Callable[[DocumentState], T]) -> T:
        """Load something of a document, given by its id; again if it was replaced meanwhile.

        The log is read only if the document is not as it was when the log was last read.
        """
        state = self.log.latest.live.get(document) or self._state(document)
        for _ in range(_ATTEMPTS):
            try:
                return load(state)
            except (RowsMissing, NotInIndex) as error:
                before, state = state, self._state(document)
                if state is before and isinstance(error, RowsMissing):
                    raise checks.damaged(self.location, state.stored, str(error)) from error
                if state is before:
                    raise
        raise StoreError(f"other processes keep changing {document!r}: try again")

    def _state(self, document: str) -> DocumentState:
        """Return what the log says now of a document, given by its id."""
        state = self.log.read().live.get(document)
        if state is None:
            raise checks.removed(document, self.location)
        return state

    def _values(self, rows: Rows) -> Iterator[bytes]:
        """Give what rows hold, in their order."""
        blobs = zip(self.rows.blobs(rows.ids), rows.checksums, strict=True)
        for number, (data, checksum) in enumerate(blobs, start=1):
            if crc32(data) != checksum:
                raise RowsMissing(f"page or file {number} has a wrong checksum")
            yield data

    def _kept_values(
        self,
        pages: Sequence[tuple[Rows, int]],
        read: Callable[[Sequence[tuple[Rows, int]]], Iterator[bytes]],
    ) -> Iterator[bytes]:
        """Give what the rows of pages hold: from memory, or read together."""
        keys = [(rows.revision, number) for rows, number in pages]
        with self._lock:
            known = {key: self._cache.get(key) for key in keys}
        found = read([page for key, page in zip(keys, pages, strict=True) if known[key] is None])
        for key in keys:
            value = known[key]
            value = next(found) if value is None else value
            self._keep(key, value)
            yield value

    def _read_blobs(self, pages: Sequence[tuple[Rows, int]]) -> Iterator[bytes]:
        """Read vectors of pages."""
        blobs = self.rows.blobs([rows.ids[number - 1] for rows, number in pages])
        for page, blob in zip(pages, blobs, strict=True):
            yield _checked(blob, page)

    def _read_pages(self, pages: Sequence[tuple[Rows, int]]) -> Iterator[bytes]:
        """Read pages as `bytes_to_page` takes them."""
        ids = [rows.ids[number - 1] for rows, number in pages]
        for page, row in zip(pages, self.rows.take(ids, _PAGE_COLUMNS), strict=True):
            yield _page_value(row, page)

    def _keep(self, key: tuple[str, int], value: bytes) -> None:
        with self._lock:
            self._cached += len(value) - len(self._cache.pop(key, b""))
            self._cache[key] = value
            while self._cached > CACHE_BYTES:
                self._cached -= len(self._cache.pop(next(iter(self._cache))))

    def _load(self, held: Vectors) -> DocumentVectors:
        """Read all vectors of a document by an encoder, page by page to their places."""
        rows = np.array(held.sizes, np.int64) // (held.dimension * VECTOR.itemsize + PATCH.itemsize)
        offsets = np.concatenate([[0], np.cumsum(rows)])
        vectors = np.empty((int(offsets[-1]), held.dimension), VECTOR)
        boxes = np.empty((len(vectors), 4), np.float32)
        words = np.empty(len(vectors), np.int32)
        pages = [(held, number) for number in range(1, len(offsets))]
        for number, content in enumerate(self._kept_values(pages, self._read_blobs)):
            place = slice(offsets[number], offsets[number + 1])
            page = bytes_to_embedding(content, held.dimension)
            vectors[place], boxes[place], words[place] = page.vectors, page.boxes, page.words
        for array in (vectors, offsets, boxes, words):
            array.setflags(write=False)
        return DocumentVectors(vectors, offsets, boxes, words)

    def _download(self, original: Rows | None) -> Path | None:
        if original is None:
            return None
        from platformdirs import user_cache_path

        path = user_cache_path("visar") / "originals" / original.revision
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with made_whole(path) as part:
                    files = zip(original.notes, self._values(original), strict=True)
                    for (_, name), data in files:
                        if not (part / name).resolve().is_relative_to(part.resolve()):
                            raise RowsMissing(f"the original has a file {name!r} outside it")
                        (part / name).parent.mkdir(parents=True, exist_ok=True)
                        (part / name).write_bytes(data)
        except OSError as error:
            raise StoreError(f"the original cannot be written to {path}: {error}") from error
        return path

    def _unneeded(self) -> dict[str, list[Row]]:
        """The rows, by revision, of additions that were given up or have been silent for long."""
        before = now() - self.grace
        # Rows before the catalog: what is committed meanwhile must not be taken for an orphan.
        found: dict[str, list[Row]] = {}
        for row in self.rows.scan(("revision", "document", "written", "kind", "size")):
            found.setdefault(row["revision"], []).append(row)
        catalog = self.log.read()
        drafts = [draft for _, draft in catalog.drafts.values() if draft.closed]
        given_up = {revision for draft in drafts for revision in (draft.vectors, draft.pages)}
        return {
            revision: found[revision]
            for revision in found.keys() - catalog.revisions()
            if revision in given_up or all(row["written"] < before for row in found[revision])
        }

    def _problems(self) -> Iterator[Problem]:
        orphans: dict[str, list[Row]] = {}
        try:
            orphans = self._unneeded()
        except StoreError as error:
            yield Problem("damage", "", str(error))
        for state in self.log.read().live.values():
            problems = list(self._document_problems(state))
            # What was replaced or removed meanwhile is no damage.
            if problems and self.log.read().live.get(state.id) is state:
                yield from (Problem("damage", state.id, what) for what in problems)
        for rows in orphans.values():
            what = f"{len(rows)} rows of an unfinished or replaced version"
            yield Problem("orphan", rows[0]["document"], what)

    def _document_problems(self, state: DocumentState) -> Iterator[str]:
        yield from self._page_problems(state.pages)
        parts: list[tuple[str, Rows | None]] = [("the original: file", state.original)]
        parts += [(f"vectors of {name}: page", held) for name, held in state.vectors.items()]
        for of, rows in parts:
            if rows is None:
                continue
            for number, (row, checksum) in enumerate(zip(rows.ids, rows.checksums, strict=True), 1):
                try:
                    (data,) = self.rows.blobs([row])
                    if crc32(data) != checksum:
                        yield f"{of} {number} has a wrong checksum"
                    elif isinstance(rows, Vectors) and _has_invalid_vector(data, rows.dimension):
                        yield f"{of} {number} has a vector that is not finite or not of length 1"
                except (RowsMissing, StoreError) as error:
                    yield f"{of} {number} cannot be read: {error}"

    def _page_problems(self, pages: Rows) -> Iterator[str]:
        try:
            rows = self.rows.take(pages.ids, _PAGE_COLUMNS)
        except (RowsMissing, StoreError) as error:
            yield f"the pages cannot be read: {error}"
            return
        for number, row in enumerate(rows, start=1):
            try:
                bytes_to_page(_page_value(row, (pages, number)))
            except (RowsMissing, StoreError) as error:
                yield str(error)
            except (ValueError, TypeError) as error:
                yield f"page {number} cannot be read: {error}"


def _checked(value: bytes | None, page: tuple[Rows, int]) -> bytes:
    """Return what the row of a page holds; refuse it if it is missing or damaged."""
    rows, number = page
    if crc32(value or b"") != rows.checksums[number - 1]:
        raise RowsMissing(f"page {number} is missing or has a wrong checksum")
    return value or b""


def _page_value(row: Row, page: tuple[Rows, int]) -> bytes:
    """Return a row of `_PAGE_COLUMNS` as `bytes_to_page` takes it."""
    return b"\n".join([(row.get("blocks") or "").encode(), _checked(row.get("content"), page)])


def _has_invalid_vector(content: bytes, dimension: int) -> bool:
    return find_invalid(bytes_to_embedding(content, dimension).vectors) is not None


def _held(state: DocumentState, encoder: EncoderRef) -> Vectors:
    """The vectors of a document by an encoder; refused if there are none."""
    checks.check_encoder(state.stored, encoder)
    return state.vectors[encoder.name]
