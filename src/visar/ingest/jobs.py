"""The queue of uploaded documents that wait to be added, in a folder that servers share.

``jobs.sqlite`` has the complete state, and ``uploads/`` the files of jobs. Each running server has
a folder in ``owners/`` with a lock and its incoming uploads. If a server dies, its lock is
released, and its jobs wait for another server or the next start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from visar.errors import NotInIndex, StoreError
from visar.files import make_folder, sync_folder
from visar.results import Job, JobState
from visar.serialization import from_plain, to_plain
from visar.store.checks import store_error

MAX_FINISHED = 500
"""Maximum number of finished jobs to keep; the oldest are deleted first."""
_logger = logging.getLogger(__name__)
_DATABASE = "jobs.sqlite"
_SECONDS_BUSY = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of arrival
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    owner TEXT,             -- server that runs it, or has its password
    changed REAL NOT NULL,  -- in seconds since 1970
    content TEXT NOT NULL   -- the job as JSON; its state is the one above
) STRICT
"""
# Columns that a table of an older version may lack.
_NEW_COLUMNS = {
    "crashes": "INTEGER NOT NULL DEFAULT 0",  # of its process since it was last submitted
    "is_long": "INTEGER NOT NULL DEFAULT 0",  # took longer than a turn of the worker for short jobs
}
_MAX_CRASHES = 1
_INSERT = "INSERT OR REPLACE INTO jobs (id, state, owner, changed, content) VALUES (?, ?, ?, ?, ?)"
_UPDATE = """
UPDATE jobs SET state = ?, owner = ?, changed = ?, content = json_patch(content, ?),
crashes = iif(state = 'running', crashes, 0)  -- a retry starts anew
WHERE id = ? AND state IN (SELECT value FROM json_each(?)) AND json_valid(content)
"""
_REQUEUE = """
UPDATE jobs SET state = 'waiting', owner = ?, changed = ?,
crashes = crashes + ?, is_long = is_long OR ?
WHERE id = ? AND state = 'running' AND owner = ? AND crashes + ? <= ?
"""
_RELEASE = "UPDATE jobs SET state = 'waiting', owner = NULL WHERE owner = ?"
_FINISHED = "state IN ('done', 'failed', 'cancelled')"
_DELETE_OLDEST = f"""
DELETE FROM jobs WHERE number IN (
    SELECT number FROM jobs WHERE {_FINISHED} ORDER BY number DESC LIMIT -1 OFFSET {MAX_FINISHED}
)
"""  # noqa: S608
_NEWEST_FIRST = "1 ORDER BY number DESC"
_DELETED = "The upload was deleted to make room. Upload the file again."


def jobs_folder(location: str) -> Path | None:
    """Return the folder for jobs of a local index, or None for an index in object storage."""
    return None if "://" in location else Path(location) / "jobs"


def read_jobs(location: str) -> list[Job]:
    """Return the jobs of a local index, newest first, without creating any file."""
    folder = jobs_folder(location)
    if folder is None or not (folder / _DATABASE).exists():
        return []
    with _connection(folder / _DATABASE) as database:
        return list(_select(database, _NEWEST_FIRST))


