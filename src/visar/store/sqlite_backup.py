"""Backups of a SQLite index while other processes use it.

Arrays and original files never change once they are written, so they are copied without a lock.
Then writers have to wait while new files and a snapshot of the database are copied. The copy is
made next to its target and renamed at the end. An interrupted copy is resumed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from visar.errors import StoreError
from visar.files import copy_atomically, make_folder, sync_folder
from visar.store.arrays import array_paths
from visar.store.database import ARRAYS, DATABASE, FILES, connect_to_read, translate_errors
from visar.store.records import Backup
from visar.store.sqlite_upkeep import delete_garbage, delete_path

if TYPE_CHECKING:
    from visar.store.sqlite import SqliteStore

Progress = Callable[[int, int], None]
"""Callback that takes the number of bytes copied so far and in total."""

# Each pass copies the files added during the previous one, so the last pass is short.
_PASSES = 3
# Number of database pages to copy between two calls of the progress callback.
_PAGES_PER_CALL = 4096
_LOCK = "lock"


def back_up(store: SqliteStore, target: Path, progress: Progress) -> Backup:
    """Copy an index to a new folder, atomically.

    Raises
    ------
    StoreError
        The target exists or can't be written, or another process is copying to it.
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
