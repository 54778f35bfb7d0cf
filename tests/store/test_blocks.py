"""Test that both stores save the blocks of pages."""

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
    open_kind,
    page,
    put,
    state,
    with_layout,
    without_blocks,
)
from visar.documents.page import Block, BlockKind, Cell, Page
from visar.errors import StoreError
from visar.store import Store
from visar.store.pages import page_to_row_values

KINDS: list[BlockKind] = [
    *("sentence", "heading", "item", "caption"),
    *("table", "label", "contents", "margin"),
]


def with_blocks(*blocks: Block) -> Page:
    """Return the first page of "a", which has six words, with these blocks."""
    return replace(page("a", 1), blocks=blocks)


def test_blocks_round_trip(store: Store, kind: str) -> None:
    pages = [with_layout(p) for p, _ in items("a", 3, TEXT)]
    assert [block.kind for block in pages[0].blocks or ()] == ["heading", "table"]
    assert pages[1].blocks == ()
    pages[2] = replace(pages[2], blocks=None)
    new_items = [(p, embedding("a", p.number, TEXT, len(p.words))) for p in pages]
    put(store, document("a"), TEXT, new_items)
    again = open_kind(kind, store.location, create=False)
    assert store.pages("a") == again.pages("a") == tuple(pages)
    assert store.verify() == []
    again.close()


@pytest.mark.usefixtures("flush_every_page")
def test_resumed_addition_keeps_blocks(store: Store) -> None:
    new_items = [(with_layout(p), e) for p, e in items("a", 3, TEXT)]
    with store.adding(document("a"), TEXT) as addition:
        for item in new_items[:2]:
            addition.put(*item)
    put(store, document("a"), TEXT, new_items)
    assert store.pages("a") == tuple(p for p, _ in new_items)
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
def test_any_blocks_round_trip(
    store: Store, first: tuple[Block, ...], later: tuple[Block, ...]
) -> None:
    for stored in store.documents():  # from the previous example
        store.remove(stored.id)
    whole, bare = with_blocks(*first), page("a", 2)
    new = [(p, embedding("a", p.number, TEXT)) for p in (whole, bare)]
    put(store, document("a", 2), TEXT, new)
    assert store.pages("a") == (whole, bare)
    store.set_blocks("a", [replace(bare, blocks=later)])
    assert store.pages("a") == (whole, replace(bare, blocks=later))
    assert damage(store) == []


INVALID: dict[str, list[Block]] = {
    "6": [Block("sentence", (6,), 10.0)],
    "-1": [Block("sentence", (-1,), 10.0)],
    "heading.*1": [Block("sentence", (0,), 10.0, heading=1)],
    "nan": [Block("sentence", (0,), float("nan"))],
    "cell": [Block("table", (0, 1), 10.0, cells=(Cell((2,), 0, 0),))],
    "column.*-1": [Block("table", (0,), 10.0, cells=(Cell((0,), 0, -1),))],
    "'poem'": [Block("poem", (0,), 10.0)],  # type: ignore[arg-type]
}


@pytest.mark.parametrize("reason", INVALID)
def test_invalid_blocks_raise_store_error(store: Store, reason: str) -> None:
    wrong = with_blocks(*INVALID[reason])
    with pytest.raises(StoreError, match=f"(?i)page 1.*{reason}"):
        put(store, document("a", 1), TEXT, [(wrong, embedding("a", 1, TEXT))])
    add(store, "a")
    with pytest.raises(StoreError, match=f"(?i)page 1.*{reason}"):
        store.set_blocks("a", [wrong])
    assert store.pages("a", [1]) == (page("a", 1),)


def write_blocks(store: Store, number: int, text: str) -> None:
    """Overwrite the blocks of a page of "a" with any text."""
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
    "not JSON": "[1,[[",
    "null": "null",
    "a number": "7",
    "not a list": as_stored("5"),
    "another checksum": "[1,[]]",
    "a field is missing": as_stored('[["sentence",[0],10.0,null,[]]]'),
    "a word too many": as_stored('[["sentence",[6],10.0,null,[],0]]'),
    "a word that is text": as_stored('[["sentence",["0"],10.0,null,[],0]]'),
    "a heading that is not there": as_stored('[["sentence",[0],10.0,1,[],0]]'),
    "a size that is text": as_stored('[["sentence",[0],"x",null,[],0]]'),
    "a cell outside": as_stored('[["table",[0],10.0,null,[[[1],0,0,1]],0]]'),
    "a cell without span": as_stored('[["table",[0],10.0,null,[[[0],0,0,0]],0]]'),
}


