"""The database of the SQLite store: its file, its tables, and reading its rows."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from visar._version import DISTRIBUTION
from visar.errors import NotAnIndex, StoreError
from visar.results import Document, EncoderRef, InvalidPage
from visar.store.checks import all_without_text, no_index_error, store_error
from visar.store.pages import PAGE_COLUMNS
from visar.store.store import Change

FORMAT = 3
"""Format version of the folder: 1 was LanceDB, 2 stored no blocks."""
_FORMAT_WITHOUT_BLOCKS = 2
DATABASE = "index.sqlite"
ARRAYS = "vectors"
FILES = "files"
SUMMARIES = "summaries"
"""Folder with a subfolder per encoder and files DOCUMENT-ADDED. Searches recreate missing files."""
RESERVE = "reserve"
"""File that is deleted when the disk is full, because removing a document needs space first."""
# Enough to remove a document of 1,000 pages.
_RESERVE_BYTES = 2 << 20
# Less than the reserve, so that deleting it makes the index writable.
_BYTES_TO_WRITE = 1 << 20
# The reserve is only created if this much space is free.
_MIN_FREE_BYTES = 16 << 20
# SQLite's error codes on a full disk, including failures to create or extend its other files.
_DISK_FULL_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
# Timeout for a writer that waits for another one.
_BUSY_SECONDS = 60.0
# File systems on which SQLite's locks or its shared memory aren't reliable.
_NETWORK_FILE_SYSTEMS = {
    "afs",
    "ceph",
    "cifs",
    "fuse.sshfs",
    "glusterfs",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
}


def check_folder(folder: Path, create: bool) -> None:
    """Raise an error for a folder that isn't an index, or that can't become one."""
    location = str(folder)
    if folder.exists() and not folder.is_dir():
        raise NotAnIndex(f"{location} is a file, but an index is a folder. Choose another path.")
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if DATABASE in names:
        return
    if "catalog.lance" in names:
        raise NotAnIndex(
            f"{location} was written by an older version of ViSAR in a format that is no longer "
            "supported. Choose another folder, and add the documents again."
        )
    if names - {ARRAYS, FILES}:
        raise NotAnIndex(
            f"{location} isn't an index: it contains other files, such as "
            f"{min(names)!r}. Choose an empty or a new folder."
        )
    if not create:
        raise no_index_error(location)
    kind = _file_system(folder)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"{location} is on a network file system ({kind}), where several computers could "
            "damage the index. Choose a folder on a local disk, or use s3://."
        )


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system of a folder, or None if it is unknown (not on Linux)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    path = os.path.realpath(folder)
    best, kind = "", None
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


def connect(path: Path, location: str, *, create: bool) -> sqlite3.Connection:
    """Open the database; create missing tables if ``create`` is true."""
    connection = _connect(path, f"mode={'rwc' if create else 'rw'}")
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if create and stored_format(connection) == 0:
            _create(connection, location)
        if stored_format(connection) == _FORMAT_WITHOUT_BLOCKS:
            _add_blocks(connection)
        _check_format(stored_format(connection), location)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path, location: str) -> sqlite3.Connection:
    """Open the database without changing any file, even after a crash of another process."""
    if path.with_name(f"{path.name}-shm").exists():
        connection = _connect(path, "mode=ro&readonly_shm=1")
    elif (file_state(log_path(path)) or (0,))[-1]:
        # No process uses the log, so no locks are needed. SQLite indexes it in memory.
        connection = _connect(path, "mode=ro&vfs=unix-none")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    else:
        connection = _connect(path, "immutable=1")
    try:
        _check_format(stored_format(connection), location)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection: sqlite3.Connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    return connection


def stored_format(connection: sqlite3.Connection) -> int:
    """Return the format version of the database, or 0 if it has no tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_format(version: int, location: str) -> None:
    if version == 0:  # the process that created it was interrupted
        raise no_index_error(location)
    if version not in (_FORMAT_WITHOUT_BLOCKS, FORMAT):
        raise NotAnIndex(
            f"{location} has format {version}, but this version of ViSAR reads format {FORMAT}. "
            f"Run pip install --upgrade {DISTRIBUTION}, or choose another folder."
        )


def _create(connection: sqlite3.Connection, location: str) -> None:
    mode = _enable_write_ahead_log(connection)
    if mode != "wal":
        raise StoreError(
            f"{location} is on a file system that doesn't support SQLite's write-ahead log "
            f"(journal mode {mode}). Choose a folder on a local disk."
        )
    connection.execute("BEGIN IMMEDIATE")
    if stored_format(connection) == 0:
        schema = resources.files("visar.store").joinpath("schema.sql").read_text(encoding="utf-8")
        for statement in _statements(schema):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _add_blocks(connection: sqlite3.Connection) -> None:
    """Add the new column to tables of format 2, unless the index is read-only."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been faster.
        if stored_format(connection) == _FORMAT_WITHOUT_BLOCKS:
            for table in ("pages", "draft_pages"):
                columns = connection.execute(f"PRAGMA table_info ({table})").fetchall()
                # A process of the previous version resets the format number when it compacts.
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
    """Return `PAGE_COLUMNS`, with NULL for the column that's missing in format 2."""
    has_blocks = stored_format(connection) != _FORMAT_WITHOUT_BLOCKS
    return PAGE_COLUMNS if has_blocks else PAGE_COLUMNS.replace("blocks", "NULL")


