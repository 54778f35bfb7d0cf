"""Jobs outlive the server: restarts, kills, cancelled work and broken uploads."""

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

from tests.conftest import write_pdf
from tests.ingest.test_jobs import keep_as_before
from tests.server.conftest import encrypt
from tests.server.service import client, finished, program, serving, upload, wait_until
from visar.documents import ReadOptions
from visar.errors import DocumentError, StoreError
from visar.index import Index
from visar.results import Job, JobState
from visar.server import Settings
from visar.server.jobs import JobQueue

SENTENCES = "A line about the harbour, its boats and the weather.\n" * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index that is still empty."""
    with Index.open(tmp_path / "index") as index:
        return Path(index.location)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Long enough that it can be interrupted."""
    pages = (f"Chapter {number}.\n{SENTENCES}" for number in range(80))
    return write_pdf(tmp_path / "book.pdf", *pages)


def uploads(folder: Path) -> list[Path]:
    return list((folder / "jobs" / "uploads").iterdir())


def workers(server: int) -> list[int]:
    """The processes of jobs that a server has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int((place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if parent == server and b"visar.server.worker" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def intact(index: Index) -> bool:
    """Whether nothing is wrong but that an addition has not been finished."""
    return all(problem.kind == "orphan" for problem in index.verify())


@contextlib.contextmanager
def queue(folder: Path, **settings: Any) -> Iterator[JobQueue]:
    """A queue without a server."""
    chosen = Settings(options=ReadOptions(ocr="never"), max_waiting=10_000, **settings)
    with Index.open(folder) as index:
        jobs = JobQueue(index, chosen)
        try:
            yield jobs
        finally:
            jobs.close()


def submit(jobs: JobQueue, path: Path, **options: Any) -> str:
    with jobs.upload() as place:
        place.write_bytes(path.read_bytes())
        return jobs.submit(place, path.name, encoder="embedded", **options).id


def ended(jobs: JobQueue, id_: str) -> Job:
    wait_until(lambda: jobs.get(id_).is_finished, "it has ended")
    return jobs.get(id_)


def test_what_was_acknowledged_survives_a_kill(folder: Path, tmp_path: Path, book: Path) -> None:
    small = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
    with program(folder) as (address, server), client(address) as http:
        first = upload(http, book)["id"]
        second = upload(http, small, collection="doors")["id"]
        wait_until(lambda: http.get(f"jobs/{first}").json()["pages_done"] > 0, "it runs")
        children = workers(server.pid)
        assert children
        server.send_signal(signal.SIGKILL)
        server.wait()
    # The process of the job ends with the server, and leaves the index to the next one.
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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_end_ends_its_work_too(
    folder: Path, book: Path, how: signal.Signals
) -> None:
    with program(folder) as (address, server), client(address) as http:
        job = upload(http, book)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        children = workers(server.pid)
        # A page that listens does not keep the server from ending.
        with http.stream("GET", "jobs/events") as events:
            next(events.iter_lines())
            server.send_signal(how)
            assert server.wait(20) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""
    assert not any(map(runs, children))
    with Index.open(folder) as index:
        assert intact(index)
    with queue(folder) as jobs:
        assert ended(jobs, job).state == "done"


def test_what_waited_goes_on_in_order(folder: Path, tmp_path: Path) -> None:
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
        # What was cancelled before a restart can be tried again after it.
        jobs.retry(submitted[1])
        assert ended(jobs, submitted[1]).state == "done"
    with Index.open(folder) as index:
        assert {each.name for each in index.documents()} == {"0.pdf", "1.pdf", "2.pdf"}


def test_a_worker_that_dies_fails_its_job_alone(folder: Path, book: Path, tmp_path: Path) -> None:
    small = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        job, other = upload(http, book)["id"], upload(http, small)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        (process,) = workers(os.getpid())
        os.kill(process, signal.SIGKILL)
        failed = finished(http, job)
        assert (failed["state"], failed["code"]) == ("failed", "failed")
        assert "again" in failed["reason"]
        assert finished(http, other)["state"] == "done"
        http.post(f"jobs/{job}/retry", json={})
        assert finished(http, job)["pages"] == 80
        assert intact(index)


@pytest.mark.parametrize("program", [None, "echo this is not JSON", "echo '{\"document\": 1}'"])
def test_a_process_that_does_not_work_fails_its_job_alone(
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
            failed = ended(jobs, job)
            assert (failed.state, failed.code) == ("failed", "failed")
        jobs.retry(job)
        assert ended(jobs, job).state == "done"


def test_a_queue_that_cannot_work_says_so(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    with queue(folder) as jobs:
        database = sqlite3.connect(folder / "jobs" / "jobs.sqlite", isolation_level=None)
        with contextlib.closing(database) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            wait_until(lambda: jobs.problem is not None, "it says that it is locked")
            with pytest.raises(StoreError) as refused:
                submit(jobs, path)
            assert str(folder) not in str(refused.value)
            lock.execute("ROLLBACK")
        assert jobs.jobs() == []
        wait_until(lambda: jobs.problem is None, "it goes on")
        assert ended(jobs, submit(jobs, path)).state == "done"
    assert uploads(folder) == []


def test_passwords_are_never_written_and_go_with_their_jobs(folder: Path, tmp_path: Path) -> None:
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
        # What another server cancels or drops is noticed.
        other.cancel(one)
        other.forget(one)
        jobs._drop_passwords()
        assert jobs._passwords.keys() == {two}


def test_the_password_of_a_job_that_has_ended_is_gone(folder: Path, tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    with queue(folder) as jobs:
        job = submit(jobs, path, password="simsalabim")  # noqa: S106
        assert ended(jobs, job).code == "password"
        assert jobs._passwords == {}
        jobs.retry(job, "sesame")
        assert ended(jobs, job).state == "done"
        assert jobs._passwords == {}


def test_a_password_is_left_to_the_server_that_has_it(folder: Path, tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    plain = write_pdf(tmp_path / "plain.pdf", "No key is needed.")
    with queue(folder) as jobs, queue(folder, workers=0) as other:
        job = submit(other, path, password="sesame")  # noqa: S106
        assert ended(jobs, submit(other, plain)).state == "done"
        assert jobs.get(job).state == "waiting"
    # It ended before it came to it, and took the password along.
    with queue(folder) as jobs:
        assert ended(jobs, job).code == "password"


def test_an_upload_that_was_deleted_has_to_come_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "notes.pdf"
    path.write_bytes(b"not a document")
    with queue(folder, max_kept_bytes=20) as jobs:
        first, second = submit(jobs, path), submit(jobs, path)
        assert ended(jobs, second).code == "document"
        # Both have failed; together they are too large.
        wait_until(lambda: jobs.get(first).code == "upload", "the older upload is deleted")
        assert [each.name for each in uploads(folder)] == [second]
        assert jobs.get(first).state == "failed"
        with pytest.raises(DocumentError):
            jobs.retry(first)
        assert jobs.retry(second).state in ("waiting", "running")
        assert ended(jobs, second).code == "document"


def test_metadata_and_collection_go_into_the_index(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    with queue(folder) as jobs:
        job = submit(jobs, path, metadata={"year": 2024, "draft": None}, collection="reports")
        assert ended(jobs, job).metadata == {"year": 2024, "draft": None}
    with Index.open(folder) as index:
        (document,) = index.documents(where="year = 2024", collection="reports")
        assert (document.name, document.metadata["draft"]) == ("a.pdf", None)


def test_an_unfinished_upload_leaves_nothing(folder: Path) -> None:
    def parts() -> list[Path]:
        return [path for path in folder.glob("jobs/owners/*/*") if path.name != "lock"]

    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        place = urlsplit(address)
        with socket.create_connection((place.hostname or "", place.port or 0)) as line:
            head = (
                f"POST /api/v1/documents?name=half.pdf HTTP/1.1\r\nHost: {place.netloc}\r\n"
                "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n"
            )
            line.sendall(head.encode() + b"%PDF-1.7\n" * 1000)
            wait_until(lambda: any(arriving.stat().st_size for arriving in parts()), "it arrives")
        wait_until(lambda: not parts(), "it is dropped")
        assert http.get("jobs").json() == []


def test_the_queue_of_an_older_version_goes_on(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
    for name in ("server", "server-2"):
        states: dict[str, JobState] = {f"of-{name}": "waiting"}
        keep_as_before(folder / name, **states)
        (folder / name / "uploads" / f"of-{name}" / "file").write_bytes(path.read_bytes())
    with queue(folder) as jobs:
        assert ended(jobs, "of-server").state == "done"
        assert ended(jobs, "of-server-2").state == "done"
    assert not [*folder.glob("server*")]
    with Index.open(folder) as index:
        assert [one.pages for one in index.documents()] == [1]


def test_documents_of_one_content_are_one(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "twice.pdf", "The same words.")
    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        jobs = [upload(http, path, name)["id"] for name in ("twice.pdf", "again.pdf")]
        documents = {finished(http, job)["document"] for job in jobs}
        assert len(documents) == 1
        assert len(http.get("documents").json()) == 1


def test_questions_are_answered_while_documents_are_added(
    folder: Path, tmp_path: Path, book: Path
) -> None:
    path = write_pdf(tmp_path / "door.pdf", "The lighthouse has a green door.")
    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        finished(http, upload(http, path)["id"])
        job = upload(http, book)["id"]
        asked = 0
        while http.get(f"jobs/{job}").json()["state"] in ("waiting", "running"):
            found = http.post("search", json={"question": "Which colour has the door?"})
            assert found.status_code == 200
            assert found.json()["pages"][0]["name"] == "door.pdf"
            asked += 1
        assert asked > 3
        searched = http.post("search", json={"question": "door"}).json()["pages_searched"]
        assert searched == 81