class JobStore:
    """The queue of one running server. Thread-safe.

    ``folder`` is created if it is missing. ``older`` are folders with queues of older versions,
    whose jobs are moved here.
    """

    def __init__(self, folder: Path, older: Iterable[Path] = ()) -> None:
        self.owner = uuid.uuid4().hex
        self.incoming = folder / "owners" / self.owner
        """Folder for incoming uploads."""
        self._folder = folder
        self._uploads = folder / "uploads"
        self._alive = FileLock(self.incoming / "lock", thread_local=False)
        with translate_errors():
            make_folder(self._uploads)
            # Several servers may start at the same time.
            with FileLock(folder / "lock"):
                for path in (folder / "owners").glob("*"):
                    self._is_alive(path.name)
                self.incoming.mkdir(parents=True)
                self._alive.acquire()
                with _connection(folder / _DATABASE, "rwc") as database:
                    database.execute("PRAGMA journal_mode = WAL")
                    database.execute(_SCHEMA)
                    columns = {column[1] for column in database.execute("PRAGMA table_info(jobs)")}
                    for name in _NEW_COLUMNS.keys() - columns:
                        database.execute(f"ALTER TABLE jobs ADD {name} {_NEW_COLUMNS[name]}")
                for one in older:
                    self._import_older(one)
            # This connection never writes, because data_version only counts changes of others.
            self._watch = _connect(folder / _DATABASE, check_same_thread=False)
        self._watch_lock = threading.Lock()
        self._changes = 0

    def close(self) -> None:
        """Requeue the jobs of this server, and end its ownership."""
        # If this fails, another server does it once the lock is free.
        with contextlib.suppress(StoreError), self._transaction() as database:
            database.execute(_RELEASE, (self.owner,))
        self._alive.release()
        shutil.rmtree(self.incoming, ignore_errors=True)
        with self._watch_lock:
            self._watch.close()

    @property
    def changes(self) -> int:
        """A number that changes whenever any server changes a job."""
        with contextlib.suppress(sqlite3.Error), self._watch_lock:
            self._changes = int(self._watch.execute("PRAGMA data_version").fetchone()[0])
        return self._changes

    def jobs(self) -> list[Job]:
        with _connection(self._folder / _DATABASE) as database:
            return list(_select(database, _NEWEST_FIRST))

    def get(self, id_: str) -> Job:
        with _connection(self._folder / _DATABASE) as database:
            for job in _select(database, "id = ?", id_):
                return job
        raise unknown_job(id_)

    def upload(self, id_: str) -> Path:
        """Return the path of the uploaded file of a job, which doesn't contain its name."""
        return self._uploads / id_

    def add(self, job: Job, file: Path, *, own: bool = False) -> None:
        """Add a job for any server, or only for this one, and move its file to the queue.

        Both are on disk when the call returns.
        """
        owner = self.owner if own else None
        values = (job.id, job.state, owner, time.time(), json.dumps(to_plain(job)))
        with self._transaction() as database:
            database.execute(_INSERT, values)
            # Within the transaction, so that `tidy` never sees a file without its row.
            with contextlib.suppress(FileNotFoundError):  # finished jobs have no file
                file.replace(self.upload(job.id))
            sync_folder(self._uploads)

    def claim(self, running: Container[str] = (), *, short: bool = False) -> Job | None:
        """Claim the first waiting job that isn't in ``running``; return None if there is none.

        ``short`` claims the smallest upload instead, and skips jobs that are known to be long
        (`requeue`). Jobs of servers that have died are requeued first.
        """
        owners = "SELECT DISTINCT owner FROM jobs WHERE owner IS NOT NULL AND owner != ?"
        waiting = "state = 'waiting' AND (owner IS NULL OR owner = ?)"
        if short:
            waiting += " AND NOT is_long"
        with self._transaction() as database:
            for (owner,) in database.execute(owners, (self.owner,)).fetchall():
                if not self._is_alive(owner):
                    database.execute(_RELEASE, (owner,))
            jobs = list(_select(database, f"{waiting} ORDER BY number", self.owner))
            for job in sorted(jobs, key=self._upload_size) if short else jobs:
                if job.id not in running:
                    query = "UPDATE jobs SET state = 'running', owner = ? WHERE id = ?"
                    database.execute(query, (self.owner, job.id))
                    return replace(job, state="running")
        return None

    def update(
        self,
        id_: str,
        states: Sequence[str],
        state: JobState,
        values: Mapping[str, Any],
        *,
        owner: str | None = None,
        own: bool = False,
    ) -> bool:
        """Change the state and other fields of a job that is in one of these states.

        With ``own``, only a job of this server is changed. Returns whether it was changed.
        """
        arguments = (state, owner, time.time(), json.dumps(values), id_, json.dumps(states))
        query, more = (f"{_UPDATE} AND owner = ?", (self.owner,)) if own else (_UPDATE, ())
        with self._transaction() as database:
            return database.execute(query, (*arguments, *more)).rowcount == 1

    def requeue(self, id_: str, *, crashed: bool, own: bool = False) -> bool:
        """Requeue a running job of this server, because its process crashed or it is long.

        With ``own``, only this server can claim it. Returns False without a change if its process
        has crashed before, or if it no longer runs on this server.
        """
        owner = self.owner if own else None
        values = (owner, time.time(), crashed, not crashed, id_, self.owner, crashed, _MAX_CRASHES)
        with self._transaction() as database:
            return database.execute(_REQUEUE, values).rowcount == 1

    def forget(self, id_: str) -> None:
        """Delete a finished job with its upload."""
        with self._transaction() as database:
            query = f"DELETE FROM jobs WHERE id = ? AND {_FINISHED}"  # noqa: S608
            if database.execute(query, (id_,)).rowcount:
                self.upload(id_).unlink(missing_ok=True)

    def tidy(self, max_bytes: int, max_days: float) -> None:
        """Delete the oldest finished jobs, and uploads that aren't needed.

        Uploads of failed and cancelled jobs are kept for a retry, up to a total size and an age.
        The oldest are deleted first.
        """
        oldest = time.time() - max_days * 86_400
        query = "SELECT id, state, changed FROM jobs WHERE state != 'done' ORDER BY changed DESC"
        with self._transaction() as database:
            database.execute(_DELETE_OLDEST)
            files = {path.name: path for path in self._uploads.iterdir()}
            for id_, state, changed in database.execute(query).fetchall():
                if id_ in files and state in ("failed", "cancelled"):
                    size = files[id_].stat().st_size
                    if size > max_bytes or changed < oldest:
                        values = json.dumps({"code": "upload", "reason": _DELETED})
                        database.execute(
                            _UPDATE, (state, None, changed, values, id_, f'["{state}"]')
                        )
                        continue
                    max_bytes -= size
                files.pop(id_, None)
            for path in files.values():
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _connection(self._folder / _DATABASE) as database, database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    def _upload_size(self, job: Job) -> int:
        try:
            return self.upload(job.id).stat().st_size
        except FileNotFoundError:  # the process that runs the job will report it
            return 0

    def _is_alive(self, owner: str) -> bool:
        """Return whether a server holds its lock; delete the folder of a dead server."""
        folder = self.incoming.with_name(owner)
        if (folder / "lock").exists():
            try:
                FileLock(folder / "lock").acquire(blocking=False).lock.release()
            except Timeout:
                return True
        shutil.rmtree(folder, ignore_errors=True)
        return False

    def _import_older(self, folder: Path) -> None:
        """Import the jobs of an older version from a folder, unless it is still running."""
        if not (folder / _DATABASE).exists():
            return
        try:
            lock = FileLock(folder / "lock").acquire(blocking=False)
        except Timeout:
            return
        with lock, _connection(folder / _DATABASE) as database:
            for job in list(_select(database, "1 ORDER BY created")):
                waiting = job if job.is_finished else replace(job, state="waiting")
                self.add(waiting, folder / "uploads" / job.id / "file")
                database.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
            if database.execute("SELECT 1 FROM jobs").fetchone():
                return  # keep jobs that can't be read, with their uploads
        shutil.rmtree(folder / "uploads", ignore_errors=True)
        for name in (_DATABASE, "server-id", "lock"):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder may contain other files
            folder.rmdir()


