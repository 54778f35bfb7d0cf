"""Test the LanceDB store: its catalog, errors, cache, and indexes in object storage."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage import Reads
from tests.storage import bucket as bucket
from tests.storage import reads as reads
from tests.store.conftest import Workers
from tests.store.samples import (
    IMAGE,
    TEXT,
    add,
    compact_now,
    damage,
    document,
    interrupt,
    items,
    put,
    state,
    unfinished,
)
from visar.errors import MissingExtra, NotAnIndex, StoreError
from visar.results import EncoderRef
from visar.store import open_store
from visar.store.lance.catalog import (
    Catalog,
    DocumentState,
    Draft,
    Entry,
    Rows,
    Vectors,
    find_droppable,
)

lancedb = pytest.importorskip("lancedb")
if TYPE_CHECKING:
    from visar.store.lance.store import LanceStore

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def kind() -> str:
    return "lance"


@pytest.fixture
def lance(index: Path) -> LanceStore:
    from visar.store.lance.store import LanceStore

    return LanceStore.open(index)


# The log.


def document_state(id_: str, source: str, order: int) -> DocumentState:
    rows = Rows(f"pages-{order}", [order], [0], [0], [])
    vectors = Vectors(f"vectors-{order}", [order], [0], [0], [], "1", 8)
    added = (START + timedelta(minutes=order)).isoformat()
    return DocumentState(id_, source, source, 1, added, rows, {"text": vectors}, {}, [], None)


@st.composite
def logs(draw: st.DrawFn, first: int = 0) -> list[Entry]:
    """Draw a log of concurrent writers."""
    log: list[Entry] = []
    for order in range(first, first + draw(st.integers(0, 10))):
        id_ = draw(st.sampled_from("abc"))
        content: DocumentState | Draft | None = None
        kind = draw(st.sampled_from(["document", "document", "removed", "draft"]))
        if kind == "document":
            content = document_state(id_, draw(st.sampled_from(["x", "y", ""])), order)
        elif kind == "draft":
            revision = f"vectors-{draw(st.integers(0, 12))}"
            content = Draft(revision, TEXT, "pages", True, draw(st.booleans()))
        log.append(
            Entry(
                document=id_,
                content=content,
                seen=draw(st.integers(-1, order - 1)),
                uid=str(order),
                recorded=START + timedelta(minutes=order),
                order=order,
            )
        )
    return log


@given(logs(), st.randoms(use_true_random=False), st.integers(0, 10))
def test_catalog_does_not_depend_on_the_order_of_reading(
    log: list[Entry], chance: random.Random, cut: int
) -> None:
    shuffled = list(log)
    chance.shuffle(shuffled)
    whole = Catalog().after(log)
    assert Catalog().after(shuffled) == whole
    assert Catalog().after(log[:cut]).after(log[cut:]) == whole


@given(logs(), st.integers(0, 11), st.sets(st.sampled_from([f"vectors-{i}" for i in range(13)])))
def test_dropping_entries_does_not_change_the_catalog(
    log: list[Entry], minute: int, kept: set[str]
) -> None:
    dropped = find_droppable(log, START + timedelta(minutes=minute), kept)
    assert all(entry.recorded < START + timedelta(minutes=minute) for entry in dropped)
    before, after = Catalog().after(log), Catalog().after(e for e in log if e not in dropped)
    assert after.live == before.live
    assert before.drafts.keys() & kept <= after.drafts.keys()


@given(logs())
def test_a_source_has_at_most_one_document(log: list[Entry]) -> None:
    live = Catalog().after(log).live
    sources = [state.source for state in live.values() if state.source]
    assert len(set(sources)) == len(sources)
    assert all(state.id == id_ for id_, state in live.items())
    assert [state.added for state in live.values()] == sorted(s.added for s in live.values())


@given(logs(), logs(20))
def test_unused_rows_are_never_needed_again(log: list[Entry], later: list[Entry]) -> None:
    # Writers delete the rows that they have replaced.
    unused, catalog = set[str](), Catalog()
    for entry in log:
        after = catalog.after([entry])
        unused |= catalog.revisions() - after.revisions()
        catalog = after
    assert not unused & catalog.after(later).revisions()


@given(logs())
def test_late_entry_is_rejected(log: list[Entry]) -> None:
    before = Catalog().after(log)
    late = Entry(document="a", content=document_state("a", "z", 50), seen=-1, order=50)
    after = before.after([late])
    changed = any(e.document == "a" and not isinstance(e.content, Draft) for e in log)
    if "a" in before.live or (changed and late.uid in after.rejected):
        assert after.live == before.live
    # An entry is accepted if its writer has read the whole log.
    accepted = before.after([replace(late, seen=before.seen)])
    assert accepted.live["a"].source == "z"
    assert late.uid not in accepted.rejected


# Locations that aren't an index.


def test_other_lancedb_database_is_not_opened(index: Path) -> None:
    lancedb.connect(index).create_table("people", [{"name": "Ada"}])
    with pytest.raises(NotAnIndex, match="'people'"):
        open_lance(index)


@pytest.mark.parametrize("version", ["1", "4"])
def test_unknown_format_is_not_opened(index: Path, version: str) -> None:
    import pyarrow as pa

    schema = pa.schema([("uid", pa.string())], metadata={"visar.format": version})
    lancedb.connect(index).create_table("catalog", schema=schema)
    with pytest.raises(NotAnIndex, match=rf"\b{version}\b"):
        open_lance(index)


def open_lance(location: str | Path) -> LanceStore:
    from visar.store.lance.store import LanceStore

    return LanceStore.open(location)


def test_interrupted_creation_of_an_index_is_completed(index: Path) -> None:
    from visar.store.lance.store import LanceStore

    open_lance(index)
    lancedb.connect(index).drop_table("catalog")  # created last
    with pytest.raises(NotAnIndex):
        LanceStore.open(index, create=False)
    store = open_lance(index)
    add(store, "a")
    assert store.verify() == []


def test_error_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingExtra, match=r"visar-rag\[cloud\]"):
        open_store("s3://bucket/index")


def test_importing_stores_does_not_import_lancedb() -> None:
    # Importing LanceDB takes seconds, and an index in a folder doesn't need it.
    code = (
        "import sys, visar.store.lance.store, visar.store.sqlite; "
        "sys.exit('lancedb' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Orphans, the cache and files.


def test_silent_addition_counts_as_dead(lance: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visar.store.lance.addition.FLUSH_BYTES", 0)
    addition = lance.adding(document("a"), TEXT)
    first, second, third = items("a", 3, TEXT)
    addition.put(*first)
    addition.put(*second)
    # Another addition can resume it immediately, but doesn't delete its rows.
    assert unfinished(lance, "a") == {1, 2}
    assert lance.compact().pages == 2  # the copies of the other addition
    assert lance.verify() == []
    lance.grace = timedelta(0)
    assert {problem.kind for problem in lance.verify()} == {"orphan"}
    assert lance.compact().pages == 2
    # The addition was alive. It must not commit half a document.
    addition.put(*third)
    with pytest.raises(StoreError, match=r"a\.pdf"):
        addition.commit()
    assert lance.documents() == []
    add(lance, "a")
    assert damage(lance) == []


def test_recently_used_pages_are_cached(lance: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    blobs = lance.rows.blobs

    def counted(ids: Sequence[int]) -> Iterator[bytes]:
        read.extend(ids)
        return blobs(ids)

    monkeypatch.setattr(lance.rows, "blobs", counted)

    def pages_read(action: Callable[[], object]) -> int:
        read.clear()
        action()
        return len(read)

    for name in "abc":
        add(lance, name)
    assert pages_read(lambda: lance.embeddings([("b", 3), ("a", 1)], TEXT)) == 2
    assert pages_read(lambda: lance.embeddings([("a", 1), ("a", 2)], TEXT)) == 1
    assert pages_read(lambda: lance.vectors("a", TEXT)) == 1
    assert pages_read(lambda: lance.vectors("a", TEXT)) == 0
    # The cache keeps as many recently used pages as fit.
    monkeypatch.setattr("visar.store.lance.store.CACHE_BYTES", lance._cache_size)
    assert pages_read(lambda: lance.vectors("c", TEXT)) == 3
    assert pages_read(lambda: lance.vectors("c", TEXT)) == 0
    assert pages_read(lambda: lance.embeddings([("b", 3)], TEXT)) == 1
    # Pages that another process replaced are read again.
    other = open_lance(lance.location)
    other.remove("c")
    put(other, document("c"), TEXT, items("other", 3, TEXT))
    assert pages_read(lambda: lance.vectors(lance.get("c").id, TEXT)) == 3
    monkeypatch.setattr("visar.store.lance.store.CACHE_BYTES", 0)
    lance.vectors("b", TEXT)
    assert lance._cache == {}
    assert lance._cache_size == 0


def test_catalog_is_compacted(lance: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Opening an index reads the whole catalog, which hundreds of tiny files would slow down.
    monkeypatch.setattr("visar.store.lance.store.COMPACT_EVERY", 3)
    for number in range(8):
        add(lance, str(number))
    fragments = lance.log.table._table.stats()["fragment_stats"]["num_fragments"]
    assert fragments <= 4
    assert len(open_lance(lance.location).documents()) == 8


def test_row_ids_survive_compaction(lance: LanceStore) -> None:
    # The catalog refers to row ids, so they must not change when rows move.
    for number in range(5):
        add(lance, str(number), IMAGE)
    before = state(lance)
    compact_now(lance)
    assert lance.rows._table.stats()["fragment_stats"]["num_fragments"] == 1
    add(lance, "after", IMAGE)
    compact_now(lance)
    assert {id_: seen for id_, seen in state(lance).items() if id_ != "after"} == before
    assert lance.verify() == []


def test_original_cannot_escape_its_folder(lance: LanceStore, tmp_path: Path) -> None:
    # A shared index may have been manipulated.
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    add(lance, "a", original=file)

    def escape(known: DocumentState | None) -> DocumentState:
        assert known is not None
        assert known.original is not None
        return known.with_values(original=replace(known.original, notes=[(1, "../../../escaped")]))

    lance.change(["a"], escape)
    with pytest.raises(StoreError):
        lance.original("a")
    assert not list(tmp_path.rglob("escaped"))


# Object storage.


def test_index_in_object_storage(bucket: str, tmp_path: Path) -> None:
    location = f"{bucket}/one"
    with pytest.raises(NotAnIndex, match="s3://visar/one"):
        open_store(location, create=False)
    store = open_store(location)
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    add(store, "a", original=file)
    add(store, "old", source="/files/x.pdf")
    add(store, "new", source="/files/x.pdf")
    add(store, "a", IMAGE)
    interrupt(store, "half", [1, 2])
    store.set_metadata("a", {"year": 2026})
    store.collect("some", ["a", "new"])
    again = open_store(location, create=False)
    assert [stored.id for stored in again.documents()] == ["a", "new"]
    assert again.get("a").metadata == {"year": 2026}
    assert state(again) == state(store)
    assert unfinished(again, "half") == {1, 2}
    add(again, "half")
    store.remove("new")
    compact_now(again)
    assert [stored.id for stored in store.documents(collection="some")] == ["a"]
    assert store.pages("half") == tuple(page for page, _ in items("half", 3, TEXT))
    assert store.verify() == again.verify() == []


def test_processes_add_the_same_documents_to_object_storage(bucket: str, tmp_path: Path) -> None:
    workers = Workers("lance", tmp_path / "errors")
    workers.run("together", "lance", f"{bucket}/many", "same:x", "same:y", "same:y")
    workers.close()
    store = open_store(f"{bucket}/many", create=False)
    assert [stored.encoders for stored in store.documents()] == [
        (EncoderRef("x", "1", 4), EncoderRef("y", "1", 4))
    ] * 2
    assert damage(store) == []


def test_adding_a_document_does_not_slow_down(bucket: str, reads: Reads) -> None:
    # A commit must not read the rows of all earlier documents.
    store = open_store(f"{bucket}/growing")
    requests = []
    for number in range(8):
        reads.reset()
        add(store, str(number))
        requests.append(reads.requests)
    assert requests[-1] <= requests[1]


def test_rows_are_found_after_earlier_rows_were_deleted(lance: LanceStore) -> None:
    # The commit first scans only rows that were added since the addition started.
    add(lance, "before")
    addition = lance.adding(document("a"), TEXT)
    lance.remove("before")
    for page, embedding in items("a", 3, TEXT):
        addition.put(page, embedding)
    assert addition.commit().id == "a"
    assert lance.verify() == []


def test_vectors_without_summaries_can_be_searched(lance: LanceStore) -> None:
    # Older versions wrote vectors without summaries.
    add(lance, "a")
    assert lance.summaries("a", TEXT) is not None
    lance.rows._table.update(where="kind = 'vectors'", values={"content": None})
    assert lance.summaries("a", TEXT) is None
