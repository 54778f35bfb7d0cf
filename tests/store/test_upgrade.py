"""Test that opening an index of the previous format upgrades it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.store.conftest import Workers
from tests.store.previous_format import downgrade, has_blocks
from tests.store.samples import (
    TEXT,
    Item,
    State,
    add,
    compact_now,
    damage,
    document,
    interrupt,
    items,
    open_kind,
    put,
    state,
    with_layout,
    without_blocks,
)
from visar.errors import NotAnIndex, StoreError
from visar.store.sqlite import SqliteStore


def vector_files(index: Path) -> dict[str, bytes]:
    return {
        path.relative_to(index).as_posix(): path.read_bytes()
        for path in index.rglob("*")
        if path.suffix in {".npy", ".blob"} or path.parent == index / "rows.lance" / "data"
        if path.is_file()
    }


@pytest.fixture
def older(kind: str, index: Path) -> State:
    """An index of the previous format, with two documents and an unfinished addition."""
    store = open_kind(kind, index)
    for id_ in ("a", "b"):
        add(store, id_)
    interrupt(store, "half", [1, 2])
    store.collect("some", ["a"])
    expected = state(store)
    store.close()
    downgrade(kind, index)
    assert not has_blocks(kind, index)
    return expected


def test_index_of_the_previous_format_is_upgraded(kind: str, index: Path, older: State) -> None:
    files = vector_files(index)
    assert files
    store = open_kind(kind, index, create=False)
    assert has_blocks(kind, index)
    assert state(store) == older
    assert damage(store) == []
    for id_ in ("a", "b"):
        store.set_blocks(id_, [with_layout(page) for page in store.pages(id_)])
    assert store.pages("a") == tuple(with_layout(page) for page, _ in items("a", 3, TEXT))
    assert without_blocks(store) == older
    assert damage(store) == []
    store.close()
    after = vector_files(index)
    assert {name: after.get(name) for name in files} == files


def test_unfinished_additions_of_the_previous_format_are_resumed(
    kind: str, index: Path, older: State
) -> None:
    store = open_kind(kind, index)
    whole: list[Item] = [(with_layout(page), vectors) for page, vectors in items("half", 3, TEXT)]
    with store.adding(document("half"), TEXT) as addition:
        assert addition.written == {1, 2}
        addition.put(*whole[2])
        addition.commit()
    first, second, third = store.pages("half")
    assert (first.blocks, second.blocks) == (None, None)
    assert third == whole[2][0]
    put(store, document("c"), TEXT, [(with_layout(p), e) for p, e in items("c", 3, TEXT)])
    assert store.pages("c")[0].blocks
    assert {id_: found for id_, found in state(store).items() if id_ in older} == older
    compact_now(store)
    assert store.verify() == []
    store.close()


def test_several_processes_upgrade_an_index(
    kind: str, index: Path, older: State, workers: Workers
) -> None:
    workers.run("together", kind, index, *["lay_out"] * 4)
    assert has_blocks(kind, index)
    store = open_kind(kind, index, create=False)
    assert without_blocks(store) == older
    for id_ in ("a", "b"):
        assert store.pages(id_) == tuple(with_layout(page) for page, _ in items(id_, 3, TEXT))
    assert damage(store) == []
    store.close()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_killed_during_an_upgrade(
    kind: str, index: Path, older: State, workers: Workers, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    workers.run("kill_before_every_write", kind, "laid out", index, copies)
    upgraded = []
    for number in range(len(list(copies.iterdir()))):
        copy = copies / str(number)
        upgraded.append(has_blocks(kind, copy))
        store = open_kind(kind, copy, create=False)
        assert without_blocks(store) == older
        assert damage(store) == []
        store.close()
        assert has_blocks(kind, copy)
    # The upgrade has four writes: two tables, the version and the commit.
    assert upgraded[:5] == [False, False, False, False, True]
    assert all(upgraded[4:])


@pytest.mark.parametrize("kind", ["lance"])
def test_read_only_lancedb_index_is_not_upgraded(
    kind: str, index: Path, older: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("visar.store.lance.tables._add_columns", lambda *_: None)
        store = open_kind(kind, index)
    assert not has_blocks(kind, index)
    assert state(store) == older
    assert damage(store) == []
    with pytest.raises(StoreError, match=f"{index}"):
        store.set_blocks("a", [with_layout(page) for page in store.pages("a")])
    add(store, "c")
    assert store.pages("c") == tuple(page for page, _ in items("c", 3, TEXT))


# SQLite.


@pytest.fixture
def sqlite_index(index: Path) -> Path:
    store = open_kind("sqlite", index)
    add(store, "a")
    store.close()
    return index


def test_compaction_by_the_previous_version(sqlite_index: Path) -> None:
    # A process of the previous version that was already running writes its own format number.
    connection = sqlite3.connect(sqlite_index / "index.sqlite")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    store = SqliteStore.open(sqlite_index)
    assert has_blocks("sqlite", sqlite_index)
    assert store.verify() == []
    store.close()


def test_newer_format_is_not_opened(sqlite_index: Path) -> None:
    connection = sqlite3.connect(sqlite_index / "index.sqlite")
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    with pytest.raises(NotAnIndex, match=r"\b4\b.*\b3\b"):
        SqliteStore.open(sqlite_index)


def test_new_and_upgraded_tables_have_the_same_columns(tmp_path: Path, index: Path) -> None:
    SqliteStore.open(index).close()
    shutil.copytree(index, tmp_path / "upgraded")
    downgrade("sqlite", tmp_path / "upgraded")
    SqliteStore.open(tmp_path / "upgraded").close()
    columns = []
    for path in (index, tmp_path / "upgraded"):
        connection = sqlite3.connect(path / "index.sqlite")
        columns.append(
            [
                connection.execute(f"PRAGMA table_info ({table})").fetchall()
                for table in ("documents", "pages", "vectors", "drafts", "draft_pages")
            ]
        )
        connection.close()
    assert columns[0] == columns[1]
