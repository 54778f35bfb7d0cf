"""Test items, the small values that store conversations and tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.store.samples import open_kind
from visar.store import Store

MANY = 30


def test_items_are_sorted_by_id(store: Store, kind: str) -> None:
    for id_ in ("b/2", "a", "b/1", "b'é"):
        store.change_item("thread", id_, lambda _, id_=id_: {"name": id_, "odd": [None, "\n"]})  # type: ignore[misc]
    store.change_item("token", "a", lambda _: "of another kind")

    again = open_kind(kind, store.location, create=False)
    assert list(again.items("thread")) == ["a", "b'é", "b/1", "b/2"]
    assert list(again.items("thread", "b/")) == ["b/1", "b/2"]
    assert again.items("thread", "b'") == {"b'é": {"name": "b'é", "odd": [None, "\n"]}}
    assert again.items("token") == {"a": "of another kind"}
    assert again.items("nothing") == {}


def test_item_can_be_changed_deleted_and_created_again(store: Store) -> None:
    assert store.items("thread") == {}
    assert store.change_item("thread", "a", lambda _: None) is None
    seen: list[Any] = []

    def replace_by(value: Any) -> Any:
        def change(old: Any) -> Any:
            seen.append(old)
            return value

        return change

    for value in (1, None, 2):
        assert store.change_item("thread", "a", replace_by(value)) == value
        store.compact()
    assert seen == [None, 1, None]
    assert store.items("thread") == {"a": 2}


def test_concurrent_changes_are_not_lost(store: Store, kind: str, index: Path) -> None:
    def add(number: int) -> None:
        own = open_kind(kind, index, create=False)
        own.change_item("thread", "a", lambda old: [*(old or []), number])
        own.close()

    writers = MANY if kind == "sqlite" else 6
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(writers)))
    assert sorted(store.items("thread")["a"]) == list(range(writers))
