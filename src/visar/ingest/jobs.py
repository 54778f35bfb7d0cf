"""Uploaded documents on their way into an index: a queue in a folder that servers share.

``jobs.sqlite`` is the only state, and ``uploads/`` holds the files of jobs that may need them. Each
running server has a folder in ``owners/`` with a lock, and with the uploads that are arriving. The
lock of a server that has died is free: then its jobs wait for another server, or for the next one.
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
from visar.files import sync_folder
from visar.results import Job, JobState
from visar.serialization import from_plain, to_plain
from visar.store.checks import advice

KEPT = 500
"""Number of finished jobs that are remembered; the oldest are forgotten first."""
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
_INSERT = "INSERT OR REPLACE INTO jobs (id, state, owner, changed, content) VALUES (?, ?, ?, ?, ?)"
_UPDATE = """
UPDATE jobs SET state = ?, owner = ?, changed = ?, content = json_patch(content, ?)
WHERE id = ? AND state IN (SELECT value FROM json_each(?)) AND json_valid(content)
"""
_RELEASE = "UPDATE jobs SET state = 'waiting', owner = NULL WHERE owner = ?"
_FINISHED = "state IN ('done', 'failed', 'cancelled')"
_FORGET_OLDEST = f"""
DELETE FROM jobs WHERE number IN (
    SELECT number FROM jobs WHERE {_FINISHED} ORDER BY number DESC LIMIT -1 OFFSET {KEPT}
)
"""  # noqa: S608
_NEWEST_FIRST = "1 ORDER BY number DESC"
_DELETED = "The upload was deleted to make room. Upload the file again."


def jobs_folder(location: str) -> Path | None:
    """Return the folder of the jobs of a local index; None for an index in object storage."""
    return None if "://" in location else Path(location) / "jobs"


def read_jobs(location: str) -> list[Job]:
    """Return the jobs of a local index, the newest first; creates nothing."""
    folder = jobs_folder(location)
    if folder is None or not (folder / _DATABASE).exists():
        return []
    with _connected(folder / _DATABASE) as database:
        return list(_select(database, _NEWEST_FIRST))


class JobStore:
    """The queue in a folder, as one running server sees it. Safe for threads.

    Parameters
    ----------
    folder
        Created if it is missing.
    older
        Folders in which older versions kept jobs; their jobs are moved here.
    """

    def __init__(self, folder: Path, older: Iterable[Path] = ()) -> None:
        self.owner = uuid.uuid4().hex
        self.incoming = folder / "owners" / self.owner
        """Folder for uploads that are arriving."""
        self._folder = folder
        self._uploads = folder / "uploads"
        self._alive = FileLock(self.incoming / "lock", thread_local=False)
        with explained():
            self._uploads.mkdir(parents=True, exist_ok=True)
            # Servers may start at the same moment.
            with FileLock(folder / "lock"):
                for path in (folder / "owners").glob("*"):
                    self._is_alive(path.name)
                self.incoming.mkdir(parents=True)
                self._alive.acquire()
                with _connected(folder / _DATABASE, "rwc") as database:
                    database.execute("PRAGMA journal_mode = WAL")
                    database.execute(_SCHEMA)
                for one in older:
                    self._take_over(one)
            # Never writes: SQLite tells a connection only about the changes of others.
            self._watch = _connect(folder / _DATABASE, check_same_thread=False)
        self._watch_lock = threading.Lock()
        self._changes = 0

    def close(self) -> None:
        """Let the jobs of this server wait again, and end its ownership."""
        # If it fails, another server will find the lock free, and do it.
        with contextlib.suppress(StoreError), self._transaction() as database:
            database.execute(_RELEASE, (self.owner,))
        self._alive.release()
        shutil.rmtree(self.incoming, ignore_errors=True)
        with self._watch_lock:
            self._watch.close()

    @property
    def changes(self) -> int:
        """A number that differs from an earlier one if any server has changed a job since."""
        with contextlib.suppress(sqlite3.Error), self._watch_lock:
            self._changes = int(self._watch.execute("PRAGMA data_version").fetchone()[0])
        return self._changes

    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with _connected(self._folder / _DATABASE) as database:
            return list(_select(database, _NEWEST_FIRST))

    def get(self, id_: str) -> Job:
        """Return a job by its id; raises NotInIndex if it does not exist."""
        with _connected(self._folder / _DATABASE) as database:
            for job in _select(database, "id = ?", id_):
                return job
        raise NotInIndex(f"No job {id_}: it may have been dismissed.")

    def upload(self, id_: str) -> Path:
        """Return the path of the uploaded file of a job. It never has the name it came with."""
        return self._uploads / id_

    def add(self, job: Job, file: Path, *, own: bool = False) -> None:
        """Queue a job, for any server or only for this one, and move its file here.

        Both are on disk when this returns.
        """
        owner = self.owner if own else None
        values = (job.id, job.state, owner, time.time(), json.dumps(to_plain(job)))
        with self._transaction() as database:
            database.execute(_INSERT, values)
            # Within the transaction, so that `tidy` never sees a file without its row.
            with contextlib.suppress(FileNotFoundError):  # jobs that are done have none
                file.replace(self.upload(job.id))
            sync_folder(self._uploads)

    def claim(self, running: Container[str] = ()) -> Job | None:
        """Take the waiting job that came first, except those that still run here.

        Returns None if there is none. Jobs of servers that have died wait again.
        """
        owners = "SELECT DISTINCT owner FROM jobs WHERE owner IS NOT NULL AND owner != ?"
        waiting = "state = 'waiting' AND (owner IS NULL OR owner = ?) ORDER BY number"
        with self._transaction() as database:
            for (owner,) in database.execute(owners, (self.owner,)).fetchall():
                if not self._is_alive(owner):
                    database.execute(_RELEASE, (owner,))
            for job in _select(database, waiting, self.owner):
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

        ``own`` leaves the job alone unless it is this server's. Returns whether it was changed.
        """
        given = (state, owner, time.time(), json.dumps(values), id_, json.dumps(states))
        query, more = (f"{_UPDATE} AND owner = ?", (self.owner,)) if own else (_UPDATE, ())
        with self._transaction() as database:
            return database.execute(query, (*given, *more)).rowcount == 1

    def forget(self, id_: str) -> None:
        """Drop a finished job with its upload."""
        with self._transaction() as database:
            query = f"DELETE FROM jobs WHERE id = ? AND {_FINISHED}"  # noqa: S608
            if database.execute(query, (id_,)).rowcount:
                self.upload(id_).unlink(missing_ok=True)

    def tidy(self, max_bytes: int, max_days: float) -> None:
        """Forget the oldest finished jobs, and delete uploads that are not needed.

        Failed and cancelled jobs keep theirs for a retry, up to a total size and an age. The oldest
        go first.
        """
        oldest = time.time() - max_days * 86_400
        query = "SELECT id, state, changed FROM jobs WHERE state != 'done' ORDER BY changed DESC"
        with self._transaction() as database:
            database.execute(_FORGET_OLDEST)
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
        with _connected(self._folder / _DATABASE) as database, database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    def _is_alive(self, owner: str) -> bool:
        """Return whether a server holds its lock; the folder of a dead one is deleted."""
        folder = self.incoming.with_name(owner)
        if (folder / "lock").exists():
            try:
                FileLock(folder / "lock").acquire(blocking=False).lock.release()
            except Timeout:
                return True
        shutil.rmtree(folder, ignore_errors=True)
        return False

    def _take_over(self, folder: Path) -> None:
        """Move the jobs that an older version kept in a folder, unless it is still running."""
        if not (folder / _DATABASE).exists():
            return
        try:
            held = FileLock(folder / "lock").acquire(blocking=False)
        except Timeout:
            return
        with held, _connected(folder / _DATABASE) as database:
            for job in list(_select(database, "1 ORDER BY created")):
                waiting = job if job.is_finished else replace(job, state="waiting")
                self.add(waiting, folder / "uploads" / job.id / "file")
                database.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
            if database.execute("SELECT 1 FROM jobs").fetchone():
                return  # those that can't be read stay there, with their uploads
        shutil.rmtree(folder / "uploads", ignore_errors=True)
        for name in (_DATABASE, "server-id", "lock"):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it may hold something else
            folder.rmdir()


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn errors of SQLite and of files into StoreErrors that say what to do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = advice(getattr(error, "strerror", None) or str(error))
        raise StoreError(f"Can't use the job queue: {reason}.") from error


def _connect(path: Path, mode: str = "rw", **options: Any) -> sqlite3.Connection:
    options |= {"uri": True, "timeout": _SECONDS_BUSY, "isolation_level": None}
    database: sqlite3.Connection
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", **options)
    return database


@contextlib.contextmanager
def _connected(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    with explained(), contextlib.closing(_connect(path, mode)) as database:
        yield database


def _select(database: sqlite3.Connection, where: str, *values: str) -> Iterator[Job]:
    """Yield jobs; rows that this version can't read are left out."""
    rows = database.execute(f"SELECT state, content FROM jobs WHERE {where}", values)  # noqa: S608
    return filter(None, (_read(*row) for row in rows))


# Most rows are the same as when they were last read.
@lru_cache(maxsize=4096)
def _read(state: str, content: str) -> Job | None:
    """Return a job; None, with a warning in the log, if this version can't read it."""
    try:
        job = from_plain(Job, {**json.loads(content), "state": state})
    except (TypeError, ValueError) as error:
        _logger.warning("Skipped a job in the queue: %s", error)
        return None
    return job if state == "running" else replace(job, stage=None)
