"""Disks that are full or read-only: it is said so, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.store.older import has_blocks, make_older
from tests.store.samples import (
    TEXT,
    add,
    compact_now,
    damage,
    document,
    embedding,
    items,
    laid_out,
    open_kind,
    page,
    put,
    state,
)
from visar.encoders.protocol import PageEmbedding
from visar.errors import StoreError

ROOT = Path(__file__).parents[2]
DISK_BYTES = 3 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own; only the administrator can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "visar-test", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # noqa: S607


def fill(place: Path, leaving: int) -> Path:
    """Leave only so many bytes of a disk."""
    file = place / "filling"
    free = shutil.disk_usage(place).free
    file.write_bytes(bytes(max(free - leaving, 0)))
    return file


@contextlib.contextmanager
def explained_as_full() -> Iterator[None]:
    """Whatever is refused must be said to be so because the disk is full."""
    try:
        yield
    except StoreError as error:
        if "disk is full" not in str(error):
            raise AssertionError(str(error)) from error
        raise


def test_a_full_disk(disk: Path, kind: str, tmp_path: Path) -> None:
    """Wherever it becomes full: it is said so, nothing is lost, and it can be done again."""
    store = open_kind(kind, disk / "index")
    add(store, "a")
    before = state(store)
    original = tmp_path / "original"
    original.write_bytes(bytes(50_000))
    whole = document("b", 12)
    pages = items("b", 12, TEXT)
    succeeded = 0
    rooms = range(0, 160_000, 8192 if kind == "sqlite" else 24_576)
    for room in rooms:
        filling = fill(disk, room)
        with contextlib.suppress(StoreError), explained_as_full():
            put(store, whole, TEXT, pages, original)
            succeeded += 1
        filling.unlink()
        assert state(store) in (before, before | {"b": state(store).get("b")})
        assert damage(store) == []
        put(store, whole, TEXT, pages, original)
        assert store.pages("b") == tuple(p for p, _ in pages)
        store.remove("b")
        assert state(store) == before
    assert 0 < succeeded < len(rooms)
    compact_now(store)
    assert store.verify() == []
    store.close()


def with_many_vectors(few: PageEmbedding) -> PageEmbedding:
    """More than a page of memory, which a file on this disk may have left."""
    vectors, boxes, words = (
        np.concatenate([array] * 400) for array in (few.vectors, few.boxes, few.words)
    )
    return PageEmbedding(vectors, boxes, words)


def test_an_addition_goes_on_when_there_is_room_again(disk: Path) -> None:
    store = open_kind("sqlite", disk / "index")
    first, second, third = (
        (page("a", n), with_many_vectors(embedding("a", n, TEXT))) for n in (1, 2, 3)
    )
    with store.adding(document("a"), TEXT) as addition:
        addition.put(*first)
        filling = fill(disk, 0)
        with pytest.raises(StoreError, match="disk is full"):
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


def test_a_read_only_disk(disk: Path) -> None:
    place = disk / "index"
    store = open_kind("sqlite", place)
    add(store, "a")
    before = state(store)
    store.close()
    for how in ("ro", "rw"):
        options = f"remount,{how},size={DISK_BYTES}"
        subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607
        if how == "ro":
            for folder in (place, disk / "new"):
                with pytest.raises(StoreError, match=f"the index {folder}: it cannot be written"):
                    open_kind("sqlite", folder)
    again = open_kind("sqlite", place)
    assert state(again) == before
    assert again.verify() == []
    again.close()


def test_a_read_only_index_of_the_version_before(disk: Path) -> None:
    place = disk / "index"
    store = open_kind("sqlite", place)
    add(store, "a")
    before = state(store)
    store.close()
    make_older("sqlite", place)
    # SQLite reads a database that it cannot write if its log is there.
    code = (
        "import os, sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); "
        "connection.execute('UPDATE documents SET name = name'); connection.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(place / "index.sqlite")], check=True)
    options = f"remount,ro,size={DISK_BYTES}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)  # noqa: S607
    store = open_kind("sqlite", place)
    assert not has_blocks("sqlite", place)
    assert state(store) == before
    assert damage(store) == []
    with pytest.raises(StoreError):
        store.set_blocks("a", [laid_out(page("a", 1))])
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StoreError, match="cannot be written"):
        open_kind("sqlite", tmp_path / "index")


def add_within(index: str, limits: str) -> None:
    """Add a document while no file may be longer than a limit, in a process for each limit."""
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


def test_files_that_may_not_grow(index: Path) -> None:
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
