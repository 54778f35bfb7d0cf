"""Test that acknowledged changes survive a power loss, which loses all data that wasn't synced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.power import UPLOAD, Disk, read_records, summary
from visar.errors import NotAnIndex
from visar.files import copy_atomically, make_folder, write_whole
from visar.ingest.jobs import JobStore, read_jobs
from visar.store import open_store

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
ROOT = Path(__file__).parents[2]
# Interval of the simulated power losses, in records. VISAR_POWER_EVERY=1 tests all moments.
EVERY = int(os.environ.get("VISAR_POWER_EVERY", "40"))


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "power.so"
    source = Path(__file__).with_name("power.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def record(recorder: Path, folder: Path, *command: str) -> Path:
    """Run Python, and return the log of its changes in a folder."""
    log = folder.with_name("records")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(recorder),
        "POWER_FOLDER": str(folder),
        "POWER_LOG": str(log),
    }
    subprocess.run([sys.executable, *command], env=environment, cwd=ROOT, check=True)
    return log


@pytest.mark.parametrize("names_are_synced", [False, True], ids=["names lost", "names kept"])
def test_acknowledged_changes_survive_a_power_loss(
    recorder: Path, tmp_path: Path, names_are_synced: bool
) -> None:
    scans, folder = tmp_path / "scans", tmp_path / "disk"
    for path in (scans, folder):
        path.mkdir()
    (scans / "1.png").write_bytes(b"one" * 3000)
    (scans / "2.png").write_bytes(b"two" * 3000)
    index, backup = folder / "new" / "index", folder / "backups" / "today"
    disk = Disk(folder)
    command = ["-m", "tests.store.power", str(index), str(backup), str(scans)]
    records = list(read_records(record(recorder, folder, *command)))
    states: list[dict[str, object]] = [
        json.loads(fields[2]) for fields, _ in records if fields[0] == "done"
    ]
    assert len(states) == 12
    done: list[str] = []
    for number, one in enumerate(records):
        if one[0][0] == "done":
            done.append(one[0][1])
        else:
            disk.replay(one)
        if one[0][0] != "done" and number % EVERY:
            continue
        left = tmp_path / "left"
        disk.write(left, names_are_synced=names_are_synced)
        here = left / index.relative_to(folder)
        if "queued" in done:
            check_queue(here)
        else:
            before = [states[len(done) - 1]] if done else []
            check_index(here, before, states[len(done)])
        check_backup(left / backup.relative_to(folder), "backup" in done, states[8])
        shutil.rmtree(left)


def check_index(path: Path, before: list[dict[str, object]], after: dict[str, object]) -> None:
    """Check that the index is in its state before or after a step."""
    try:
        store = open_store(path, create=False)
    except NotAnIndex:
        assert not before
        return
    assert summary(store) in (*(before or [{}]), after)
    assert [problem for problem in store.verify() if problem.kind == "damage"] == []
    store.compact()
    assert store.verify() == []
    store.close()


def check_queue(path: Path) -> None:
    assert [(job.id, job.state) for job in read_jobs(str(path))] == [("job", "waiting")]
    queue = JobStore(path / "jobs")
    job = queue.claim()
    assert job is not None
    assert queue.upload(job.id).read_bytes() == UPLOAD
    queue.close()


def check_backup(path: Path, is_done: bool, expected: dict[str, object]) -> None:
    assert path.exists() or not is_done
    if path.exists():
        store = open_store(path, read_only=True)
        assert store.verify() == []
        assert summary(store) == expected
        store.close()


def test_simulated_disk_loses_unsynced_data(recorder: Path, tmp_path: Path) -> None:
    """The simulation loses unsynced data, but not files written by `visar.files`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    code = (
        "import sys, os; from pathlib import Path; from tests.store.test_power_loss import write;"
        "write(Path(sys.argv[1]))"
    )
    disk = Disk(folder)
    for one in read_records(record(recorder, folder, "-c", code, str(folder))):
        disk.replay(one)
    disk.write(tmp_path / "lost", names_are_synced=False)
    disk.write(tmp_path / "kept", names_are_synced=True)
    assert content(tmp_path / "lost") == {"a/b/whole": b"new", "a/copy/file": b"copied"}
    assert content(tmp_path / "kept") == content(tmp_path / "lost") | {"a/new": b"", "a/moved": b""}
    assert (folder / "a" / "moved").read_bytes() == b"unsynced"


def write(folder: Path) -> None:
    """Write some files durably, and some without a sync."""
    write_whole(folder / "a" / "b" / "whole", b"old")
    write_whole(folder / "a" / "b" / "whole", b"new")
    make_folder(folder / "source")
    (folder / "source" / "file").write_bytes(b"copied")
    copy_atomically(folder / "source", folder / "a" / "copy")
    (folder / "source" / "file").unlink()
    (folder / "source").rmdir()
    (folder / "a" / "new").write_bytes(b"unsynced")
    (folder / "a" / "old").write_bytes(b"unsynced")
    (folder / "a" / "old").rename(folder / "a" / "moved")


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
