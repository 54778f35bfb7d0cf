"""Adding a document to the LanceDB store: rows under fresh revisions, one commit at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4
from zlib import crc32

from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding
from visar.errors import StoreError
from visar.results import Document, EncoderRef
from visar.store import checks
from visar.store.arrays import embedding_bytes, embedding_from
from visar.store.lance.catalog import DocumentState, Draft, Entry, Rows, Vectors, now
from visar.store.lance.tables import Row, RowsMissing, quote
from visar.store.pages import page_to_row_values, row_to_page
from visar.store.store import Addition
from visar.store.summaries import summarize_pages

if TYPE_CHECKING:
    from visar.store.lance.store import LanceStore

# Maximum amount of work that is lost if the process dies, in bytes and seconds.
FLUSH_BYTES = 32 << 20
FLUSH_SECONDS = 10.0
_COLUMNS = ("revision", "number", "note", "checksum", "size")


def page_to_row(page: Page) -> Row:
    """Return the columns ``content`` and ``blocks`` of a page; boxes are rounded to float32."""
    *values, boxes, lines, blocks, _ = page_to_row_values(page)
    head = json.dumps([page.number, *values], ensure_ascii=False).encode()
    content = b"".join((head, b"\n", boxes, lines))
    return {"content": content, "blocks": blocks}


def bytes_to_page(value: bytes) -> Page:
    """Parse a page from its blocks (may be empty), a line break, and its content.

    Raises ValueError or TypeError if the page is damaged.
    """
    blocks, _, content = value.partition(b"\n")
    values, _, words = content.partition(b"\n")
    split = len(words) * 4 // 5  # boxes take 16 bytes a word, lines 4
    return row_to_page((*json.loads(values), words[:split], words[split:], blocks.decode() or None))


class LanceAddition(Addition):
    """An addition to object storage.

    At the start, it copies pages that other additions of the same document and encoder have
    written, whether they are interrupted or still in progress, so that it doesn't depend on them.
    If several additions run in parallel, the first commit completes all of them.
    """

    def __init__(
        self, store: LanceStore, document: Document, encoder: EncoderRef, original: Path | None
    ) -> None:
        self._store, self._document, self._encoder = store, document, encoder
        self._original = original
        self._vectors, self._pages, self._files = (uuid4().hex for _ in range(3))
        self._brings_pages = True
        self._is_recorded = False
        self._put: set[int] = set()
        self._page_numbers: set[int] = set()
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._last_flush = time.monotonic()
        self._new_state: DocumentState | None = None
        self._first_row = 0
        # Revisions with rows. They are deleted at the end unless the document needs them.
        self._revisions: set[str] = set()
        self.stored = self._begin()
        self._open = self.stored is None
        self.written = frozenset(self._page_numbers)

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        self._check_open()
        checks.check_put(self._document, page, embedding, self._encoder, self._put)
        content = page_to_row(page) if self._brings_pages else None
        self._put.add(page.number)
        self._add_page(
            page.number,
            content,
            b"".join(embedding_bytes(embedding, self._encoder)),
            embedding.invalid,
        )

    def commit(self) -> Document:
        if self.stored is not None:
            return self.stored
        self._check_open()
        checks.check_complete(self._document, self._page_numbers)
        self._write()
        after = self._store.change([self._document.id], self._merge)
        self._open = False
        self._store.drop(self._revisions - after.revisions([self._document.id]))
        # If another process has already removed the document again, the commit still succeeded.
        state = after.live.get(self._document.id, self._new_state)
        if state is None:
            raise checks.conflict_error(self._document, removed=True)
        self.stored = state.stored
        return self.stored

    def close(self) -> None:
        if self._open:
            self._open = False
            if self._page_numbers:
                self._write()
                self._record(closed=True)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError(f"The addition of {self._document.name} is closed. Start a new one.")

    def _begin(self) -> Document | None:
        """Copy pages of other additions; return the document if there is nothing to add."""
        catalog = self._store.log.read()
        name = self._encoder.name
        vectors = (state.vectors.get(name) for state in catalog.live.values())
        versions = {(one.version, one.dimension) for one in vectors if one is not None}
        checks.check_dimension(self._encoder, (EncoderRef(name, *one) for one in versions))
        current = catalog.live.get(self._document.id)
        if current is not None:
            checks.check_new_document(self._document, current.stored)
            if self._encoder in current.encoders():
                catalog = self._store.change(
                    [current.id], lambda state: state and self._with_source(state)
                )
                return catalog.live.get(current.id, current).stored
            self._brings_pages, self._pages = False, current.pages.revision
        self._first_row = self._store.rows.count()
        for document, draft in reversed(catalog.drafts.values()):
            same_pages = draft.brings_pages if current is None else draft.pages == self._pages
            if document == self._document.id and draft.encoder == self._encoder and same_pages:
                for page in self._read(draft):
                    self._add_page(*page)
                if draft.closed:
                    self._revisions |= {draft.vectors, draft.pages}
        return None

    def _read(self, draft: Draft) -> Iterator[tuple[int, Row | None, bytes, str | None]]:
        """Yield the pages of another addition that this one doesn't have."""
        pages: dict[int, Row | None] = dict.fromkeys(range(1, self._document.pages + 1))
        if draft.brings_pages:
            where = f"revision = {quote(draft.pages)}"
            columns: tuple[str, ...] = ("number", "content", "blocks")
            pages = {row["number"]: row for row in self._store.rows.scan(columns, where)}
        where = f"revision = {quote(draft.vectors)}"
        columns = ("number", "note", "checksum")
        rows = {
            row["number"]: row
            for row in self._store.rows.scan(columns, where)
            if row["number"] in pages and row["number"] not in self._page_numbers
        }
        try:
            blobs = self._store.rows.blobs([row["_rowid"] for row in rows.values()])
            for (number, row), vectors in zip(rows.items(), blobs, strict=True):
                if crc32(vectors) == row["checksum"]:
                    yield number, pages[number], vectors, row["note"]
        except RowsMissing:
            return  # deleted by its writer or by compacting

    def _add_page(self, number: int, page: Row | None, vectors: bytes, invalid: str | None) -> None:
        self._page_numbers.add(number)
        if page is not None:
            values = {"content": page["content"], "blocks": page.get("blocks")}
            row = self._row("page", self._pages, number, page["content"])
            self._pending.append(row | values)
        row = self._row("vectors", self._vectors, number, vectors)
        summary = summarize_pages([embedding_from(vectors, self._encoder).vectors])
        self._pending.append(row | {"note": invalid, "content": summary, "data": vectors})
        self._pending_bytes += len(vectors)
        waited = time.monotonic() - self._last_flush
        if self._pending_bytes >= FLUSH_BYTES or waited >= FLUSH_SECONDS:
            if not self._is_recorded:
                self._record(closed=False)
            self._write()

    def _record(self, *, closed: bool) -> None:
        """Record the addition as a draft, so that other additions can find its pages."""
        draft = Draft(self._vectors, self._encoder, self._pages, self._brings_pages, closed)
        self._store.log.append([Entry(document=self._document.id, content=draft)])
        self._is_recorded = True

    def _write(self) -> None:
        # Sorted by kind, because rows of a kind are read together.
        self._store.rows.append(sorted(self._pending, key=lambda row: str(row["kind"])))
        self._pending, self._pending_bytes = [], 0
        self._last_flush = time.monotonic()

    def _row(self, kind: str, revision: str, number: int, value: bytes) -> Row:
        self._revisions.add(revision)
        return {
            "revision": revision,
            "document": self._document.id,
            "written": now(),
            "kind": kind,
            "number": number,
            "checksum": crc32(value),
            "size": len(value),
        }

    def _state(self, current: DocumentState | None) -> DocumentState:
        """Return the new state of the document in the catalog."""
        document, encoder = self._document, self._encoder
        files = self._write_original(current)
        written = self._store.rows.scan(_COLUMNS, skip=self._first_row)
        rows = asdict(self._rows(written, self._vectors, document.pages))
        vectors = Vectors(**rows, version=encoder.version, dimension=encoder.dimension)
        pages = None if self._brings_pages else current and current.pages
        return DocumentState(
            id=document.id,
            name=document.name,
            source=document.source,
            size=document.size,
            added=now().isoformat(),
            pages=pages or self._rows(written, self._pages, document.pages),
            vectors={encoder.name: vectors},
            metadata=dict(document.metadata),
            collections=[],
            original=self._rows(written, self._files, files) if files else None,
        )

    def _merge(self, current: DocumentState | None) -> DocumentState:
        """Return the new state of the document, given its current one."""
        if current is None and not self._brings_pages:
            raise checks.conflict_error(self._document, removed=True)
        if current is not None and self._encoder in current.encoders():
            return self._with_source(current)
        new = self._new_state = self._new_state or self._state(current)
        if current is None:
            return self._with_source(new)
        same = current.pages.revision == self._pages
        if self._brings_pages:
            same = current.pages.checksums == new.pages.checksums
        if not same:
            raise checks.conflict_error(self._document, removed=False)
        vectors, original = current.vectors | new.vectors, current.original or new.original
        return self._with_source(current).with_values(vectors=vectors, original=original)

    def _rows(self, written: Sequence[Row], revision: str, count: int) -> Rows:
        """Return the rows of a revision; the later of two rows with the same number is valid."""
        by_number = {row["number"]: row for row in written if row["revision"] == revision}
        if len(by_number) != count:  # earlier rows were deleted, so the scan skipped too many
            rest = self._store.rows.scan(_COLUMNS, f"revision = {quote(revision)}")
            by_number = {row["number"]: row for row in rest}
        rows = [by_number[number] for number in sorted(by_number)]
        if len(rows) != count:
            raise StoreError(
                f"Can't finish adding {self._document.name}: it took so long that compacting "
                "deleted some of its rows. Add it again."
            )
        ids, checksums, sizes = ([r[name] for r in rows] for name in ("_rowid", "checksum", "size"))
        notes = [(row["number"], row["note"]) for row in rows if row["note"] is not None]
        return Rows(revision, ids, checksums, sizes, notes)

    def _with_source(self, state: DocumentState) -> DocumentState:
        """Set a document's name and source; inherit metadata and collections from its predecessor.

        The predecessor is another document with the same source.
        """
        source = self._document.source
        new = state.with_values(name=self._document.name, source=source)
        previous = self._store.log.latest.find_by_source(source)
        if previous is None or previous.id == state.id:
            return new
        return new.with_values(
            metadata={**previous.metadata, **new.metadata},
            collections=sorted({*previous.collections, *new.collections}),
        )

    def _write_original(self, current: DocumentState | None) -> int:
        """Write the original files of the document; return their number."""
        if self._original is None or (current is not None and current.original is not None):
            return 0
        files = {"": self._original}
        if self._original.is_dir():
            inside = (path for path in sorted(self._original.rglob("*")) if path.is_file())
            files = {path.relative_to(self._original).as_posix(): path for path in inside}
        try:
            for number, (name, path) in enumerate(files.items(), start=1):
                data = path.read_bytes()
                row = self._row("file", self._files, number, data)
                self._store.rows.append([row | {"note": name, "data": data}])
        except OSError as error:
            raise StoreError(f"Can't save a copy of {self._original}: {error}.") from error
        return len(files)
