"""Where an index can be opened, and where not."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa
import pytest

from tests.store.samples import add
from visar.errors import NotAnIndex
from visar.store import Store


def test_a_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "er"
    assert Store.open(place).documents() == []
    assert Store.open(place, create=False).documents() == []


def test_an_empty_folder_becomes_an_index(tmp_path: Path) -> None:
    assert Store.open(str(tmp_path)).documents() == []


def test_no_index_is_made_when_not_asked_for(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotAnIndex, match=f"no index at {place}"):
            Store.open(place, create=False)
    assert list(tmp_path.iterdir()) == []


def test_other_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    for create in (True, False):
        with pytest.raises(NotAnIndex, match=r"other files, such as 'holiday.jpg'"):
            Store.open(tmp_path, create=create)
        with pytest.raises(NotAnIndex, match="is a file"):
            Store.open(tmp_path / "holiday.jpg", create=create)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_another_lancedb_database_is_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path)
    lancedb.connect(tmp_path).create_table("people", [{"name": "Ada"}])
    with pytest.raises(NotAnIndex, match="a table 'people'"):
        Store.open(tmp_path)


def test_tables_of_the_same_name_from_elsewhere(tmp_path: Path) -> None:
    lancedb.connect(tmp_path).create_table("pages", [{"name": "Ada"}])
    with pytest.raises(NotAnIndex, match="do not come from ViSAR"):
        Store.open(tmp_path)


def test_an_index_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("uid", pa.string())], metadata={"visar.format": "2"})
    for name in ("catalog", "pages", "vectors"):
        lancedb.connect(tmp_path).create_table(name, schema=schema)
    with pytest.raises(NotAnIndex, match=r"newer version of ViSAR \(format 2.*upgrade"):
        Store.open(tmp_path)


def test_an_index_whose_making_was_interrupted_is_completed(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    del store
    lancedb.connect(tmp_path).drop_table("catalog")  # made last
    with pytest.raises(NotAnIndex, match="no index"):
        Store.open(tmp_path, create=False)
    store = Store.open(tmp_path)
    add(store, "a")
    assert store.verify() == []
