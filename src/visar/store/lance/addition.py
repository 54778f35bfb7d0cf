"""Adding a document to the LanceDB store: rows under fresh revisions, one commit at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import uuid4
from zlib import crc32

import numpy as np

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.errors import StoreError
from visar.results import Document, EncoderRef
from visar.store import checks
from visar.store.arrays import PATCH, VECTOR, embedding_bytes
from visar.store.lance.catalog import DocumentState, Draft, Entry, Rows, Vectors, now
from visar.store.lance.tables import Row, RowsMissing, quoted
from visar.store.pages import page_of, page_values
from visar.store.summaries import summarise

if TYPE_CHECKING:
    from visar.store.lance.store import LanceStore

# How much of an addition may be lost when the process dies: so many bytes, or seconds of work.
FLUSH_BYTES = 32 << 20
FLUSH_SECONDS = 10.0
_COLUMNS = ("revision", "number", "note", "checksum", "size")


def page_to_row(page: Page) -> Row:
    """The columns ``content`` and ``blocks`` of a page; boxes are rounded to float32."""
    *values, boxes, lines, blocks, _ = page_values(page)
    head = json.dumps([page.number, *values], ensure_ascii=False).encode()
    content = b"".join((head, b"\n", boxes, lines))
    return {"content": content, "blocks": blocks}


def bytes_to_page(value: bytes) -> Page:
    """Read a page from its blocks, if it has any, a line break, and its content.

    Raises ValueError or TypeError if it is damaged.
    """
    blocks, _, content = value.partition(b"\n")
    values, _, words = content.partition(b"\n")
    split = len(words) * 4 // 5  # boxes take 16 bytes a word, lines 4
    return page_of((*json.loads(values), words[:split], words[split:], blocks.decode() or None))


def bytes_to_embedding(content: bytes, dimension: int) -> PageEmbedding:
    """The vectors of a page, with their boxes and words, as views of the bytes of a row."""
    count = len(content) // (dimension * VECTOR.itemsize + PATCH.itemsize)
    vectors = np.frombuffer(content, VECTOR, count * dimension).reshape(count, dimension)
    patches = np.frombuffer(content, PATCH, offset=vectors.nbytes)
    return PageEmbedding(vectors, patches["box"], patches["word"])


class LanceAddition:
    """One document being added: pages are put one by one, then committed together.

    What other additions of the same document and encoder have written before, interrupted or
    still at work, is copied to this one when it begins, so that nobody can take it away. Whoever
    commits first has done the work for all.
    """

    def __init__(
        self, store: LanceStore, document: Document, encoder: EncoderRef, original: Path | None
    ) -> None:
        self._store, self._document, self._encoder = store, document, encoder
        self._original = original
        self._vectors, self._pages, self._files = (uuid4().hex for _ in range(3))
        self._brings_pages = True
        self._recorded = False
        self._put: set[int] = set()
        self._taken: set[int] = set()
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._flushed = time.monotonic()
        self._made: DocumentState | None = None
        self._first_row = 0
        # Revisions with rows, which are dropped at the end unless the document needs them.
        self._revisions: set[str] = set()
        self.stored = self._begin()
        self._open = self.stored is None
        self.written = frozenset(self._taken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        """Write a page and its vectors; a page that was written before is replaced."""
        self._check_open()
        checks.check_put(self._document, page, embedding, self._encoder, self._put)
        content = page_to_row(page) if self._brings_pages else None
        self._put.add(page.number)
        self._take(page.number, content, b"".join(embedding_bytes(embedding)), embedding.invalid)

    def commit(self) -> Document:
        """Make the document visible, whole, and return it."""
        if self.stored is not None:
            return self.stored
        self._check_open()
        checks.check_complete(self._document, self._taken)
        self._write()
        after = self._store.change([self._document.id], self._joined)
        self._open = False
        self._store.drop(self._revisions - after.revisions([self._document.id]))
        # Where another process has removed it again, it was there nevertheless.
        state = after.live.get(self._document.id, self._made)
        if state is None:
            raise checks.changed_meanwhile(self._document, removed=True)
        self.stored = state.stored
        return self.stored

    def close(self) -> None:
        """End the addition; what was written and not committed is kept for the next one."""
        if self._open:
            self._open = False
            if self._taken:
                self._write()
                self._record(closed=True)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError(f"the addition of {self._document.name} is closed")

    def _begin(self) -> Document | None:
        """Take over what is there; return the document if there is nothing to add."""
        catalog = self._store.log.read()
        name = self._encoder.name
        held = (state.vectors.get(name) for state in catalog.live.values())
        versions = {(one.version, one.dimension) for one in held if one is not None}
        checks.check_dimension(self._encoder, (EncoderRef(name, *one) for one in versions))
        known = catalog.live.get(self._document.id)
        if known is not None:
            checks.check_new_document(self._document, known.stored)
            if self._encoder in known.encoders():
                moved = self._store.change([known.id], lambda state: state and self._moved(state))
                return moved.live.get(known.id, known).stored
            self._brings_pages, self._pages = False, known.pages.revision
        self._first_row = self._store.rows.count()
        for document, draft in reversed(catalog.drafts.values()):
            same_pages = draft.brings_pages if known is None else draft.pages == self._pages
            if document == self._document.id and draft.encoder == self._encoder and same_pages:
                for page in self._read(draft):
                    self._take(*page)
                if draft.closed:
                    self._revisions |= {draft.vectors, draft.pages}
        return None

    def _read(self, draft: Draft) -> Iterator[tuple[int, Row | None, bytes, str | None]]:
        """Give the pages of another addition that are not here yet."""
        pages: dict[int, Row | None] = dict.fromkeys(range(1, self._document.pages + 1))
        if draft.brings_pages:
            where = f"revision = {quoted(draft.pages)}"
            found = self._store.rows.scan(("number", "content", "blocks"), where)
            pages = {row["number"]: row for row in found}
        where = f"revision = {quoted(draft.vectors)}"
        columns = ("number", "note", "checksum")
        rows = {
            row["number"]: row
            for row in self._store.rows.scan(columns, where)
            if row["number"] in pages and row["number"] not in self._taken
        }
        try:
            blobs = self._store.rows.blobs([row["_rowid"] for row in rows.values()])
            for (number, row), vectors in zip(rows.items(), blobs, strict=True):
                if crc32(vectors) == row["checksum"]:
                    yield number, pages[number], vectors, row["note"]
        except RowsMissing:
            return  # its writer, or compacting, has dropped it

    def _take(self, number: int, page: Row | None, vectors: bytes, invalid: str | None) -> None:
        self._taken.add(number)
        if page is not None:
            values = {"content": page["content"], "blocks": page.get("blocks")}
            row = self._row("page", self._pages, number, page["content"])
            self._pending.append(row | values)
        row = self._row("vectors", self._vectors, number, vectors)
        summary = summarise([bytes_to_embedding(vectors, self._encoder.dimension).vectors])
        self._pending.append(row | {"note": invalid, "content": summary, "data": vectors})
        self._pending_bytes += len(vectors)
        waited = time.monotonic() - self._flushed
        if self._pending_bytes >= FLUSH_BYTES or waited >= FLUSH_SECONDS:
            if not self._recorded:
                self._record(closed=False)
            self._write()

    def _record(self, *, closed: bool) -> None:
        """Tell other additions of the same document of this one."""
        draft = Draft(self._vectors, self._encoder, self._pages, self._brings_pages, closed)
        self._store.log.append([Entry(document=self._document.id, content=draft)])
        self._recorded = True

    def _write(self) -> None:
        """Write what has gathered, in one step."""
        # By kind: what is read together lies side by side.
        self._store.rows.append(sorted(self._pending, key=lambda row: str(row["kind"])))
        self._pending, self._pending_bytes = [], 0
        self._flushed = time.monotonic()

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

    def _state(self, known: DocumentState | None) -> DocumentState:
        """What the catalog shall say of what was written."""
        document, encoder = self._document, self._encoder
        files = self._write_original(known)
        written = self._store.rows.scan(_COLUMNS, skip=self._first_row)
        rows = asdict(self._rows(written, self._vectors, document.pages))
        vectors = Vectors(**rows, version=encoder.version, dimension=encoder.dimension)
        pages = None if self._brings_pages else known and known.pages
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

    def _joined(self, known: DocumentState | None) -> DocumentState:
        """What the catalog shall say, given what it says."""
        if known is None and not self._brings_pages:
            raise checks.changed_meanwhile(self._document, removed=True)
        if known is not None and self._encoder in known.encoders():
            return self._moved(known)
        made = self._made = self._made or self._state(known)
        if known is None:
            return self._moved(made)
        same = known.pages.revision == self._pages
        if self._brings_pages:
            same = known.pages.checksums == made.pages.checksums
        if not same:
            raise checks.changed_meanwhile(self._document, removed=False)
        vectors, original = known.vectors | made.vectors, known.original or made.original
        return self._moved(known).changed(vectors=vectors, original=original)

    def _rows(self, written: Sequence[Row], revision: str, count: int) -> Rows:
        """Those of the rows written that are of a revision; of two with one number the later."""
        found = {row["number"]: row for row in written if row["revision"] == revision}
        if len(found) != count:  # rows were deleted before these, which were thus skipped
            rest = self._store.rows.scan(_COLUMNS, f"revision = {quoted(revision)}")
            found = {row["number"]: row for row in rest}
        rows = [found[number] for number in sorted(found)]
        if len(rows) != count:
            raise StoreError(
                f"rows of {self._document.name} vanished while it was being added: it took longer "
                "than compacting waits for. Add it again"
            )
        ids, checksums, sizes = ([r[name] for r in rows] for name in ("_rowid", "checksum", "size"))
        notes = [(row["number"], row["note"]) for row in rows if row["note"] is not None]
        return Rows(revision, ids, checksums, sizes, notes)

    def _moved(self, state: DocumentState) -> DocumentState:
        """Put a document where it lies now; it keeps metadata and collections of the file there."""
        source = self._document.source
        moved = state.changed(name=self._document.name, source=source)
        previous = self._store.log.latest.at_source(source)
        if previous is None or previous.id == state.id:
            return moved
        return moved.changed(
            metadata={**previous.metadata, **moved.metadata},
            collections=sorted({*previous.collections, *moved.collections}),
        )

    def _write_original(self, known: DocumentState | None) -> int:
        """Write the files that are kept with the document; return how many there are."""
        if self._original is None or (known is not None and known.original is not None):
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
            raise StoreError(f"{self._original} cannot be kept: {error}") from error
        return len(files)
