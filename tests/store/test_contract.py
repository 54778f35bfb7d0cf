"""Test the contract of both stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.store.samples import (
    IMAGE,
    TEXT,
    TEXT_2,
    Item,
    add,
    damage,
    document,
    embedding,
    interrupt,
    items,
    open_kind,
    page,
    put,
    state,
    unfinished,
    with_invalid_page,
)
from visar.documents.page import Page, Word
from visar.encoders.encoder import page_without_vectors
from visar.errors import InvalidVectors, NotInIndex, StoreError
from visar.results import NO_TEXT, EncoderRef, InvalidPage
from visar.store import Store

# Adding and reading.


def test_pages_and_vectors_round_trip(store: Store, kind: str) -> None:
    new_items = items("a", 3, TEXT)
    stored = put(store, document("a"), TEXT, new_items)
    assert (stored.id, stored.name, stored.pages, stored.size) == ("a", "a.pdf", 3, 3000)
    assert stored.encoders == (TEXT,)

    again = open_kind(kind, store.location, create=False)
    assert again.documents() == [stored]
    assert again.pages("a") == tuple(p for p, _ in new_items)
    vectors = again.vectors("a", TEXT)
    for number, (_, expected) in enumerate(new_items, start=1):
        rows = slice(vectors.offsets[number - 1], vectors.offsets[number])
        np.testing.assert_array_equal(vectors.vectors[rows], expected.vectors, strict=True)
        np.testing.assert_array_equal(vectors.boxes[rows], expected.boxes, strict=True)
        np.testing.assert_array_equal(vectors.words[rows], expected.words, strict=True)
    assert vectors.offsets.dtype == np.int64
    assert vectors.offsets.tolist() == [0, 3, 3, 8]  # page 2 is blank
    numbers = [3, 1, 2, 1]
    pages = again.embeddings([("a", number) for number in numbers], TEXT)
    for number, actual in zip(numbers, pages, strict=True):
        expected = new_items[number - 1][1]
        np.testing.assert_array_equal(actual.vectors, expected.vectors, strict=True)
        np.testing.assert_array_equal(actual.boxes, expected.boxes, strict=True)
        np.testing.assert_array_equal(actual.words, expected.words, strict=True)
    assert store.verify() == []
    again.close()


def test_vectors_are_read_only(store: Store) -> None:
    add(store, "a")
    vectors = store.vectors("a", TEXT)
    for array in (vectors.vectors, vectors.boxes, vectors.words, vectors.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_boxes_are_rounded_to_float32(store: Store) -> None:
    exact = page("a", 1)
    word = replace(exact.words[0], box=(0.1, 0.2, 0.3, 0.4))
    new_items = replace(exact, words=(word, *exact.words[1:]))
    put(store, document("a", 1), TEXT, [(new_items, embedding("a", 1, TEXT))])
    (got,) = store.pages("a")
    assert got.words[0].box == pytest.approx(word.box, abs=1e-7)
    assert store.verify() == []


def test_document_of_blank_pages(store: Store) -> None:
    blank = [(page("a", n, 0), embedding("a", n, TEXT, 0)) for n in (1, 2)]
    put(store, document("a", 2), TEXT, blank)
    assert store.pages("a") == tuple(p for p, _ in blank)
    vectors = store.vectors("a", TEXT)
    assert (vectors.vectors.shape, vectors.offsets.tolist()) == ((0, 8), [0, 0, 0])
    assert store.verify() == []


@pytest.mark.usefixtures("flush_every_page")
def test_long_document_in_many_steps(store: Store) -> None:
    new_items = items("a", 40, TEXT)
    put(store, document("a", 40), TEXT, new_items)
    expected = np.concatenate([e.vectors for _, e in new_items])
    np.testing.assert_array_equal(store.vectors("a", TEXT).vectors, expected)
    assert store.pages("a", [40, 7, 7]) == (new_items[39][0], new_items[6][0], new_items[6][0])
    assert store.pages("a", []) == ()
    assert store.verify() == []


def test_pages_can_be_put_in_any_order(store: Store) -> None:
    new_items = items("a", 5, TEXT)
    put(store, document("a", 5), TEXT, [new_items[i] for i in (4, 0, 2, 3, 1)])
    in_order = np.concatenate([e.vectors for _, e in new_items])
    np.testing.assert_array_equal(store.vectors("a", TEXT).vectors, in_order)
    assert store.pages("a") == tuple(p for p, _ in new_items)
    assert store.verify() == []


@pytest.mark.usefixtures("flush_every_page")
def test_document_is_invisible_before_the_commit(store: Store, kind: str) -> None:
    beside = open_kind(kind, store.location)
    with store.adding(document("a"), TEXT) as addition:
        assert addition.stored is None
        for item in items("a", 3, TEXT):
            addition.put(*item)
            assert store.documents() == beside.documents() == []
        assert beside.verify() == []  # an addition in progress isn't an orphan
        stored = addition.commit()
        assert addition.stored == stored == addition.commit()
    assert store.documents() == beside.documents() == [stored]
    beside.close()


def test_adding_a_stored_document_again_does_nothing(store: Store) -> None:
    add(store, "a")
    before = state(store)
    with store.adding(document("a"), TEXT) as addition:
        assert addition.stored == store.get("a")
        assert addition.commit() == store.get("a")
        with pytest.raises(StoreError, match=r"a\.pdf"):
            addition.put(*items("a", 3, TEXT)[0])
    assert state(store) == before


def test_closed_addition_rejects_pages(store: Store) -> None:
    first, *_ = items("a", 3, TEXT)
    with store.adding(document("a"), TEXT) as addition:
        addition.put(*first)
    addition.close()
    for use in (lambda: addition.put(*first), addition.commit):
        with pytest.raises(StoreError, match=r"a\.pdf"):
            use()


# U+001F separates words in the tables.
CHARACTERS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x1f"), max_size=6
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    texts=st.lists(CHARACTERS, max_size=4),
    name=CHARACTERS,
    size=st.floats(allow_nan=False, allow_infinity=False),
    note=st.one_of(st.none(), CHARACTERS, st.integers(), st.booleans(), st.floats(0, 1)),
)
@example(texts=["\0", ""], name="", size=-0.0, note="\0")
def test_any_text_round_trips(
    store: Store, texts: list[str], name: str, size: float, note: Any
) -> None:
    for stored in store.documents():  # from the previous example
        store.remove(stored.id)
    words = tuple(Word(text, (0.0, 0.25, 0.5, 1.0), 3) for text in texts)
    new_items = Page(1, size, 842.0, 0, words, "text layer", name)
    nothing = embedding("a", 1, TEXT, 0)
    new = replace(document("a", 1, source=""), name=name, metadata={name: note})
    put(store, new, TEXT, [(new_items, nothing)])
    stored = store.get("a")
    assert (stored.name, stored.metadata) == (name, {name: note})
    assert store.pages("a") == (new_items,)
    assert damage(store) == []


# Adding a file again, moved or changed, or with other encoders.


def test_changed_file_replaces_its_old_version(store: Store) -> None:
    add(store, "old", source="/files/report.pdf")
    add(store, "other")
    add(store, "new", source="/files/report.pdf")
    assert [d.id for d in store.documents()] == ["other", "new"]
    with pytest.raises(NotInIndex, match="old"):
        store.pages("old")
    assert store.verify() == []
    add(store, "old", source="/files/report.pdf")  # and back again
    assert [d.id for d in store.documents()] == ["other", "old"]
    assert store.verify() == []


def test_documents_without_a_source_do_not_replace_each_other(store: Store) -> None:
    add(store, "a", source="")
    add(store, "b", source="")
    assert [d.id for d in store.documents()] == ["a", "b"]


def test_moved_file_keeps_its_vectors(store: Store) -> None:
    add(store, "a", source="/files/a.pdf")
    with store.adding(document("a", source="/elsewhere/b.pdf"), TEXT) as addition:
        moved = addition.stored
    assert moved is not None
    assert (moved.name, moved.source) == ("b.pdf", "/elsewhere/b.pdf")
    # A new file at the old path is another document.
    add(store, "c", source="/files/a.pdf")
    assert {d.id for d in store.documents()} == {"a", "c"}
    assert store.verify() == []


def test_file_copied_over_another_replaces_it(store: Store) -> None:
    add(store, "a", source="/files/a.pdf")
    add(store, "b", source="/files/b.pdf")
    put(store, document("a", source="/files/b.pdf"), TEXT, [])
    assert [(d.id, d.source) for d in store.documents()] == [("a", "/files/b.pdf")]
    assert store.verify() == []


def test_moved_file_is_recognized_when_another_encoder_is_added(store: Store) -> None:
    add(store, "a", source="/files/a.pdf")
    add(store, "b", source="/files/b.pdf")
    stored = add(store, "a", IMAGE, source="/files/b.pdf")
    assert (stored.name, stored.source, stored.encoders) == (
        "b.pdf",
        "/files/b.pdf",
        (IMAGE, TEXT),
    )
    assert [d.id for d in store.documents()] == ["a"]
    assert store.verify() == []


def test_another_encoder_uses_the_stored_pages(store: Store) -> None:
    add(store, "a")
    new_items = [(p, embedding("a", p.number, IMAGE, len(p.words))) for p in store.pages("a")]
    stored = put(store, document("a"), IMAGE, new_items)
    assert stored.encoders == (IMAGE, TEXT)
    assert store.vectors("a", IMAGE).vectors.shape == (8, 4)
    assert store.vectors("a", TEXT).vectors.shape == (8, 8)
    assert store.verify() == []


def test_new_encoder_version_replaces_the_old_vectors(store: Store) -> None:
    add(store, "a")
    store.vectors("a", TEXT)
    add(store, "a", TEXT_2)
    assert store.get("a").encoders == (TEXT_2,)
    expected = np.concatenate([e.vectors for _, e in items("a", 3, TEXT_2)])
    np.testing.assert_array_equal(store.vectors("a", TEXT_2).vectors, expected)
    with pytest.raises(NotInIndex, match=r"a\.pdf .*text 1 .*text 2"):
        store.vectors("a", TEXT)
    assert store.verify() == []


def test_encoder_version_cannot_have_two_dimensions(store: Store) -> None:
    add(store, "a")
    other = EncoderRef("text", "1", 16)
    with pytest.raises(StoreError, match=r"\b8\b.*\b16\b"):
        store.adding(document("b"), other)
    with pytest.raises(NotInIndex, match=r"\b16\b"):
        store.vectors("a", other)


def test_page_count_of_a_document_cannot_change(store: Store) -> None:
    add(store, "a")
    with pytest.raises(StoreError, match=r"\b4\b.*\b3\b"):
        store.adding(document("a", 4), IMAGE)


# Invalid arguments.


def bad_embeddings() -> Iterator[tuple[str, Item]]:
    good_page, good = items("a", 1, TEXT)[0]
    yield "float16", (good_page, replace(good, vectors=good.vectors.astype(np.float32)))
    yield r"\(3, 8\)", (good_page, embedding("a", 1, IMAGE))
    yield "boxes", (good_page, replace(good, boxes=good.boxes[:-1]))
    yield "words", (good_page, replace(good, words=good.words[:-1]))
    as_list: Any = good.vectors.tolist()
    yield "list", (good_page, replace(good, vectors=as_list))
    yield r"\b6\b", (good_page, replace(good, words=good.words + np.int32(6)))
    yield "-2", (good_page, replace(good, words=np.full(3, -2, np.int32)))
    yield (
        r"page 1 of a\.pdf.*\b3\b",
        (good_page, replace(good, invalid="why")),
    )


def test_invalid_arrays_are_not_written(store: Store) -> None:
    for match, item in bad_embeddings():
        with pytest.raises(InvalidVectors, match=match):
            put(store, document("a", 1), TEXT, [item])
    assert store.documents() == []
    assert unfinished(store, "a", pages=1) == set()


def test_invalid_pages_raise_store_error(store: Store) -> None:
    one, two = items("a", 2, TEXT)
    with pytest.raises(StoreError, match=r"Page 1 of a\.pdf"):
        put(store, document("a", 2), TEXT, [one, one])
    with pytest.raises(StoreError, match=r"b\.pdf .*page 2\b"):
        put(store, document("b", 1), TEXT, [one, two])
    with pytest.raises(StoreError, match=r"c\.pdf"):
        store.adding(document("c", 0), TEXT)
    for text, match in (("\ud800", "ud800"), ("a\x1fb", "U\\+001F")):
        word = replace(one[0].words[0], text=text)
        wrong = replace(one[0], words=(word, *one[0].words[1:]))
        with pytest.raises(StoreError, match=f"page 1.*{match}"):
            put(store, document("d", 1), TEXT, [(wrong, one[1])])
    assert store.documents() == []


def test_invalid_metadata_raises_store_error(store: Store) -> None:
    add(store, "a")
    invalid: list[Any] = [{"a": [1]}, {"a": {}}, {1: "a"}]
    for metadata in invalid:
        with pytest.raises(StoreError, match="metadata"):
            store.set_metadata("a", metadata)
        with pytest.raises(StoreError, match="metadata"):
            store.adding(document("b", metadata=metadata), TEXT)


def test_unique_prefix_of_an_id_is_enough(store: Store) -> None:
    for id_ in ("abc", "abd", "ab"):
        add(store, id_)
    assert store.get("abc").id == "abc"
    assert store.get("ab").id == "ab"  # an exact id wins over a prefix
    assert store.pages("abd", [1]) == store.pages("abd")[:1]
    with pytest.raises(NotInIndex, match=r"\b3\b.*abc"):
        store.get("a")
    with pytest.raises(NotInIndex, match="'x'"):
        store.get("x")
    with pytest.raises(NotInIndex):
        store.get("")


def test_missing_page_raises_not_in_index(store: Store) -> None:
    add(store, "a")
    with pytest.raises(NotInIndex, match=r"a\.pdf .*\b4\b.*\b3\b"):
        store.pages("a", [1, 4])


def test_names_with_quotes(store: Store) -> None:
    encoder = EncoderRef("o'encoder", "v'1", 8)
    interrupt(store, "it's", [1], encoder)
    assert unfinished(store, "it's", encoder) == {1}
    put(store, document("it's"), encoder, items("it's", 3, encoder))
    assert store.vectors("it's", encoder).vectors.shape == (8, 8)
    store.collect("o'ne", ["it's"])
    assert store.collections() == {"o'ne": 1}


# Removing, metadata, collections.


def test_remove(store: Store) -> None:
    add(store, "a")
    add(store, "b")
    store.vectors("a", TEXT)
    assert store.remove("a").id == "a"
    assert [d.id for d in store.documents()] == ["b"]
    for use in (store.remove, store.get, store.pages, store.original):
        with pytest.raises(NotInIndex):
            use("a")
    with pytest.raises(NotInIndex):
        store.vectors("a", TEXT)
    assert store.verify() == []
    add(store, "a")
    assert [d.id for d in store.documents()] == ["b", "a"]


def test_vectors_stay_readable_after_removal(store: Store) -> None:
    add(store, "a")
    vectors = store.vectors("a", TEXT)
    before = vectors.vectors.tobytes()
    store.remove("a")
    store.compact()
    assert vectors.vectors.tobytes() == before


def test_metadata(store: Store, kind: str) -> None:
    put(store, document("a", metadata={"year": 2024}), TEXT, items("a", 3, TEXT))
    add(store, "b")
    assert store.get("a").metadata == {"year": 2024}
    assert store.get("b").metadata == {}
    values = {"year": 2025, "draft": True, "by": "Ännchen", "score": 0.5, "none": None}
    assert store.set_metadata("a", values).metadata == values
    # Adding a stored document doesn't change its metadata.
    put(store, document("a", metadata={"year": 1}), IMAGE, items("a", 3, IMAGE))
    beside = open_kind(kind, store.location)
    assert beside.get("a").metadata == values
    assert store.set_metadata("a", {}).metadata == beside.get("a").metadata == {}
    with pytest.raises(NotInIndex):
        store.set_metadata("x", {})
    assert store.verify() == []
    beside.close()


def test_collections(store: Store) -> None:
    for id_ in ("a", "b", "c"):
        add(store, id_)
    store.collect("reports", ["a", "b"])
    store.collect("reports", ["b", "c"])
    store.collect("new", ["c"])
    assert store.collections() == {"new": 1, "reports": 3}
    assert store.get("c").collections == ("new", "reports")
    store.uncollect("reports", ["a"])
    store.remove("b")
    assert store.collections() == {"new": 1, "reports": 1}
    store.uncollect("reports")
    assert store.collections() == {"new": 1}
    store.uncollect("unknown")
    with pytest.raises(NotInIndex):
        store.collect("new", ["a", "x"])
    assert store.collections() == {"new": 1}
    add(store, "b")
    assert store.get("b").collections == ()
    assert [d.id for d in store.documents()] == ["a", "c", "b"]


def test_documents_by_metadata_and_collection(store: Store) -> None:
    for id_, year in (("a", 2024), ("b", 2025), ("c", 2025)):
        put(store, document(id_, metadata={"year": year, "id": id_}), TEXT, items(id_, 3, TEXT))
    store.collect("some", ["a", "c"])

    def ids(**filters: Any) -> list[str]:
        return [stored.id for stored in store.documents(**filters)]

    assert ids(where={"year": 2025}) == ["b", "c"]
    assert ids(where={"year": 2025, "id": "c"}) == ["c"]
    assert ids(where={"unknown": None}) == []
    assert ids(where={}) == ids() == ["a", "b", "c"]
    assert ids(collection="some") == ["a", "c"]
    assert ids(collection="some", where={"year": 2024}) == ["a"]
    assert ids(collection="none") == []


# Pages that an encoder failed on.

REASON = 'no "numbers", äh'
EXPECTED = (InvalidPage("text", 3, REASON),)


def test_reason_of_an_invalid_page_is_stored(store: Store, kind: str) -> None:
    stored = put(store, document("a"), TEXT, with_invalid_page(REASON))
    assert stored.invalid == EXPECTED
    assert [len(stored.failed_pages(name)) for name in ("text", "image")] == [1, 0]
    assert open_kind(kind, store.location).get("a").invalid == EXPECTED
    assert len(store.vectors("a", TEXT).vectors) == 3
    add(store, "a", TEXT_2)
    assert store.get("a").invalid == ()
    assert store.verify() == []


def test_document_without_text(store: Store) -> None:
    pages = [
        (page, page_without_vectors(TEXT.dimension, NO_TEXT)) for page, _ in items("a", 3, TEXT)
    ]
    stored = put(store, document("a"), TEXT, pages)
    assert (stored.no_text, stored.failed_pages("text")) == (True, ())
    assert store.get("a") == stored
    assert not put(store, document("b"), TEXT, [*items("b", 3, TEXT)[:2], pages[2]]).no_text


def test_reason_of_an_invalid_page_survives_an_interruption(store: Store) -> None:
    first, second, third = with_invalid_page(REASON)
    with store.adding(document("a"), TEXT) as addition:
        addition.put(*third)
        addition.put(*first)
    assert unfinished(store, "a") == {1, 3}
    assert put(store, document("a"), TEXT, [second]).invalid == EXPECTED
