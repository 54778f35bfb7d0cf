"""Compare both stores with plain dicts, after any sequence of changes and with many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.samples import (
    IMAGE,
    TEXT,
    TEXT_2,
    add,
    compact_now,
    damage,
    document,
    items,
    open_kind,
    state,
    state_of,
)
from visar.results import EncoderRef
from visar.store import Store


def test_threads_share_a_store(store: Store) -> None:
    names = ["a", "b", "c"]
    for name in names:
        add(store, name)
    expected = state(store)

    def work(turn: int) -> bool:
        name = names[turn % 3]
        if turn % 10 == 0:
            add(store, f"new-{turn}")
            store.collect("new", [f"new-{turn}"])
        return state_of(store, store.get(name)) == expected[name]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(40)))
    assert {d.id for d in store.documents()} == {*names, "new-0", "new-10", "new-20", "new-30"}
    assert store.collections() == {"new": 4}
    assert store.verify() == []


def test_threads_add_the_same_document(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        stored = list(pool.map(lambda _: add(store, "a"), range(4)))
    assert {each.id for each in stored} == {"a"}
    assert store.pages("a") == tuple(p for p, _ in items("a", 3, TEXT))
    assert damage(store) == []
    compact_now(store)
    assert store.verify() == []


IDS = st.sampled_from(["a", "b", "c"])
ENCODERS = st.sampled_from([TEXT, TEXT_2, IMAGE])
COLLECTIONS = st.sampled_from(["r", "s"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), IDS, ENCODERS, st.sampled_from(["", "/x", "/y"])),
        st.tuples(st.just("interrupt"), IDS, ENCODERS, st.sampled_from([[1], [2, 3], [3, 1]])),
        st.tuples(st.just("remove"), IDS),
        st.tuples(st.just("set_metadata"), IDS, st.integers(0, 3)),
        st.tuples(st.just("collect"), IDS, COLLECTIONS),
        st.tuples(st.just("uncollect"), COLLECTIONS),
        st.tuples(st.just("compact")),
        st.tuples(st.just("reopen")),
    ),
    max_size=12,
)


class Both:
    """A store, and its expected content in plain dicts."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        self.store = open_kind(kind, path)
        self.known: dict[str, dict[str, Any]] = {}

    def add(self, id_: str, encoder: EncoderRef, source: str) -> None:
        add(self.store, id_, encoder, source)
        known = self.known.setdefault(id_, {"encoders": {}, "metadata": {}, "collections": set()})
        known["source"] = source
        for other in list(self.known):
            if source and other != id_ and self.known[other]["source"] == source:
                replaced = self.known.pop(other)
                known["metadata"] = replaced["metadata"] | known["metadata"]
                known["collections"] |= replaced["collections"]
        known["encoders"][encoder.name] = encoder

    def interrupt(self, id_: str, encoder: EncoderRef, numbers: list[int]) -> None:
        source = self.known[id_]["source"] if id_ in self.known else ""
        with self.store.adding(document(id_, source=source), encoder) as addition:
            for item in items(id_, 3, encoder, numbers):
                if addition.stored is None:
                    addition.put(*item)

    def remove(self, id_: str) -> None:
        if self.known.pop(id_, None):
            self.store.remove(id_)

    def set_metadata(self, id_: str, number: int) -> None:
        if id_ in self.known:
            self.store.set_metadata(id_, {"n": number})
            self.known[id_]["metadata"] = {"n": number}

    def collect(self, id_: str, collection: str) -> None:
        if id_ in self.known:
            self.store.collect(collection, [id_])
            self.known[id_]["collections"].add(collection)

    def uncollect(self, collection: str) -> None:
        self.store.uncollect(collection)
        for known in self.known.values():
            known["collections"].discard(collection)

    def compact(self) -> None:
        self.store.compact()
        assert self.store.verify() == []

    def reopen(self) -> None:
        self.store.close()
        self.store = open_kind(self.kind, self.path, create=False)

    def check(self) -> None:
        assert [stored.id for stored in self.store.documents()] == list(self.known)
        for id_, known in self.known.items():
            stored = self.store.get(id_)
            assert (stored.source, stored.metadata) == (known["source"], known["metadata"])
            assert set(stored.collections) == known["collections"]
            assert stored.encoders == tuple(known["encoders"][n] for n in sorted(known["encoders"]))
            assert self.store.pages(id_) == tuple(p for p, _ in items(id_, 3, TEXT))
            for encoder in stored.encoders:
                vectors = np.concatenate([e.vectors for _, e in items(id_, 3, encoder)])
                assert self.store.vectors(id_, encoder).vectors.tobytes() == vectors.tobytes()


@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 30), ("lance", 8)])
def test_any_sequence_of_changes(
    kind: str, examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changes=CHANGES)
    def check(changes: list[Any]) -> None:
        both = Both(kind, tmp_path_factory.mktemp("changes") / "index")
        for name, *values in changes:
            getattr(both, name)(*values)
            both.check()
        assert damage(both.store) == []
        compact_now(both.store)
        assert both.store.verify() == []
        both.check()
        both.store.close()

    check()
