"""What goes in comes out, and only what should be there is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.store.samples import (
    IMAGE,
    TEXT,
    TEXT_2,
    Item,
    add,
    document,
    embedding,
    items,
    page,
    state,
    untouchable,
)
from visar.errors import InvalidVectors, NotInIndex, StoreError
from visar.store import EncoderRef, Store
from visar.store import writing as store_writing


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "index")


def test_pages_and_vectors_come_back_as_they_were(store: Store) -> None:
    given = items("a", 3, TEXT)
    stored = store.add(document("a"), TEXT, given)
    assert (stored.id, stored.name, stored.pages, stored.size) == ("a", "a.pdf", 3, 3000)
    assert stored.encoders == (TEXT,)

    again = Store.open(store.location, create=False)
    assert again.documents() == [stored]
    assert again.pages("a") == tuple(p for p, _ in given)
    vectors = again.vectors("a", TEXT)
    for number, (_, expected) in enumerate(given, start=1):
        rows = slice(vectors.offsets[number - 1], vectors.offsets[number])
        np.testing.assert_array_equal(vectors.vectors[rows], expected.vectors, strict=True)
        np.testing.assert_array_equal(vectors.boxes[rows], expected.boxes, strict=True)
        np.testing.assert_array_equal(vectors.words[rows], expected.words, strict=True)
    assert vectors.offsets.dtype == np.int64
    assert vectors.offsets.tolist() == [0, 3, 3, 8]  # page 2 is blank
    assert store.verify() == []


def test_vectors_are_shared_and_therefore_read_only(store: Store) -> None:
    add(store, "a")
    vectors = store.vectors("a", TEXT)
    assert store.vectors("a", TEXT) is vectors
    with pytest.raises(ValueError, match="read-only"):
        vectors.vectors[0] = 0


def test_boxes_are_rounded_to_float32(store: Store) -> None:
    exact = page("a", 1)
    word = replace(exact.words[0], box=(0.1, 0.2, 0.3, 0.4))
    given = replace(exact, words=(word, *exact.words[1:]))
    store.add(document("a", 1), TEXT, [(given, embedding("a", 1, TEXT))])
    (got,) = store.pages("a")
    assert got.words[0].box == pytest.approx(word.box, abs=1e-7)
    assert store.verify() == []


def test_a_long_document_in_many_blocks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small limits make a small document take the path of a long one.
    monkeypatch.setattr(store_writing, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(store_writing, "FLUSH_BYTES", 5000)
    given = items("a", 40, TEXT)
    store.add(document("a", 40), TEXT, given)
    vectors = store.vectors("a", TEXT)
    expected = np.concatenate([e.vectors for _, e in given])
    np.testing.assert_array_equal(vectors.vectors, expected)
    assert store.pages("a", [40, 7, 7]) == (given[39][0], given[6][0], given[6][0])
    assert store.verify() == []


def test_pages_may_come_in_any_order(store: Store) -> None:
    given = items("a", 5, TEXT)
    store.add(document("a", 5), TEXT, [given[i] for i in (4, 0, 2, 3, 1)])
    in_order = np.concatenate([e.vectors for _, e in given])
    np.testing.assert_array_equal(store.vectors("a", TEXT).vectors, in_order)
    assert store.pages("a") == tuple(p for p, _ in given)


def test_pages_are_written_as_they_come(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Were the whole document gathered first, memory would grow with its length.
    monkeypatch.setattr(store_writing, "FLUSH_BYTES", 1)
    seen: list[int] = []

    def given() -> Iterator[Item]:
        for item in items("a", 4, TEXT):
            seen.append(len(store.unfinished("a", TEXT)))
            yield item

    store.add(document("a", 4), TEXT, given())
    # The blank page 2 has no bytes to write and waits for page 3.
    assert seen == [0, 1, 1, 3]


def test_the_same_again_changes_nothing_and_reads_nothing(store: Store) -> None:
    add(store, "a")
    before, version = state(store), store._tables.catalog.version
    store.add(document("a"), TEXT, untouchable())
    assert state(store) == before
    assert store._tables.catalog.version == version


def test_a_changed_file_replaces_its_old_version(store: Store) -> None:
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


def test_a_moved_file_keeps_its_vectors(store: Store) -> None:
    add(store, "a", source="/files/a.pdf")
    moved = store.add(document("a", source="/elsewhere/b.pdf"), TEXT, untouchable())
    assert (moved.name, moved.source) == ("b.pdf", "/elsewhere/b.pdf")
    # What is put at the old place now is another document.
    add(store, "c", source="/files/a.pdf")
    assert {d.id for d in store.documents()} == {"a", "c"}
    assert store.verify() == []


def test_a_file_copied_over_another_replaces_it(store: Store) -> None:
    add(store, "a", source="/files/a.pdf")
    add(store, "b", source="/files/b.pdf")
    store.add(document("a", source="/files/b.pdf"), TEXT, untouchable())
    assert [(d.id, d.source) for d in store.documents()] == [("a", "/files/b.pdf")]
    assert store.verify() == []


def test_another_encoder_uses_the_pages_that_are_there(store: Store) -> None:
    add(store, "a")
    given = [(p, embedding("a", p.number, IMAGE)) for p in store.pages("a", [1, 3])]
    given.insert(1, (store.pages("a", [2])[0], embedding("a", 2, IMAGE, words=0)))
    stored = store.add(document("a"), IMAGE, given)
    assert stored.encoders == (IMAGE, TEXT)
    assert len(store._tables.pages.scan(("number",))) == 3
    assert store.vectors("a", IMAGE).vectors.shape == (8, 4)
    assert store.vectors("a", TEXT).vectors.shape == (8, 8)
    assert store.verify() == []


def test_a_new_version_of_an_encoder_replaces_the_old_vectors(store: Store) -> None:
    add(store, "a")
    store.vectors("a", TEXT)
    add(store, "a", TEXT_2)
    assert store.get("a").encoders == (TEXT_2,)
    expected = np.concatenate([e.vectors for _, e in items("a", 3, TEXT_2)])
    np.testing.assert_array_equal(store.vectors("a", TEXT_2).vectors, expected)
    with pytest.raises(NotInIndex, match=r"a\.pdf has no vectors of text 1 .* only of text 2"):
        store.vectors("a", TEXT)
    assert store.verify() == []


def test_one_version_of_an_encoder_has_one_dimension(store: Store) -> None:
    add(store, "a")
    other = EncoderRef("text", "1", 16)
    with pytest.raises(StoreError, match=r"text 1 \(8 dimensions\).*text 1 \(16 dimensions\)"):
        store.add(document("b"), other, untouchable())
    with pytest.raises(NotInIndex, match="16 dimensions"):
        store.vectors("a", other)


def test_ids_may_be_shortened_when_they_stay_unique(store: Store) -> None:
    add(store, "abc")
    add(store, "abd")
    add(store, "ab")
    assert store.get("abc").id == "abc"
    assert store.get("ab").id == "ab"  # a whole id is never a prefix
    assert store.pages("abd", [1]) == store.pages("abd")[:1]
    with pytest.raises(NotInIndex, match=r"3 documents: .*abc"):
        store.get("a")
    with pytest.raises(NotInIndex, match="'x' among the 3"):
        store.get("x")
    with pytest.raises(NotInIndex):
        store.get("")


def test_pages_that_do_not_exist(store: Store) -> None:
    add(store, "a")
    with pytest.raises(NotInIndex, match=r"a\.pdf has pages 1 to 3, not 4"):
        store.pages("a", [1, 4])


def test_removing(store: Store) -> None:
    add(store, "a")
    add(store, "b")
    store.vectors("a", TEXT)
    assert store.remove("a").id == "a"
    assert [d.id for d in store.documents()] == ["b"]
    with pytest.raises(NotInIndex):
        store.vectors("a", TEXT)
    with pytest.raises(NotInIndex):
        store.remove("a")
    assert store.verify() == []
    add(store, "a")
    assert [d.id for d in store.documents()] == ["b", "a"]


def bad_embeddings() -> Iterator[tuple[str, Item]]:
    good_page, good = items("a", 1, TEXT)[0]
    yield "float16", (good_page, replace(good, vectors=good.vectors.astype(np.float32)))
    yield r"\(3, 8\)", (good_page, embedding("a", 1, IMAGE))
    yield "boxes", (good_page, replace(good, boxes=good.boxes[:-1]))
    yield "words", (good_page, replace(good, words=good.words[:-1]))
    yield "below 6", (good_page, replace(good, words=good.words + np.int32(6)))
    yield "-2", (good_page, replace(good, words=np.full(3, -2, np.int32)))


@pytest.mark.parametrize(("match", "item"), list(bad_embeddings()))
def test_wrong_arrays_are_refused_before_they_are_written(
    store: Store, match: str, item: Item
) -> None:
    with pytest.raises(InvalidVectors, match=match):
        store.add(document("a", 1), TEXT, [item])
    assert store.documents() == []
    assert store.verify() == []


def test_wrong_pages_are_refused(store: Store) -> None:
    one, two = items("a", 2, TEXT)
    with pytest.raises(StoreError, match=r"page 1 of a\.pdf came twice"):
        store.add(document("a", 2), TEXT, [one, one])
    with pytest.raises(StoreError, match=r"page 2 .* does not exist: the document has 1 pages"):
        store.add(document("b", 1), TEXT, [one, two])
    with pytest.raises(StoreError, match="at least one page"):
        store.add(document("c", 0), TEXT, [])
    surrogate = replace(one[0], words=(replace(one[0].words[0], text="\ud800"), *one[0].words[1:]))
    with pytest.raises(StoreError, match="page 1 has a word that is not valid text"):
        store.add(document("d", 1), TEXT, [(surrogate, one[1])])
    assert store.documents() == []


def test_an_interrupted_add_goes_on_where_it_stopped(store: Store) -> None:
    given = items("a", 5, TEXT)

    def interrupted() -> Iterator[Item]:
        yield from given[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(document("a", 5), TEXT, interrupted())
    assert store.documents() == []
    assert store.unfinished("a", TEXT) == {1, 2, 3}
    # Other vectors than the interrupted ones: nothing to go on from.
    assert store.unfinished("a", TEXT_2) == store.unfinished("a", IMAGE) == frozenset()
    assert store.unfinished("b", TEXT) == frozenset()

    with pytest.raises(StoreError, match=r"1 of 5 pages of a\.pdf were not given, .* page 5"):
        store.add(document("a", 5), TEXT, given[3:4])
    assert store.unfinished("a", TEXT) == {1, 2, 3, 4}

    store.add(document("a", 5), TEXT, given[4:])
    assert store.pages("a") == tuple(p for p, _ in given)
    expected = np.concatenate([e.vectors for _, e in given])
    np.testing.assert_array_equal(store.vectors("a", TEXT).vectors, expected)
    assert store.unfinished("a", TEXT) == frozenset()
    assert store.verify() == []


def test_pages_given_again_win_over_those_of_an_interrupted_add(store: Store) -> None:
    with pytest.raises(StoreError, match="were not given"):
        store.add(document("a"), TEXT, items("interrupted", 3, TEXT, [1, 2]))
    add(store, "a")
    assert store.pages("a") == tuple(p for p, _ in items("a", 3, TEXT))
    assert store.verify() == []


def test_vectors_of_pages_that_are_gone_are_not_used(store: Store) -> None:
    # They name words of the old pages by their index.
    add(store, "a")
    with pytest.raises(StoreError, match="were not given"):
        store.add(document("a"), IMAGE, items("a", 3, IMAGE, [1]))
    assert store.unfinished("a", IMAGE) == {1}
    store.remove("a")
    assert store.unfinished("a", IMAGE) == frozenset()
    add(store, "a")
    assert store.unfinished("a", IMAGE) == frozenset()


def test_names_with_quotes(store: Store) -> None:
    encoder = EncoderRef("o'encoder", "v'1", 8)
    with pytest.raises(StoreError, match="were not given"):
        store.add(document("it's"), encoder, items("q", 3, encoder, [1]))
    assert store.unfinished("it's", encoder) == {1}
    store.add(document("it's"), encoder, items("q", 3, encoder, [2, 3]))
    assert store.vectors("it's", encoder).vectors.shape == (8, 8)


def test_the_catalog_is_kept_short(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is read whole at every start: hundreds of tiny files would make that slow.
    monkeypatch.setattr("visar.store.store.CATALOG_FRAGMENTS", 3)
    for number in range(6):
        add(store, str(number))
    assert store._tables.catalog.fragments <= 3
    assert len(store.documents()) == 6


def test_importing_the_store_does_not_import_lancedb() -> None:
    # It takes a second or more, which `visar --help` must not cost.
    code = "import sys, visar.store; sys.exit('lancedb' in sys.modules or 'pyarrow' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=False)
    assert run.returncode == 0
