"""The job queue: restarts, killed processes, retries, passwords and broken uploads."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import write_pdf, write_slow_pdf
from tests.ingest.test_jobs import write_older_queue
from tests.server.conftest import encrypt
from tests.server.service import client, finished, program, serving, upload, wait_until
from visar.documents import Limits, ReadOptions
from visar.errors import DocumentError, StoreError
from visar.index import Index
from visar.ingest.jobs import JobStore
from visar.results import Job, JobState
from visar.server import Settings
from visar.server.jobs import JobQueue

SENTENCES = "A line about the harbour, its boats and the weather.\n" * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of an empty index."""
    with Index.open(tmp_path / "index") as index:
        return Path(index.location)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A PDF that is long enough to interrupt its job."""
    pages = (f"Chapter {number}.\n{SENTENCES}" for number in range(80))
    return write_pdf(tmp_path / "book.pdf", *pages)


def uploads(folder: Path) -> list[Path]:
    return list((folder / "jobs" / "uploads").iterdir())


def workers(server: int) -> list[int]:
    """Return the ids of the job processes of a server."""
    ids = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            status = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            is_child = int(status[1]) == server
            if is_child and b"visar.server.worker" in (process / "cmdline").read_bytes():
                ids.append(int(process.name))
    return ids


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def intact(index: Index) -> bool:
    """Return whether an index has no problems except data of unfinished additions."""
    return all(problem.kind == "orphan" for problem in index.verify())


@contextlib.contextmanager
def queue(folder: Path, **settings: Any) -> Iterator[JobQueue]:
    """Run a job queue without a server."""
    defaults: dict[str, Any] = {"options": ReadOptions(ocr="never"), "max_waiting": 10_000}
    with Index.open(folder) as index:
        jobs = JobQueue(index, Settings(**defaults | settings))
        try:
            yield jobs
        finally:
            jobs.close()


def submit(jobs: JobQueue, path: Path, **options: Any) -> str:
    with jobs.upload() as target:
        target.write_bytes(path.read_bytes())
        return jobs.submit(target, path.name, encoder="embedded", **options).id


def wait_for(jobs: JobQueue, id_: str) -> Job:
    """Wait until a job is finished, and return it."""
    wait_until(lambda: jobs.get(id_).is_finished, "the job is finished")
    return jobs.get(id_)


def test_accepted_uploads_survive_a_kill(folder: Path, tmp_path: Path, book: Path) -> None:
    small = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
    with program(folder) as (address, server), client(address) as http:
        first = upload(http, book)["id"]
        second = upload(http, small, collection="doors")["id"]
        wait_until(lambda: http.get(f"jobs/{first}").json()["pages_done"] > 0, "it runs")
        children = workers(server.pid)
        assert children
        server.send_signal(signal.SIGKILL)
        server.wait()
    # The process of the job ends with the server, so that the next one can write to the index.
    wait_until(lambda: not any(map(runs, children)), "the worker ends")
    with Index.open(folder) as index:
        assert intact(index)
    with program(folder) as (address, _), client(address) as http:
        assert [job["id"] for job in http.get("jobs").json()] == [second, first]
        assert finished(http, first)["state"] == "done"
        assert finished(http, second)["state"] == "done"
    assert uploads(folder) == []
    with Index.open(folder) as index:
        documents = {each.name: (each.pages, each.collections) for each in index.documents()}
        assert documents == {"book.pdf": (80, ()), "small.pdf": (1, ("doors",))}


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_stopping_a_server_stops_its_jobs(
    folder: Path, book: Path, signal_: signal.Signals
) -> None:
    with program(folder) as (address, server), client(address) as http:
        job = upload(http, book)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        children = workers(server.pid)
        # An open stream of events doesn't keep the server from stopping.
        with http.stream("GET", "jobs/events") as events:
            next(events.iter_lines())
            server.send_signal(signal_)
            assert server.wait(20) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""
    assert not any(map(runs, children))
    with Index.open(folder) as index:
        assert intact(index)
    with queue(folder) as jobs:
        assert wait_for(jobs, job).state == "done"


def test_waiting_jobs_are_resumed_in_order(folder: Path, tmp_path: Path) -> None:
    submitted = []
    with queue(folder, workers=0) as jobs:
        for number in range(3):
            path = write_pdf(tmp_path / f"{number}.pdf", f"Number {number}.")
            submitted.append(submit(jobs, path))
        jobs.cancel(submitted[1])
    with queue(folder) as jobs:
        assert [job.id for job in jobs.jobs()] == submitted[::-1]
        wait_until(lambda: all(job.is_finished for job in jobs.jobs()), "all have ended")
        assert [job.state for job in jobs.jobs()] == ["done", "cancelled", "done"]
        # A job that was cancelled before the restart can be retried.
        jobs.retry(submitted[1])
        assert wait_for(jobs, submitted[1]).state == "done"
    with Index.open(folder) as index:
        assert {each.name for each in index.documents()} == {"0.pdf", "1.pdf", "2.pdf"}


def kill_worker(killed: set[int]) -> None:
    """Kill the process of a job, and add its id to those already killed."""
    wait_until(lambda: {*workers(os.getpid())} - killed, "a process runs")
    (process,) = {*workers(os.getpid())} - killed
    os.kill(process, signal.SIGKILL)
    killed.add(process)


def test_a_job_whose_process_is_killed_is_retried_once(
    folder: Path, book: Path, tmp_path: Path
) -> None:
    killed: set[int] = set()
    with queue(folder, workers=1) as jobs:
        job = submit(jobs, book)
        kill_worker(killed)
        wait_until(lambda: {*workers(os.getpid())} - killed, "it is retried")
    # The next server knows about the crash.
    with queue(folder, workers=1) as jobs:
        kill_worker(killed)
        failed = wait_for(jobs, job)
        assert (failed.state, failed.code) == ("failed", "failed")
        assert "SIGKILL" in (failed.reason or "")
        small = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
        assert wait_for(jobs, submit(jobs, small)).state == "done"
        # After a manual retry, it is retried once again.
        jobs.retry(job)
        kill_worker(killed)
        assert (wait_for(jobs, job).state, jobs.get(job).pages) == ("done", 80)
    with Index.open(folder) as index:
        assert intact(index)


def test_a_retried_job_has_its_password(folder: Path, tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    with queue(folder, workers=1) as jobs:
        job = submit(jobs, path, password="sesame")  # noqa: S106
        kill_worker(set())
        assert wait_for(jobs, job).state == "done"
        assert jobs._passwords == {}


def test_a_short_job_overtakes_long_ones_without_stopping_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
    first, second = (write_slow_pdf(tmp_path / f"{n}.pdf", 12, n) for n in "ab")
    with queue(folder, workers=2) as jobs:
        monkeypatch.setattr("visar.server.jobs._SECONDS_PER_TURN", 0.5)
        long = [submit(jobs, first), submit(jobs, second)]

        def turn_is_over() -> bool:
            with JobStore(folder / "jobs")._transaction() as rows:
                return rows.execute("SELECT 1 FROM jobs WHERE is_long").fetchone() is not None

        wait_until(turn_is_over, "one of them counts as long")
        monkeypatch.setattr("visar.server.jobs._SECONDS_PER_TURN", 600.0)
        assert wait_for(jobs, submit(jobs, small)).state == "done"
        assert sorted(jobs.get(one).state for one in long) == ["running", "waiting"]
        wait_until(lambda: any(jobs.get(one).is_finished for one in long), "a long one ends")
        assert sorted(jobs.get(one).state for one in long) == ["done", "running"]


def test_a_document_that_takes_too_long_fails(folder: Path, tmp_path: Path) -> None:
    slow = write_slow_pdf(tmp_path / "slow.pdf", 60)
    options = ReadOptions(limits=Limits(seconds_per_document=0.5))
    with queue(folder, workers=1, options=options) as jobs:
        failed = wait_for(jobs, submit(jobs, slow))
        assert (failed.state, failed.code) == ("failed", "document")
        assert (failed.reason or "").startswith("slow.pdf")
        assert "0.5 s" in (failed.reason or "")
        assert "--seconds-per-document" in (failed.reason or "")


@pytest.mark.parametrize("program", [None, "echo this is not JSON", "echo '{\"document\": 1}'"])
def test_a_broken_process_only_fails_its_own_job(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    python = tmp_path / "python"
    if program is not None:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    with queue(folder) as jobs:
        with monkeypatch.context() as patch:
            patch.setattr("visar.server.jobs.sys.executable", str(python))
            job = submit(jobs, path)
            failed = wait_for(jobs, job)
            assert (failed.state, failed.code) == ("failed", "failed")
        jobs.retry(job)
        assert wait_for(jobs, job).state == "done"


def test_a_locked_queue_reports_the_problem_and_recovers(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    with queue(folder) as jobs:
        database = sqlite3.connect(folder / "jobs" / "jobs.sqlite", isolation_level=None)
        with contextlib.closing(database) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            wait_until(lambda: jobs.problem is not None, "it reports the lock")
            with pytest.raises(StoreError) as error:
                submit(jobs, path)
            assert str(folder) not in str(error.value)
            lock.execute("ROLLBACK")
        assert jobs.jobs() == []
        wait_until(lambda: jobs.problem is None, "it works again")
        assert wait_for(jobs, submit(jobs, path)).state == "done"
    assert uploads(folder) == []


def test_passwords_are_never_written_and_are_dropped_with_their_jobs(
    folder: Path, tmp_path: Path
) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    password = {"password": "simsalabim"}
    with queue(folder, workers=0) as jobs, queue(folder, workers=0) as other:
        one, two = submit(jobs, path, **password), submit(jobs, path, **password)
        for file in folder.rglob("*"):
            assert file.is_dir() or b"simsalabim" not in file.read_bytes()
        assert jobs._passwords.keys() == {one, two}
        jobs.cancel(one)
        assert jobs._passwords.keys() == {two}
        jobs.retry(one, "sesame")
        assert jobs._passwords.keys() == {one, two}
        # The queue notices jobs that another server cancels or deletes.
        other.cancel(one)
        other.forget(one)
        jobs._drop_passwords()
        assert jobs._passwords.keys() == {two}


def test_the_password_of_a_finished_job_is_dropped(folder: Path, tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    with queue(folder) as jobs:
        job = submit(jobs, path, password="simsalabim")  # noqa: S106
        assert wait_for(jobs, job).code == "password"
        assert jobs._passwords == {}
        jobs.retry(job, "sesame")
        assert wait_for(jobs, job).state == "done"
        assert jobs._passwords == {}


def test_a_job_with_a_password_is_left_to_the_server_that_has_it(
    folder: Path, tmp_path: Path
) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    plain = write_pdf(tmp_path / "plain.pdf", "No key is needed.")
    with queue(folder) as jobs, queue(folder, workers=0) as other:
        job = submit(other, path, password="sesame")  # noqa: S106
        assert wait_for(jobs, submit(other, plain)).state == "done"
        assert jobs.get(job).state == "waiting"
    # That server has stopped, and its password is lost.
    with queue(folder) as jobs:
        assert wait_for(jobs, job).code == "password"


def test_a_job_whose_upload_was_deleted_cannot_be_retried(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "notes.pdf"
    path.write_bytes(b"not a document")
    with queue(folder, workers=1, max_kept_bytes=20) as jobs:
        first, second = submit(jobs, path), submit(jobs, path)
        assert wait_for(jobs, second).code == "document"
        # Together, the uploads of the failed jobs are too large to keep.
        wait_until(lambda: jobs.get(first).code == "upload", "the older upload is deleted")
        assert [each.name for each in uploads(folder)] == [second]
        assert jobs.get(first).state == "failed"
        with pytest.raises(DocumentError):
            jobs.retry(first)
        assert jobs.retry(second).state in ("waiting", "running")
        assert wait_for(jobs, second).code == "document"


def test_metadata_and_collection_are_added_to_the_document(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    with queue(folder) as jobs:
        job = submit(jobs, path, metadata={"year": 2024, "draft": None}, collection="reports")
        assert wait_for(jobs, job).metadata == {"year": 2024, "draft": None}
    with Index.open(folder) as index:
        (document,) = index.documents(where="year = 2024", collection="reports")
        assert (document.name, document.metadata["draft"]) == ("a.pdf", None)


def test_an_unfinished_upload_is_deleted(folder: Path) -> None:
    def parts() -> list[Path]:
        return [path for path in folder.glob("jobs/owners/*/*") if path.name != "lock"]

    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        url = urlsplit(address)
        with socket.create_connection((url.hostname or "", url.port or 0)) as line:
            head = (
                f"POST /api/v1/documents?name=half.pdf HTTP/1.1\r\nHost: {url.netloc}\r\n"
                "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n"
            )
            line.sendall(head.encode() + b"%PDF-1.7\n" * 1000)
            wait_until(lambda: any(part.stat().st_size for part in parts()), "a part arrives")
        wait_until(lambda: not parts(), "it is deleted")
        assert http.get("jobs").json() == []


def test_jobs_of_an_older_version_are_resumed(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
    for name in ("server", "server-2"):
        states: dict[str, JobState] = {f"of-{name}": "waiting"}
        write_older_queue(folder / name, **states)
        (folder / name / "uploads" / f"of-{name}" / "file").write_bytes(path.read_bytes())
    with queue(folder) as jobs:
        assert wait_for(jobs, "of-server").state == "done"
        assert wait_for(jobs, "of-server-2").state == "done"
    assert not [*folder.glob("server*")]
    with Index.open(folder) as index:
        assert [one.pages for one in index.documents()] == [1]


def test_uploads_with_the_same_content_become_one_document(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "twice.pdf", "The same words.")
    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        jobs = [upload(http, path, name)["id"] for name in ("twice.pdf", "again.pdf")]
        documents = {finished(http, job)["document"] for job in jobs}
        assert len(documents) == 1
        assert len(http.get("documents").json()) == 1


def test_questions_are_answered_while_documents_are_added(folder: Path, tmp_path: Path) -> None:
    book = write_pdf(tmp_path / "book.pdf", *(f"Chapter {n}.\n{SENTENCES}" for n in range(20)))
    path = write_pdf(tmp_path / "door.pdf", "The lighthouse has a green door.")
    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        finished(http, upload(http, path)["id"])
        job = upload(http, book)["id"]
        count = 0
        while http.get(f"jobs/{job}").json()["state"] in ("waiting", "running"):
            found = http.post("search", json={"question": "Which colour has the door?"})
            assert found.status_code == 200
            assert found.json()["pages"][0]["name"] == "door.pdf"
            count += 1
        assert count > 3
        searched = http.post("search", json={"question": "door"}).json()["pages_searched"]
        assert searched == 21
