"""Documents of the same name are told apart by their ids, which errors list in short."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.store.samples import TEXT, document, items, put
from visar.errors import NotInIndex
from visar.store import Store

# SHA-256 looks like these; the first two begin alike for longer than a short id.
IDS = ["abcdef0123" + "1" * 54, "abcdef0124" + "1" * 54, "f" * 64]


@pytest.fixture
def same_name(store: Store) -> Store:
    for id_ in IDS:
        new = replace(document(id_, 1, source=f"/{id_}/report.pdf"), name="report.pdf")
        put(store, new, TEXT, items(id_, 1, TEXT))
    return store


def test_the_error_lists_ids_that_find_each_of_them(same_name: Store) -> None:
    with pytest.raises(NotInIndex) as refused:
        same_name.get("report.pdf")
    listed = re.findall(r"\b[0-9a-f]{8,64}\b", str(refused.value))
    assert [same_name.get(short).id for short in listed] == IDS
    assert all(len(short) < 64 for short in listed)
    assert "did you mean" not in str(refused.value)


def test_the_beginning_of_several_ids_lists_them_too(same_name: Store) -> None:
    with pytest.raises(NotInIndex) as refused:
        same_name.get("abcdef")
    listed = re.findall(r"\b[0-9a-f]{8,64}\b", str(refused.value))
    assert [same_name.get(short).id for short in listed] == IDS[:2]


def test_each_can_be_changed_and_removed_by_its_short_id(same_name: Store) -> None:
    same_name.collect("mine", ["abcdef0123", "ffff"])
    assert [one.id for one in same_name.documents(collection="mine")] == [IDS[0], IDS[2]]
    same_name.set_metadata("abcdef0124", {"year": 2020})
    assert same_name.get(IDS[1]).metadata == {"year": 2020}
    assert same_name.remove("abcdef0123").id == IDS[0]
    assert [one.id for one in same_name.documents()] == IDS[1:]
