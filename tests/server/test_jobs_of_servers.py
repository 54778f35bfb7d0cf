"""Servers as programs that share an index: kills, locks and full disks lose no upload."""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import httpx2
import pytest

from tests.conftest import write_pdf
from tests.server.service import client, finished, program, send, upload, wait_until
from tests.server.test_jobs import uploads, workers
from visar.index import Index

ROUNDS = 2
UPLOADS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index that is still empty."""
    with Index.open(tmp_path / "index") as index:
        return Path(index.location)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return write_pdf(tmp_path / "book.pdf", *(f"Chapter {n}. The tide." for n in range(40)))


def kill(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGKILL)
    server.wait()


def names(folder: Path) -> list[str]:
    with Index.open(folder) as index:
        return sorted(document.name for document in index.documents())


def refused(address: str, path: Path) -> bool:
    with client(address) as http:  # a server may end the connection of an upload that fails
        return send(http, path.read_bytes(), "refused.pdf").status_code == 503


def test_the_uploads_of_a_killed_server_are_worked_by_another(
    folder: Path, book: Path, small: Path
) -> None:
    with (
        program(folder) as (address, server),
        program(folder) as (other, _),
        client(address) as here,
        client(other) as there,
    ):
        # The other one is busy with this, so the next ones stay with the server that took them.
        first = upload(there, book)["id"]
        wait_until(lambda: there.get(f"jobs/{first}").json()["state"] == "running", "it runs")
        second, third = (upload(here, small, f"{n}.pdf")["id"] for n in "ab")
        kill(server)
        assert [finished(there, job)["state"] for job in (first, second, third)] == ["done"] * 3
        assert [job["id"] for job in there.get("jobs").json()] == [third, second, first]
    assert names(folder) == ["a.pdf", "book.pdf"]  # two of one content are one
    assert uploads(folder) == []


def test_a_job_is_cancelled_through_any_server(folder: Path, tmp_path: Path) -> None:
    # Long enough to be cancelled in the middle.
    book = write_pdf(tmp_path / "book.pdf", *(f"Chapter {n}. The tide." for n in range(600)))
    with program(folder) as (one, first), program(folder) as (two, second):
        with client(one) as http:
            job = upload(http, book)["id"]
            wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        other = two if workers(first.pid) else one
        with client(other) as http:
            assert http.post(f"jobs/{job}/cancel", json={}).json()["state"] == "cancelled"
            wait_until(lambda: not workers(first.pid) + workers(second.pid), "its process ends")
            # Its process may have come to its end before it could be told.
            if http.get(f"jobs/{job}").json()["state"] == "cancelled":
                retried = http.post(f"jobs/{job}/retry", json={}).json()
                assert retried["state"] in ("waiting", "running", "done")
            assert finished(http, job)["state"] == "done"
    assert names(folder) == ["book.pdf"]


def test_a_lock_on_the_queue_stops_it_only_while_it_is_held(
    folder: Path, book: Path, small: Path
) -> None:
    with program(folder) as (address, server), client(address) as http:
        job = upload(http, book)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        (path,) = folder.glob("*/jobs.sqlite")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            wait_until(lambda: not workers(server.pid), "its process ends")
            # It waits for the lock as long as the job does, and began later: when it is refused,
            # the end of the job could not be written either.
            assert refused(address, small)
            lock.execute("ROLLBACK")
        assert finished(http, job)["state"] == "done"
        assert finished(http, upload(http, small)["id"])["state"] == "done"
        assert http.get("ready").status_code == 200
    assert names(folder) == ["book.pdf", "small.pdf"]


def test_a_full_disk_stops_the_queue_only_while_it_is_full(
    folder: Path, book: Path, small: Path
) -> None:
    with program(folder) as (address, server), client(address) as http:
        job = upload(http, book)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        # The server can't make any file longer; the process of the job can.
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, hard))
        wait_until(lambda: not workers(server.pid), "its process ends")
        assert refused(address, small)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert finished(http, job)["state"] == "done"
        assert finished(http, upload(http, small)["id"])["state"] == "done"
    assert names(folder) == ["book.pdf", "small.pdf"]


def test_every_acknowledged_upload_survives_kills_at_random_moments(
    folder: Path, tmp_path: Path
) -> None:
    moments = random.Random()
    acknowledged: dict[str, str] = {}
    numbers = itertools.count()

    def insist(address: str) -> None:
        with client(address) as http, contextlib.suppress(httpx2.TransportError):
            for number in itertools.islice(numbers, UPLOADS):
                path = write_pdf(tmp_path / f"{number}.pdf", f"Number {number} of the series.")
                acknowledged[upload(http, path)["id"]] = path.name
                time.sleep(moments.uniform(0, 1))

    for _ in range(ROUNDS):
        with program(folder) as (one, first), program(folder) as (two, second):
            threads = [threading.Thread(target=insist, args=[address]) for address in (one, two)]
            for thread in threads:
                thread.start()
            for server in (first, second):
                time.sleep(moments.uniform(0, 4))
                kill(server)
            for thread in threads:
                thread.join()
    with program(folder) as (address, _), client(address) as http:
        assert acknowledged.keys() <= {job["id"] for job in http.get("jobs").json()}
        jobs = [finished(http, job) for job in acknowledged]
        assert {job["state"] for job in jobs} <= {"done"}
    found = names(folder)
    assert len(found) == len(set(found))
    assert set(acknowledged.values()) <= set(found)
    with Index.open(folder) as index:
        assert {problem.kind for problem in index.verify()} <= {"orphan"}
    assert len(list((folder / "jobs" / "owners").iterdir())) <= 1
