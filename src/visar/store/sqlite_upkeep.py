"""Maintenance of the SQLite store: finding problems, deleting unused data, and backups.

A backup runs while other processes use the index. Arrays and original files never change once they
are written, so they are copied without a lock. Then writers have to wait while new files and a
snapshot of the database are copied. The copy is made next to its target and renamed at the end. An
interrupted copy is resumed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout

from visar.core.vectors import find_invalid
from visar.encoders.coding import coding_of
from visar.errors import StoreError
from visar.files import copy_atomically, make_folder, sync_folder
from visar.results import EncoderRef
from visar.store.arrays import array_paths, checksum, map_arrays
from visar.store.database import (
    ARRAYS,
    DATABASE,
    FILES,
    connect_to_read,
    named_documents,
    page_columns,
    read_catalog,
    summary_files,
    translate_errors,
)
from visar.store.pages import page_checksum, row_to_page
from visar.store.store import Backup, Problem

if TYPE_CHECKING:
    from visar.store.sqlite import SqliteStore
from visar.store.sqlite_addition import Claim

Progress = Callable[[int, int], None]
"""Callback that takes the number of bytes copied so far and in total."""

# Each pass copies the files added during the previous one, so the last pass is short.
_PASSES = 3
# Number of database pages to copy between two calls of the progress callback.
_PAGES_PER_CALL = 4096
_LOCK = "lock"
_ORDERED = "-ordered"


def find_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[Problem]:
    try:
        for (message,) in connection.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield Problem("damage", "", f"the database: {message}")
        for row in connection.execute("PRAGMA foreign_key_check"):
            yield Problem("damage", "", f"the database: a row of {row[0]} has no parent")
        for document, pages in connection.execute("SELECT id, pages FROM documents").fetchall():
            words = dict[int, int]()
            yield from _page_problems(connection, document, pages, words)
            yield from _vector_problems(connection, folder, document, words)
        read_catalog(connection)
        yield from _dimension_problems(connection)
        yield from _orphan_problems(connection, folder)
        yield from _text_problems(connection)
    except sqlite3.DatabaseError as error:
        yield _damage("the database", error)


def _damage(subject: str, error: sqlite3.DatabaseError) -> Problem:
    # The temporary tables of the check may not fit on a full disk. That isn't damage.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        raise error
    return Problem("damage", "", f"{subject}: {error}")


def _page_problems(
    connection: sqlite3.Connection, document: str, pages: int, words: dict[int, int]
) -> Iterator[Problem]:
    columns = page_columns(connection)
    query = f"SELECT {columns}, checksum FROM pages WHERE document = ?"  # noqa: S608
    for *values, expected in connection.execute(query, (document,)):
        number = values[0]
        try:
            words[number] = len(row_to_page((*values[:-1], None)).words)
            if page_checksum(*values[:-1]) != expected:
                yield Problem("damage", document, f"page {number} has a wrong checksum")
            else:
                row_to_page(tuple(values))
        except StoreError as error:
            yield Problem("damage", document, str(error))
        except (ValueError, TypeError) as error:
            words.setdefault(number, 0)
            yield Problem("damage", document, f"page {number} is malformed: {error}")
    for number in range(1, pages + 1):
        if number not in words:
            yield Problem("damage", document, f"page {number} is missing")
    for number in sorted(set(words) - set(range(1, pages + 1))):
        yield Problem("damage", document, f"page {number} is beyond the last page")


def _vector_problems(
    connection: sqlite3.Connection, folder: Path, document: str, words: dict[int, int]
) -> Iterator[Problem]:
    query = (
        "SELECT encoder, version, dimension, array, lengths, checksums FROM vectors "
        "WHERE document = ?"
    )
    for name, version, dimension, *entry in connection.execute(query, (document,)).fetchall():
        for message in _array_problems(folder, EncoderRef(name, version, dimension), entry, words):
            yield Problem("damage", document, f"vectors of {name}: {message}")


def _array_problems(
    folder: Path, encoder: EncoderRef, entry: list[Any], words: dict[int, int]
) -> Iterator[str]:
    array, lengths, checksums = entry
    try:
        counts, sums = np.frombuffer(lengths, "<i4"), np.frombuffer(checksums, "<u4")
    except ValueError as error:
        yield f"the lengths or checksums are malformed: {error}"
        return
    if len(counts) != len(words) or len(sums) != len(words):
        yield f"the index has vectors for {len(counts)} of {len(words)} pages"
        return
    try:
        vectors, patches = map_arrays(folder / ARRAYS, array, int(counts.sum()), encoder)
    except StoreError as error:
        yield str(error)
        return
    start, coding = 0, coding_of(encoder.name)
    for number, (count, expected) in enumerate(zip(counts, sums, strict=True), start=1):
        rows = slice(start, start := start + int(count))
        if checksum(vectors[rows].tobytes(), patches[rows].tobytes()) != expected:
            yield f"page {number} has a wrong checksum"
        elif count and patches["word"][rows].max() >= words.get(number, 0):
            yield f"page {number} refers to words that it doesn't have"
        elif find_invalid(coding.decode(vectors[rows], encoder.dimension)) is not None:
            yield f"page {number} has a vector that isn't finite or of length 1"


def _dimension_problems(connection: sqlite3.Connection) -> Iterator[Problem]:
    query = (
        "SELECT encoder, version, group_concat(DISTINCT dimension) FROM vectors "
        "GROUP BY encoder, version HAVING count(DISTINCT dimension) > 1"
    )
    for encoder, version, dimensions in connection.execute(query):
        yield Problem("damage", "", f"{encoder} {version} has vectors of {dimensions} dimensions")


def _text_problems(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the full-text index with a new one of the same pages in a temporary database.

    SQLite's own check needs a write lock, which isn't possible in a read-only index. The temporary
    tables are dropped when the transaction ends.
    """
    terms = "CREATE VIRTUAL TABLE temp.{} USING fts5vocab ({}, {}, instance)"
    statements = (
        "CREATE VIRTUAL TABLE temp.expected_text USING fts5 (words, content = '')",
        "INSERT INTO expected_text (rowid, words) SELECT id, words FROM pages",
        terms.format("expected_terms", "temp", "expected_text"),
        terms.format("stored_terms", "main", "page_text"),
    )
    try:
        for statement in statements:
            connection.execute(statement)
        expected = connection.execute("SELECT * FROM expected_terms")
        stored = connection.execute("SELECT * FROM stored_terms")
        if any(one != other for one, other in zip_longest(expected, stored)):
            yield Problem("damage", "", "the full-text index doesn't match the pages")
    except sqlite3.DatabaseError as error:
        yield _damage("the full-text index", error)


