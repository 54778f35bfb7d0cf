"""Test the queue of uploads: its order, its owners, and queues of other versions."""

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
from visar.ingest.jobs import MAX_FINISHED, JobStore
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


def test_job_round_trips(store: JobStore) -> None:
    job = add(store, "a", collection="reports", metadata={"year": 2024, "kind": "Bericht ü"})
    assert store.get("a") == job
    assert store.jobs() == [job]
    assert store.upload("a").read_bytes() == b"%PDF-"
    assert list(store.incoming.glob("a")) == []
    with pytest.raises(NotInIndex):
        store.get("b")


def test_servers_claim_jobs_in_the_order_of_arrival(store: JobStore, tmp_path: Path) -> None:
    for name in "dbca":
        add(store, name)
    with closing(JobStore(tmp_path / "jobs")) as other:
        taken = [one.claim() for one in (store, other, other, store)]
        assert [job and (job.id, job.state) for job in taken] == [
            ("d", "running"), ("b", "running"), ("c", "running"), ("a", "running"),
        ]  # fmt: skip
        assert store.claim() is None
        assert [job.id for job in store.jobs()] == ["a", "c", "b", "d"]
        # A retried job keeps its position.
        add(store, "e")
        end(store, "d", "failed")
        assert store.update("d", ["failed"], "waiting", {})
        assert [job and job.id for job in (other.claim(), other.claim())] == ["d", "e"]


def take(store: JobStore, *, short: bool = False) -> str | None:
    job = store.claim(short=short)
    return None if job is None else job.id


def test_short_jobs_do_not_wait_for_long_ones(store: JobStore) -> None:
    for name, size in {"a": 30, "b": 10, "c": 20}.items():
        add(store, name, bytes(size))
    assert take(store) == "a"
    # The smallest upload turns out to be a long job.
    for expected in ("b", "c"):
        assert take(store, short=True) == expected
        assert store.requeue(expected, crashed=False)
    assert take(store, short=True) is None
    # A larger upload that isn't known to be long.
    add(store, "d", bytes(40))
    assert take(store, short=True) == "d"


def test_long_jobs_do_not_wait_for_later_ones(store: JobStore, tmp_path: Path) -> None:
    for name in ("long", "longer"):
        add(store, name, bytes(50))
        assert take(store, short=True) == name
        assert store.requeue(name, crashed=False)
    for number in range(10):
        add(store, f"small-{number}", bytes(number))
    # This also holds for another server.
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert take(other, short=True) == "small-0"
        assert [take(store), take(other), take(store)] == ["long", "longer", "small-1"]


def test_job_is_retried_once_after_a_crash(store: JobStore, tmp_path: Path) -> None:
    add(store, "a")
    assert not store.requeue("a", crashed=True)  # it isn't running
    assert take(store) == "a"
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert not other.requeue("a", crashed=True)  # it runs on another server
        assert store.requeue("a", crashed=True)
        assert store.get("a").state == "waiting"
        # Even if servers end in between, and the job is requeued as long.
        assert take(other) == "a"
    assert take(store) == "a"
    assert store.requeue("a", crashed=False)
    assert take(store) == "a"
    assert not store.requeue("a", crashed=True)
    assert store.get("a").state == "running"
    # A manual retry resets the counter.
    end(store, "a", "failed")
    assert store.update("a", ["failed"], "waiting", {})
    assert take(store) == "a"
    assert store.requeue("a", crashed=True)


def test_own_job_waits_for_its_server(store: JobStore, tmp_path: Path) -> None:
    add(store, "a", own=True)
    assert take(store) == "a"
    assert store.requeue("a", crashed=True, own=True)
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert take(other) is None
    assert take(store) == "a"


def test_queue_without_the_new_columns_is_upgraded(tmp_path: Path) -> None:
    with closing(JobStore(tmp_path / "jobs")) as store:
        add(store, "a")
        with closing(database(store)) as rows, rows:
            for name in ("crashes", "is_long"):
                rows.execute(f"ALTER TABLE jobs DROP COLUMN {name}")
    with closing(JobStore(tmp_path / "jobs")) as store:
        assert take(store, short=True) == "a"
        assert store.requeue("a", crashed=True)


