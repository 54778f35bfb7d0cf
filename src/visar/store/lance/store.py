"""The store for object storage: LanceDB tables that many machines can write to."""

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
from visar.files import atomic_path
from visar.forks import disable_after_fork, keep_to_one_process
from visar.query import check_collection
from visar.results import Document, EncoderRef
from visar.store import checks
from visar.store.arrays import embedding_from, row_bytes
from visar.store.lance.addition import LanceAddition, bytes_to_page, page_to_row
from visar.store.lance.catalog import (
    Catalog,
    CatalogLog,
    DocumentState,
    Entry,
    ItemLog,
    Rows,
    Vectors,
    find_droppable,
    now,
)
from visar.store.lance.tables import LanceTable, Row, RowsMissing, open_tables
from visar.store.store import Backup, Change, Compaction, DocumentVectors, Problem
from visar.store.summaries import join_summaries

if TYPE_CHECKING:
    from visar.encoders.encoder import PageEmbedding

# Size of the cache of recently used pages and vectors.
CACHE_BYTES = 1 << 30
# Time without a write after which an addition counts as dead.
GRACE = timedelta(hours=1)
# Each change adds a file to the catalog; this many files are merged.
COMPACT_EVERY = 64
_KEEP_VERSIONS = timedelta(days=1)
_ATTEMPTS = 10
_PAGE_COLUMNS = ("content", "blocks")

T = TypeVar("T")