def test_damaged_blocks_are_reported(store: Store, kind: str) -> None:
    add(store, "a")
    for case, text in DAMAGED.items():
        write_blocks(store, 3, text)
        fresh = open_kind(kind, store.location)
        with pytest.raises(StoreError, match=r"a\.pdf"):
            fresh.pages("a", [3])
        assert fresh.pages("a", [1]) == (page("a", 1),)
        (problem,) = fresh.verify()
        assert (problem.kind, problem.document) == ("damage", "a"), case
        assert "page 3 " in problem.what, case
        fresh.close()


def test_unknown_block_kind_asks_for_an_upgrade(store: Store) -> None:
    add(store, "a")
    write_blocks(store, 1, as_stored('[["poem",[0],10.0,null,[],0]]'))
    with pytest.raises(StoreError, match="'poem'"):
        store.pages("a")
    (problem,) = store.verify()
    assert "'poem'" in problem.what


# Pages that were stored without blocks.


def test_set_blocks_saves_blocks_of_stored_pages(store: Store, kind: str) -> None:
    stored = add(store, "a")
    add(store, "b")
    beside = open_kind(kind, store.location)
    bare, expected = beside.pages("a"), state(store)
    assert without_blocks(store) == expected
    whole = tuple(with_layout(p) for p in bare)
    store.set_blocks("a", [whole[2], whole[0]])
    assert store.pages("a") == (whole[0], bare[1], whole[2])
    store.set_blocks("a", whole)
    assert store.pages("a") == whole
    fresh = open_kind(kind, store.location)
    assert fresh.pages("a") == whole
    # Nothing else has changed: the time of the addition, vectors, words, other documents.
    assert (store.get("a"), store.get("a").added) == (stored, stored.added)
    assert without_blocks(store) == expected
    assert store.verify() == []
    beside.close()
    fresh.close()


def test_set_blocks_does_not_replace_blocks(store: Store) -> None:
    add(store, "a")
    first = replace(page("a", 1), blocks=(Block("item", (0, 1), 9.0),))
    store.set_blocks("a", [first])
    store.set_blocks("a", [with_layout(page("a", 1))])
    assert store.pages("a", [1]) == (first,)


def test_set_blocks_ignores_missing_and_changed_pages(store: Store) -> None:
    add(store, "a")
    mine = with_layout(page("a", 1))
    store.set_blocks("a", [with_layout(page("b", 1)), replace(with_layout(page("a", 3)), number=9)])
    assert store.pages("a", [1]) == (page("a", 1),)
    store.remove("a")
    store.set_blocks("a", [mine])
    store.set_blocks("never", [mine])
    assert store.documents() == []
    # The document is added again with other words.
    put(store, document("a"), TEXT, items("other", 3, TEXT))
    store.set_blocks("a", [mine])
    assert store.pages("a") == tuple(p for p, _ in items("other", 3, TEXT))
    assert damage(store) == []


def test_compacting_keeps_blocks(store: Store, kind: str) -> None:
    add(store, "a")
    store.set_blocks("a", [with_layout(p) for p in store.pages("a")])
    expected = state(store)
    compact_now(store)
    again = open_kind(kind, store.location)
    assert state(again) == state(store) == expected
    assert again.verify() == []
    again.close()


def test_processes_set_blocks_of_the_same_pages(kind: str, index: Path, workers: Workers) -> None:
    store = open_kind(kind, index)
    for id_ in ("a", "b", "c"):
        add(store, id_)
    before = state(store)
    store.close()
    workers.run("together", kind, index, "lay_out", "lay_out", "write:d", "lay_out")
    store = open_kind(kind, index)
    for id_ in ("a", "b", "c"):
        assert store.pages(id_) == tuple(with_layout(p) for p, _ in items(id_, 3, TEXT))
    assert {id_: without_blocks(store)[id_] for id_ in before} == before
    assert damage(store) == []
    store.close()


def test_checksum_of_a_page_without_blocks_is_unchanged() -> None:
    # The previous version computed these checksums.
    assert page_to_row_values(page("a", 1))[-1] == 3635862177
    assert page_to_row_values(page("a", 2, 0))[-1] == 281668001
