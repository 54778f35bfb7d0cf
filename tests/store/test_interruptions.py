"""Test interrupted and concurrent additions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.store.samples import (
    IMAGE,
    TEXT,
    TEXT_2,
    Item,
    add,
    compact_now,
    damage,
    document,
    interrupt,
    items,
    open_kind,
    put,
    state,
    unfinished,
)
from visar.errors import StoreError
from visar.store import Store


def test_interrupted_addition_is_resumed(store: Store, kind: str) -> None:
    new_items = items("a", 5, TEXT)

    def interrupted() -> Iterator[Item]:
        yield from new_items[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put(store, document("a", 5), TEXT, interrupted())
    assert store.documents() == []
    beside = open_kind(kind, store.location)
    assert unfinished(beside, "a", pages=5) == {1, 2, 3}
    # Additions with another encoder or version have nothing to resume.
    for encoder in (TEXT_2, IMAGE):
        assert unfinished(store, "a", encoder, 5) == set()
    assert unfinished(store, "b") == set()

    with pytest.raises(StoreError, match=r"a\.pdf.*\b5\b"):
        put(store, document("a", 5), TEXT, new_items[3:4])
    assert unfinished(beside, "a", pages=5) == {1, 2, 3, 4}

    put(beside, document("a", 5), TEXT, new_items[4:])
    assert store.pages("a") == tuple(p for p, _ in new_items)
    expected = np.concatenate([e.vectors for _, e in new_items])
    np.testing.assert_array_equal(store.vectors("a", TEXT).vectors, expected)
    assert damage(store) == []
    store.compact()
    assert store.verify() == []
    beside.close()


def test_missing_pages_can_be_put_after_a_failed_commit(store: Store) -> None:
    *most, last = items("a", 3, TEXT)
    with store.adding(document("a"), TEXT) as addition:
        for item in most:
            addition.put(*item)
        with pytest.raises(StoreError, match=r"a\.pdf.*\b3\b"):
            addition.commit()
        addition.put(*last)
        addition.commit()
    assert store.pages("a") == tuple(p for p, _ in items("a", 3, TEXT))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_pages_put_again_replace_those_of_an_interrupted_addition(
    store: Store, number: int
) -> None:
    with store.adding(document("a"), TEXT) as addition:
        for item in items("interrupted", 3, TEXT):
            addition.put(*item)
    with store.adding(document("a"), TEXT) as addition:
        assert addition.written == {1, 2, 3}
        addition.put(*items("a", 3, TEXT)[number - 1])
        addition.commit()
    expected = items("interrupted", 3, TEXT)
    expected[number - 1] = items("a", 3, TEXT)[number - 1]
    assert store.pages("a") == tuple(p for p, _ in expected)
    vectors = np.concatenate([e.vectors for _, e in expected])
    np.testing.assert_array_equal(store.vectors("a", TEXT).vectors, vectors)
    assert damage(store) == []


def test_vectors_of_removed_pages_are_not_reused(store: Store) -> None:
    # The vectors refer to words of the old pages by their index.
    add(store, "a")
    interrupt(store, "a", [1], IMAGE)
    assert unfinished(store, "a", IMAGE) == {1}
    store.remove("a")
    assert unfinished(store, "a", IMAGE) == set()
    put(store, document("a"), TEXT, items("other", 3, TEXT))
    assert unfinished(store, "a", IMAGE) == set()


def test_commit_fails_if_another_process_changes_the_pages(store: Store, kind: str) -> None:
    add(store, "a")
    beside = open_kind(kind, store.location)
    with store.adding(document("a"), IMAGE) as addition:
        for item in items("a", 3, IMAGE):
            addition.put(*item)
        beside.remove("a")
        with pytest.raises(StoreError, match=r"a\.pdf"):
            addition.commit()
    with store.adding(document("a"), IMAGE) as addition:
        for item in items("a", 3, IMAGE):
            addition.put(*item)
        put(beside, document("a"), TEXT, items("other", 3, TEXT))
        with pytest.raises(StoreError, match=r"a\.pdf"):
            addition.commit()
    assert store.get("a").encoders == (TEXT,)
    assert damage(store) == []
    beside.close()


@pytest.mark.usefixtures("flush_every_page")
def test_two_additions_of_the_same_document_both_succeed(store: Store, kind: str) -> None:
    beside = open_kind(kind, store.location)
    first, second, third = items("a", 3, TEXT)
    with store.adding(document("a"), TEXT) as one, beside.adding(document("a"), TEXT) as two:
        for item in (first, second):
            one.put(*item)
            two.put(*item)
        with open_kind(kind, store.location).adding(document("a"), TEXT) as late:
            # The pages that are listed as written stay available, whatever the others do.
            rest = [item for item in items("a", 3, TEXT) if item[0].number not in late.written]
            one.put(*third)
            stored = one.commit()
            compact_now(store)
            for item in rest:
                late.put(*item)
            assert late.commit() == stored
        two.put(*third)
        assert two.commit() == stored
    assert state(store)["a"] == state(beside)["a"]
    assert store.pages("a") == tuple(p for p, _ in (first, second, third))
    assert store.verify() == []
    beside.close()


@pytest.mark.usefixtures("flush_every_page")
def test_two_encoders_on_the_same_new_document_both_succeed(store: Store, kind: str) -> None:
    # Both add the pages, but only one commits them. The vectors of the other must not be lost.
    beside = open_kind(kind, store.location)
    with store.adding(document("a"), TEXT) as one, beside.adding(document("a"), IMAGE) as two:
        for text, image in zip(items("a", 3, TEXT), items("a", 3, IMAGE), strict=True):
            one.put(*text)
            two.put(*image)
        one.commit()
        assert two.commit().encoders == (IMAGE, TEXT)
    assert store.vectors("a", IMAGE).vectors.shape == (8, 4)
    assert store.verify() == []
    beside.close()


def test_concurrent_additions_with_different_words(store: Store, kind: str) -> None:
    # OCR can give different words for the same page.
    beside = open_kind(kind, store.location)
    with store.adding(document("a"), TEXT) as one, beside.adding(document("a"), TEXT) as two:
        for mine, other in zip(items("a", 3, TEXT), items("other", 3, TEXT), strict=True):
            one.put(*mine)
            two.put(*other)
        stored = one.commit()
        assert two.commit() == stored
    assert store.pages("a") == tuple(p for p, _ in items("a", 3, TEXT))
    assert store.verify() == []
    beside.close()
