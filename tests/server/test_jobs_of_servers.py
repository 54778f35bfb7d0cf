"""Several servers that share an index lose no upload if one is killed, locked or out of space."""

from __future__ import annotations

import contextlib
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import write_pdf, write_slow_pdf
from tests.server.service import client, finished, program, send, upload, wait_until
from tests.server.test_jobs import uploads, workers
from visar.index import Index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of an empty index."""
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


def is_refused(address: str, path: Path) -> bool:
    with client(address) as http:  # not a shared client: the server may close the connection
        return send(http, path.read_bytes(), "refused.pdf").status_code == 503


def test_the_uploads_of_a_killed_server_are_added_by_another(
    folder: Path, book: Path, small: Path
) -> None:
    with (
        program(folder, "--workers", "1") as (address, server),
        program(folder, "--workers", "1") as (other, _),
        client(address) as here,
        client(other) as there,
    ):
        # This keeps the other server busy, so that it doesn't take the next uploads.
        first = upload(there, book)["id"]
        wait_until(lambda: there.get(f"jobs/{first}").json()["state"] == "running", "it runs")
        second, third = (upload(here, small, f"{n}.pdf")["id"] for n in "ab")
        kill(server)
        assert [finished(there, job)["state"] for job in (first, second, third)] == ["done"] * 3
        assert [job["id"] for job in there.get("jobs").json()] == [third, second, first]
    assert names(folder) == ["a.pdf", "book.pdf"]  # b.pdf has the same content as a.pdf
    assert uploads(folder) == []


def test_a_job_can_be_cancelled_through_any_server(folder: Path, tmp_path: Path) -> None:
    # Long enough to be cancelled in the middle.
    book = write_pdf(tmp_path / "book.pdf", *(f"Chapter {n}. The tide." for n in range(200)))
    with program(folder) as (one, first), program(folder) as (two, second):
        with client(one) as http:
            job = upload(http, book)["id"]
            wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        other = two if workers(first.pid) else one
        with client(other) as http:
            assert http.post(f"jobs/{job}/cancel", json={}).json()["state"] == "cancelled"
            wait_until(lambda: not workers(first.pid) + workers(second.pid), "its process ends")
            # It may have been done before it could be cancelled.
            if http.get(f"jobs/{job}").json()["state"] == "cancelled":
                retried = http.post(f"jobs/{job}/retry", json={}).json()
                assert retried["state"] in ("waiting", "running", "done")
            assert finished(http, job)["state"] == "done"
    assert names(folder) == ["book.pdf"]


def test_the_queue_works_again_after_its_database_was_locked(
    folder: Path, book: Path, small: Path
) -> None:
    with program(folder) as (address, server), client(address) as http:
        job = upload(http, book)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        (path,) = folder.glob("*/jobs.sqlite")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            wait_until(lambda: not workers(server.pid), "its process ends")
            # The upload waits for the lock as long as the job does, and started later. When it is
            # refused, the job has failed to write its result, too.
            assert is_refused(address, small)
            lock.execute("ROLLBACK")
        assert finished(http, job)["state"] == "done"
        assert finished(http, upload(http, small)["id"])["state"] == "done"
        # The other worker may still be waiting to try again.
        wait_until(lambda: http.get("ready").status_code == 200, "both workers run")
    assert names(folder) == ["book.pdf", "small.pdf"]


def test_the_queue_works_again_after_the_disk_was_full(
    folder: Path, book: Path, small: Path
) -> None:
    with program(folder) as (address, server), client(address) as http:
        job = upload(http, book)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
        # The server can't extend files, but the process of the job can.
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, hard))
        wait_until(lambda: not workers(server.pid), "its process ends")
        assert is_refused(address, small)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert finished(http, job)["state"] == "done"
        assert finished(http, upload(http, small)["id"])["state"] == "done"
    assert names(folder) == ["book.pdf", "small.pdf"]


def test_options_set_the_limits_of_a_server(folder: Path, tmp_path: Path, small: Path) -> None:
    options = ("--workers", "1", "--max-waiting", "1", "--max-megabytes", "1", "--max-pages", "50")
    slow = write_slow_pdf(tmp_path / "slow.pdf", 50, lines=400_000)
    with (
        program(folder, *options, "--seconds-per-document", "10") as (address, _),
        client(address) as http,
    ):
        assert send(http, bytes(1_000_001), "large.pdf").status_code == 413
        pages = upload(http, write_pdf(tmp_path / "many.pdf", *"A" * 51))["id"]
        assert "50" in finished(http, pages)["reason"]
        job = upload(http, slow)["id"]
        wait_until(lambda: http.get(f"jobs/{job}").json()["state"] != "waiting", "it runs")
        waiting = upload(http, small)["id"]
        assert send(http, small.read_bytes(), "refused.pdf").status_code == 429
        failed = finished(http, job)
        assert (failed["state"], failed["code"]) == ("failed", "document")
        assert "10 s" in failed["reason"]
        assert finished(http, waiting)["state"] == "done"


def test_the_benchmark_of_killed_servers_loses_no_upload() -> None:
    """Run a trial of docs/reliability.md, which fails if an upload is lost."""
    command = [sys.executable, "-m", "benchmarks.servers", "--trials", "1", "--seed", "1"]
    run = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("Trials: 1; servers killed: 1; ")
