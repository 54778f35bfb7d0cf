"""Adding a document to the SQLite store: pages in any order, one commit at the end."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import numpy as np
from filelock import FileLock, Timeout

from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding
from visar.errors import StoreError
from visar.files import copy_atomically
from visar.results import Document, EncoderRef
from visar.store.arrays import PartWriter, checksum, embedding_bytes
from visar.store.checks import (
    check_complete,
    check_dimension,
    check_new_document,
    check_put,
    conflict_error,
)
from visar.store.database import (
    ARRAYS,
    FILES,
    Garbage,
    delete_document,
    read_catalog,
    translate_errors,
)
from visar.store.pages import PAGE_COLUMNS, page_to_row_values
from visar.store.store import Addition

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from visar.store.sqlite import SqliteStore

# Maximum amount of work that is lost if the process dies, in bytes and seconds.
FLUSH_BYTES = 32 << 20
FLUSH_SECONDS = 10.0


class SqliteAddition(Addition):
    """An addition to a local folder.

    It doesn't touch additions that are in progress in other processes or threads. If several
    additions run in parallel, the first commit completes all of them.
    """

    def __init__(
        self, store: SqliteStore, document: Document, encoder: EncoderRef, original: Path | None
    ) -> None:
        self._store, self._document, self._encoder = store, document, encoder
        self._original = original
        self._put: set[int] = set()
        self._pending: list[tuple[Any, ...]] = []
        self._pending_bytes = 0
        self._last_flush = time.monotonic()
        self._claim: Claim | None = None
        self.stored = self._begin()

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        claim = self._open()
        check_put(self._document, page, embedding, self._encoder, self._put)
        content = page_to_row_values(page) if claim.revision is None else (None,) * 10
        vectors, patches = embedding_bytes(embedding, self._encoder)
        with translate_errors(self._store.location):
            first = claim.writer.append(vectors, patches)
        rows = len(embedding.vectors)
        self._put.add(page.number)
        self._pending.append(
            (
                *(claim.array, first, rows, checksum(vectors, patches), embedding.invalid),
                *(page.number, *content),
            )
        )
        self._pending_bytes += len(vectors) + len(patches)
        waited = time.monotonic() - self._last_flush
        if self._pending_bytes >= FLUSH_BYTES or waited >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        claim = self._open()
        if self._pending:
            with translate_errors(self._store.location):
                claim.writer.sync()
            marks = ", ".join("?" * len(self._pending[0]))
            query = (
                "INSERT OR REPLACE INTO draft_pages "  # noqa: S608
                f"(array, first, rows, checksum, invalid, {PAGE_COLUMNS}, page_checksum) "
                f"VALUES ({marks})"
            )
            with self._store.write_transaction() as connection:
                connection.executemany(query, self._pending)
            claim.ranges |= {row[5]: (row[1], row[2]) for row in self._pending}
        self._pending, self._pending_bytes = [], 0
        self._last_flush = time.monotonic()

    def commit(self) -> Document:
        if self.stored is not None:
            return self.stored
        claim = self._open()
        self.flush()
        check_complete(self._document, claim.ranges)
        garbage, stored = Garbage(), None
        try:
            with translate_errors(self._store.location):
                original = self._store.folder / FILES / self._document.id
                if self._original is not None and not original.exists():
                    copy_atomically(self._original, original)
                array = claim.writer.finish([claim.ranges[n] for n in sorted(claim.ranges)])
            with self._store.write_transaction() as connection:
                self._commit(connection, claim, array, garbage)
                stored = read_catalog(connection, self._document.id)[self._document.id]
        finally:
            # Even after a failure, so that the next addition can resume.
            self._claim = None
            claim.release(finished=stored is not None)
        self._store.delete(garbage)
        self.stored = stored
        return stored

    def close(self) -> None:
        if self._claim is not None:
            claim, garbage = self._claim, Garbage()
            try:
                self.flush()
                if not claim.ranges:
                    with self._store.write_transaction() as connection:
                        _drop_draft(connection, claim.array, garbage)
            finally:
                self._claim = None
                claim.release()
            self._store.delete(garbage)

    def _open(self) -> Claim:
        if self._claim is None:
            raise StoreError(f"The addition of {self._document.name} is closed. Start a new one.")
        return self._claim

    def _begin(self) -> Document | None:
        """Claim a draft; return the document if there is nothing to add."""
        document, encoder, garbage = self._document, self._encoder, Garbage()
        try:
            with self._store.write_transaction() as connection:
                query = "SELECT DISTINCT encoder, version, dimension FROM vectors WHERE encoder = ?"
                versions = connection.execute(query, (encoder.name,))
                check_dimension(encoder, [EncoderRef(*row) for row in versions])
                current = read_catalog(connection, document.id).get(document.id)
                check_new_document(document, current)
                if current is not None and encoder in current.encoders:
                    _update_source(connection, document, garbage)
                    current = read_catalog(connection, document.id)[document.id]
                else:
                    query = "SELECT revision FROM documents WHERE id = ?"
                    row = connection.execute(query, (document.id,)).fetchone()
                    revision = None if row is None else str(row[0])
                    self._adopt(connection, revision, garbage)
                    self._claim = self._claim or self._new_claim(connection, revision)
                    current = None
        except BaseException:
            if self._claim is not None:
                self._claim.release()
            raise
        self._store.delete(garbage)
        self.written = frozenset(() if self._claim is None else self._claim.ranges)
        return current

    def _adopt(
        self, connection: sqlite3.Connection, revision: str | None, garbage: Garbage
    ) -> None:
        """Claim the longest draft without an owner; drop useless drafts."""
        encoder = self._encoder
        query = (
            "SELECT array FROM drafts LEFT JOIN draft_pages USING (array) "
            "WHERE document = ? AND encoder = ? AND version = ? AND dimension = ? "
            "AND revision IS ? GROUP BY array ORDER BY count(number) DESC"
        )
        values = (self._document.id, encoder.name, encoder.version, encoder.dimension, revision)
        for (array,) in connection.execute(query, values).fetchall():
            claim = Claim.acquire(self._store.folder / ARRAYS, array, revision)
            if claim is None:
                continue
            if self._claim is None and claim.reopen(connection, encoder):
                self._claim = claim
                continue
            claim.release()
            _drop_draft(connection, array, garbage)

    def _new_claim(self, connection: sqlite3.Connection, revision: str | None) -> Claim:
        array, encoder = uuid4().hex, self._encoder
        connection.execute(
            "INSERT INTO drafts VALUES (?, ?, ?, ?, ?, ?)",
            (array, self._document.id, encoder.name, encoder.version, encoder.dimension, revision),
        )
        claim = Claim.acquire(self._store.folder / ARRAYS, array, revision)
        assert claim is not None  # noqa: S101 - the name is new
        try:
            claim.writer = PartWriter(self._store.folder / ARRAYS, array, encoder)
        except BaseException:
            claim.release()
            raise
        return claim

    def _commit(
        self, connection: sqlite3.Connection, claim: Claim, array: str, garbage: Garbage
    ) -> None:
        """Insert the vectors and the pages of a draft."""
        document, encoder = self._document, self._encoder
        current = read_catalog(connection, document.id).get(document.id)
        rows = connection.execute(
            "SELECT number, rows, checksum, invalid, page_checksum FROM draft_pages "
            "WHERE array = ? ORDER BY number",
            (claim.array,),
        ).fetchall()
        if current is not None and encoder in current.encoders:
            # Another process committed the same vectors first.
            garbage.arrays.add(array)
            _update_source(connection, document, garbage)
        else:
            self._commit_pages(connection, claim, [row[4] for row in rows], garbage)
            garbage.arrays |= _arrays(connection, document.id, encoder.name)
            invalid = [(row[0], row[3]) for row in rows if row[3] is not None]
            connection.execute(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(document.id, encoder.name, encoder.version, encoder.dimension, array),
                    json.dumps(invalid, ensure_ascii=False),
                    np.array([row[1] for row in rows], "<i4").tobytes(),
                    np.array([row[2] for row in rows], "<u4").tobytes(),
                ),
            )
        _drop_draft(connection, claim.array, garbage)
        garbage.arrays -= _arrays(connection, document.id, encoder.name)

    def _commit_pages(
        self,
        connection: sqlite3.Connection,
        claim: Claim,
        checksums: list[int | None],
        garbage: Garbage,
    ) -> None:
        """Insert the document with the pages of the draft, or check that its pages are the same."""
        document = self._document
        checksum = crc32(np.array([value or 0 for value in checksums], "<i8").tobytes())
        current = connection.execute(
            "SELECT revision, checksum FROM documents WHERE id = ?", (document.id,)
        ).fetchone()
        if current is None and claim.revision is None:
            _insert_document(connection, document, claim.array, checksum, garbage)
        elif current is None:
            raise conflict_error(document, removed=True)
        elif current[1] != checksum if claim.revision is None else current[0] != claim.revision:
            raise conflict_error(document, removed=False)
        else:
            _update_source(connection, document, garbage)


class Claim:
    """Exclusive ownership of a draft, by a lock that is released when the process ends."""

    def __init__(self, folder: Path, array: str, revision: str | None, lock: FileLock) -> None:
        self.array = array
        self.revision = revision
        self.ranges: dict[int, tuple[int, int]] = {}
        """First row and number of rows of each page."""
        self.writer: PartWriter
        self._folder = folder
        self._lock = lock

    @classmethod
    def acquire(cls, folder: Path, array: str, revision: str | None) -> Claim | None:
        """Claim a draft; return None if another addition owns it."""
        lock = FileLock(folder / f"{array}.lock", thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return cls(folder, array, revision, lock)

    @classmethod
    def is_claimed(cls, folder: Path, array: str) -> bool:
        path = folder / f"{array}.lock"
        if not path.exists():
            return False
        if sys.platform != "win32":
            # Acquiring the lock would write to the folder, so only test for it.
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
            return False
        claim = cls.acquire(folder, array, None)
        if claim is not None:
            claim.release()
        return claim is None

    def reopen(self, connection: sqlite3.Connection, encoder: EncoderRef) -> bool:
        """Resume the files of a draft; return False if they don't match its rows."""
        pages = connection.execute(
            "SELECT number, first, rows FROM draft_pages WHERE array = ?", (self.array,)
        )
        self.ranges = {number: (first, rows) for number, first, rows in pages}
        rows = max((first + count for first, count in self.ranges.values()), default=0)
        try:
            self.writer = PartWriter.reopen(self._folder, self.array, encoder, rows)
        except StoreError:
            self.ranges = {}
            return False
        return True

    def release(self, *, finished: bool = False) -> None:
        """Release the draft. Its lock file is only deleted if it is finished.

        Other processes may have the lock file of an unfinished draft open.
        """
        with contextlib.suppress(AttributeError):
            self.writer.close()
        if finished:
            with contextlib.suppress(OSError):
                (self._folder / f"{self.array}.lock").unlink()
        self._lock.release()


