"""The job queue of a server, which adds uploads to the index.

Each job runs in its own process, so that the server can answer questions meanwhile. A process can
be stopped at any time, since adding a document can be resumed. Passwords are only kept in memory.
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

from visar.documents.processes import ChildDied
from visar.errors import DocumentError, StoreError
from visar.index import Index
from visar.ingest.jobs import JobStore, jobs_folder, translate_errors
from visar.results import Job, JobState
from visar.server import Settings

_logger = logging.getLogger(__name__)
_UNFINISHED = ("waiting", "running")
_RETRYABLE = ("failed", "cancelled")
_SECONDS_TO_STOP = 5.0
# Interval for checking for jobs of other servers, and for retrying after an error.
_SECONDS_PER_POLL = 1.0
_SECONDS_PER_CLEANUP = 600.0
# A job that runs for longer is a long one.
_SECONDS_PER_TURN = 60.0


class TooManyJobs(StoreError):
    """The maximum number of waiting jobs is reached."""

    code = "busy"


class JobQueue:
    """A queue that runs the jobs of an index in a number of processes.

    If there are several workers, the last one runs short jobs: it takes the smallest upload, and
    leaves it to the others if it takes more than a minute. A short job therefore waits at most a
    minute for each smaller upload. The other workers run jobs in order of arrival, each to its end.

    All servers of a local index share its jobs. An error in a job, or in writing to the queue,
    doesn't stop the other jobs.
    """

    def __init__(self, index: Index, settings: Settings) -> None:
        self._index = index
        self._settings = settings
        self._store = JobStore(*job_folders(index.location, settings.folder))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        # Passwords of waiting jobs. A process takes the password of its job with it.
        self._passwords: dict[str, str] = {}
        self._password_lock = threading.Lock()
        self._problems: dict[int, str] = {}
        self._last_cleanup = 0.0
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=[short], name="visar-jobs", daemon=True)
            for short in (0 < number == settings.workers - 1 for number in range(settings.workers))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def problem(self) -> str | None:
        """Reason why jobs can't run at the moment; None if they can."""
        return next(iter([*self._problems.values()]), None)

    @property
    def changes(self) -> int:
        """A number that changes whenever a job changes."""
        return self._store.changes

    def jobs(self) -> list[Job]:
        return self._store.jobs()

    def get(self, id_: str) -> Job:
        """Return a job by its id; raises NotInIndex if it doesn't exist."""
        return self._store.get(id_)

    @contextlib.contextmanager
    def upload(self) -> Iterator[Path]:
        """Context manager: a path for an upload, which is deleted unless it is submitted.

        Raises TooManyJobs if the maximum number of jobs is waiting.
        """
        waiting = sum(job.state == "waiting" for job in self.jobs())
        if waiting >= self._settings.max_waiting:
            raise TooManyJobs("Too many documents are waiting to be added. Try again later.")
        path = self._store.incoming / uuid.uuid4().hex
        with translate_errors():
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
        """Queue an uploaded file. The job is on disk when this method returns."""
        now = datetime.now(UTC)
        job = Job(upload.name, name, encoder, now, collection=collection, metadata=metadata or {})
        with self._password_lock:
            # Other servers leave a job with a password to this one, since they don't have it.
            self._store.add(job, upload, own=password is not None)
            if password is not None:
                self._passwords[job.id] = password
        self._wake.set()
        return job

    def cancel(self, id_: str) -> Job:
        """Cancel a waiting or running job. A finished job stays as it is."""
        if self._store.update(id_, _UNFINISHED, "cancelled", {}):
            self._take_password(id_)
            # If another server runs the job, that one notices after the next page.
            if process := self._processes.get(id_):
                process.terminate()
            self._clean_up()
        return self.get(id_)

    def retry(self, id_: str, password: str | None = None) -> Job:
        """Retry a job that failed or was cancelled, perhaps with a password.

        Raises DocumentError if its upload has been deleted.
        """
        job = self.get(id_)
        if job.state not in _RETRYABLE:
            return job
        if not self._store.upload(id_).exists():
            raise DocumentError(job.name, "was deleted from the server. Upload it again")
        owner = None if password is None else self._store.owner
        values = {"code": None, "reason": None}
        with self._password_lock:
            queued = self._store.update(id_, _RETRYABLE, "waiting", values, owner=owner)
            if queued and password is not None:
                self._passwords[id_] = password
        self._wake.set()
        return self.get(id_)

    def forget(self, id_: str) -> None:
        self.get(id_)
        self._store.forget(id_)

    def close(self) -> None:
        """Stop the processes. Unfinished jobs wait for another server, or for the next start."""
        self._closing.set()
        self._wake.set()
        for process in [*self._processes.values()]:
            process.terminate()
        for thread in self._threads:
            thread.join(2 * _SECONDS_TO_STOP)
        self._store.close()

    def _work(self, short: bool) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            try:
                job = self._store.claim(self._processes, short=short)
                self._problems.pop(threading.get_ident(), None)
                if job is not None:
                    try:
                        self._run(job, short)
                    finally:  # from now on, this server may claim the job again
                        self._processes.pop(job.id, None)
                    continue
                self._drop_passwords()
                if time.monotonic() - self._last_cleanup > _SECONDS_PER_CLEANUP:
                    self._clean_up()
            except Exception as error:  # the thread must go on after any error
                self._pause(error)
            else:
                self._wake.wait(_SECONDS_PER_POLL)

    def _pause(self, error: Exception) -> None:
        if self.problem is None:
            _logger.error("The job queue has stopped. Retrying.", exc_info=error)
        self._problems[threading.get_ident()] = str(error)
        self._closing.wait(_SECONDS_PER_POLL)

    def _take_password(self, id_: str) -> str | None:
        with self._password_lock:
            return self._passwords.pop(id_, None)

    def _drop_passwords(self) -> None:
        """Drop the passwords of jobs that another server has cancelled or deleted."""
        if self._passwords:
            with self._password_lock:
                # Another worker may have claimed a job, and take its password next.
                unfinished = {job.id for job in self.jobs() if job.state in _UNFINISHED}
                for id_ in self._passwords.keys() - unfinished:
                    del self._passwords[id_]

    def _clean_up(self) -> None:
        self._last_cleanup = time.monotonic()
        try:
            self._store.tidy(self._settings.max_kept_bytes, self._settings.max_kept_days)
        except (StoreError, OSError) as error:
            _logger.warning("Can't delete old uploads: %s", error)

    def _run(self, job: Job, short: bool) -> None:
        """Run a job and save its result, retrying until it can be saved."""
        password = self._take_password(job.id)
        started = time.monotonic()
        try:
            message = self._run_process(job, password, short)
            state, values = _result_of(message)
        except Exception:
            _logger.exception("The job of %s failed.", job.name)
            message = {}
            state, values = _result_of(message)
        document = values.get("document")
        if document and password is not None:
            try:
                self._index.unlock(document, password)
            except Exception as error:  # such as a document that has been removed since
                _logger.warning("Can't unlock %s: %s", job.name, error)
        if not document and self._closing.is_set():
            return
        crashed = not short or time.monotonic() - started < _SECONDS_PER_TURN
        # If the document is in the index, the job is done, even if it was cancelled meanwhile.
        states = (*_UNFINISHED, *_RETRYABLE) if document else ("running",)
        while True:
            try:
                has_result = bool(document) or "code" in message
                if not has_result and self._requeue(job, password, crashed=crashed):
                    return
                self._store.update(job.id, states, state, values, own=not document)
                break
            except Exception as error:
                self._pause(error)
                if self._closing.is_set():
                    return
        self._clean_up()

    def _requeue(self, job: Job, password: str | None, *, crashed: bool) -> bool:
        """Queue an unfinished job again; return False if it has crashed too often."""
        with self._password_lock:
            is_queued = self._store.requeue(job.id, crashed=crashed, own=password is not None)
            if is_queued and password is not None:
                self._passwords[job.id] = password
        if is_queued and crashed:
            _logger.warning("The process that adds %s ended unexpectedly. Retrying.", job.name)
        return is_queued

    def _run_process(self, job: Job, password: str | None, short: bool) -> dict[str, Any]:
        """Run the process of a job, save its progress, and return its last message.

        If ``short`` is true, stop the process after a turn.
        """
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
        message: dict[str, Any] = {}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "visar.server.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        turn = threading.Timer(_SECONDS_PER_TURN, process.terminate)
        turn.daemon = True
        self._processes[job.id] = process
        try:
            if short:
                turn.start()
            if self._closing.is_set():
                process.terminate()
            assert process.stdin and process.stdout  # noqa: PT018, S101 - both are pipes
            with contextlib.suppress(OSError):  # if it has died, its output is empty
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                message = json.loads(line)
                if "stage" in message and not self._save_progress(job.id, message):
                    process.terminate()
        finally:
            turn.cancel()
            _stop(process)
        if not message.keys() & {"document", "code"}:
            cause = ChildDied(process.returncode, late=False)
            message["reason"] = (
                f"The process that adds the document ended unexpectedly twice ({cause}). "
                "It may need more memory than the machine has. Try again."
            )
        return message

    def _save_progress(self, id_: str, message: dict[str, Any]) -> bool:
        """Save the progress of a job; return False if it was cancelled or deleted."""
        try:
            is_saved = self._store.update(
                id_, ("running",), "running", message, owner=self._store.owner, own=True
            )
        except StoreError as error:  # no reason to stop the job
            self._problems[threading.get_ident()] = str(error)
            return True
        self._problems.pop(threading.get_ident(), None)
        return is_saved


def _stop(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _result_of(message: Mapping[str, Any]) -> tuple[JobState, dict[str, Any]]:
    """Return the state and the fields of a job after the last message of its process."""
    if "document" in message:
        return "done", {**message, "pages_done": message["pages"], "code": None, "reason": None}
    reason = "The process that adds the document failed to run twice. Try again."
    return "failed", {"code": "failed", "reason": reason, **message}


def job_folders(location: str, configured: Path | None) -> tuple[Path, list[Path]]:
    """Return the folder for the jobs of an index, and the folders that older versions used."""
    if configured is not None:
        folder, old = configured / "jobs", configured
    elif local := jobs_folder(location):
        folder, old = local, local.with_name("server")
    else:
        from platformdirs import user_data_path

        data, name = user_data_path("visar"), hashlib.sha256(location.encode()).hexdigest()[:16]
        folder, old = data / "jobs" / name, data / "server" / name
    # In older versions, every server had its own folder.
    return folder, [old, *sorted(old.parent.glob(f"{glob.escape(old.name)}-[0-9]*"))]
