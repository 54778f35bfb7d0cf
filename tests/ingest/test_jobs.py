"""The queue of uploads: its order, its owners, and files of other versions."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from visar.errors import NotInIndex
from visar.index import Index
from visar.ingest.jobs import KEPT, JobStore
from visar.results import Job, JobState
from visar.serialization import to_plain

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GB = 1_000_000_000
OLD_TABLE = """
CREATE TABLE jobs (id TEXT PRIMARY KEY, created TEXT NOT NULL, state TEXT NOT NULL,
content TEXT NOT NULL) STRICT
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    store = JobStore(tmp_path / "jobs")
    yield store
    store.close()


def add(store: JobStore, name: str, content: bytes = b"%PDF-", **more: Any) -> Job:
    """Queue an upload whose id is its name."""
    own = more.pop("own", False)
    job = Job(name, f"{name}.pdf", "embedded", NOW, **more)
    path = store.incoming / name
    path.write_bytes(content)
    store.add(job, path, own=own)
    return job


def end(store: JobStore, id_: str, state: JobState) -> None:
    assert store.update(id_, ["waiting", "running"], state, {})


def database(store: JobStore) -> sqlite3.Connection:
    return sqlite3.connect(store.upload("x").parents[1] / "jobs.sqlite")


def uploads(store: JobStore) -> set[str]:
    return {path.name for path in store.upload("x").parent.iterdir()}


def test_a_job_is_read_as_it_was_added(store: JobStore) -> None:
    job = add(store, "a", collection="reports", metadata={"year": 2024, "kind": "Bericht ü"})
    assert store.get("a") == job
    assert store.jobs() == [job]
    assert store.upload("a").read_bytes() == b"%PDF-"
    assert list(store.incoming.glob("a")) == []
    with pytest.raises(NotInIndex):
        store.get("b")


def test_servers_share_jobs_first_come_first_served(store: JobStore, tmp_path: Path) -> None:
    for name in "dbca":
        add(store, name)
    with closing(JobStore(tmp_path / "jobs")) as other:
        taken = [one.claim() for one in (store, other, other, store)]
        assert [job and (job.id, job.state) for job in taken] == [
            ("d", "running"), ("b", "running"), ("c", "running"), ("a", "running"),
        ]  # fmt: skip
        assert store.claim() is None
        assert [job.id for job in store.jobs()] == ["a", "c", "b", "d"]
        # A job that is tried again came when it came.
        add(store, "e")
        end(store, "d", "failed")
        assert store.update("d", ["failed"], "waiting", {})
        assert [job and job.id for job in (other.claim(), other.claim())] == ["d", "e"]


def test_no_job_is_taken_twice(tmp_path: Path, store: JobStore) -> None:
    for number in range(40):
        add(store, str(number))
    taken: list[str] = []

    def work() -> None:
        with closing(JobStore(tmp_path / "jobs")) as mine:
            while job := mine.claim():
                taken.append(job.id)
                end(mine, job.id, "done")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=int) == [str(number) for number in range(40)]
    assert {job.state for job in store.jobs()} == {"done"}