def _orphan_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[Problem]:
    query = (
        "SELECT array, document, count(number) FROM drafts LEFT JOIN draft_pages USING (array) "
        "GROUP BY array"
    )
    for array, document, pages in connection.execute(query).fetchall():
        if not Claim.is_claimed(folder / ARRAYS, array):
            yield Problem("orphan", document, f"{pages} pages of an unfinished addition")
    for path in sorted(_garbage(connection, folder)):
        yield Problem("orphan", "", f"the file {path.name} is unused")


def _garbage(connection: sqlite3.Connection, folder: Path) -> Iterator[Path]:
    """Yield the files that no row refers to.

    A file is created after the row of its draft, and deleted after its row. So a file without a
    row is never in use.
    """
    arrays = {array for (array,) in connection.execute("SELECT array FROM vectors")}
    named = {path.name for array in arrays for path in array_paths(folder / ARRAYS, array)}
    drafts = {array for (array,) in connection.execute("SELECT array FROM drafts")}
    for path in list((folder / ARRAYS).iterdir()):
        draft = path.name.partition(".")[0].removesuffix(_ORDERED)
        if path.name not in named and draft not in drafts:
            yield path
    documents = named_documents(connection)
    yield from (path for document, path in summary_files(folder) if document not in documents)
    adding = {document for (document,) in connection.execute("SELECT document FROM drafts")}
    for path in list((folder / FILES).iterdir()):
        in_progress = path.suffix == ".part" and path.name.rsplit(".", 2)[0] in adding
        if path.name not in documents and not in_progress:
            yield path


