"""Documents on their way into the index: a queue that outlives the server, and its processes.

A job is a row of ``jobs.sqlite`` and, until it is done, the uploaded file beside it. Each job runs
in a process of its own, so that questions are answered meanwhile; ending that process loses
nothing, since an interrupted addition goes on where it stopped. Passwords are never written down.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from visar.errors import NotInIndex, StoreError, VisarError
from visar.results import Job
from visar.serialization import to_plain
from visar.server.shared_uploads import SECONDS_PER_BEAT, SharedUploads, claim_folder

# Of jobs that have ended, the newest are remembered.
KEPT = 500
_SECONDS_TO_END = 5.0
# What another server has to know of a job.
_SHARED = ("name", "encoder", "collection")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    state TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT
"""


class TooManyJobs(StoreError):
    """More documents are waiting to be added than the operator allows."""

    code = "busy"


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[str]
    cancelled: bool = False


@dataclass(slots=True)
class _Memory:
    """What is known of jobs, newest last, and how often it has changed."""

    jobs: dict[str, Job] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    running: dict[str, _Running] = field(default_factory=dict)
    submitting: set[str] = field(default_factory=set)
    changes: int = 0


class JobQueue:
    """Runs jobs one after the other on a number of processes.

    Parameters
    ----------
    folder
        Where jobs and uploads are kept; what waited there when a server ended goes on.
    location
        Of the index.
    encoders
        What ``--encoder`` takes, by the names that jobs have.
    options
        How documents are read: values of `ReadOptions` and its limits.
    workers
        How many jobs run at once.
    max_waiting
        How many jobs may wait.
    unlock
        Called with the id and the password of each encrypted document that was added.
    storage_options
        Those of the index. If it is in object storage, so is what is uploaded, until it is added.
    """

    def __init__(
        self,
        folder: Path,
        location: str,
        encoders: dict[str, str],
        options: dict[str, Any],
        *,
        workers: int,
        max_waiting: int,
        unlock: Callable[[str, str], None],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        folder, self._folder_lock = claim_folder(folder)
        self._uploads = folder / "uploads"
        self._uploads.mkdir(parents=True, exist_ok=True)
        self._location = location
        self._storage_options = dict(storage_options or {})
        self._shared: SharedUploads | None = None
        if "://" in location:
            self._shared = SharedUploads(location, self._storage_options, folder)
        self._encoders = encoders
        self._options = options
        self._max_waiting = max_waiting
        self._unlock = unlock
        self._changed = threading.Condition()
        self._memory = _Memory()
        self._closing = False
        self._database = sqlite3.connect(folder / "jobs.sqlite", check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(_SCHEMA)
        self._restore()
        self._threads = [
            threading.Thread(target=self._work, name="visar-jobs", daemon=True)
            for _ in range(workers)
        ]
        if self._shared is not None:
            self._threads.append(threading.Thread(target=self._share, daemon=True))
        for thread in self._threads:
            thread.start()

    def _restore(self) -> None:
        rows = self._database.execute("SELECT content FROM jobs ORDER BY created").fetchall()
        for (content,) in rows:
            values = json.loads(content)
            job = Job(**{**values, "created": datetime.fromisoformat(values["created"])})
            # What ran when the server ended goes on.
            self._memory.jobs[job.id] = job if job.is_finished else replace(job, state="waiting")
        wanted = {job.id for job in self._memory.jobs.values() if job.state != "done"}
        for path in self._uploads.iterdir():
            if path.name not in wanted:  # of an upload that was never finished
                shutil.rmtree(path, ignore_errors=True)

    @property
    def changes(self) -> int:
        """How often anything has changed: what is compared to see whether it has."""
        return self._memory.changes

    def jobs(self) -> list[Job]:
        """All jobs, the newest first."""
        with self._changed:
            return [*self._memory.jobs.values()][::-1]

    def get(self, id_: str) -> Job:
        """A job by its id; raises NotInIndex if there is none."""
        with self._changed:
            try:
                return self._memory.jobs[id_]
            except KeyError:
                raise NotInIndex(f"There is no job {id_}.") from None

    @contextlib.contextmanager
    def upload(self) -> Iterator[Upload]:
        """A place for a file that is being uploaded; it is dropped unless it is submitted.

        Raises
        ------
        TooManyJobs
            As many jobs are waiting as may.
        """
        with self._changed:
            waiting = sum(job.state == "waiting" for job in self._memory.jobs.values())
        if waiting >= self._max_waiting:
            raise TooManyJobs(f"{waiting} documents are waiting to be added: try again later.")
        upload = Upload(uuid.uuid4().hex, self._uploads)
        try:
            yield upload
        finally:
            if upload.id not in self._memory.jobs:
                shutil.rmtree(upload.path.parent, ignore_errors=True)

    def submit(
        self,
        upload: Upload,
        name: str,
        *,
        encoder: str,
        collection: str | None = None,
        password: str | None = None,
    ) -> Job:
        """Queue an uploaded file. When this returns, the job is on disk and will be done."""
        job = Job(upload.id, name, encoder, datetime.now(UTC), collection=collection)
        self._memory.submitting.add(job.id)
        try:
            self._keep_shared(job)
            with self._changed:
                if password is not None:
                    self._memory.passwords[job.id] = password
                self._set(job)
        finally:
            self._memory.submitting.discard(job.id)
        return job

    def cancel(self, id_: str) -> Job:
        """End a job that waits or runs; one that has ended stays as it is."""
        with self._changed:
            job = self.get(id_)
            if job.state == "waiting":
                self._set(replace(job, state="cancelled", stage=None))
            elif running := self._memory.running.get(id_):
                running.cancelled = True
                running.process.terminate()
            return self._memory.jobs[id_]

    def retry(self, id_: str, password: str | None = None) -> Job:
        """Queue a job again that failed or was cancelled, perhaps with a password."""
        self._keep_shared(self.get(id_))
        with self._changed:
            job = self.get(id_)
            if job.state not in ("failed", "cancelled"):
                return job
            if password is not None:
                self._memory.passwords[id_] = password
            self._set(replace(job, state="waiting", code=None, reason=None, stage=None))
            return self._memory.jobs[id_]

    def forget(self, id_: str) -> None:
        """Drop a job that has ended, and what was uploaded for it."""
        with self._changed:
            job = self.get(id_)
            if job.is_finished:
                self._forget(job)

    def close(self) -> None:
        """End the processes; what waits or ran goes on with the next server."""
        with self._changed:
            self._closing = True
            for running in self._memory.running.values():
                running.process.terminate()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(2 * _SECONDS_TO_END)
        with self._changed:
            self._database.close()
        self._folder_lock.release()

    def _keep_shared(self, job: Job) -> None:
        """Let other servers go on with a job if this one dies."""
        path = Upload(job.id, self._uploads).path
        if self._shared is not None and path.exists():
            content = {name: getattr(job, name) for name in _SHARED}
            self._shared.put(job.id, content, path)

    def _share(self) -> None:
        """Tell other servers that this one is there, and take over the jobs of those that are not.

        What the storage refuses is tried again with the next beat.
        """
        assert self._shared is not None  # noqa: S101 - else it is not called
        while True:
            with contextlib.suppress(OSError):
                self._shared.beat()
                for id_ in self._shared.jobs():
                    if not self._is_wanted(id_):
                        self._shared.drop(id_)
                for id_, content, place in list(self._shared.abandoned()):
                    self._take_over(id_, content, place)
            with self._changed:
                if self._changed.wait_for(lambda: self._closing, SECONDS_PER_BEAT):
                    return

    def _is_wanted(self, id_: str) -> bool:
        """Whether a job may still have to be done."""
        # In this order: it is among the jobs before it is no longer being submitted.
        submitting = id_ in self._memory.submitting
        job = self._memory.jobs.get(id_)
        return submitting or (job is not None and not job.is_finished)

    def _take_over(self, id_: str, content: dict[str, Any], place: PurePosixPath) -> None:
        assert self._shared is not None  # noqa: S101 - see above
        job = Job(id_, created=datetime.now(UTC), **content)
        upload = Upload(id_, self._uploads)
        if id_ not in self._memory.jobs:
            upload.path.parent.mkdir(exist_ok=True)
            self._shared.take(place, upload.path)
            self._keep_shared(job)
            with self._changed:
                self._set(job)
        self._shared.drop_abandoned(place)

    def _forget(self, job: Job) -> None:
        del self._memory.jobs[job.id]
        self._memory.changes += 1
        with self._database:
            self._database.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
        shutil.rmtree(self._uploads / job.id, ignore_errors=True)

    def _set(self, job: Job) -> None:
        """Keep a job as it is now, on disk too; the lock is held."""
        content = {**to_plain(job), "created": job.created.isoformat()}
        with self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?)",
                (job.id, job.created.isoformat(), job.state, json.dumps(content)),
            )
        self._memory.jobs[job.id] = job
        self._memory.changes += 1
        if job.state == "done":
            shutil.rmtree(self._uploads / job.id, ignore_errors=True)
        finished = [one for one in self._memory.jobs.values() if one.is_finished]
        for old in finished[:-KEPT]:
            self._forget(old)
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not (job := self._next()):
                    self._changed.wait()
                if self._closing:
                    return
                assert job is not None  # noqa: S101 - else it would still wait
                self._set(replace(job, state="running"))
                try:
                    running = self._start(job)
                except OSError:  # no memory, or no place among the processes
                    self._set(_ended(job, {}, cancelled=False))
                    continue
                self._memory.running[job.id] = running
            try:
                ended = self._follow(job.id, running.process)
            finally:
                self._end(running.process)
            password = self._memory.passwords.get(job.id)
            if password is not None and ended.get("document"):
                with contextlib.suppress(VisarError):  # it may have been removed at once
                    self._unlock(ended["document"], password)
            with self._changed:
                del self._memory.running[job.id]
                if self._closing and not ended.get("document"):
                    continue  # goes on with the next server
                self._memory.passwords.pop(job.id, None)
                self._set(_ended(self._memory.jobs[job.id], ended, cancelled=running.cancelled))

    def _next(self) -> Job | None:
        waiting = (job for job in self._memory.jobs.values() if job.state == "waiting")
        return next(waiting, None)

    def _start(self, job: Job) -> _Running:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "visar.server.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        task = {
            "location": self._location,
            "storage_options": self._storage_options,
            "path": str(Upload(job.id, self._uploads).path),
            "name": job.name,
            "encoder": self._encoders.get(job.encoder, job.encoder),
            "collection": job.collection,
            "options": {**self._options, "password": self._memory.passwords.get(job.id)},
        }
        assert process.stdin is not None  # noqa: S101 - asked for
        with contextlib.suppress(OSError):  # it has died: reading tells
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        return _Running(process)

    def _follow(self, id_: str, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Note what a process tells, and return what it said last."""
        said: dict[str, Any] = {}
        assert process.stdout is not None  # noqa: S101 - asked for
        for line in process.stdout:
            said = json.loads(line)
            if "stage" in said:
                with self._changed:
                    self._memory.jobs[id_] = replace(self._memory.jobs[id_], **said)
                    self._memory.changes += 1
        return {} if "stage" in said else said

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Upload:
    """Where a file is written while it arrives. Its name is ours, never the one it came with."""

    id: str
    folder: Path

    @property
    def path(self) -> Path:
        """The file, in a folder of its own."""
        return self.folder / self.id / "file"

    def create(self) -> Path:
        """Make the folder, and return the path of the file."""
        self.path.parent.mkdir()
        return self.path


def _ended(job: Job, said: dict[str, Any], *, cancelled: bool) -> Job:
    """A job after its process has ended, by the last thing that said."""
    if document := said.get("document"):
        return replace(
            job, state="done", stage=None, document=document, pages=said["pages"],
            pages_done=said["pages"],
        )  # fmt: skip
    if cancelled:
        return replace(job, state="cancelled", stage=None)
    reason = said.get("reason", "The process that adds it has ended unexpectedly. Try it again.")
    return replace(job, state="failed", stage=None, code=said.get("code", "failed"), reason=reason)
