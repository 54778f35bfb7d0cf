"""A server on a full or read-only disk: it answers questions and refuses uploads with a reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conftest import write_pdf
from tests.server.service import (
    ask,
    assert_problem,
    client,
    events,
    finished,
    program,
    send,
    upload,
    wait_until,
)
from visar.index import Index
from visar.server.context import RESERVED_BYTES

SIZE = 3 * RESERVED_BYTES
# Program that exits without closing the database, as if it were killed, and leaves its log.
ABANDON = (
    "import os, sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); "
    "connection.execute('UPDATE documents SET name = name'); connection.commit(); os._exit(0)"
)


@pytest.fixture
def disk(tmp_path: Path, manual: Path) -> Iterator[Path]:
    """A small disk with an index of the manual. Only root can mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "visar-test", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("file systems can't be mounted here")
    with Index.open(disk / "index") as index:
        index.add(manual)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: S607


def remount(disk: Path, how: str) -> None:
    options = f"remount,{how},size={SIZE}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607


def fill(disk: Path, leaving: int) -> None:
    """Fill the disk except for a number of bytes."""
    free = shutil.disk_usage(disk).free
    (disk / f"filling-{leaving}").write_bytes(bytes(free - leaving))


def send_writes(http: httpx2.Client) -> list[httpx2.Response]:
    """Send all kinds of requests that write to the index, and return the responses."""
    document = http.get("documents").json()[0]["id"]
    return [
        send(http, b"%PDF-", "a.pdf"),
        http.post("documents/batch", content=b"", headers={"Content-Type": "application/x-tar"}),
        http.put("collections/new/documents", json={"documents": [document]}),
        http.delete(f"documents/{document}"),
        http.post("jobs/nothing/cancel"),
    ]


def check_uploads_work(http: httpx2.Client, tmp_path: Path) -> None:
    """Check that documents can be added again."""
    path = write_pdf(tmp_path / "later.pdf", "The lighthouse has a green door.")
    assert finished(http, upload(http, path)["id"])["state"] == "done"
    assert "later.pdf" in {one["name"] for one in http.get("documents").json()}
    wait_until(lambda: http.get("ready").json()["jobs"] == "ok", "the job queue works")
    assert http.get("ready").json()["disk"] == "ok"


def test_a_server_recovers_from_a_full_disk(disk: Path, tmp_path: Path) -> None:
    with program(disk / "index") as (address, _), client(address) as http:
        assert http.get("ready").json()["disk"] == "ok"
        fill(disk, RESERVED_BYTES // 2)
        assert_problem(send(http, b"%PDF-", "a.pdf"), 507, "disk_full")
        fill(disk, 0)
        assert ask(http, "ask")["text"]
        uploaded, batch, *others = send_writes(http)
        for response in (uploaded, batch):
            assert_problem(response, 507, "disk_full")
        # These may succeed if existing files have free space.
        for response in others:
            if not response.is_success and response.status_code != 404:
                assert_problem(response, 507, "disk_full")
        ready = http.get("ready")
        assert (ready.status_code, ready.json()["disk"]) == (200, "disk_full")
        for path in disk.glob("filling-*"):
            path.unlink()
        check_uploads_work(http, tmp_path)


def test_a_server_starts_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    (disk / "index" / "reserve").unlink()
    fill(disk, 0)
    with program(disk / "index") as (address, _), client(address) as http:
        assert ask(http, "ask")["text"]
        for response in (*send_writes(http)[:4], http.get("jobs")):
            assert_problem(response, 507, "disk_full")
        ready = http.get("ready").json()
        assert (ready["disk"], ready["jobs"]) == ("disk_full", "stopped")
        for path in disk.glob("filling-*"):
            path.unlink()
        check_uploads_work(http, tmp_path)


@pytest.mark.parametrize("abandoned", [False, True])
def test_a_server_recovers_from_a_read_only_disk(
    disk: Path, tmp_path: Path, abandoned: bool
) -> None:
    if abandoned:
        command = [sys.executable, "-c", ABANDON, str(disk / "index" / "index.sqlite")]
        subprocess.run(command, check=True)
    remount(disk, "ro")
    with program(disk / "index") as (address, _), client(address) as http:
        assert ask(http, "ask")["text"]
        for response in (*send_writes(http), http.get("jobs")):
            assert_problem(response, 503, "read_only")
        ready = http.get("ready")
        assert ready.status_code == 200
        assert (ready.json()["disk"], ready.json()["jobs"]) == ("read_only", "stopped")
        with http.stream("GET", "jobs/events") as response:
            assert response.status_code == 200
            remount(disk, "rw")
            check_uploads_work(http, tmp_path)
            assert next(events(response))[0] == "job"
        (document, *_) = http.get("documents").json()
        assert http.delete(f"documents/{document['id']}").status_code == 200
