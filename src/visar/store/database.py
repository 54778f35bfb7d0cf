"""The database of the SQLite store: its file, its tables, and its rows as records."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from visar._version import DISTRIBUTION
from visar.errors import NotAnIndex, StoreError
from visar.results import Document, EncoderRef, InvalidPage, all_without_text
from visar.store.checks import advice
from visar.store.pages import PAGE_COLUMNS

FORMAT = 3
"""Format version of the folder: 1 was LanceDB, 2 stored no blocks."""
_WITHOUT_BLOCKS = 2
DATABASE = "index.sqlite"
ARRAYS = "vectors"
FILES = "files"
SUMMARIES = "summaries"
"""A folder for each encoder with files DOCUMENT-ADDED: made by searches, and made again if lost."""
# How long a writer waits for another one.
_BUSY_SECONDS = 60.0
# File systems on which SQLite's locks or its shared memory cannot be relied on.
_NETWORK = {"afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs"}


def check_folder(folder: Path, create: bool) -> None:
    """Refuse a folder that is something else than an index, or cannot be one."""
    location = str(folder)
    if folder.exists() and not folder.is_dir():
        raise NotAnIndex(f"{location} is a file; an index is a folder")
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if DATABASE in names:
        return
    if "catalog.lance" in names:
        raise NotAnIndex(
            f"{location} was written by an older version of ViSAR, whose format is not read any "
            "more: choose another folder, and add the documents again"
        )
    if names - {ARRAYS, FILES}:
        raise NotAnIndex(
            f"{location} is not an index: it holds other files, such as "
            f"{min(names)!r}. Choose an empty or a new folder"
        )
    if not create:
        raise no_index(location)
    kind = _file_system(folder)
    if kind in _NETWORK:
        raise StoreError(
            f"{location} is on a network file system ({kind}), where several computers would "
            "damage the index: choose a folder on a disk of this computer, or s3://"
        )


def no_index(location: str) -> NotAnIndex:
    """Return the error that there is none."""
    return NotAnIndex(f"there is no index at {location}. Adding a document makes one")


def _file_system(folder: Path) -> str | None:
    """The kind of the file system a folder is on, where the system tells (Linux)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    place = os.path.realpath(folder)
    best, kind = "", None
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        under = place == mount or place.startswith(mount.rstrip("/") + "/")
        if under and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


def connect(path: Path, location: str, *, create: bool) -> sqlite3.Connection:
    """Open the database, making its tables if it has none and ``create`` is true."""
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if create and stored_format(connection) == 0:
            _create(connection, location)
        if stored_format(connection) == _WITHOUT_BLOCKS:
            _add_blocks(connection)
        _refuse_other_formats(stored_format(connection), location)
    except BaseException:
        connection.close()
        raise
    return connection


def stored_format(connection: sqlite3.Connection) -> int:
    """Return the format of the database, 0 if it has no tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_other_formats(found: int, location: str) -> None:
    if found == 0:  # its making was interrupted
        raise no_index(location)
    if found not in (_WITHOUT_BLOCKS, FORMAT):
        raise NotAnIndex(
            f"{location} has the format {found}, and this version of ViSAR reads {FORMAT}: "
            f"pip install --upgrade {DISTRIBUTION}, or choose another folder"
        )


def _create(connection: sqlite3.Connection, location: str) -> None:
    mode = _write_ahead(connection)
    if mode != "wal":
        raise StoreError(
            f"{location} is on a file system without what SQLite's write-ahead log needs "
            f"(journal mode {mode}): choose a folder on a local disk"
        )
    connection.execute("BEGIN IMMEDIATE")
    if stored_format(connection) == 0:
        schema = resources.files("visar.store").joinpath("schema.sql").read_text(encoding="utf-8")
        for statement in _statements(schema):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _add_blocks(connection: sqlite3.Connection) -> None:
    """Give the tables of format 2 their new column; an index that is read-only stays as it is."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        if stored_format(connection) == _WITHOUT_BLOCKS:  # another process may have been faster
            for table in ("pages", "draft_pages"):
                columns = connection.execute(f"PRAGMA table_info ({table})").fetchall()
                # A process of the version before that compacts still writes its own format.
                if "blocks" not in {column[1] for column in columns}:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN blocks TEXT")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
            raise


