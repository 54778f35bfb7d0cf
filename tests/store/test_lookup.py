"""Test looking up documents that have the same name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.store.samples import TEXT, document, items, put
from visar.errors import NotInIndex
from visar.store import Store

# Ids look like SHA-256. The first two share a prefix that is longer than a short id.
IDS = ["abcdef0123" + "1" * 54, "abcdef0124" + "1" * 54, "f" * 64]


@pytest.fixture
def same_name(store: Store) -> Store:
    for id_ in IDS:
        new = replace(document(id_, 1, source=f"/{id_}/report.pdf"), name="report.pdf")
        put(store, new, TEXT, items(id_, 1, TEXT))
    return store


def test_error_lists_a_unique_id_of_each_document(same_name: Store) -> None:
    with pytest.raises(NotInIndex) as raised:
        same_name.get("report.pdf")
    listed = re.findall(r"\b[0-9a-f]{8,64}\b", str(raised.value))
    assert [same_name.get(short).id for short in listed] == IDS
    assert all(len(short) < 64 for short in listed)


def test_ambiguous_id_prefix_lists_the_ids(same_name: Store) -> None:
    with pytest.raises(NotInIndex) as raised:
        same_name.get("abcdef")
    listed = re.findall(r"\b[0-9a-f]{8,64}\b", str(raised.value))
    assert [same_name.get(short).id for short in listed] == IDS[:2]


def test_documents_can_be_changed_and_removed_by_short_id(same_name: Store) -> None:
    same_name.collect("mine", ["abcdef0123", "ffff"])
    assert [one.id for one in same_name.documents(collection="mine")] == [IDS[0], IDS[2]]
    same_name.set_metadata("abcdef0124", {"year": 2020})
    assert same_name.get(IDS[1]).metadata == {"year": 2020}
    assert same_name.remove("abcdef0123").id == IDS[0]
    assert [one.id for one in same_name.documents()] == IDS[1:]


@pytest.mark.parametrize("typed", ["annual", "Report", "anual-report", "annual-report.pdf.pdf"])
def test_error_suggests_a_similar_name(store: Store, typed: str) -> None:
    for id_, name in (("a", "annual-report.pdf"), ("b", "letter.pdf")):
        put(store, replace(document(id_), name=name), TEXT, items(id_, 3, TEXT))
    with pytest.raises(NotInIndex, match=r"annual-report\.pdf\?"):
        store.get(typed)
    with pytest.raises(NotInIndex) as raised:
        store.get("vaccines")
    assert "?" not in str(raised.value)
