"""The LanceDB store: its log, what it refuses, and indexes in object storage."""

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
from visar.store.lance.catalog import Catalog, DocumentState, Draft, Entry, Rows, Vectors, droppable

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
    """Anything that any number of racing writers could write."""
    log: list[Entry] = []
    for order in range(first, first + draw(st.integers(0, 10))):
        id_ = draw(st.sampled_from("abc"))
        content: DocumentState | Draft | None = None
        what = draw(st.sampled_from(["document", "document", "removed", "draft"]))
        if what == "document":
            content = document_state(id_, draw(st.sampled_from(["x", "y", ""])), order)
        elif what == "draft":
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
def test_the_order_and_the_parts_of_reading_do_not_matter(
    log: list[Entry], chance: random.Random, cut: int
) -> None:
    shuffled = list(log)
    chance.shuffle(shuffled)
    whole = Catalog().after(log)
    assert Catalog().after(shuffled) == whole
    assert Catalog().after(log[:cut]).after(log[cut:]) == whole


@given(logs(), st.integers(0, 11), st.sets(st.sampled_from([f"vectors-{i}" for i in range(13)])))
def test_dropping_entries_changes_nothing_that_counts(
    log: list[Entry], minute: int, kept: set[str]
) -> None:
    dropped = droppable(log, START + timedelta(minutes=minute), kept)
    assert all(entry.recorded < START + timedelta(minutes=minute) for entry in dropped)
    before, after = Catalog().after(log), Catalog().after(e for e in log if e not in dropped)
    assert after.live == before.live
    assert before.drafts.keys() & kept <= after.drafts.keys()


@given(logs())
def test_a_source_holds_one_document(log: list[Entry]) -> None:
    live = Catalog().after(log).live
    sources = [state.source for state in live.values() if state.source]
    assert len(set(sources)) == len(sources)
    assert all(state.id == id_ for id_, state in live.items())
    assert [state.added for state in live.values()] == sorted(s.added for s in live.values())


@given(logs(), logs(20))
def test_rows_that_are_not_needed_any_more_never_are_again(
    log: list[Entry], later: list[Entry]
) -> None:
    # A writer deletes the rows of what it has replaced.
    gone, catalog = set[str](), Catalog()
    for entry in log:
        after = catalog.after([entry])
        gone |= catalog.revisions() - after.revisions()
        catalog = after
    assert not gone & catalog.after(later).revisions()


@given(logs())
def test_whoever_comes_too_late_changes_nothing(log: list[Entry]) -> None:
    before = Catalog().after(log)
    late = Entry(document="a", content=document_state("a", "z", 50), seen=-1, order=50)
    after = before.after([late])
    changed = any(e.document == "a" and not isinstance(e.content, Draft) for e in log)
    if "a" in before.live or (changed and late.uid in after.rejected):
        assert after.live == before.live
    # Whoever has read everything is heard.
    heard = before.after([replace(late, seen=before.seen)])
    assert heard.live["a"].source == "z"
    assert late.uid not in heard.rejected


# What is refused.


def test_another_lancedb_database_is_left_alone(index: Path) -> None:
    lancedb.connect(index).create_table("people", [{"name": "Ada"}])
    with pytest.raises(NotAnIndex, match="not a ViSAR index: it has a table 'people'"):
        open_lance(index)


@pytest.mark.parametrize("found", ["1", "4"])
def test_another_format_is_refused(index: Path, found: str) -> None:
    import pyarrow as pa

    schema = pa.schema([("uid", pa.string())], metadata={"visar.format": found})
    lancedb.connect(index).create_table("catalog", schema=schema)
    with pytest.raises(NotAnIndex, match=f"has the format {found}.*add the documents again"):
        open_lance(index)


def open_lance(place: str | Path) -> LanceStore:
    from visar.store.lance.store import LanceStore

    return LanceStore.open(place)


def test_an_index_whose_making_was_interrupted_is_completed(index: Path) -> None:
    from visar.store.lance.store import LanceStore

    open_lance(index)
    lancedb.connect(index).drop_table("catalog")  # made last
    with pytest.raises(NotAnIndex, match="no index"):
        LanceStore.open(index, create=False)
    store = open_lance(index)
    add(store, "a")
    assert store.verify() == []


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingExtra, match=r"An index in object storage .*visar-rag\[cloud\]"):
        open_store("s3://bucket/index")