def test_the_jobs_of_a_killed_server_wait_again(store: JobStore, tmp_path: Path) -> None:
    for name in "abc":
        add(store, name)
    program = (
        "import sys, pathlib; from visar.ingest.jobs import JobStore\n"
        "store = JobStore(pathlib.Path(sys.argv[1]))\n"
        "(store.incoming / 'half').write_bytes(b'%PDF')\n"
        "first, second = store.claim().id, store.claim().id\n"
        "store.update(second, ['running'], 'waiting', {}, owner=store.owner)\n"
        "print(store.owner, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "jobs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        # While it lives, it keeps the job that it runs, and the one whose password it has.
        assert [job and job.id for job in (store.claim(), store.claim())] == ["c", None]
        assert [job.state for job in store.jobs()] == ["running", "waiting", "running"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [job and job.id for job in (store.claim(), store.claim())] == ["a", "b"]
    assert not store.incoming.with_name(owner).exists()


def test_a_server_that_ends_leaves_its_jobs_to_others(store: JobStore, tmp_path: Path) -> None:
    add(store, "a")
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert other.claim() is not None
        assert other.update("a", ["running"], "running", {"stage": "ocr"}, owner=other.owner)
        assert (store.get("a").state, store.get("a").stage) == ("running", "ocr")
    assert (store.get("a").state, store.get("a").stage) == ("waiting", None)


def test_only_its_server_ends_a_running_job(store: JobStore, tmp_path: Path) -> None:
    add(store, "a")
    assert store.claim() is not None
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert not other.update("a", ["running"], "failed", {"code": "failed"}, own=True)
        assert store.update("a", ["running"], "done", {"document": "1f"}, own=True)
        assert (other.get("a").state, other.get("a").document) == ("done", "1f")


def test_changes_of_other_servers_are_seen(store: JobStore, tmp_path: Path) -> None:
    with closing(JobStore(tmp_path / "jobs")) as other:
        seen = store.changes
        assert store.changes == seen
        for change in (
            lambda: add(other, "a"),
            lambda: add(store, "b"),
            other.claim,
            lambda: end(store, "b", "cancelled"),
            lambda: store.forget("b"),
        ):
            change()
            assert store.changes != seen
            seen = store.changes
        assert store.claim() is None
        assert store.changes == seen


def test_fields_and_rows_of_other_versions_stop_nothing(
    store: JobStore, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abcd":
        add(store, name)
    with closing(database(store)) as rows, rows:
        query = "UPDATE jobs SET content = json_set(content, '$.color', 'red') WHERE id = 'b'"
        rows.execute(query)
        rows.execute("UPDATE jobs SET content = '{' WHERE id = 'a'")
        rows.execute("UPDATE jobs SET state = 'paused' WHERE id = 'd'")
    with caplog.at_level(logging.WARNING, "visar.ingest.jobs"):
        assert [job.id for job in store.jobs()] == ["c", "b"]
    assert len(caplog.records) == 2
    taken = store.claim()
    assert taken is not None
    assert taken.id == "b"
    end(store, "b", "done")
    store.tidy(0, 0)
    # Another version may read them.
    assert uploads(store) == {"a", "c", "d"}


def test_uploads_that_are_kept_for_a_retry_are_bounded(store: JobStore) -> None:
    states: list[tuple[str, JobState]] = [
        ("a", "failed"), ("b", "cancelled"), ("c", "failed"), ("d", "done"),
    ]  # fmt: skip
    for name, state in states:
        add(store, name, bytes(10))
        end(store, name, state)
    add(store, "e", bytes(10))
    (store.upload("gone")).write_bytes(b"of a job that was never queued")
    store.tidy(25, 7)
    # The oldest goes first; it says so, and stays what it was.
    assert uploads(store) == {"b", "c", "e"}
    assert (store.get("a").state, store.get("a").code) == ("failed", "upload")
    assert "again" in (store.get("a").reason or "")
    assert [store.get(name).code for name in "bcde"] == [None] * 4
    with closing(database(store)) as rows, rows:
        rows.execute("UPDATE jobs SET changed = changed - 8 * 86400 WHERE id IN ('c', 'e')")
    store.tidy(25, 7)
    assert uploads(store) == {"b", "e"}
    assert store.get("c").code == "upload"
    store.forget("b")
    assert uploads(store) == {"e"}
    # Nothing is forgotten that is still to be done.
    store.forget("e")
    assert store.get("e").state == "waiting"


def test_a_number_of_finished_jobs_is_remembered(store: JobStore) -> None:
    add(store, "waiting")
    add(store, "0")
    end(store, "0", "cancelled")
    with closing(database(store)) as rows, rows:
        query = (
            "INSERT INTO jobs (id, state, owner, changed, content) SELECT ?1, state, owner, "
            "changed, json_set(content, '$.id', ?1) FROM jobs WHERE id = '0'"
        )
        rows.executemany(query, [(str(number),) for number in range(1, KEPT + 3)])
    store.upload(str(KEPT)).write_bytes(b"%PDF-")
    store.tidy(GB, 7)
    names = [job.id for job in store.jobs()]
    assert (len(names), names[0], names[-2:]) == (KEPT + 1, str(KEPT + 2), ["3", "waiting"])
    assert uploads(store) == {str(KEPT), "waiting"}


def keep_as_before(folder: Path, **states: JobState) -> None:
    """Write jobs as older versions did, by their ids; the content of "broken" can't be read."""
    (folder / "uploads" / "unfinished").mkdir(parents=True)
    (folder / "lock").touch()
    with closing(sqlite3.connect(folder / "jobs.sqlite")) as rows, rows:
        rows.execute("PRAGMA journal_mode = WAL")
        rows.execute(OLD_TABLE)
        for number, (id_, state) in enumerate(states.items()):
            job = Job(id_, f"{id_}.pdf", "embedded", NOW, state, "ocr", 3, 9)
            known = {name: value for name, value in to_plain(job).items() if name != "metadata"}
            content = json.dumps(known) if id_ != "broken" else "{"
            rows.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", (id_, str(number), state, content))
            if state != "done":
                (folder / "uploads" / id_).mkdir()
                (folder / "uploads" / id_ / "file").write_bytes(id_.encode())


def test_jobs_of_older_versions_are_taken_over_once(tmp_path: Path) -> None:
    one, two, running = (tmp_path / f"server{end}" for end in ("", "-2", "-3"))
    keep_as_before(one, a="running", b="failed", c="done")
    keep_as_before(two, d="waiting", broken="waiting")
    keep_as_before(running, e="waiting")
    with FileLock(running / "lock"):  # by a server of the older version
        for _ in range(2):
            with closing(JobStore(tmp_path / "jobs", [one, two, running])) as store:
                states = {job.id: job.state for job in store.jobs()}
                assert states == {"a": "waiting", "b": "failed", "c": "done", "d": "waiting"}
                assert (store.get("a").created, store.get("a").stage) == (NOW, None)
                assert uploads(store) == {"a", "b", "d"}
                assert store.upload("a").read_bytes() == b"a"
    assert not one.exists()
    assert (two / "uploads" / "broken" / "file").read_bytes() == b"broken"
    assert (running / "uploads" / "e" / "file").exists()
    with closing(JobStore(tmp_path / "jobs", [one, two, running])) as store:
        taken = [store.claim() for _ in range(3)]
        assert [job and job.id for job in taken] == ["a", "d", "e"]


def test_an_index_tells_its_jobs_and_creates_nothing(tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index:
        before = sorted(tmp_path.rglob("*"))
        assert index.jobs() == []
        assert sorted(tmp_path.rglob("*")) == before
        with closing(JobStore(tmp_path / "index" / "jobs")) as store:
            jobs = [add(store, "a"), add(store, "b")]
            assert index.jobs() == jobs[::-1]
        before = sorted(tmp_path.rglob("*"))
        assert index.jobs() == jobs[::-1]
        assert sorted(tmp_path.rglob("*")) == before
