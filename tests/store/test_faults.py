"""Test full and read-only disks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_pdf
from tests.store.previous_format import downgrade, has_blocks
from tests.store.samples import (
    TEXT,
    State,
    add,
    compact_now,
    damage,
    document,
    embedding,
    interrupt,
    items,
    open_kind,
    page,
    put,
    state,
    with_layout,
)
from visar.encoders.encoder import PageEmbedding
from visar.errors import DiskFull, NotAnIndex, ReadOnlyIndex, StoreError
from visar.index import Index
from visar.store import open_store

ROOT = Path(__file__).parents[2]
DISK_BYTES = 3 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system; mounting it needs root."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "visar-test", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("can't mount a file system here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S607


@pytest.fixture
def large_disk(disk: Path) -> Path:
    """A file system with space for the reserve of an index."""
    options = f"remount,size={32 << 20}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607
    return disk


def fill(folder: Path, free_bytes: int) -> Path:
    """Fill a disk until only ``free_bytes`` are free."""
    file = folder / "filling"
    free = shutil.disk_usage(folder).free
    file.write_bytes(bytes(max(free - free_bytes, 0)))
    return file


@contextlib.contextmanager
def expect_disk_full() -> Iterator[None]:
    """Fail if a StoreError has another reason than a full disk."""
    try:
        yield
    except DiskFull:
        raise
    except StoreError as error:
        raise AssertionError(str(error)) from error


def test_full_disk(disk: Path, kind: str, tmp_path: Path) -> None:
    """Wherever the disk becomes full, nothing is lost, and the addition can be repeated."""
    store = open_kind(kind, disk / "index")
    add(store, "a")
    before = state(store)
    original = tmp_path / "original"
    original.write_bytes(bytes(50_000))
    whole = document("b", 12)
    pages = items("b", 12, TEXT)
    succeeded = 0
    free_sizes = range(0, 160_000, 8192 if kind == "sqlite" else 24_576)
    for free_bytes in free_sizes:
        filling = fill(disk, free_bytes)
        with contextlib.suppress(StoreError), expect_disk_full():
            put(store, whole, TEXT, pages, original)
            succeeded += 1
        filling.unlink()
        assert state(store) in (before, before | {"b": state(store).get("b")})
        assert damage(store) == []
        put(store, whole, TEXT, pages, original)
        assert store.pages("b") == tuple(p for p, _ in pages)
        store.remove("b")
        assert state(store) == before
    assert 0 < succeeded < len(free_sizes)
    compact_now(store)
    assert store.verify() == []
    store.close()


def with_many_vectors(few: PageEmbedding) -> PageEmbedding:
    """Repeat vectors to more than a memory page, which a file may occupy beyond its size."""
    vectors, boxes, words = (
        np.concatenate([array] * 400) for array in (few.vectors, few.boxes, few.words)
    )
    return PageEmbedding(vectors, boxes, words)


def test_addition_continues_after_space_is_freed(disk: Path) -> None:
    store = open_kind("sqlite", disk / "index")
    first, second, third = (
        (page("a", n), with_many_vectors(embedding("a", n, TEXT))) for n in (1, 2, 3)
    )
    with store.adding(document("a"), TEXT) as addition:
        addition.put(*first)
        filling = fill(disk, 0)
        with pytest.raises(DiskFull):
            addition.put(*second)
        filling.unlink()
        addition.put(*second)
        addition.put(*third)
        addition.commit()
    assert store.pages("a") == tuple(p for p, _ in (first, second, third))
    expected = b"".join(e.vectors.tobytes() for _, e in (first, second, third))
    assert store.vectors("a", TEXT).vectors.tobytes() == expected
    assert store.verify() == []
    store.close()


def test_read_only_disk(disk: Path) -> None:
    path = disk / "index"
    store = open_kind("sqlite", path)
    add(store, "a")
    before = state(store)
    store.close()
    for mode in ("ro", "rw"):
        options = f"remount,{mode},size={DISK_BYTES}"
        subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607
        if mode == "ro":
            with pytest.raises(ReadOnlyIndex):
                open_kind("sqlite", disk / "new")
            check_read_only(path, before)
    again = open_kind("sqlite", path)
    assert state(again) == before
    assert again.verify() == []
    again.close()


def check_read_only(path: Path, before: State) -> None:
    """Check that everything can be read and nothing written."""
    store = open_kind("sqlite", path)
    assert state(store) == before
    assert store.verify() == []
    for change in (lambda: store.remove("a"), lambda: add(store, "b"), store.compact):
        with pytest.raises(ReadOnlyIndex):
            change()
    assert state(store) == before
    store.close()


@pytest.mark.parametrize("left", [(), ("wal", "shm"), ("wal",)], ids=["closed", "killed", "log"])
def test_reading_from_a_read_only_disk(disk: Path, left: tuple[str, ...]) -> None:
    """Read an index that was closed, whose process was killed, or whose shared memory is lost."""
    path = disk / "index"
    store = open_kind("sqlite", path)
    add(store, "a")
    interrupt(store, "half", [1])
    before, copies = state(store), disk / "copies"
    copies.mkdir()
    for kind in left:
        shutil.copy(path / f"index.sqlite-{kind}", copies)
    store.close()
    for copy in copies.iterdir():
        copy.rename(path / copy.name)
    files = snapshot(path)
    check_verify_writes_nothing(path)
    assert snapshot(path) == files
    options = f"remount,ro,size={DISK_BYTES}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607
    check_verify_writes_nothing(path)
    readable = open_kind("sqlite", path)
    assert state(readable) == before
    assert [problem.kind for problem in readable.verify()] == ["orphan"]
    readable.close()
    assert snapshot(path) == files


def check_verify_writes_nothing(path: Path) -> None:
    command = [sys.executable, "-m", "visar", "verify", "--json", "--index", str(path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert [problem["kind"] for problem in json.loads(run.stdout)] == ["orphan"]


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the name, time, permissions and content of everything in a folder."""
    return {
        str(path): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


def test_read_only_store_sees_new_commits(tmp_path: Path) -> None:
    """It takes no locks, so writers don't wait for it, but it reads their commits."""
    writer = open_kind("sqlite", tmp_path)
    add(writer, "a")
    writer.close()
    reader = open_store(tmp_path, read_only=True)
    assert [stored.id for stored in reader.documents()] == ["a"]
    code = (
        "import sys; from tests.store.samples import add, open_kind; "
        "store = open_kind('sqlite', sys.argv[1]); add(store, sys.argv[2]); store.compact()"
    )
    for name in ("b", "c"):
        command = [sys.executable, "-c", code, str(tmp_path), name]
        subprocess.run(command, cwd=ROOT, check=True)
        assert reader.get(name).id == name
        assert reader.verify() == []
    with pytest.raises(NotAnIndex):
        open_store(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()
    reader.close()


def test_damaged_full_text_index_is_reported(tmp_path: Path) -> None:
    store = open_kind("sqlite", tmp_path)
    add(store, "a")
    store.close()
    connection = sqlite3.connect(tmp_path / "index.sqlite")
    connection.execute("UPDATE page_text_data SET block = substr(block, 1, 20) WHERE id > 10")
    connection.commit()
    connection.close()
    store = open_kind("sqlite", tmp_path)
    assert any("full-text" in problem.what for problem in store.verify())
    store.close()


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_removing_frees_space_on_a_full_disk(
    large_disk: Path, tmp_path: Path, is_open: bool
) -> None:
    """The disk is filled to the last byte, with or without a process that has the index open."""
    path, original = large_disk / "index", tmp_path / "original"
    original.write_bytes(bytes(100_000))
    store = open_kind("sqlite", path)
    for name in "abc":
        put(store, document(name, 300), TEXT, items(name, 300, TEXT), original)
    interrupt(store, "half", [1, 2])
    before = state(store)
    if not is_open:
        store.close()
    filling = fill_up(large_disk)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number tells which
        (large_disk / "more").write_bytes(b"more")
    assert caught.value.errno == errno.ENOSPC
    (large_disk / "more").unlink(missing_ok=True)
    if not is_open:
        store = open_kind("sqlite", path, create=False)
    store.remove("a")
    assert compact_now(store).pages == 2
    store.remove("b")
    assert shutil.disk_usage(large_disk).free > 200_000
    assert state(store) == {"c": before["c"]}
    assert store.verify() == []
    filling.unlink()
    add(store, "new")
    assert (path / "reserve").stat().st_size == 2 << 20
    store.close()


def fill_up(folder: Path) -> Path:
    """Fill a disk to the last byte."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return path


def test_read_only_index_of_the_previous_format(disk: Path) -> None:
    path = disk / "index"
    store = open_kind("sqlite", path)
    add(store, "a")
    before = state(store)
    store.close()
    downgrade("sqlite", path)
    # SQLite can only read a read-only database if its log exists.
    code = (
        "import os, sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); "
        "connection.execute('UPDATE documents SET name = name'); connection.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path / "index.sqlite")], check=True)
    options = f"remount,ro,size={DISK_BYTES}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607
    store = open_kind("sqlite", path)
    assert not has_blocks("sqlite", path)
    assert state(store) == before
    assert damage(store) == []
    with pytest.raises(StoreError):
        store.set_blocks("a", [with_layout(page("a", 1))])
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(ReadOnlyIndex):
        open_kind("sqlite", tmp_path / "index")


def add_within(index: str, limits: str) -> None:
    """Add a document with a maximum file size, in one process per limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for limit in limits.split():
        process = os.fork()
        if process:
            print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))  # noqa: T201
            continue
        store = open_kind("sqlite", index)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
        try:
            put(store, document("b", 30), TEXT, items("b", 30, TEXT))
        except StoreError:
            os._exit(3)
        os._exit(0)


