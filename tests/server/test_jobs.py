"""Jobs outlive the server: restarts, kills, cancelled work and broken uploads."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import write_pdf
from tests.server.service import client, finished, program, serving, upload, wait_until
from visar.index import Index
from visar.server.jobs import KEPT, JobQueue

SENTENCES = "A line about the harbour, its boats and the weather.\n" * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an index that is still empty."""
    with Index.open(tmp_path / "index") as index:
        return Path(index.location)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Long enough that it can be interrupted."""
    pages = (f"Chapter {number}.\n{SENTENCES}" for number in range(80))
    return write_pdf(tmp_path / "book.pdf", *pages)


def uploads(folder: Path) -> list[Path]:
    return list((folder / "server" / "uploads").iterdir())


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
def queue(folder: Path, workers: int = 1) -> Iterator[JobQueue]:
    """A queue without a server."""
    jobs = JobQueue(
        folder / "server",
        str(folder),
        {"embedded": "embedded"},
        {"ocr": "never", "limits": {}},
        workers=workers,
        max_waiting=10_000,
        unlock=lambda *_: None,
    )
    try:
        yield jobs
    finally:
        jobs.close()


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
        pages = {each["name"]: each["pages"] for each in http.get("documents").json()}
        assert pages == {"book.pdf": 80, "small.pdf": 1}
        assert http.get("collections").json() == [{"name": "doors", "documents": 1}]
        answer = http.post("ask", json={"question": "Which colour has the door?"}).json()
        assert answer["search"]["pages"][0]["name"] == "small.pdf"
    assert uploads(folder) == []


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
        wait_until(lambda: jobs.get(job).is_finished, "it goes on")
        assert jobs.get(job).state == "done"


def test_what_waited_goes_on_in_order(folder: Path, tmp_path: Path) -> None:
    submitted = []
    with queue(folder, workers=0) as jobs:
        for number in range(3):
            path = write_pdf(tmp_path / f"{number}.pdf", f"Number {number}.")
            with jobs.upload() as place:
                place.create().write_bytes(path.read_bytes())
                submitted.append(jobs.submit(place, path.name, encoder="embedded").id)
        jobs.cancel(submitted[1])
    with queue(folder) as jobs:
        assert [job.id for job in jobs.jobs()] == submitted[::-1]
        wait_until(lambda: all(job.is_finished for job in jobs.jobs()), "all have ended")
        assert [job.state for job in jobs.jobs()] == ["done", "cancelled", "done"]
        # What was cancelled before a restart can be tried again after it.
        jobs.retry(submitted[1])
        wait_until(lambda: jobs.get(submitted[1]).is_finished, "it has ended")
        assert jobs.get(submitted[1]).state == "done"
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


def test_a_process_that_cannot_be_started_fails_its_job_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    with queue(folder) as jobs:
        with monkeypatch.context() as patch, jobs.upload() as place:
            patch.setattr("visar.server.jobs.sys.executable", str(tmp_path / "nothing"))
            place.create().write_bytes(path.read_bytes())
            job = jobs.submit(place, "a.pdf", encoder="embedded").id
            wait_until(lambda: jobs.get(job).is_finished, "it has ended")
        assert jobs.get(job).state == "failed"
        jobs.retry(job)
        wait_until(lambda: jobs.get(job).is_finished, "it has ended")
        assert jobs.get(job).state == "done"


def test_the_database_keeps_no_password(folder: Path, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    with queue(folder, workers=0) as jobs, jobs.upload() as place:
        place.create().write_bytes(path.read_bytes())
        jobs.submit(place, "a.pdf", encoder="embedded", password="simsalabim")  # noqa: S106
    for file in (folder / "server").rglob("*"):
        assert file.is_dir() or b"simsalabim" not in file.read_bytes()


def test_only_so_many_ended_jobs_are_remembered(folder: Path) -> None:
    with queue(folder, workers=0) as jobs:
        for number in range(KEPT + 3):
            with jobs.upload() as place:
                place.create().touch()
                job = jobs.submit(place, f"{number}.pdf", encoder="embedded")
            jobs.cancel(job.id)
        names = [job.name for job in jobs.jobs()]
        assert len(names) == KEPT
        assert (names[0], names[-1]) == (f"{KEPT + 2}.pdf", "3.pdf")
        assert len(uploads(folder)) == KEPT


def test_an_unfinished_upload_leaves_nothing(folder: Path) -> None:
    with Index.open(folder) as index, serving(index) as address, client(address) as http:
        place = urlsplit(address)
        with socket.create_connection((place.hostname or "", place.port or 0)) as line:
            head = (
                f"POST /api/v1/documents?name=half.pdf HTTP/1.1\r\nHost: {place.netloc}\r\n"
                "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n"
            )
            line.sendall(head.encode() + b"%PDF-1.7\n" * 1000)
            wait_until(lambda: len(uploads(folder)) == 1, "it arrives")
        wait_until(lambda: not uploads(folder), "it is dropped")
        assert http.get("jobs").json() == []


def test_what_an_upload_left_when_the_server_was_killed_is_dropped(folder: Path) -> None:
    with queue(folder, workers=0):
        left = folder / "server" / "uploads" / "of-before"
        left.mkdir()
        (left / "file").write_bytes(b"%PDF-")
    with queue(folder, workers=0) as jobs:
        assert jobs.jobs() == []
        assert uploads(folder) == []


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
