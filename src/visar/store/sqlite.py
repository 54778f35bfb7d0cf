"""The index of one machine: SQLite for what is looked up, mapped arrays for vectors.

Every change is one transaction in WAL mode with ``synchronous=FULL``. Files are written beside,
synced and renamed before the transaction that names them, so that a document is seen whole or not
at all; a file that no row names is garbage, which `SqliteStore.compact` collects.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visar.documents.page import Page
from visar.errors import StoreError
from visar.results import Document, EncoderRef
from visar.store.checks import (
    check_encoder,
    check_metadata,
    check_new_document,
    damaged,
    find_document,
    matching,
    page_numbers,
    removed,
)
from visar.store.database import (
    ARRAYS,
    DATABASE,
    FILES,
    Garbage,
    check_folder,
    connect,
    delete_document,
    explained,
    identity,
    named_documents,
    page_columns,
    read_catalog,
    stored_format,
    summary_files,
)
from visar.store.pages import page_of, page_values
from visar.store.records import Compaction, DocumentVectors, Problem

# numpy, and what adds and looks after, are imported where they are used: listing needs neither.
if TYPE_CHECKING:
    from visar.encoders.protocol import PageEmbedding
    from visar.store.sqlite_addition import SqliteAddition


class SqliteStore:
    """Documents, their pages with words, and their vectors, in a folder of this machine.

    Several processes may use the same index at once, several threads the same store.
    """

    def __init__(self, location: str, connection: sqlite3.Connection) -> None:
        self.location = location
        self.folder = Path(location)
        self.storage_options: dict[str, str] = {}
        self._connection = connection
        self._lock = threading.RLock()
        self._identity = identity(self.folder / DATABASE)
        self._changes = 0
        self._listed: tuple[tuple[int, int], dict[str, Document]] | None = None

    @classmethod
    def open(cls, location: str | os.PathLike[str], *, create: bool = True) -> SqliteStore:
        """Open the index in a folder, or make one there unless ``create`` is false.

        Raises
        ------
        NotAnIndex
            If the folder holds something else, another format, or nothing and ``create`` is false.
        StoreError
            If it cannot be read or written, or lies on a network file system.
        """
        place = os.fspath(location)
        folder = Path(place)
        with explained(place):
            check_folder(folder, create)
            if create:
                for name in (ARRAYS, FILES):
                    (folder / name).mkdir(parents=True, exist_ok=True)
            connection = connect(folder / DATABASE, place, create=create)
        return cls(place, connection)

    def __repr__(self) -> str:
        return f"SqliteStore({self.location!r})"

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added, all or those that match."""
        return matching(self.catalog().values(), where, collection)

    def get(self, document: str) -> Document:
        """Return the document with this id or name, or whose id alone begins like this."""
        return find_document(self.catalog(), document, self.location)

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages with these numbers, in that order; all if none are given."""
        with self.reading() as connection:
            stored = self._read_one(connection, document)
            wanted = page_numbers(stored, numbers)
            columns = page_columns(connection)
            query = f"SELECT {columns} FROM pages WHERE document = ?"  # noqa: S608
            arguments: list[Any] = [stored.id]
            if numbers is not None:
                query += f" AND number IN ({', '.join('?' * len(numbers))})"
                arguments += numbers
            try:
                found = {row[0]: page_of(row) for row in connection.execute(query, arguments)}
            except (ValueError, TypeError) as error:
                raise damaged(self.location, stored, f"a page cannot be read: {error}") from error
        if missing := [number for number in wanted if number not in found]:
            raise damaged(self.location, stored, f"page {missing[0]} is missing")
        return tuple(found[number] for number in wanted)

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        """Keep the blocks of pages that are stored without any."""
        rows = []
        for page in pages:
            *_, blocks, checksum = page_values(page)
            rows.append((blocks, document, page.number, checksum))
        query = (
            # The checksum tells that the words are still those which the blocks were found in.
            "UPDATE pages SET blocks = ? "
            "WHERE document = ? AND number = ? AND checksum = ? AND blocks IS NULL"
        )
        with self.writing() as connection:
            connection.executemany(query, rows)

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder, mapped from their files."""
        tried = None
        while True:
            with self.reading() as connection:
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
                return self._mapped(array, lengths, encoder.dimension)
            except (StoreError, ValueError) as error:
                # Another process may have replaced them since the row was read.
                if entry == tried:
                    raise damaged(self.location, stored, str(error)) from error
            tried = entry

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of pages by an encoder, mapped from their files."""
        mapped = {id_: self.vectors(id_, encoder) for id_ in {id_ for id_, _ in page_ids}}
        return [mapped[id_].page(number) for id_, number in page_ids]

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:  # noqa: ARG002
        """Return None: where vectors are mapped, summaries are soon made from them."""
        return None

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> SqliteAddition:
        """Begin to add a document, or go on with an interrupted addition of it.

        ``original`` is the file, or the folder of page images, that is kept with the document.
        """
        from visar.store.sqlite_addition import SqliteAddition

        check_new_document(document)
        return SqliteAddition(self, document, encoder, original)

    def original(self, document: str) -> Path | None:
        """Return the file or folder that was kept of a document, if any was."""
        path = self.folder / FILES / self.get(document).id
        return path if path.exists() else None

    def remove(self, document: str) -> Document:
        """Remove the document with everything that belongs to it."""
        stored = self.get(document)
        garbage = Garbage()
        with self.writing() as connection:
            delete_document(connection, stored.id, garbage)
        self.delete(garbage)
        return stored

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        """Replace the metadata of a document."""
        stored = self.get(document)
        content = json.dumps(check_metadata(metadata))
        with self.writing() as connection:
            connection.execute(
                "UPDATE documents SET metadata = ? WHERE id = ?", (content, stored.id)
            )
        return self.get(stored.id)

    def collections(self) -> dict[str, int]:
        """Return the names of the collections, and how many documents each has."""
        with self.reading() as connection:
            query = "SELECT name, count(*) FROM collections GROUP BY name ORDER BY name"
            return dict(connection.execute(query).fetchall())

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Put documents into a collection, which begins with its first document."""
        rows = [(collection, self.get(document).id) for document in documents]
        with self.writing() as connection:
            connection.executemany("INSERT OR IGNORE INTO collections VALUES (?, ?)", rows)

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Take documents, or all, out of a collection; the documents stay."""
        query = "DELETE FROM collections WHERE name = ?"
        rows: list[tuple[str, ...]] = [(collection,)]
        if documents is not None:
            query += " AND document = ?"
            rows = [(collection, self.get(document).id) for document in documents]
        with self.writing() as connection:
            connection.executemany(query, rows)

    def verify(self) -> list[Problem]:
        """Read everything and report what is wrong. Changes nothing."""
        from visar.store.sqlite_upkeep import find_problems, find_text_problems

        with self._connected() as connection:
            problems = list(find_text_problems(connection))
        with self.reading() as connection:
            found = list(find_problems(connection, self.folder))
        if found:
            # What other processes were about to do is done the second time.
            with self.reading() as connection:
                again = set(find_problems(connection, self.folder))
            problems += [problem for problem in found if problem in again]
        return problems

    def compact(self) -> Compaction:
        """Drop what interrupted additions have left and give the room of the deleted back."""
        from visar.store.sqlite_upkeep import delete_garbage, drop_drafts

        with self.writing() as connection:
            # A commit that failed at its very end comes back when the log is read again, unless
            # another one was written over it: so this one must write, before files are deleted.
            connection.execute(f"PRAGMA user_version = {stored_format(connection)}")
            pages = drop_drafts(connection, self.folder)
        with self.writing() as connection:
            files, size = delete_garbage(connection, self.folder)
        with self._connected() as connection:
            connection.execute("INSERT INTO page_text (page_text) VALUES ('optimize')")
            # Others may be reading: then the room is given back another time.
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
            self._changes += 1
        return Compaction(pages=pages, files=files, bytes=size)

    # The catalog: all documents, read again when something has changed.

    def catalog(self) -> dict[str, Document]:
        """All documents by id, read again when something has changed."""
        with self.reading() as connection:
            version = connection.execute("PRAGMA data_version").fetchone()[0], self._changes
            if self._listed is None or self._listed[0] != version:
                self._listed = version, read_catalog(connection)
            return self._listed[1]

    def _read_one(self, connection: sqlite3.Connection, document: str) -> Document:
        """Return what is needed of a document to read it, without a look at the others."""
        query = "SELECT id, name, pages, size FROM documents WHERE id = ?"
        row = connection.execute(query, (document,)).fetchone()
        if row is None:
            raise removed(document, self.location)
        return Document(*row)

    def _mapped(self, array: str, lengths: bytes, dimension: int) -> DocumentVectors:
        import numpy as np

        from visar.store.arrays import map_arrays

        offsets = np.concatenate([[0], np.cumsum(np.frombuffer(lengths, "<i4"), dtype=np.int64)])
        offsets.setflags(write=False)
        vectors, patches = map_arrays(self.folder / ARRAYS, array, int(offsets[-1]), dimension)
        return DocumentVectors(vectors, offsets, patches["box"], patches["word"])

    # Connections and transactions.

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; refused if the index was removed."""
        with self._lock, explained(self.location):
            self._check_there()
            yield self._connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction to read in: other processes change nothing of what it sees."""
        with self._connected() as connection:
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
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction to write in: all of it, or nothing."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._changes += 1

    def _check_there(self) -> None:
        if identity(self.folder / DATABASE) != self._identity:
            raise StoreError(
                f"the index {self.location} was removed or replaced while it was open: open it "
                "again"
            )

    def delete(self, garbage: Garbage) -> None:
        """Delete files that no row names; what cannot be deleted now is collected later."""
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
            # In a transaction, so that nobody adds the document again at the same moment.
            with self.writing() as connection:
                for document in set(garbage.documents) - named_documents(connection):
                    delete_path(self.folder / FILES / document)
