"""Test the locations of an index: new and other folders, other formats, removed indexes."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.store.samples import IMAGE, TEXT, add, document, items, open_kind
from visar.errors import NotAnIndex, StoreError
from visar.store import Store, open_store


def test_folder_is_created_with_its_parents(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "deep" / "er"
    assert open_kind(kind, path).documents() == []
    assert open_kind(kind, str(path), create=False).documents() == []


def test_index_is_not_created_with_create_false(tmp_path: Path, kind: str) -> None:
    with pytest.raises(NotAnIndex, match=f"{tmp_path / 'missing'}"):
        open_kind(kind, tmp_path / "missing", create=False)


def test_removed_index(store: Store, index: Path) -> None:
    add(store, "a")
    addition = store.adding(document("b"), TEXT)
    addition.put(*items("b", 3, TEXT)[0])
    shutil.rmtree(index)
    uses = (
        store.documents,
        store.collections,
        store.verify,
        store.compact,
        addition.close,
        lambda: store.get("a"),
        lambda: store.pages(store.get("a").id),
        lambda: store.vectors(store.get("a").id, TEXT),
        lambda: store.original(store.get("a").id),
        lambda: store.remove("a"),
        lambda: store.set_metadata("a", {}),
        lambda: store.collect("x", ["a"]),
        lambda: store.uncollect("x"),
        lambda: add(store, "c"),
    )
    for use in uses:
        with pytest.raises(StoreError, match=f"{index}"):
            use()
    addition.close()


def test_other_folders_and_files_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    for create in (True, False):
        with pytest.raises(NotAnIndex, match=r"'holiday\.jpg'"):
            open_store(tmp_path, create=create)
        with pytest.raises(NotAnIndex, match=r"holiday\.jpg"):
            open_store(tmp_path / "holiday.jpg", create=create)
        with pytest.raises(StoreError, match=r"holiday\.jpg"):
            open_store(tmp_path / "holiday.jpg" / "index", create=create)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_index_of_format_1(tmp_path: Path) -> None:
    for name in ("catalog", "pages", "vectors"):
        (tmp_path / f"{name}.lance").mkdir()
    for create in (True, False):
        with pytest.raises(NotAnIndex, match=f"{tmp_path}"):
            open_store(tmp_path, create=create)


def test_index_of_a_newer_format(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "index.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NotAnIndex, match=r"\b99\b.*visar-rag"):
        open_store(tmp_path)


def test_invalid_database_file(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_text("hello " * 1000)
    with pytest.raises(StoreError, match=f"{tmp_path}"):
        open_store(tmp_path)


def test_interrupted_creation_of_an_index_is_completed(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    (tmp_path / "index.sqlite").touch()
    with pytest.raises(NotAnIndex):
        open_store(tmp_path, create=False)
    store = open_store(tmp_path)
    add(store, "a")
    assert store.verify() == []
    store.close()


def test_folder_is_not_created_with_create_false(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotAnIndex, match=f"{path}"):
            open_store(path, create=False)
    assert list(tmp_path.iterdir()) == []


def test_replaced_index(store: Store, index: Path, kind: str) -> None:
    add(store, "a")
    shutil.rmtree(index)
    other = open_kind(kind, index)
    if kind == "sqlite":
        with pytest.raises(StoreError, match=f"{index}"):
            store.documents()
    else:
        assert store.documents() == []
    add(other, "b", IMAGE)
    other.close()