def page_columns(connection: sqlite3.Connection) -> str:
    """Return `PAGE_COLUMNS`, with NULL for the column that a read-only index of format 2 lacks."""
    known = stored_format(connection) != _WITHOUT_BLOCKS
    return PAGE_COLUMNS if known else PAGE_COLUMNS.replace("blocks", "NULL")


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Switch the log on; where others do so at the same moment SQLite does not wait by itself."""
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script: ``executescript`` would commit before the first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another under the same name; None if it is gone."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


@contextlib.contextmanager
def explained(location: str) -> Iterator[None]:
    """Turn what the system and SQLite refuse to a `StoreError` that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the index {location}: {advice(str(error))}") from error
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        reason = advice(error.strerror or str(error))
        raise StoreError(f"the index {location}: {reason}{where}") from error


def read_catalog(
    connection: sqlite3.Connection, document: str | None = None
) -> dict[str, Document]:
    """Return all documents by id, in the order they were added, or one alone.

    Raises
    ------
    sqlite3.DatabaseError
        If a row does not hold what it should.
    """
    try:
        return dict(_read_documents(connection, document))
    except (ValueError, TypeError, OverflowError) as error:
        raise sqlite3.DatabaseError(f"malformed row: {error}") from error


def _read_documents(
    connection: sqlite3.Connection, document: str | None
) -> Iterator[tuple[str, Document]]:
    where, id_where = ("", "") if document is None else (" WHERE document = ?", " WHERE id = ?")
    values = () if document is None else (document,)
    encoders: dict[str, tuple[EncoderRef, ...]] = {}
    invalid: dict[str, tuple[InvalidPage, ...]] = {}
    # Most documents have vectors of the same encoder: one object for all of them.
    references: dict[tuple[str, str, int], tuple[EncoderRef]] = {}
    query = (
        f"SELECT document, invalid, encoder, version, dimension FROM vectors{where} "  # noqa: S608
        "ORDER BY encoder"
    )
    for id_, failures, *encoder in connection.execute(query, values).fetchall():
        key = tuple(encoder)
        reference = references.get(key) or references.setdefault(key, (EncoderRef(*key),))
        encoders[id_] = encoders[id_] + reference if id_ in encoders else reference
        if failures != "[]":
            pages = [InvalidPage(key[0], number, why) for number, why in json.loads(failures)]
            invalid[id_] = (*invalid.get(id_, ()), *pages)
    collections: dict[str, tuple[str, ...]] = {}
    query = f"SELECT name, document FROM collections{where} ORDER BY name"  # noqa: S608
    for name, id_ in connection.execute(query, values):
        collections[id_] = (*collections.get(id_, ()), name)
    query = (
        f"SELECT id, name, source, pages, size, added, metadata FROM documents{id_where} "  # noqa: S608
        "ORDER BY added, rowid"
    )
    for id_, name, source, pages, size, added, metadata in connection.execute(query, values):
        yield (
            id_,
            Document(
                id_,
                name,
                pages,
                size,
                datetime.fromtimestamp(added, UTC),
                encoders.get(id_, ()),
                source=source,
                invalid=invalid.get(id_, ()),
                no_text=all_without_text(pages, invalid.get(id_, ())),
                metadata=json.loads(metadata) if metadata != "{}" else {},
                collections=collections.get(id_, ()),
            ),
        )


@dataclass(slots=True)
class Garbage:
    """What no row names any more."""

    arrays: set[str] = field(default_factory=set)
    documents: set[str] = field(default_factory=set)
    """Whose originals are not needed."""


def delete_document(connection: sqlite3.Connection, document: str, garbage: Garbage) -> None:
    """Delete a document's rows, and say which files are garbage then."""
    query = "SELECT array FROM vectors WHERE document = ?"
    garbage.arrays |= {row[0] for row in connection.execute(query, (document,))}
    garbage.documents.add(document)
    connection.execute("DELETE FROM documents WHERE id = ?", (document,))


def summary_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files of summaries, each after the id of its document."""
    files = (folder / SUMMARIES).glob("*/*")
    return [(path.name.rpartition("-")[0], path) for path in files]


def named_documents(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of all documents in the index, and of those that are being added."""
    query = "SELECT id FROM documents UNION SELECT document FROM drafts"
    return {row[0] for row in connection.execute(query)}
