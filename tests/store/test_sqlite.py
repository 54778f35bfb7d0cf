"""Test the SQLite store: concurrent changes by other processes, and its files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.store.samples import (
    IMAGE,
    TEXT,
    TEXT_2,
    add,
    damage,
    document,
    interrupt,
    items,
    open_kind,
    put,
    unfinished,
)
from visar.errors import NotInIndex
from visar.store.sqlite import SqliteStore
from visar.store.sqlite_addition import Claim


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture
def two(index: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """Two stores of the same index, as in two processes."""
    stores = SqliteStore.open(index), SqliteStore.open(index)
    yield stores
    for store in stores:
        store.close()


CHANGES: dict[str, Callable[[SqliteStore], object]] = {
    "added": lambda other: add(other, "new"),
    "removed": lambda other: other.remove("a"),
    "changed": lambda other: add(other, "b", source="/files/a.pdf"),
    "version": lambda other: add(other, "a", TEXT_2),
    "again": lambda other: (
        other.remove("a"),
        put(other, document("a"), TEXT, items("other", 3, TEXT)),
    ),
    "interrupted": lambda other: interrupt(other, "half", [1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_concurrent_change_between_any_two_statements(change: str, index: Path) -> None:
    """Reads are consistent, whenever the other process commits."""

    def read(store: SqliteStore) -> None:
        for stored in store.documents():
            assert stored.encoders
            try:
                pages, encoder = store.pages(stored.id), store.get(stored.id).encoders[0]
            except NotInIndex:
                continue
            words = {word.text.split("-")[0] for page in pages for word in page.words}
            assert words in ({stored.id}, {"other"})
            try:
                assert len(store.vectors(stored.id, encoder).vectors) == 8
            except NotInIndex:
                continue
        assert damage(store) == []

    step, reached = 0, True
    while reached:
        path = index / str(step)
        store, other = SqliteStore.open(path), SqliteStore.open(path)
        add(other, "a")
        # Don't wait long while the first store is writing.
        other._connection.execute("PRAGMA busy_timeout = 10")
        left, reached = step, False

        def before_statement(_: str) -> None:
            nonlocal left, reached
            left -= 1
            if left == -1:
                reached = True
                CHANGES[change](other)  # noqa: B023

        store._connection.set_trace_callback(before_statement)
        read(store)
        store._connection.set_trace_callback(None)
        if not reached:
            CHANGES[change](other)
        read(store)
        store.close()
        other.close()
        step += 1 if step < 12 else 3


def test_lock_file_of_an_unfinished_addition_is_kept(two: tuple[SqliteStore, SqliteStore]) -> None:
    # If the file was deleted and created again, two additions could lock it at the same time.
    store, other = two
    interrupt(store, "a", [1])
    (lock,) = (store.folder / "vectors").glob("*.lock")
    inode = lock.stat().st_ino
    with other.adding(document("a"), TEXT) as addition:
        assert addition.written == {1}
        assert lock.stat().st_ino == inode
        assert Claim.is_claimed(store.folder / "vectors", lock.stem)
        with store.adding(document("a"), TEXT) as second:
            assert second.written == frozenset()
    assert not Claim.is_claimed(store.folder / "vectors", lock.stem)
    add(store, "a")
    assert list((store.folder / "vectors").glob("*.lock")) == []


def test_addition_without_pages_leaves_no_files(two: tuple[SqliteStore, SqliteStore]) -> None:
    store, _ = two
    store.adding(document("a"), TEXT).close()
    assert list((store.folder / "vectors").iterdir()) == []
    assert store.verify() == []


def test_files_of_a_killed_process_are_deleted(
    two: tuple[SqliteStore, SqliteStore], tmp_path: Path
) -> None:
    store, _ = two
    original = tmp_path / "original"
    original.write_bytes(b"content")
    add(store, "a", original=original)
    (name,) = (path.name.partition(".")[0] for path in store.folder.rglob("*.vectors.npy"))
    left = [
        store.folder / "files" / "a.0123abcd.part",
        store.folder / "vectors" / f"{name}.lock",
        store.folder / "vectors" / f"{name}.vectors.part",
    ]
    for path in left:
        path.write_bytes(b"half")
    assert {problem.what.split()[2] for problem in store.verify()} == {path.name for path in left}
    assert store.compact().files == 3
    assert store.verify() == []
    assert store.original("a") is not None


def test_files_can_be_read_with_numpy_and_sqlite(two: tuple[SqliteStore, SqliteStore]) -> None:
    store, _ = two
    add(store, "a")
    add(store, "a", IMAGE)
    connection = sqlite3.connect(store.folder / "index.sqlite")
    query = "SELECT array FROM vectors WHERE document = 'a' AND encoder = 'text'"
    ((array,),) = connection.execute(query).fetchall()
    found = np.load(store.folder / "vectors" / f"{array}.vectors.npy")
    np.testing.assert_array_equal(found, store.vectors("a", TEXT).vectors)
    patches = np.load(store.folder / "vectors" / f"{array}.patches.npy")
    np.testing.assert_array_equal(patches["box"], store.vectors("a", TEXT).boxes)
    query = "SELECT count(*) FROM page_text WHERE page_text MATCH 'wörd'"
    assert connection.execute(query).fetchone() == (2,)
    store.remove("a")
    assert connection.execute(query).fetchone() == (0,)
    connection.close()


def test_draft_in_progress_is_not_claimed(
    two: tuple[SqliteStore, SqliteStore],
) -> None:
    store, other = two
    with store.adding(document("a"), TEXT) as addition:
        addition.put(*items("a", 3, TEXT)[0])
        addition.flush()
        assert unfinished(other, "a") == set()
        assert other.compact().pages == 0
    assert unfinished(other, "a") == {1}


def test_relative_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_kind("sqlite", "some index?")
    add(store, "a")
    store.close()
    again = open_kind("sqlite", tmp_path / "some index?", create=False)
    assert [stored.id for stored in again.documents()] == ["a"]
    again.close()


def test_concurrent_creation_waits_for_the_other_process(index: Path) -> None:
    # SQLite doesn't wait for the lock of another process by itself here.
    index.mkdir()
    other = sqlite3.connect(index / "index.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ending = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
    ending.start()
    store = open_kind("sqlite", index)
    ending.join()
    other.close()
    assert store.documents() == []
    store.close()
