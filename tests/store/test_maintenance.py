"""Verify names every kind of damage and changes nothing; compact drops only what is not needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lancedb
import pytest

from tests.store.samples import IMAGE, TEXT, Item, add, document, items, state
from visar.errors import StoreError
from visar.store import EncoderRef, Store
from visar.store import writing as store_writing
from visar.store.catalog import DocumentEntry, VectorsEntry
from visar.store.rows import PAGE_COLUMNS


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "index", cache_bytes=0)
    add(store, "good")
    add(store, "bad")
    return store


def bad_revision(store: Store) -> str:
    return store._log.read().live["bad"].entry.revision


def lose_a_page(store: Store) -> None:
    store._tables.pages.delete(f"revision = '{bad_revision(store)}' AND number = 2")


def lose_the_vectors(store: Store) -> None:
    store._tables.vectors.delete(f"revision = '{bad_revision(store)}'")


def change_a_page(store: Store) -> None:
    table = lancedb.connect(store.location).open_table("pages")
    table.update(where=f"revision = '{bad_revision(store)}' AND number = 1", values={"width": 1.0})


def double_a_page(store: Store) -> None:
    pages = store._tables.pages
    columns = ("revision", "document", "written", *PAGE_COLUMNS)
    where = f"revision = '{bad_revision(store)}' AND number = 1"
    pages.append(
        [{k: v for k, v in r.items() if k != "_rowid"} for r in pages.scan(columns, where)]
    )


def flip_a_byte(store: Store) -> None:
    """In the file of the vectors added last, past the header of the block."""
    files = (Path(store.location) / "vectors.lance").rglob("*.lance")
    newest = max((f for f in files if f.parent.name == "data"), key=lambda f: f.stat().st_mtime_ns)
    header = bytes.fromhex(bad_revision(store))
    content = bytearray(newest.read_bytes())
    content[content.index(header) + 40] ^= 1
    newest.write_bytes(content)


def rewrite(store: Store, **changes: object) -> None:
    """Commit a wrong entry over the right one."""
    live = store._log.read().live["bad"]
    entry: DocumentEntry | VectorsEntry = live.vectors["text"]
    if changes.keys() & {"checksum", "pages"}:
        entry = live.entry
    store._log.append([replace(entry, uid="f" * 32, **changes)])  # type: ignore[arg-type]


DAMAGES: dict[str, tuple[Callable[[Store], None], str]] = {
    "page lost": (lose_a_page, "page 2 is missing"),
    "vectors lost": (lose_the_vectors, "vectors of text: pages 1 to 3 are missing"),
    "page changed": (change_a_page, "page 1 has a wrong checksum"),
    "page doubled": (double_a_page, "page 1 is there twice"),
    "byte flipped": (flip_a_byte, "pages 1 to 3 have a wrong checksum"),
    "page count": (lambda s: rewrite(s, pages=4), "3 of 4 pages are named"),
    "other pages": (lambda s: rewrite(s, checksum=1), "the pages are not those that were added"),
    "lengths": (lambda s: rewrite(s, lengths=(3, 1, 4)), "do not have the lengths"),
    "dimension": (lambda s: rewrite(s, encoder=EncoderRef("text", "1", 16)), "have 8 dimensions"),
    "blocks": (lambda s: rewrite(s, rows=(), firsts=()), "the catalog contradicts itself"),
    "order": (lambda s: rewrite(s, rows=(1, 1), firsts=(1, 1)), "the catalog contradicts itself"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_named(store: Store, damage: str) -> None:
    harm, expected = DAMAGES[damage]
    harm(store)
    problems = Store.open(store.location).verify()
    assert any(p.kind == "damage" and expected in p.what for p in problems), problems
    assert {problem.document for problem in problems} == {"bad"}


def test_reading_what_is_lost_says_so(store: Store) -> None:
    lose_a_page(store)
    with pytest.raises(StoreError, match=r"damaged at bad\.pdf \(bad\).*add it again"):
        store.pages("bad")
    assert len(store.pages("bad", [1, 3])) == 2
    lose_the_vectors(store)
    with pytest.raises(StoreError, match=r"damaged at bad\.pdf"):
        store.vectors("bad", TEXT)
    # And the advice helps.
    store.remove("bad")
    add(store, "bad")
    assert store.verify() == []


def test_a_block_of_another_revision_is_never_taken(store: Store) -> None:
    good = store._log.read().live["good"].vectors["text"]
    rewrite(store, rows=good.rows)
    with pytest.raises(StoreError, match="belongs to another revision"):
        store.vectors("bad", TEXT)


def test_unreadable_files_are_reported(store: Store) -> None:
    # As left by a disk that lost them, or by somebody who cleaned up in the wrong place.
    for file in (Path(store.location) / "pages.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    fresh = Store.open(store.location)
    problems = fresh.verify()
    assert {problem.document for problem in problems} == {"", "good", "bad"}
    assert all(problem.kind == "damage" for problem in problems)
    with pytest.raises(StoreError, match="damaged at good"):
        fresh.pages("good")
    assert len(fresh.vectors("good", TEXT).vectors) == 8


def test_verify_changes_nothing(store: Store) -> None:
    lose_a_page(store)
    leave_unfinished(store)
    tables = (store._tables.catalog, store._tables.pages, store._tables.vectors)
    versions = [table.version for table in tables]
    files = {f: f.stat().st_mtime_ns for f in Path(store.location).rglob("*")}
    assert len(store.verify()) == 3
    assert [table.version for table in tables] == versions
    assert {f: f.stat().st_mtime_ns for f in Path(store.location).rglob("*")} == files


def leave_unfinished(store: Store) -> None:
    with pytest.raises(StoreError, match="were not given"):
        store.add(document("half"), TEXT, items("half", 3, TEXT, [1, 2]))


def test_compact_drops_orphans_but_not_those_of_a_write_going_on(store: Store) -> None:
    leave_unfinished(store)
    store.remove("bad")
    before = state(store)
    orphans = store.verify()
    assert {(problem.kind, problem.document) for problem in orphans} == {("orphan", "half")}

    kept = store.compact()  # within the grace, somebody may still be at work
    assert (kept.pages, kept.blocks, kept.entries) == (0, 0, 0)
    assert store.unfinished("half", TEXT) == {1, 2}

    time.sleep(0.01)
    dropped = store.compact(grace=timedelta(milliseconds=1))
    assert (dropped.pages, dropped.blocks) == (2, 1)
    assert dropped.entries == 3  # the document, its vectors, its removal
    assert store.verify() == []
    assert store.unfinished("half", TEXT) == frozenset()
    assert state(store) == state(Store.open(store.location)) == before


def test_compacting_merges_files_and_rows_are_found_again(store: Store) -> None:
    # Row ids are named in the catalog: they must outlive the move of the rows.
    for number in range(5):
        add(store, str(number), IMAGE)
    before = state(store)
    assert store._tables.vectors.fragments == 7
    store.compact()
    assert store._tables.vectors.fragments == store._tables.pages.fragments == 1
    assert state(store) == before
    add(store, "after", IMAGE)
    store.compact()
    assert store.verify() == []
    assert len(state(store)) == len(before) + 1


def test_a_writer_whose_rows_were_dropped_does_not_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compacting with too short a grace is a mistake, but must not leave half a document.
    monkeypatch.setattr(store_writing, "FLUSH_BYTES", 1)

    def given() -> Iterator[Item]:
        first, second, third = items("new", 3, TEXT)
        yield first
        time.sleep(0.01)
        Store.open(store.location).compact(grace=timedelta(milliseconds=1))
        yield second
        yield third

    with pytest.raises(StoreError, match=r"rows of new\.pdf vanished"):
        store.add(document("new"), TEXT, given())
    assert [d.id for d in store.documents()] == ["good", "bad"]