def test_no_job_is_claimed_twice(tmp_path: Path, store: JobStore) -> None:
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


def test_jobs_of_a_killed_server_are_requeued(store: JobStore, tmp_path: Path) -> None:
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
        # While the server lives, it keeps its running job, and the one whose password it has.
        assert [job and job.id for job in (store.claim(), store.claim())] == ["c", None]
        assert [job.state for job in store.jobs()] == ["running", "waiting", "running"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [job and job.id for job in (store.claim(), store.claim())] == ["a", "b"]
    assert not store.incoming.with_name(owner).exists()


def test_jobs_of_a_closed_server_are_requeued(store: JobStore, tmp_path: Path) -> None:
    add(store, "a")
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert other.claim() is not None
        assert other.update("a", ["running"], "running", {"stage": "ocr"}, owner=other.owner)
        assert (store.get("a").state, store.get("a").stage) == ("running", "ocr")
    assert (store.get("a").state, store.get("a").stage) == ("waiting", None)


def test_only_the_owner_ends_a_running_job(store: JobStore, tmp_path: Path) -> None:
    add(store, "a")
    assert store.claim() is not None
    with closing(JobStore(tmp_path / "jobs")) as other:
        assert not other.update("a", ["running"], "failed", {"code": "failed"}, own=True)
        assert store.update("a", ["running"], "done", {"document": "1f"}, own=True)
        assert (other.get("a").state, other.get("a").document) == ("done", "1f")


def test_changes_counts_changes_of_all_servers(store: JobStore, tmp_path: Path) -> None:
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


def test_unknown_fields_and_invalid_rows_are_ignored(
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
    # Another version may be able to read them.
    assert uploads(store) == {"a", "c", "d"}


def test_size_and_age_of_uploads_for_retries_are_limited(store: JobStore) -> None:
    states: list[tuple[str, JobState]] = [
        ("a", "failed"), ("b", "cancelled"), ("c", "failed"), ("d", "done"),
    ]  # fmt: skip
    for name, state in states:
        add(store, name, bytes(10))
        end(store, name, state)
    add(store, "e", bytes(10))
    (store.upload("gone")).write_bytes(b"of a job that was never queued")
    store.tidy(25, 7)
    # The oldest upload is deleted; its job keeps its state, with another code and reason.
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
    # Waiting jobs can't be forgotten.
    store.forget("e")
    assert store.get("e").state == "waiting"


def test_number_of_finished_jobs_is_limited(store: JobStore) -> None:
    add(store, "waiting")
    add(store, "0")
    end(store, "0", "cancelled")
    with closing(database(store)) as rows, rows:
        query = (
            "INSERT INTO jobs (id, state, owner, changed, content) SELECT ?1, state, owner, "
            "changed, json_set(content, '$.id', ?1) FROM jobs WHERE id = '0'"
        )
        rows.executemany(query, [(str(number),) for number in range(1, MAX_FINISHED + 3)])
    store.upload(str(MAX_FINISHED)).write_bytes(b"%PDF-")
    store.tidy(GB, 7)
    names = [job.id for job in store.jobs()]
    assert (len(names), names[0], names[-2:]) == (
        MAX_FINISHED + 1,
        str(MAX_FINISHED + 2),
        ["3", "waiting"],
    )
    assert uploads(store) == {str(MAX_FINISHED), "waiting"}


def write_older_queue(folder: Path, **states: JobState) -> None:
    """Write the queue of an older version; the job "broken" has invalid content."""
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


def test_jobs_of_older_versions_are_imported_once(tmp_path: Path) -> None:
    one, two, running = (tmp_path / f"server{end}" for end in ("", "-2", "-3"))
    write_older_queue(one, a="running", b="failed", c="done")
    write_older_queue(two, d="waiting", broken="waiting")
    write_older_queue(running, e="waiting")
    with FileLock(running / "lock"):  # held by a server of the older version
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


def test_index_jobs_creates_no_files(tmp_path: Path) -> None:
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