def test_importing_stores_does_not_import_lancedb() -> None:
    # It takes seconds, which no index in a folder must cost.
    code = (
        "import sys, visar.store.lance.store, visar.store.sqlite; "
        "sys.exit('lancedb' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Leftovers, memory, files.


def test_a_silent_addition_is_taken_for_dead_after_a_while(
    lance: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visar.store.lance.addition.FLUSH_BYTES", 0)
    addition = lance.adding(document("a"), TEXT)
    first, second, third = items("a", 3, TEXT)
    addition.put(*first)
    addition.put(*second)
    # Another one may go on from there at once, but drops nothing of it.
    assert unfinished(lance, "a") == {1, 2}
    assert lance.compact().pages == 2  # what that one has copied
    assert lance.verify() == []
    lance.grace = timedelta(0)
    assert {problem.kind for problem in lance.verify()} == {"orphan"}
    assert lance.compact().pages == 2
    # It was alive: it must not leave half a document.
    addition.put(*third)
    with pytest.raises(StoreError, match=r"rows of a\.pdf vanished"):
        addition.commit()
    assert lance.documents() == []
    add(lance, "a")
    assert damage(lance) == []


def test_pages_used_last_are_kept_in_memory(
    lance: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # Those used last stay, as many as there is room for.
    monkeypatch.setattr("visar.store.lance.store.CACHE_BYTES", lance._cached)
    assert pages_read(lambda: lance.vectors("c", TEXT)) == 3
    assert pages_read(lambda: lance.vectors("c", TEXT)) == 0
    assert pages_read(lambda: lance.embeddings([("b", 3)], TEXT)) == 1
    # What another process has replaced is read anew.
    other = open_lance(lance.location)
    other.remove("c")
    put(other, document("c"), TEXT, items("other", 3, TEXT))
    assert pages_read(lambda: lance.vectors(lance.get("c").id, TEXT)) == 3
    monkeypatch.setattr("visar.store.lance.store.CACHE_BYTES", 0)
    lance.vectors("b", TEXT)
    assert lance._cache == {}
    assert lance._cached == 0


def test_the_catalog_is_kept_short(lance: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is read whole at every start: hundreds of tiny files would make that slow.
    monkeypatch.setattr("visar.store.lance.store.COMPACT_EVERY", 3)
    for number in range(8):
        add(lance, str(number))
    fragments = lance.log.table._table.stats()["fragment_stats"]["num_fragments"]
    assert fragments <= 4
    assert len(open_lance(lance.location).documents()) == 8


def test_rows_are_found_again_after_their_files_were_merged(lance: LanceStore) -> None:
    # Row ids are named in the catalog: they must outlive the move of the rows.
    for number in range(5):
        add(lance, str(number), IMAGE)
    before = state(lance)
    compact_now(lance)
    assert lance.rows._table.stats()["fragment_stats"]["num_fragments"] == 1
    add(lance, "after", IMAGE)
    compact_now(lance)
    assert {id_: seen for id_, seen in state(lance).items() if id_ != "after"} == before
    assert lance.verify() == []


def test_an_original_never_leaves_its_folder(lance: LanceStore, tmp_path: Path) -> None:
    # Others may write to a shared index.
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    add(lance, "a", original=file)

    def escape(known: DocumentState | None) -> DocumentState:
        assert known is not None
        assert known.original is not None
        return known.changed(original=replace(known.original, notes=[(1, "../../../escaped")]))

    lance.change(["a"], escape)
    with pytest.raises(StoreError, match="outside"):
        lance.original("a")
    assert not list(tmp_path.rglob("escaped"))


# Object storage.


def test_an_index_in_object_storage(bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/one"
    with pytest.raises(NotAnIndex, match="no index at s3://visar/one"):
        open_store(place, create=False)
    store = open_store(place)
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    add(store, "a", original=file)
    add(store, "old", source="/files/x.pdf")
    add(store, "new", source="/files/x.pdf")
    add(store, "a", IMAGE)
    interrupt(store, "half", [1, 2])
    store.set_metadata("a", {"year": 2026})
    store.collect("some", ["a", "new"])
    again = open_store(place, create=False)
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


def test_the_last_document_is_added_as_the_first(bucket: str, reads: Reads) -> None:
    # A commit must not look at the rows of all documents before it.
    store = open_store(f"{bucket}/growing")
    requests = []
    for number in range(8):
        reads.reset()
        add(store, str(number))
        requests.append(reads.requests)
    assert requests[-1] <= requests[1]


def test_rows_are_found_where_others_were_deleted_meanwhile(lance: LanceStore) -> None:
    # Only rows that come after those of the beginning are looked at first.
    add(lance, "before")
    addition = lance.adding(document("a"), TEXT)
    lance.remove("before")
    for page, embedding in items("a", 3, TEXT):
        addition.put(page, embedding)
    assert addition.commit().id == "a"
    assert lance.verify() == []


def test_vectors_without_summaries_can_be_searched(lance: LanceStore) -> None:
    # As older versions have written them.
    add(lance, "a")
    assert lance.summaries("a", TEXT) is not None
    lance.rows._table.update(where="kind = 'vectors'", values={"content": None})
    assert lance.summaries("a", TEXT) is None