def test_limited_file_size(index: Path) -> None:
    store = open_kind("sqlite", index)
    add(store, "a")
    before = state(store)
    log = (index / "index.sqlite-wal").stat().st_size
    limits = [100, 2000, 8000, log + 1000, log + 20_000, 1 << 30]
    code = "import sys; from tests.store.test_faults import add_within; add_within(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(index), " ".join(map(str, limits))]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    codes = [int(line) for line in run.stdout.split()]
    assert set(codes) == {0, 3}, run.stderr
    assert (codes[0], codes[-1]) == (3, 0)
    assert damage(store) == []
    assert state(store) == before | {"b": state(store)["b"]}
    assert store.pages("b") == tuple(p for p, _ in items("b", 30, TEXT))
    store.close()


def test_read_only_index_can_be_searched(large_disk: Path, tmp_path: Path) -> None:
    path = large_disk / "index"
    with Index.open(path) as index:
        index.add(write_pdf(tmp_path / "a.pdf", "The warranty is seven years.", "A storm."))
    options = f"remount,ro,size={32 << 20}"
    subprocess.run(["mount", "-o", options, str(large_disk)], check=True)  # noqa: S607
    before = snapshot(path)
    with Index.open(path) as index:
        assert index.search("How long is the warranty?").pages[0].page == 1
        assert index.ask("How long is the warranty?").found
        assert index.image("a.pdf", 2).width > 0
        assert index.verify() == []
        index.backup(tmp_path / "backup")
    with Index.open(tmp_path / "backup", create=False) as index:
        assert index.ask("How long is the warranty?").found
        assert index.verify() == []
    assert snapshot(path) == before