class LanceStore:
    """The `Store` in object storage, which processes on several machines can use concurrently."""

    def __init__(
        self, location: str, catalog: LanceTable, rows: LanceTable, options: Mapping[str, str]
    ) -> None:
        self.location, self.rows = location, rows
        self.log = CatalogLog(catalog)
        self.grace = GRACE
        self.storage_options: Mapping[str, str] = dict(options)
        self._item_log = ItemLog(location, options)
        self._cache: dict[tuple[str, int], bytes] = {}
        """Pages and vectors by revision and page number, most recently used last."""
        self._cache_size = 0
        """Size of the cache in bytes."""
        self._lock = Lock()
        disable_after_fork(self)

    @classmethod
    def open(
        cls,
        location: str | PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> LanceStore:
        """Open or create the index at a URL such as ``s3://bucket/prefix``."""
        url, options = fspath(location), dict(options or {})
        keep_to_one_process(url)  # LanceDB can hang after a fork
        tables = open_tables(url, create and not read_only, options, upgrade=not read_only)
        return cls(url, *tables, options)

    def close(self) -> None:
        """Clear the cache; LanceDB has no open files."""
        with self._lock:
            self._cache, self._cache_size = {}, 0

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        stored = (state.stored for state in self.log.read().live.values())
        return checks.match_documents(stored, where, collection)

    def get(self, document: str) -> Document:
        return self._find(document).stored

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        def load(state: DocumentState) -> tuple[Page, ...]:
            pages = [(state.pages, number) for number in checks.page_numbers(state.stored, numbers)]
            try:
                return tuple(map(bytes_to_page, self._cached_values(pages, self._read_pages)))
            except (ValueError, TypeError) as error:
                reason = f"a page is malformed: {error}"
                raise checks.damage_error(self.location, state.stored, reason) from error

        return self._read(document, load)

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        state = self.log.latest.live.get(document)
        if state is None:
            return
        stored = dict(enumerate(zip(state.pages.ids, state.pages.checksums, strict=True), start=1))
        blocks = {}
        for page in pages:
            row = page_to_row(page)
            row_id, checksum = stored.get(page.number, (0, None))
            # A matching checksum means that the blocks belong to the same words.
            if crc32(row["content"]) == checksum and row["blocks"] is not None:
                blocks[page.number] = row_id, row["blocks"]
        self.rows.set_blocks(blocks)
        with self._lock:
            for number in blocks:
                self._cache_size -= len(self._cache.pop((state.pages.revision, number), b""))

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder, from the cache if possible."""
        return self._read(document, lambda state: self._load(_vectors_of(state, encoder), encoder))

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of some pages by an encoder, from the cache or in one request."""
        live = self.log.latest.live
        try:
            pages = [(_vectors_of(live[id_], encoder), number) for id_, number in page_ids]
            contents = list(self._cached_values(pages, self._read_blobs))
        except (KeyError, NotInIndex, RowsMissing):
            # A document was removed or replaced meanwhile, or is damaged.
            vectors = {id_: self.vectors(id_, encoder) for id_ in {id_ for id_, _ in page_ids}}
            return [vectors[id_].page(number) for id_, number in page_ids]
        return [embedding_from(content, encoder) for content in contents]

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:
        """Return the summaries of a document, or None if they have an old format."""

        def load(state: DocumentState) -> bytes | None:
            rows = self.rows.take(_vectors_of(state, encoder).ids, ("content",))
            try:
                return join_summaries(
                    [row.get("content") or b"" for row in rows], encoder.dimension
                )
            except ValueError:  # written by an older version
                return None

        return self._read(document, load)

    def original(self, document: str) -> Path | None:
        """Return the original of a document, downloaded to the user's cache, or None."""
        return self._read(document, lambda state: self._download(state.original))

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> LanceAddition:
        checks.check_new_document(document)
        return LanceAddition(self, document, encoder, original)

    def remove(self, document: str) -> Document:
        state = self._find(document)
        self.change([state.id], lambda _: None)
        return state.stored

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        values = checks.check_metadata(metadata)
        state = self._find(document)
        self.change([state.id], lambda current: current and current.with_values(metadata=values))
        return self.get(state.id)

    def collections(self) -> dict[str, int]:
        live = self.log.read().live.values()
        return dict(sorted(Counter(name for state in live for name in state.collections).items()))

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        check_collection(collection)
        self._set_collections(documents, lambda names: names | {collection})

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        if documents is None:
            documents = [stored.id for stored in self.documents(collection=collection)]
        self._set_collections(documents, lambda names: names - {collection})

    def backup(
        self,
        target: str | PathLike[str],  # noqa: ARG002
        progress: Callable[[int, int], None] | None = None,  # noqa: ARG002
    ) -> Backup:
        """Raise StoreError, because object storage has its own copies and versions."""
        raise StoreError(
            f"Can't back up {self.location}: only an index in a folder can be backed up. Use the "
            "versions or copies of your object storage."
        )

    def items(self, kind: str, prefix: str = "") -> dict[str, Any]:
        return self._item_log.read(kind, prefix)

    def change_item(self, kind: str, id_: str, change: Change) -> Any:
        return self._item_log.change(kind, id_, change)

    def verify(self) -> list[Problem]:
        return list(self._problems())

    def compact(self) -> Compaction:
        """Delete data of closed and dead additions, and merge small files."""
        orphans = self._find_orphans()
        self.rows.delete("revision", list(orphans))
        revisions = {row["revision"] for row in self.rows.scan(("revision",))}
        dropped = find_droppable(self.log.entries(), now() - self.grace, revisions)
        self.log.table.delete("uid", [entry.uid for entry in dropped])
        for table in (self.rows, self.log.table):
            # LanceDB warns if it has to delete every version but the last.
            table.compact(max(self.grace, timedelta(milliseconds=1)))
        self._item_log.compact(max(self.grace, timedelta(milliseconds=1)))
        rows = [row for revision_rows in orphans.values() for row in revision_rows]
        pages = sum(row["kind"] == "vectors" for row in rows)
        return Compaction(pages=pages, files=len(rows), bytes=sum(row["size"] for row in rows))

    def change(
        self,
        documents: Iterable[str],
        make: Callable[[DocumentState | None], DocumentState | None],
    ) -> Catalog:
        """Replace the states of documents (None removes one); return the new catalog.

        ``make`` is called again if another process changed a document first.
        """
        waiting = list(documents)
        for _ in range(_ATTEMPTS):
            before = self.log.read()
            entries = []
            for document in waiting:
                current = before.live.get(document)
                state = make(current)
                if state is not current:
                    entries.append(Entry(document=document, content=state, seen=before.seen))
            if entries:
                self.log.append(entries)
            after = self.log.read()
            changed = after.changed_since(before.seen)
            self.drop(before.revisions(changed) - after.revisions(changed))
            waiting = [entry.document for entry in entries if entry.uid in after.rejected]
            if before.seen // COMPACT_EVERY != after.seen // COMPACT_EVERY:
                # If this fails, a later change compacts the catalog.
                with contextlib.suppress(StoreError):
                    self.log.table.compact(_KEEP_VERSIONS)
            if not waiting:
                return after
            time.sleep(random.uniform(0, 0.1))
        raise StoreError(f"Can't change {waiting[0]}: other processes keep changing it. Try again.")

    def drop(self, revisions: Iterable[str]) -> None:
        """Delete rows that no document needs; if this fails, compacting deletes them later."""
        with contextlib.suppress(StoreError):
            self.rows.delete("revision", list(revisions))

    def _set_collections(
        self, documents: Iterable[str], edit: Callable[[set[str]], set[str]]
    ) -> None:
        def make(current: DocumentState | None) -> DocumentState | None:
            return current and current.with_values(collections=sorted(edit({*current.collections})))

        self.change([self._find(document).id for document in documents], make)

    def _find(self, document: str) -> DocumentState:
        live = self.log.read().live
        if document in live:
            return live[document]
        stored = {id_: state.stored for id_, state in live.items()}
        return live[checks.find_document(stored, document, self.location).id]

    def _read(self, document: str, load: Callable[[DocumentState], T]) -> T:
        """Load data of a document by its id; retry if the document was replaced meanwhile.

        The log is only read if the document isn't in the latest snapshot, or has changed since.
        """
        state = self.log.latest.live.get(document) or self._state(document)
        for _ in range(_ATTEMPTS):
            try:
                return load(state)
            except (RowsMissing, NotInIndex) as error:
                before, state = state, self._state(document)
                if state is before and isinstance(error, RowsMissing):
                    raise checks.damage_error(self.location, state.stored, str(error)) from error
                if state is before:
                    raise
        raise StoreError(f"Can't read {document!r}: other processes keep changing it. Try again.")

    def _state(self, document: str) -> DocumentState:
        state = self.log.read().live.get(document)
        if state is None:
            raise checks.not_found_error(document, self.location)
        return state

    def _values(self, rows: Rows) -> Iterator[bytes]:
        blobs = zip(self.rows.blobs(rows.ids), rows.checksums, strict=True)
        for number, (data, checksum) in enumerate(blobs, start=1):
            if crc32(data) != checksum:
                raise RowsMissing(f"page or file {number} has a wrong checksum")
            yield data

    def _cached_values(
        self,
        pages: Sequence[tuple[Rows, int]],
        read: Callable[[Sequence[tuple[Rows, int]]], Iterator[bytes]],
    ) -> Iterator[bytes]:
        """Yield the values of the rows of pages; read those that aren't cached together."""
        keys = [(rows.revision, number) for rows, number in pages]
        with self._lock:
            cached = {key: self._cache.get(key) for key in keys}
        values = read([page for key, page in zip(keys, pages, strict=True) if cached[key] is None])
        for key in keys:
            value = cached[key]
            value = next(values) if value is None else value
            self._add_to_cache(key, value)
            yield value

    def _read_blobs(self, pages: Sequence[tuple[Rows, int]]) -> Iterator[bytes]:
        blobs = self.rows.blobs([rows.ids[number - 1] for rows, number in pages])
        for page, blob in zip(pages, blobs, strict=True):
            yield _check_value(blob, page)

    def _read_pages(self, pages: Sequence[tuple[Rows, int]]) -> Iterator[bytes]:
        """Yield pages as bytes for `bytes_to_page`."""
        ids = [rows.ids[number - 1] for rows, number in pages]
        for page, row in zip(pages, self.rows.take(ids, _PAGE_COLUMNS), strict=True):
            yield _page_value(row, page)

    def _add_to_cache(self, key: tuple[str, int], value: bytes) -> None:
        with self._lock:
            self._cache_size += len(value) - len(self._cache.pop(key, b""))
            self._cache[key] = value
            while self._cache_size > CACHE_BYTES:
                self._cache_size -= len(self._cache.pop(next(iter(self._cache))))

    def _load(self, stored: Vectors, encoder: EncoderRef) -> DocumentVectors:
        """Read all vectors of a document by an encoder, page by page."""
        rows = np.array(stored.sizes, np.int64) // row_bytes(encoder)
        offsets = np.concatenate([[0], np.cumsum(rows)])
        vectors = np.empty((int(offsets[-1]), stored.dimension), np.float16)
        boxes = np.empty((len(vectors), 4), np.float32)
        words = np.empty(len(vectors), np.int32)
        pages = [(stored, number) for number in range(1, len(offsets))]
        for index, content in enumerate(self._cached_values(pages, self._read_blobs)):
            own = slice(offsets[index], offsets[index + 1])
            page = embedding_from(content, encoder)
            vectors[own], boxes[own], words[own] = page.vectors, page.boxes, page.words
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
                with atomic_path(path) as part:
                    files = zip(original.notes, self._values(original), strict=True)
                    for (_, name), data in files:
                        if not (part / name).resolve().is_relative_to(part.resolve()):
                            raise RowsMissing(
                                f"the original has a file {name!r} outside its folder"
                            )
                        (part / name).parent.mkdir(parents=True, exist_ok=True)
                        (part / name).write_bytes(data)
        except OSError as error:
            raise StoreError(f"Can't write the original to {path}: {error}.") from error
        return path

    def _find_orphans(self) -> dict[str, list[Row]]:
        """Return the rows of closed and dead additions, by revision."""
        before = now() - self.grace
        # Read rows before the catalog, so that a commit in between isn't taken for an orphan.
        rows: dict[str, list[Row]] = {}
        for row in self.rows.scan(("revision", "document", "written", "kind", "size")):
            rows.setdefault(row["revision"], []).append(row)
        catalog = self.log.read()
        drafts = [draft for _, draft in catalog.drafts.values() if draft.closed]
        closed = {revision for draft in drafts for revision in (draft.vectors, draft.pages)}
        return {
            revision: rows[revision]
            for revision in rows.keys() - catalog.revisions()
            if revision in closed or all(row["written"] < before for row in rows[revision])
        }

    def _problems(self) -> Iterator[Problem]:
        orphans: dict[str, list[Row]] = {}
        try:
            orphans = self._find_orphans()
        except StoreError as error:
            yield Problem("damage", "", str(error))
        for state in self.log.read().live.values():
            problems = list(self._document_problems(state))
            # Ignore documents that were replaced or removed meanwhile.
            if problems and self.log.read().live.get(state.id) is state:
                yield from (Problem("damage", state.id, message) for message in problems)
        for rows in orphans.values():
            message = f"{len(rows)} rows of an unfinished or replaced version"
            yield Problem("orphan", rows[0]["document"], message)

    def _document_problems(self, state: DocumentState) -> Iterator[str]:
        yield from self._page_problems(state.pages)
        encoders = {one.name: one for one in state.stored.encoders}
        parts: list[tuple[str, Rows | None, EncoderRef | None]] = [
            ("the original: file", state.original, None)
        ]
        parts += [
            (f"vectors of {name}: page", vectors, encoders[name])
            for name, vectors in state.vectors.items()
        ]
        for label, rows, encoder in parts:
            if rows is None:
                continue
            for number, (row, checksum) in enumerate(zip(rows.ids, rows.checksums, strict=True), 1):
                try:
                    (data,) = self.rows.blobs([row])
                    if crc32(data) != checksum:
                        yield f"{label} {number} has a wrong checksum"
                    elif encoder and _is_invalid(embedding_from(data, encoder)):
                        yield f"{label} {number} has a vector that isn't finite or of length 1"
                except (RowsMissing, StoreError) as error:
                    yield f"can't read {label} {number}: {error}"

    def _page_problems(self, pages: Rows) -> Iterator[str]:
        try:
            rows = self.rows.take(pages.ids, _PAGE_COLUMNS)
        except (RowsMissing, StoreError) as error:
            yield f"can't read the pages: {error}"
            return
        for number, row in enumerate(rows, start=1):
            try:
                bytes_to_page(_page_value(row, (pages, number)))
            except (RowsMissing, StoreError) as error:
                yield str(error)
            except (ValueError, TypeError) as error:
                yield f"page {number} is malformed: {error}"


def _check_value(value: bytes | None, page: tuple[Rows, int]) -> bytes:
    """Return the value of a page's row; raise RowsMissing if it is missing or damaged."""
    rows, number = page
    if crc32(value or b"") != rows.checksums[number - 1]:
        raise RowsMissing(f"page {number} is missing or has a wrong checksum")
    return value or b""


def _page_value(row: Row, page: tuple[Rows, int]) -> bytes:
    """Convert a row of `_PAGE_COLUMNS` to bytes for `bytes_to_page`."""
    return b"\n".join([(row.get("blocks") or "").encode(), _check_value(row.get("content"), page)])


def _is_invalid(embedding: PageEmbedding) -> bool:
    return find_invalid(embedding.vectors) is not None


def _vectors_of(state: DocumentState, encoder: EncoderRef) -> Vectors:
    """Return the vectors of a document by an encoder; raise NotInIndex if there are none."""
    checks.check_encoder(state.stored, encoder)
    return state.vectors[encoder.name]