def _arrays(connection: sqlite3.Connection, document: str, encoder: str) -> set[str]:
    query = "SELECT array FROM vectors WHERE document = ? AND encoder = ?"
    return {row[0] for row in connection.execute(query, (document, encoder))}


def _drop_draft(connection: sqlite3.Connection, array: str, garbage: Garbage) -> None:
    connection.execute("DELETE FROM drafts WHERE array = ?", (array,))
    garbage.arrays.add(array)


def _replace_previous(connection: sqlite3.Connection, document: Document, garbage: Garbage) -> None:
    """Delete an earlier version of a file; the new one keeps its metadata and collections."""
    if not document.source:
        return
    query = "SELECT id, metadata FROM documents WHERE source = ? AND id <> ?"
    values = (document.source, document.id)
    for previous, metadata in connection.execute(query, values).fetchall():
        query = "SELECT metadata FROM documents WHERE id = ?"
        (own,) = connection.execute(query, (document.id,)).fetchone()
        merged = json.dumps({**json.loads(metadata), **json.loads(own)})
        connection.execute("UPDATE documents SET metadata = ? WHERE id = ?", (merged, document.id))
        connection.execute(
            "INSERT OR IGNORE INTO collections SELECT name, ? FROM collections WHERE document = ?",
            (document.id, previous),
        )
        delete_document(connection, previous, garbage)


def _update_source(connection: sqlite3.Connection, document: Document, garbage: Garbage) -> None:
    """Update the name and source of a document in the index."""
    cursor = connection.execute(
        "UPDATE documents SET name = :name, source = :source "
        "WHERE id = :id AND (name, source) <> (:name, :source)",
        {"name": document.name, "source": document.source, "id": document.id},
    )
    if cursor.rowcount:
        _replace_previous(connection, document, garbage)


def _insert_document(
    connection: sqlite3.Connection,
    document: Document,
    array: str,
    checksum: int,
    garbage: Garbage,
) -> None:
    """Insert a document with the pages of a draft."""
    connection.execute(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(document.id, document.name, document.source, document.pages, document.size),
            *(time.time(), array, checksum, json.dumps(dict(document.metadata))),
        ),
    )
    connection.execute(
        f"INSERT INTO pages (document, {PAGE_COLUMNS}, checksum) "  # noqa: S608
        f"SELECT ?, {PAGE_COLUMNS}, page_checksum FROM draft_pages WHERE array = ? ORDER BY number",
        (document.id, array),
    )
    _replace_previous(connection, document, garbage)