def test_index_without_a_reserve_can_be_searched_on_a_full_disk(
    large_disk: Path, tmp_path: Path
) -> None:
    """Questions need no space, and don't use up the space that removing a document needs."""
    path = large_disk / "index"
    with Index.open(path) as index:
        index.add(write_pdf(tmp_path / "a.pdf", "The warranty is seven years.", "A storm."))
    first = fill_up(large_disk).rename(large_disk / "first")
    with Index.open(path) as index:
        assert index.ask("How long is the warranty?").found
    assert (path / "reserve").exists()
    (path / "reserve").unlink()
    fill_up(large_disk)
    with Index.open(path) as index:
        assert index.ask("How long is the warranty?").found
        with pytest.raises(DiskFull):
            index.remove("a.pdf")
        first.unlink()
        assert index.remove("a.pdf").name == "a.pdf"
        assert index.documents() == []


def test_full_temporary_folder_is_not_reported_as_damage(disk: Path, tmp_path: Path) -> None:
    store = open_kind("sqlite", tmp_path / "index")
    pages = ((page("a", n, 400), embedding("a", n, TEXT, 400)) for n in range(1, 701))
    put(store, document("a", 700), TEXT, pages)
    store.close()
    fill_up(disk)
    command = [sys.executable, "-m", "visar", "verify", "--index", str(tmp_path / "index")]
    environment = {**os.environ, "SQLITE_TMPDIR": str(disk)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert run.returncode == 2
    assert b"full" in run.stderr