def delete_path(path: Path) -> tuple[int, int]:
    """Delete a file or a folder; return the number of files and bytes."""
    files = [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
    try:
        size = sum(file.stat().st_size for file in files)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return 0, 0  # another process deleted it first
    return len(files), size


def drop_drafts(connection: sqlite3.Connection, folder: Path) -> int:
    """Delete the rows of drafts without an owner; return their number of pages."""
    pages = 0
    query = (
        "SELECT array, count(number) FROM drafts LEFT JOIN draft_pages USING (array) GROUP BY array"
    )
    for array, count in connection.execute(query).fetchall():
        claim = Claim.acquire(folder / ARRAYS, array, None)
        if claim is not None:
            connection.execute("DELETE FROM drafts WHERE array = ?", (array,))
            claim.release()
            pages += count
    return pages


def delete_garbage(connection: sqlite3.Connection, folder: Path) -> tuple[int, int]:
    """Delete the files that no row refers to; return the number of files and bytes.

    Must run in a write transaction, so that no file gets a row in the meantime.
    """
    deleted = [delete_path(path) for path in _garbage(connection, folder)]
    files, size = (sum(counts) for counts in zip((0, 0), *deleted, strict=True))
    return files, size


def back_up(store: SqliteStore, target: Path, progress: Progress) -> Backup:
    """Copy an index to a new folder, atomically.

    Raises StoreError if the target exists, can't be written, or another process is copying to it.
    """
    if os.path.lexists(target):
        raise StoreError(f"Can't back up to {target}: it exists. Choose a new folder.")
    part = target.with_name(f"{target.name}.part")
    with translate_errors(str(target)):
        _check_target(store, target, part)
        for name in (ARRAYS, FILES):
            make_folder(part / name)
        lock = FileLock(part / _LOCK, thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise StoreError(
                f"Can't back up to {target}: another process is copying to it. Wait for it to end."
            ) from error
        with lock:
            for path in (*part.glob("*/*.part"), *part.glob(f"{DATABASE}*")):
                delete_path(path)
            backup = _copy(store, part, progress)
            for folder in (part / ARRAYS, part / FILES):
                sync_folder(folder)
            (part / _LOCK).unlink()
            sync_folder(part)
            part.rename(target)
            sync_folder(target.parent)
    return backup


def _check_target(store: SqliteStore, target: Path, part: Path) -> None:
    if target.resolve().is_relative_to(store.folder.resolve()):
        raise StoreError(
            f"Can't back up to {target}: it is inside the index. Choose another folder."
        )
    names = {path.name for path in part.iterdir()} if part.exists() else set()
    if any(name not in (ARRAYS, FILES, _LOCK) and DATABASE not in name for name in names):
        raise StoreError(
            f"Can't back up to {target}: {part} exists and isn't a backup. Choose another name."
        )


def _copy(store: SqliteStore, part: Path, progress: Progress) -> Backup:
    for _ in range(_PASSES):
        with store.read_transaction() as connection:
            names = list(_files(connection))
        # Another process may remove documents in the meantime.
        for name in _missing(store, part, names, progress):
            with contextlib.suppress(FileNotFoundError, shutil.Error):
                copy_atomically(store.folder / name, part / name)
    with contextlib.ExitStack() as stack:
        # Writers wait, so nothing is removed. A read-only index has no writers.
        with (
            store.read_transaction() if store.read_only else store.write_transaction() as connection
        ):
            names = list(_files(connection))
            snapshot = connect_to_read(store.folder / DATABASE, store.location)
            stack.enter_context(contextlib.closing(snapshot))
            snapshot.execute("BEGIN")
            # The snapshot starts with the first statement that reads.
            (documents,) = snapshot.execute("SELECT count(*) FROM documents").fetchone()
            for name in _missing(store, part, names, progress):
                copy_atomically(store.folder / name, part / name)
        _copy_database(snapshot, part, sum(_size(part / name) for name in names), progress)
    return Backup(documents, _size(part))


def _files(connection: sqlite3.Connection) -> Iterator[Path]:
    """Yield the files that rows refer to, as paths relative to the index."""
    for (array,) in connection.execute("SELECT array FROM vectors"):
        yield from array_paths(Path(ARRAYS), array)
    for (document,) in connection.execute("SELECT id FROM documents"):
        yield Path(FILES, document)


def _missing(
    store: SqliteStore, part: Path, names: list[Path], progress: Progress
) -> Iterator[Path]:
    """Yield the files that aren't copied yet. Not every document has an original."""
    sizes = [_size(store.folder / name) for name in names]
    total, done = sum(sizes) + _size(store.folder / DATABASE), 0
    for name, size in zip(names, sizes, strict=True):
        is_array = name.parent == Path(ARRAYS)
        if not (part / name).exists() and (is_array or (store.folder / name).exists()):
            yield name
        done += size
        progress(done, total)


def _copy_database(
    snapshot: sqlite3.Connection, part: Path, files: int, progress: Progress
) -> None:
    """Copy the database without unfinished additions, and delete files it doesn't refer to."""
    (page_bytes,) = snapshot.execute("PRAGMA page_size").fetchone()

    def report(_: int, remaining: int, total: int) -> None:
        progress(files + (total - remaining) * page_bytes, files + total * page_bytes)

    with contextlib.closing(sqlite3.connect(part / DATABASE, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = FULL")
        snapshot.backup(copy, pages=_PAGES_PER_CALL, progress=report)
        # The copy is private, and a network folder may not support shared memory.
        copy.execute("PRAGMA locking_mode = EXCLUSIVE")
        copy.execute("PRAGMA foreign_keys = ON")
        copy.execute("DELETE FROM drafts")
        delete_garbage(copy, part)


def _size(path: Path) -> int:
    """Return the size of a file or folder in bytes, or 0 if it is missing."""
    paths = (path, *path.rglob("*")) if path.is_dir() else (path,)
    total = 0
    for one in paths:
        with contextlib.suppress(OSError):
            total += one.stat().st_size if one.is_file() else 0
    return total