def _enable_write_ahead_log(connection: sqlite3.Connection) -> str:
    """Enable the write-ahead log; retry, because SQLite doesn't wait for other processes here."""
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, because ``executescript`` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def log_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if it is missing."""
    state = file_state(path)
    return state and state[:2]


def file_state(path: Path) -> tuple[int, int, int, int] | None:
    """Return the identity, modification time and size of a file, or None if it is missing."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size


@contextlib.contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Convert errors of SQLite and the system to a `StoreError` with advice."""
    subject = f"Can't use the index {location}"
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(subject, str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise store_error(subject, reason, str(error.filename or "")) from error


def has_space(folder: Path) -> bool:
    """Return whether the disk has enough space to open the database to write."""
    return shutil.disk_usage(folder).free >= _BYTES_TO_WRITE


def create_reserve(folder: Path) -> None:
    """Create the reserve if it is missing or incomplete and the disk has space."""
    path = folder / RESERVE
    if (file_state(path) or (0,))[-1] == _RESERVE_BYTES:
        return
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free >= _MIN_FREE_BYTES:
            # Random bytes take up space even if the file system compresses.
            path.write_bytes(os.urandom(_RESERVE_BYTES))


def release_reserve(folder: Path, error: StoreError) -> bool:
    """Delete the reserve if the disk is full; return whether that freed space."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        is_full = cause.sqlite_errorcode & 0xFF in _DISK_FULL_CODES
    else:
        is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    try:
        if is_full:
            (folder / RESERVE).unlink()
    except OSError:
        return False
    return is_full


def read_catalog(
    connection: sqlite3.Connection, document: str | None = None
) -> dict[str, Document]:
    """Return all documents, or one, by id, in the order they were added.

    Raises sqlite3.DatabaseError if a row is malformed.
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
    # Most documents have vectors of the same encoder, so they share one object.
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
            pages = [InvalidPage(key[0], number, reason) for number, reason in json.loads(failures)]
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
    """Files that no row refers to."""

    arrays: set[str] = field(default_factory=set)
    """Names of arrays."""
    documents: set[str] = field(default_factory=set)
    """Ids of documents with original files and summaries."""


def delete_document(connection: sqlite3.Connection, document: str, garbage: Garbage) -> None:
    """Delete a document's rows, and add its files to the garbage."""
    query = "SELECT array FROM vectors WHERE document = ?"
    garbage.arrays |= {row[0] for row in connection.execute(query, (document,))}
    garbage.documents.add(document)
    connection.execute("DELETE FROM documents WHERE id = ?", (document,))


def summary_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files with summaries, each with the id of its document."""
    files = (folder / SUMMARIES).glob("*/*")
    return [(path.name.rpartition("-")[0], path) for path in files]


def named_documents(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of all documents in the index or being added."""
    query = "SELECT id FROM documents UNION SELECT document FROM drafts"
    return {row[0] for row in connection.execute(query)}


# Created with the first item, so that indexes of older versions need no upgrade.
_ITEMS_SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    content TEXT NOT NULL,  -- JSON
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID
"""
_HAS_ITEMS = "SELECT 1 FROM sqlite_master WHERE name = 'items'"


def read_items(connection: sqlite3.Connection, kind: str, prefix: str) -> dict[str, Any]:
    if connection.execute(_HAS_ITEMS).fetchone() is None:
        return {}
    query = "SELECT id, content FROM items WHERE kind = ? AND substr(id, 1, ?) = ? ORDER BY id"
    rows = connection.execute(query, (kind, len(prefix), prefix))
    return {id_: json.loads(content) for id_, content in rows}


def change_item(connection: sqlite3.Connection, kind: str, id_: str, change: Change) -> Any:
    """Replace an item in the current transaction and return the new value."""
    connection.execute(_ITEMS_SCHEMA)
    query = "SELECT content FROM items WHERE kind = ? AND id = ?"
    row = connection.execute(query, (kind, id_)).fetchone()
    value = change(None if row is None else json.loads(row[0]))
    if value is None:
        connection.execute("DELETE FROM items WHERE kind = ? AND id = ?", (kind, id_))
    else:
        content = json.dumps(value, ensure_ascii=False)
        connection.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?)", (kind, id_, content))
    return value
