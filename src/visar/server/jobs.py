"""The jobs of a server: uploads, and the processes that add them to the index.

Each job runs in a process of its own, so that questions are answered meanwhile. Ending the process
loses nothing, since an interrupted addition goes on where it stopped. Passwords stay in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from visar.errors import DocumentError, StoreError
from visar.index import Index
from visar.ingest.jobs import JobStore, explained, jobs_folder
from visar.results import Job, JobState
from visar.server.settings import Settings

_logger = logging.getLogger(__name__)
_UNFINISHED = ("waiting", "running")
_RETRYABLE = ("failed", "cancelled")
_SECONDS_TO_END = 5.0
# Between looks for the jobs of other servers, and before something that failed is tried again.
_SECONDS_PER_LOOK = 1.0
_SECONDS_PER_TIDYING = 600.0


class TooManyJobs(StoreError):
    """More documents are waiting to be added than the operator allows."""

    code = "busy"


class JobQueue:
    """Works the jobs of an index first come, first served, in a number of processes.

    Several servers of a local index share its jobs. An error of one job, or of one write to the
    queue, does not stop the others.
    """

    def __init__(self, index: Index, settings: Settings) -> None:
        self._index = index
        self._settings = settings
        self._store = JobStore(*_folders(index.location, settings.folder))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        # Of jobs that wait: a process takes the password of its job along.
        self._passwords: dict[str, str] = {}
        self._password_lock = threading.Lock()
        self._problems: dict[int, str] = {}
        self._tidied = 0.0
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name="visar-jobs", daemon=True)
            for _ in range(settings.workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def problem(self) -> str | None:
        """The reason why jobs can't be worked at the moment; None if they can."""
        return next(iter([*self._problems.values()]), None)

    @property
    def changes(self) -> int:
        """A number that differs from an earlier one if a job has changed since."""
        return self._store.changes

    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""
        return self._store.jobs()

    def get(self, id_: str) -> Job:
        """Return a job by its id; raises NotInIndex if it does not exist."""
        return self._store.get(id_)

    @contextlib.contextmanager
    def upload(self) -> Iterator[Path]:
        """Context manager: a path for an upload, which is deleted unless it is submitted.

        Raises
        ------
        TooManyJobs
            The maximum number of jobs is waiting.
        """
        waiting = sum(job.state == "waiting" for job in self.jobs())
        if waiting >= self._settings.max_waiting:
            raise TooManyJobs(f"{waiting} documents are waiting to be added. Try again later.")
        path = self._store.incoming / uuid.uuid4().hex
        with explained():
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)

    def submit(
        self,
        upload: Path,
        name: str,
        *,
        encoder: str,
        collection: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        password: str | None = None,
    ) -> Job:
        """Queue an uploaded file. The job is on disk when this returns."""
        now = datetime.now(UTC)
        job = Job(upload.name, name, encoder, now, collection=collection, metadata=metadata or {})
        with self._password_lock:
            # Other servers don't have the password: they leave the job to this one.
            self._store.add(job, upload, own=password is not None)
            if password is not None:
                self._passwords[job.id] = password
        self._wake.set()
        return job

    def cancel(self, id_: str) -> Job:
        """Stop a job that waits or runs; a finished job stays as it is."""
        if self._store.update(id_, _UNFINISHED, "cancelled", {}):
            self._take_password(id_)
            # If another server runs it, that one notices with the next page.
            if process := self._processes.get(id_):
                process.terminate()
            self._tidy()
        return self.get(id_)

    def retry(self, id_: str, password: str | None = None) -> Job:
        """Queue a job again that failed or was cancelled, perhaps with a password.

        Raises
        ------
        DocumentError
            The upload was deleted meanwhile.
        """
        job = self.get(id_)
        if job.state not in _RETRYABLE:
            return job
        if not self._store.upload(id_).exists():
            raise DocumentError(job.name, "is not on the server any more. Upload it again")
        owner = None if password is None else self._store.owner
        values = {"code": None, "reason": None}
        with self._password_lock:
            queued = self._store.update(id_, _RETRYABLE, "waiting", values, owner=owner)
            if queued and password is not None:
                self._passwords[id_] = password
        self._wake.set()
        return self.get(id_)

    def forget(self, id_: str) -> None:
        """Drop a finished job with its upload."""
        self.get(id_)
        self._store.forget(id_)

    def close(self) -> None:
        """End the processes. Unfinished jobs wait for another server, or the next one."""
        self._closing.set()
        self._wake.set()
        for process in [*self._processes.values()]:
            process.terminate()
        for thread in self._threads:
            thread.join(2 * _SECONDS_TO_END)
        self._store.close()

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            try:
                job = self._store.claim(self._processes)
                self._problems.pop(threading.get_ident(), None)
                if job is not None:
                    self._run(job)
                    continue
                self._drop_passwords()
                if time.monotonic() - self._tidied > _SECONDS_PER_TIDYING:
                    self._tidy()
            except Exception as error:  # nothing may end this thread
                self._pause(error)
            else:
                self._wake.wait(_SECONDS_PER_LOOK)

    def _pause(self, error: Exception) -> None:
        """Say what is wrong, and wait before the next try."""
        if self.problem is None:
            _logger.error("The job queue has stopped; trying again.", exc_info=error)
        self._problems[threading.get_ident()] = str(error)
        self._closing.wait(_SECONDS_PER_LOOK)

    def _take_password(self, id_: str) -> str | None:
        with self._password_lock:
            return self._passwords.pop(id_, None)

    def _drop_passwords(self) -> None:
        """Drop those of jobs that another server has ended or forgotten."""
        if self._passwords:
            with self._password_lock:
                waiting = {job.id for job in self.jobs() if job.state == "waiting"}
                for id_ in self._passwords.keys() - waiting:
                    del self._passwords[id_]

    def _tidy(self) -> None:
        self._tidied = time.monotonic()
        try:
            self._store.tidy(self._settings.max_kept_bytes, self._settings.max_kept_days)
        except (StoreError, OSError) as error:
            _logger.warning("Uploads that are not needed were not deleted: %s", error)

    def _run(self, job: Job) -> None:
        """Run a job, and save how it ended, however often that has to be tried."""
        password = self._take_password(job.id)
        try:
            state, values = _end_of(self._follow(job, password))
        except Exception:
            _logger.exception("The job of %s failed.", job.name)
            state, values = _end_of({})
        document = values.get("document")
        if document and password is not None:
            try:
                self._index.unlock(document, password)
            except Exception as error:  # it may have been removed meanwhile
                _logger.warning("%s was not unlocked: %s", job.name, error)
        if not document and self._closing.is_set():
            return
        # A document is in the index, whatever was decided about the job meanwhile.
        states = (*_UNFINISHED, *_RETRYABLE) if document else ("running",)
        while True:
            try:
                self._store.update(job.id, states, state, values, own=not document)
                break
            except Exception as error:
                self._pause(error)
                if self._closing.is_set():
                    return
        self._tidy()

    def _follow(self, job: Job, password: str | None) -> dict[str, Any]:
        """Run the process of a job, save its progress, and return what it said last."""
        task = {
            "location": self._index.location,
            "storage_options": dict(self._index.storage_options or {}),
            "path": str(self._store.upload(job.id)),
            "name": job.name,
            "encoder": self._settings.encoders.get(job.encoder, job.encoder),
            "collection": job.collection,
            "metadata": dict(job.metadata),
            "options": {**dataclasses.asdict(self._settings.options), "password": password},
        }
        said: dict[str, Any] = {}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "visar.server.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._processes[job.id] = process
        try:
            if self._closing.is_set():
                process.terminate()
            assert process.stdin and process.stdout  # noqa: PT018, S101 - asked for
            with contextlib.suppress(OSError):  # it has died: reading tells
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                said = json.loads(line)
                if "stage" in said and not self._save_progress(job.id, said):
                    process.terminate()
        finally:
            _end(process)
            del self._processes[job.id]
        return said

    def _save_progress(self, id_: str, said: dict[str, Any]) -> bool:
        """Save the progress of a job; return False if it was cancelled or forgotten."""
        try:
            owner = self._store.owner
            goes_on = self._store.update(id_, ("running",), "running", said, owner=owner, own=True)
        except StoreError as error:  # no reason to stop the job
            self._problems[threading.get_ident()] = str(error)
            return True
        self._problems.pop(threading.get_ident(), None)
        return goes_on


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


def _end_of(said: Mapping[str, Any]) -> tuple[JobState, dict[str, Any]]:
    """Return the state and the fields of a job by what its process said last."""
    if "document" in said:
        return "done", {**said, "pages_done": said["pages"], "code": None, "reason": None}
    reason = "The process that adds it ended unexpectedly. Try again."
    return "failed", {"code": "failed", "reason": reason, **said}


def _folders(location: str, given: Path | None) -> tuple[Path, list[Path]]:
    """Return the folder for the jobs of an index, and those that older versions used."""
    if given is not None:
        folder, old = given / "jobs", given
    elif local := jobs_folder(location):
        folder, old = local, local.with_name("server")
    else:
        from platformdirs import user_data_path

        data, name = user_data_path("visar"), hashlib.sha256(location.encode()).hexdigest()[:16]
        folder, old = data / "jobs" / name, data / "server" / name
    # A second server of an older version had a folder of its own.
    return folder, [old, *sorted(old.parent.glob(f"{glob.escape(old.name)}-[0-9]*"))]