def unknown_job(id_: str) -> NotInIndex:
    return NotInIndex(f"No job {id_}: it may have been dismissed.")


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Convert errors of SQLite and the system to StoreError with advice."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise store_error("Can't use the job queue", reason) from error


def _connect(path: Path, mode: str = "rw", **options: Any) -> sqlite3.Connection:
    options |= {"uri": True, "timeout": _SECONDS_BUSY, "isolation_level": None}
    database: sqlite3.Connection
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", **options)
    # Some builds of SQLite sync the log less often by default.
    database.execute("PRAGMA synchronous = FULL")
    return database


@contextlib.contextmanager
def _connection(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    with translate_errors(), contextlib.closing(_connect(path, mode)) as database:
        yield database


def _select(database: sqlite3.Connection, where: str, *values: str) -> Iterator[Job]:
    """Yield jobs, except rows that this version can't read."""
    rows = database.execute(f"SELECT state, content FROM jobs WHERE {where}", values)  # noqa: S608
    return filter(None, (_read(*row) for row in rows))


# Cached, because most rows don't change between two reads.
@lru_cache(maxsize=4096)
def _read(state: str, content: str) -> Job | None:
    """Return a job, or None with a warning in the log if this version can't read it."""
    try:
        job = from_plain(Job, {**json.loads(content), "state": state})
    except (TypeError, ValueError) as error:
        _logger.warning("Skipped a job in the queue: %s", error)
        return None
    return job if state == "running" else replace(job, stage=None)
