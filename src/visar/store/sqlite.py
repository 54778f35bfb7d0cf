"""The store for a local folder: a SQLite database, and memory-mapped arrays for vectors.

Every change is one transaction in WAL mode with ``synchronous=FULL``. Files are written under
temporary names, synced and renamed before the transaction that refers to them, so that additions
are atomic. A file without a row that refers to it is garbage, which `SqliteStore.compact` deletes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from visar.documents.page import Page
from visar.errors import StoreError
from visar.files import make_folder
from visar.forks import OPENING, disable_after_fork
from visar.query import check_collection
from visar.results import Document, EncoderRef
from visar.store.checks import (
    check_encoder,
    check_metadata,
    check_new_document,
    damage_error,
    find_document,
    match_documents,
    not_found_error,
    page_numbers,
)
from visar.store.database import (
    ARRAYS,
    DATABASE,
    FILES,
    Garbage,
    change_item,
    check_folder,
    connect,
    connect_to_read,
    create_reserve,
    delete_document,
    file_identity,
    file_state,
    has_space,
    log_path,
    named_documents,
    page_columns,
    read_catalog,
    read_items,
    release_reserve,
    stored_format,
    summary_files,
    translate_errors,
)
from visar.store.pages import page_to_row_values, row_to_page
from visar.store.store import Backup, Change, Compaction, DocumentVectors, Problem

# Modules with numpy are imported where they are used, because listing documents doesn't need it.
if TYPE_CHECKING:
    from visar.encoders.encoder import PageEmbedding
    from visar.store.arrays import StoredVectors
    from visar.store.sqlite_addition import SqliteAddition

T = TypeVar("T")


class SqliteStore:
    """The `Store` in a local folder."""

    def __init__(
        self,
        location: str,
        connection: sqlite3.Connection,
        *,
        read_only: bool = False,
        recovers: bool = False,
    ) -> None:
        self.location = location
        self.folder = Path(location)
        self.read_only = read_only
        # True if the store becomes writable as soon as its folder does.
        self._recovers = recovers
        self.storage_options: Mapping[str, str] = {}
        self._connection = connection
        self._state = self._read_state()
        self._lock = threading.RLock()
        self._identity = file_identity(self.folder / DATABASE)
        self._changes = 0
        self._catalog_cache: tuple[tuple[int, int], dict[str, Document]] | None = None
        disable_after_fork(self, self._lock)

    @classmethod
    def open(
        cls, location: str | os.PathLike[str], *, create: bool = True, read_only: bool = False
    ) -> SqliteStore:
        """Open the index in a folder; create it if it is missing, unless ``create`` is false.

        With ``read_only``, or while the folder can't be written, no file is changed.

        Raises NotAnIndex if the folder has other files or another format, or is empty and
        ``create`` is false; StoreError if it can't be read or written, or is on a network file
        system.
        """
        location = os.fspath(location)
        folder = Path(location)
        with translate_errors(location):
            check_folder(folder, create and not read_only)
            if read_only or ((folder / DATABASE).exists() and not os.access(folder, os.W_OK)):
                connection = _connect_to_read(folder, location)
                return cls(location, connection, read_only=True, recovers=not read_only)
            if create:
                for name in (ARRAYS, FILES):
                    make_folder(folder / name)
        try:
            return cls(location, _connect(folder, location, create))
        except StoreError as error:
            if (folder / DATABASE).exists() and not has_space(folder):
                connection = _connect_to_read(folder, location)
                return cls(location, connection, read_only=True, recovers=True)
            if not release_reserve(folder, error):  # it also counts towards a quota
                raise
        return cls(location, _connect(folder, location, create))

    def __repr__(self) -> str:
        return f"SqliteStore({self.location!r})"

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        return match_documents(self.catalog().values(), where, collection)

    def get(self, document: str) -> Document:
        return find_document(self.catalog(), document, self.location)

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        with self.read_transaction() as connection:
            stored = self._read_one(connection, document)
            requested = page_numbers(stored, numbers)
            columns = page_columns(connection)
            query = f"SELECT {columns} FROM pages WHERE document = ?"  # noqa: S608
            arguments: list[Any] = [stored.id]
            if numbers is not None:
                query += f" AND number IN ({', '.join('?' * len(numbers))})"
                arguments += numbers
            try:
                pages = {row[0]: row_to_page(row) for row in connection.execute(query, arguments)}
            except (ValueError, TypeError) as error:
                reason = f"a page is malformed: {error}"
                raise damage_error(self.location, stored, reason) from error
        if missing := [number for number in requested if number not in pages]:
            raise damage_error(self.location, stored, f"page {missing[0]} is missing")
        return tuple(pages[number] for number in requested)

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        rows = []
        for page in pages:
            *_, blocks, checksum = page_to_row_values(page)
            rows.append((blocks, document, page.number, checksum))
        query = (
            # A matching checksum means that the blocks belong to the same words.
            "UPDATE pages SET blocks = ? "
            "WHERE document = ? AND number = ? AND checksum = ? AND blocks IS NULL"
        )
        with self.write_transaction() as connection:
            connection.executemany(query, rows)

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder, mapped from their files."""
        return self._stored_vectors(document, encoder).decoded()

    def _stored_vectors(self, document: str, encoder: EncoderRef) -> StoredVectors:
        from visar.store.arrays import StoredVectors

        previous = None
        while True:
            with self.read_transaction() as connection:
                stored = self._read_one(connection, document)
                query = (
                    "SELECT array, lengths FROM vectors "
                    "WHERE document = ? AND encoder = ? AND version = ? AND dimension = ?"
                )
                values = (document, encoder.name, encoder.version, encoder.dimension)
                entry = connection.execute(query, values).fetchone()
                if entry is None:
                    check_encoder(read_catalog(connection, document)[document], encoder)
            array, lengths = entry
            try:
                return StoredVectors.map(self.folder / ARRAYS, array, lengths, encoder)
            except (StoreError, ValueError) as error:
                # Another process may have replaced the files since the row was read.
                if entry == previous:
                    raise damage_error(self.location, stored, str(error)) from error
            previous = entry

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of some pages by an encoder, mapped from their files."""
        stored = {id_: self._stored_vectors(id_, encoder) for id_ in {id_ for id_, _ in page_ids}}
        return [stored[id_].page(number) for id_, number in page_ids]

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:  # noqa: ARG002
        """Return None, because summaries are quickly made from mapped vectors."""
        return None

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> SqliteAddition:
        from visar.store.sqlite_addition import SqliteAddition

        check_new_document(document)
        create_reserve(self.folder)
        return SqliteAddition(self, document, encoder, original)

    def original(self, document: str) -> Path | None:
        path = self.folder / FILES / self.get(document).id
        return path if path.exists() else None

    def remove(self, document: str) -> Document:
        stored = self.get(document)

        def delete_rows() -> Garbage:
            garbage = Garbage()
            with self.write_transaction() as connection:
                delete_document(connection, stored.id, garbage)
            return garbage

        self.delete(self._retry_without_reserve(delete_rows))
        return stored

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        stored = self.get(document)
        content = json.dumps(check_metadata(metadata))
        with self.write_transaction() as connection:
            connection.execute(
                "UPDATE documents SET metadata = ? WHERE id = ?", (content, stored.id)
            )
        return self.get(stored.id)

    def collections(self) -> dict[str, int]:
        with self.read_transaction() as connection:
            query = "SELECT name, count(*) FROM collections GROUP BY name ORDER BY name"
            return dict(connection.execute(query).fetchall())

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        check_collection(collection)
        rows = [(collection, self.get(document).id) for document in documents]
        with self.write_transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO collections VALUES (?, ?)", rows)

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        query = "DELETE FROM collections WHERE name = ?"
        rows: list[tuple[str, ...]] = [(collection,)]
        if documents is not None:
            query += " AND document = ?"
            rows = [(collection, self.get(document).id) for document in documents]
        with self.write_transaction() as connection:
            connection.executemany(query, rows)

    def items(self, kind: str, prefix: str = "") -> dict[str, Any]:
        with self.read_transaction() as connection:
            return read_items(connection, kind, prefix)

    def change_item(self, kind: str, id_: str, change: Change) -> Any:
        with self.write_transaction() as connection:
            return change_item(connection, kind, id_, change)

    def backup(
        self, target: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Backup:
        from visar.store.sqlite_upkeep import back_up

        if "://" in os.fspath(target):
            raise StoreError(f"Can't back up to {target}: it isn't a folder. Choose a new folder.")
        return back_up(self, Path(target).resolve(), progress or (lambda _done, _total: None))

    def verify(self) -> list[Problem]:
        from visar.store.sqlite_upkeep import find_problems

        with self.read_transaction() as connection:
            problems = list(find_problems(connection, self.folder))
        if problems:
            # A change by another process can look like a problem while it is in progress.
            with self.read_transaction() as connection:
                again = set(find_problems(connection, self.folder))
            problems = [problem for problem in problems if problem in again]
        return problems

    def compact(self) -> Compaction:
        """Delete data of interrupted additions and free unused space."""
        return self._retry_without_reserve(self._compact)

    def _compact(self) -> Compaction:
        from visar.store.sqlite_upkeep import delete_garbage, drop_drafts

        with self.write_transaction() as connection:
            # A commit that failed at its very end reappears when the log is read again, unless
            # another commit overwrites it. So this transaction must write before deleting files.
            connection.execute(f"PRAGMA user_version = {stored_format(connection)}")
            pages = drop_drafts(connection, self.folder)
        with self.write_transaction() as connection:
            files, size = delete_garbage(connection, self.folder)
        optimize = "INSERT INTO page_text (page_text) VALUES ('optimize')"
        with self._locked_connection() as connection:
            for statement in (optimize, "VACUUM", "PRAGMA wal_checkpoint (TRUNCATE)"):
                # This fails if others are reading or the disk is full. The next call retries it.
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute(statement)
            self._changes += 1
        return Compaction(pages=pages, files=files, bytes=size)

    def catalog(self) -> dict[str, Document]:
        """Return all documents by id; read them again if the index has changed."""
        with self.read_transaction() as connection:
            version = connection.execute("PRAGMA data_version").fetchone()[0], self._changes
            if self._catalog_cache is None or self._catalog_cache[0] != version:
                self._catalog_cache = version, read_catalog(connection)
            return self._catalog_cache[1]

    def _read_one(self, connection: sqlite3.Connection, document: str) -> Document:
        """Return a document with only the fields that reading it needs."""
        query = "SELECT id, name, pages, size FROM documents WHERE id = ?"
        row = connection.execute(query, (document,)).fetchone()
        if row is None:
            raise not_found_error(document, self.location)
        return Document(*row)

    @contextlib.contextmanager
    def _locked_connection(self) -> Iterator[sqlite3.Connection]:
        """Lock the connection for this thread; raise StoreError if the index was removed."""
        with self._lock, translate_errors(self.location):
            self._check_not_replaced()
            if self.read_only and not self._connection.in_transaction:
                self._reconnect()
            yield self._connection

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Start a transaction that reads a consistent snapshot."""
        with self._locked_connection() as connection:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Start a transaction that writes; roll it back on an error."""
        with self._locked_connection() as connection:
            is_full = self._recovers and self.read_only and not has_space(self.folder)
            if is_full and os.access(self.folder, os.W_OK):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._changes += 1

    def _retry_without_reserve(self, work: Callable[[], T]) -> T:
        """Run work that frees space; if the disk is full, delete the reserve and retry."""
        try:
            return work()
        except StoreError as error:
            if not release_reserve(self.folder, error):
                raise
        with self._locked_connection() as connection:
            # Overwriting deleted data takes seven times the space, and compacting drops it anyway.
            connection.execute("PRAGMA secure_delete = OFF")
        return work()

    def _check_not_replaced(self) -> None:
        if file_identity(self.folder / DATABASE) != self._identity:
            raise StoreError(
                f"The index {self.location} was removed or replaced while it was open. Open it "
                "again."
            )

    def _reconnect(self) -> None:
        """Reconnect if another process has changed a read-only index, which has no locks.

        If the folder has become writable, so does the index.
        """
        if self._recovers and os.access(self.folder, os.W_OK) and has_space(self.folder):
            # Close first: connections of a process share memory, which is mapped read-only here.
            self._connection.close()
            self._changes += 1
            try:
                self._connection = _connect(self.folder, self.location, create=False)
                self.read_only = False
            except StoreError:  # such as a quota
                self._connection = _connect_to_read(self.folder, self.location)
            return
        state = self._read_state()
        if state != self._state:
            self._connection.close()
            self._connection = _connect_to_read(self.folder, self.location)
            self._state = state
            self._changes += 1

    def _read_state(self) -> tuple[object, ...]:
        path = self.folder / DATABASE
        return file_state(path), file_state(log_path(path))

    def delete(self, garbage: Garbage) -> None:
        """Delete files that no row refers to; compacting deletes the rest later."""
        from visar.store.arrays import all_paths
        from visar.store.sqlite_upkeep import delete_path

        for array in garbage.arrays:
            for path in all_paths(self.folder / ARRAYS, array):
                with contextlib.suppress(OSError):
                    path.unlink()
        for document, path in summary_files(self.folder) if garbage.documents else ():
            if document in garbage.documents:
                with contextlib.suppress(OSError):
                    path.unlink()
        if any((self.folder / FILES / document).exists() for document in garbage.documents):
            # In a transaction, so that no process adds the document again at the same time.
            with self.write_transaction() as connection:
                for document in set(garbage.documents) - named_documents(connection):
                    delete_path(self.folder / FILES / document)


def _connect(folder: Path, location: str, create: bool) -> sqlite3.Connection:
    with OPENING, translate_errors(location):
        return connect(folder / DATABASE, location, create=create)


def _connect_to_read(folder: Path, location: str) -> sqlite3.Connection:
    with OPENING, translate_errors(location):
        return connect_to_read(folder / DATABASE, location)
