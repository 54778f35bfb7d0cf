"""Where an index can be and where not: new folders, other folders, other formats, removed ones."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.store.samples import IMAGE, TEXT, add, document, items, open_kind
from visar.errors import NotAnIndex, StoreError
from visar.store import Store, open_store


def test_a_folder_is_made_with_its_parents(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "deep" / "er"
    assert open_kind(kind, place).documents() == []
    assert open_kind(kind, str(place), create=False).documents() == []


def test_no_index_is_made_when_not_asked_for(tmp_path: Path, kind: str) -> None:
    with pytest.raises(NotAnIndex, match=f"no index at {tmp_path / 'missing'}"):
        open_kind(kind, tmp_path / "missing", create=False)


def test_an_index_that_was_removed(store: Store, index: Path) -> None:
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
        lambda: store.pages("a"),
        lambda: store.vectors("a", TEXT),
        lambda: store.original("a"),
        lambda: store.remove("a"),
        lambda: store.set_metadata("a", {}),
        lambda: store.collect("x", ["a"]),
        lambda: store.uncollect("x"),
        lambda: add(store, "c"),
    )
    for use in uses:
        with pytest.raises(StoreError, match=f"the index {index}.*(removed|not there any more)"):
            use()
    addition.close()


def test_other_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    for create in (True, False):
        with pytest.raises(NotAnIndex, match=r"other files, such as 'holiday.jpg'"):
            open_store(tmp_path, create=create)
        with pytest.raises(NotAnIndex, match="is a file"):
            open_store(tmp_path / "holiday.jpg", create=create)
        with pytest.raises(StoreError, match=r"Not a directory|no index"):
            open_store(tmp_path / "holiday.jpg" / "index", create=create)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_an_index_of_the_old_format(tmp_path: Path) -> None:
    for name in ("catalog", "pages", "vectors"):
        (tmp_path / f"{name}.lance").mkdir()
    for create in (True, False):
        with pytest.raises(NotAnIndex, match=r"older version of ViSAR.* add the documents again"):
            open_store(tmp_path, create=create)


def test_an_index_of_a_newer_format(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "index.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NotAnIndex, match=r"has the format 99.*upgrade visar-rag,"):
        open_store(tmp_path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_text("hello " * 1000)
    with pytest.raises(StoreError, match="is damaged"):
        open_store(tmp_path)


def test_an_index_whose_making_was_interrupted_is_completed(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    (tmp_path / "index.sqlite").touch()
    with pytest.raises(NotAnIndex, match="no index"):
        open_store(tmp_path, create=False)
    store = open_store(tmp_path)
    add(store, "a")
    assert store.verify() == []
    store.close()


def test_no_folder_is_made_when_no_index_is_asked_for(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotAnIndex, match=f"no index at {place}"):
            open_store(place, create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_was_replaced(store: Store, index: Path, kind: str) -> None:
    add(store, "a")
    shutil.rmtree(index)
    other = open_kind(kind, index)
    if kind == "sqlite":
        with pytest.raises(StoreError, match="removed or replaced"):
            store.documents()
    else:
        assert store.documents() == []
    add(other, "b", IMAGE)
    other.close()
