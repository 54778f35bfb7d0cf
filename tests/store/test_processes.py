"""Test several processes that use an index at the same time."""

from __future__ import annotations

from pathlib import Path

from tests.store.conftest import Workers
from tests.store.samples import TEXT, compact_now, damage, items, open_kind
from tests.store.worker import PAGES, ROUNDS, SOURCE
from visar.results import EncoderRef


def test_writers_do_not_lose_each_others_documents(
    kind: str, index: Path, workers: Workers
) -> None:
    workers.run("together", kind, index, "write:a", "write:b", "write:c")
    store = open_kind(kind, index, create=False)
    expected = {f"{name}-{number}" for name in "abc" for number in range(ROUNDS)}
    assert {stored.id for stored in store.documents()} == expected
    assert store.collections() == {"all": 3 * ROUNDS}
    assert all(stored.metadata == {"number": int(stored.id[2:])} for stored in store.documents())
    assert store.verify() == []
    store.close()


def test_readers_see_consistent_versions(kind: str, index: Path, workers: Workers) -> None:
    workers.run("together", kind, index, "replace", "compact", "read", "read")
    store = open_kind(kind, index, create=False)
    assert [(d.id, d.source) for d in store.documents()] == [(f"version-{ROUNDS - 1}", SOURCE)]
    assert damage(store) == []
    compact_now(store)
    assert store.verify() == []
    store.close()


def test_processes_add_the_same_documents(kind: str, index: Path, workers: Workers) -> None:
    # All add the pages, but only one commits them. The vectors of the others must not be lost.
    workers.run("together", kind, index, "same:x", "same:y", "same:y")
    store = open_kind(kind, index, create=False)
    encoders = (EncoderRef("x", "1", 4), EncoderRef("y", "1", 4))
    assert len(store.documents()) == ROUNDS
    for stored in store.documents():
        assert stored.encoders == encoders
        assert store.pages(stored.id) == tuple(p for p, _ in items("same", PAGES, TEXT))
    assert damage(store) == []
    compact_now(store)
    assert store.verify() == []
    store.close()


def test_processes_create_the_same_index(kind: str, index: Path, workers: Workers) -> None:
    workers.run("together", kind, index, *(f"create:{name}" for name in "abcdef"))
    for number in range(4):
        store = open_kind(kind, index.with_name(f"new-{number}"), create=False)
        assert {stored.id for stored in store.documents()} == set("abcdef")
        assert store.verify() == []
        store.close()
