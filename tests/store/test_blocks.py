"""Both stores keep the blocks of pages, also of pages that were stored without."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.conftest import Workers
from tests.store.samples import (
    TEXT,
    add,
    compact_now,
    damage,
    document,
    embedding,
    items,
    laid_out,
    open_kind,
    page,
    put,
    state,
    without_blocks,
)
from visar.documents.page import Block, BlockKind, Cell, Page
from visar.errors import StoreError
from visar.store import Store
from visar.store.pages import page_values

KINDS: list[BlockKind] = [
    *("sentence", "heading", "item", "caption"),
    *("table", "label", "contents", "margin"),
]


def with_blocks(*blocks: Block) -> Page:
    """The first page of "a" with these blocks; it has six words."""
    return replace(page("a", 1), blocks=blocks)


def test_blocks_come_back(store: Store, kind: str) -> None:
    pages = [laid_out(p) for p, _ in items("a", 3, TEXT)]
    assert [block.kind for block in pages[0].blocks or ()] == ["heading", "table"]
    assert pages[1].blocks == ()
    pages[2] = replace(pages[2], blocks=None)
    given_ = [(p, embedding("a", p.number, TEXT, len(p.words))) for p in pages]
    put(store, document("a"), TEXT, given_)
    again = open_kind(kind, store.location, create=False)
    assert store.pages("a") == again.pages("a") == tuple(pages)
    assert store.verify() == []
    again.close()


@pytest.mark.usefixtures("small_steps")
def test_an_addition_that_goes_on_keeps_blocks(store: Store) -> None:
    given_ = [(laid_out(p), e) for p, e in items("a", 3, TEXT)]
    with store.adding(document("a"), TEXT) as addition:
        for item in given_[:2]:
            addition.put(*item)
    put(store, document("a"), TEXT, given_)
    assert store.pages("a") == tuple(p for p, _ in given_)
    assert damage(store) == []


@st.composite
def block_lists(draw: st.DrawFn, words: int = 6) -> tuple[Block, ...]:
    indices = st.lists(st.integers(0, words - 1), max_size=words).map(tuple)
    count = draw(st.integers(0, 4))
    blocks = []
    for _ in range(count):
        inside = draw(indices)
        some = st.lists(st.sampled_from(inside), max_size=3).map(tuple) if inside else st.just(())
        places = st.integers(0, 1000)
        cells = st.builds(Cell, some, places, places, st.integers(1, 9))
        blocks.append(
            Block(
                draw(st.sampled_from(KINDS)),
                inside,
                draw(st.floats(allow_nan=False, allow_infinity=False)),
                draw(st.none() | st.integers(0, count - 1)),
                tuple(draw(st.lists(cells, max_size=4))),
                draw(st.integers(0, 5)),
            )
        )
    return tuple(blocks)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=block_lists(), later=block_lists())
def test_any_blocks_come_back(
    store: Store, first: tuple[Block, ...], later: tuple[Block, ...]
) -> None:
    for stored in store.documents():  # of the example before
        store.remove(stored.id)
    whole, bare = with_blocks(*first), page("a", 2)
    new = [(p, embedding("a", p.number, TEXT)) for p in (whole, bare)]
    put(store, document("a", 2), TEXT, new)
    assert store.pages("a") == (whole, bare)
    store.set_blocks("a", [replace(bare, blocks=later)])
    assert store.pages("a") == (whole, replace(bare, blocks=later))
    assert damage(store) == []


WRONG: dict[str, list[Block]] = {
    "words .* range: 6": [Block("sentence", (6,), 10.0)],
    "words .* range: -1": [Block("sentence", (-1,), 10.0)],
    "heading .* range: 1": [Block("sentence", (0,), 10.0, heading=1)],
    "size .* nan": [Block("sentence", (0,), float("nan"))],
    "a cell .* words": [Block("table", (0, 1), 10.0, cells=(Cell((2,), 0, 0),))],
    "columns .* range: -1": [Block("table", (0,), 10.0, cells=(Cell((0,), 0, -1),))],
    "kind 'poem'": [Block("poem", (0,), 10.0)],  # type: ignore[arg-type]
}


@pytest.mark.parametrize("reason", WRONG)
def test_wrong_blocks_are_refused(store: Store, reason: str) -> None:
    wrong = with_blocks(*WRONG[reason])
    with pytest.raises(StoreError, match=f"page 1 has .*{reason}"):
        put(store, document("a", 1), TEXT, [(wrong, embedding("a", 1, TEXT))])
    add(store, "a")
    with pytest.raises(StoreError, match=f"page 1 has .*{reason}"):
        store.set_blocks("a", [wrong])
    assert store.pages("a", [1]) == (page("a", 1),)


def write_blocks(store: Store, number: int, text: str) -> None:
    """Write anything as the blocks of a page of "a"."""
    if hasattr(store, "folder"):
        connection = sqlite3.connect(store.folder / "index.sqlite")
        connection.execute("UPDATE pages SET blocks = ? WHERE number = ?", (text, number))
        connection.commit()
        connection.close()
    else:
        assert hasattr(store, "rows")
        where = f"kind = 'page' AND number = {number}"
        store.rows._table.update(where=where, values={"blocks": text})


def as_stored(blocks: str) -> str:
    return f"[{crc32(blocks.encode())},{blocks}]"


DAMAGED = {
    "no JSON": "[1,[[",
    "null": "null",
    "a number": "7",
    "no list": as_stored("5"),
    "another checksum": "[1,[]]",
    "a field is missing": as_stored('[["sentence",[0],10.0,null,[]]]'),
    "a word too many": as_stored('[["sentence",[6],10.0,null,[],0]]'),
    "a word that is text": as_stored('[["sentence",["0"],10.0,null,[],0]]'),
    "a heading that is not there": as_stored('[["sentence",[0],10.0,1,[],0]]'),
    "a size that is text": as_stored('[["sentence",[0],"x",null,[],0]]'),
    "a cell outside": as_stored('[["table",[0],10.0,null,[[[1],0,0,1]],0]]'),
    "a cell without span": as_stored('[["table",[0],10.0,null,[[[0],0,0,0]],0]]'),
}


def test_damaged_blocks_are_said_to_be_damaged(store: Store, kind: str) -> None:
    add(store, "a")
    for what, text in DAMAGED.items():
        write_blocks(store, 3, text)
        fresh = open_kind(kind, store.location)
        with pytest.raises(StoreError, match=r"damaged at a\.pdf .*page"):
            fresh.pages("a", [3])
        assert fresh.pages("a", [1]) == (page("a", 1),)
        (problem,) = fresh.verify()
        assert (problem.kind, problem.document) == ("damage", "a"), what
        assert problem.what.startswith("page 3 "), what
        fresh.close()


def test_a_kind_of_a_newer_version_is_no_damage(store: Store) -> None:
    add(store, "a")
    write_blocks(store, 1, as_stored('[["poem",[0],10.0,null,[],0]]'))
    with pytest.raises(StoreError, match=r"page 1 has a block of the kind 'poem'.*upgrade"):
        store.pages("a")
    (problem,) = store.verify()
    assert "'poem'" in problem.what


# Pages that were stored without blocks.


def test_blocks_of_stored_pages_are_kept(store: Store, kind: str) -> None:
    stored = add(store, "a")
    add(store, "b")
    beside = open_kind(kind, store.location)
    bare, expected = beside.pages("a"), state(store)
    assert without_blocks(store) == expected
    whole = tuple(laid_out(p) for p in bare)
    store.set_blocks("a", [whole[2], whole[0]])
    assert store.pages("a") == (whole[0], bare[1], whole[2])
    store.set_blocks("a", whole)
    assert store.pages("a") == whole
    fresh = open_kind(kind, store.location)
    assert fresh.pages("a") == whole
    # All else is as it was: when it was added, vectors, words, other documents.
    assert (store.get("a"), store.get("a").added) == (stored, stored.added)
    assert without_blocks(store) == expected
    assert store.verify() == []
    beside.close()
    fresh.close()


def test_blocks_are_written_once(store: Store) -> None:
    add(store, "a")
    first = replace(page("a", 1), blocks=(Block("item", (0, 1), 9.0),))
    store.set_blocks("a", [first])
    store.set_blocks("a", [laid_out(page("a", 1))])
    assert store.pages("a", [1]) == (first,)


def test_blocks_of_pages_that_are_not_there_any_more(store: Store) -> None:
    add(store, "a")
    mine = laid_out(page("a", 1))
    store.set_blocks("a", [laid_out(page("b", 1)), replace(laid_out(page("a", 3)), number=9)])
    assert store.pages("a", [1]) == (page("a", 1),)
    store.remove("a")
    store.set_blocks("a", [mine])
    store.set_blocks("never", [mine])
    assert store.documents() == []
    # It comes back with other words.
    put(store, document("a"), TEXT, items("other", 3, TEXT))
    store.set_blocks("a", [mine])
    assert store.pages("a") == tuple(p for p, _ in items("other", 3, TEXT))
    assert damage(store) == []


def test_compacting_keeps_blocks(store: Store, kind: str) -> None:
    add(store, "a")
    store.set_blocks("a", [laid_out(p) for p in store.pages("a")])
    expected = state(store)
    compact_now(store)
    again = open_kind(kind, store.location)
    assert state(again) == state(store) == expected
    assert again.verify() == []
    again.close()


def test_processes_lay_out_the_same_pages(kind: str, index: Path, workers: Workers) -> None:
    store = open_kind(kind, index)
    for id_ in ("a", "b", "c"):
        add(store, id_)
    before = state(store)
    store.close()
    workers.run("together", kind, index, "lay_out", "lay_out", "write:d", "lay_out")
    store = open_kind(kind, index)
    for id_ in ("a", "b", "c"):
        assert store.pages(id_) == tuple(laid_out(p) for p, _ in items(id_, 3, TEXT))
    assert {id_: without_blocks(store)[id_] for id_ in before} == before
    assert damage(store) == []
    store.close()


def test_a_page_without_blocks_has_the_checksum_it_always_had() -> None:
    # As the version before computed them.
    assert page_values(page("a", 1))[-1] == 3635862177
    assert page_values(page("a", 2, 0))[-1] == 281668001
