"""What counts must not depend on the order of the log, nor on when it was cleaned up."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.store.samples import TEXT
from visar.store.catalog import (
    DocumentEntry,
    Entry,
    RemovedEntry,
    VectorsEntry,
    droppable,
    fold,
    relocated,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def document(id_: str, source: str, revision: str, order: int) -> DocumentEntry:
    return DocumentEntry(
        document=id_,
        order=order,
        recorded=START + timedelta(minutes=order),
        name=source,
        source=source,
        pages=1,
        size=1,
        added=START + timedelta(minutes=order),
        revision=revision,
        rows=(0,),
        checksum=0,
    )


def vectors(
    id_: str, revision: str, pages_revision: str, order: int, *abandons: str
) -> VectorsEntry:
    return VectorsEntry(
        document=id_,
        order=order,
        recorded=START + timedelta(minutes=order),
        encoder=TEXT,
        revision=revision,
        pages_revision=pages_revision,
        rows=(0,),
        firsts=(1,),
        lengths=(1,),
        abandons=abandons,
    )


def removed(id_: str, revision: str, order: int) -> RemovedEntry:
    recorded = START + timedelta(minutes=order)
    return RemovedEntry(document=id_, order=order, recorded=recorded, revision=revision)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Anything that any number of racing writers could write."""
    log: list[Entry] = []
    for order in range(draw(st.integers(0, 12))):
        id_ = draw(st.sampled_from("ab"))
        revision = f"{id_}{draw(st.integers(1, 2))}"
        kind = draw(st.sampled_from(["document", "vectors", "removed"]))
        if kind == "document":
            log.append(document(id_, draw(st.sampled_from(["x", "y", ""])), revision, order))
        elif kind == "vectors":
            others = draw(st.lists(st.sampled_from(["a1", "a2", "v1", "v2", "v7"]), max_size=2))
            log.append(vectors(id_, f"v{order}", revision, order, *others))
        else:
            log.append(removed(id_, revision, order))
    return log


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_reading_does_not_matter(log: list[Entry], chance: random.Random) -> None:
    shuffled = list(log)
    chance.shuffle(shuffled)
    assert fold(shuffled) == fold(log)


@given(logs(), st.integers(0, 13))
def test_dropping_dead_entries_changes_nothing_that_counts(log: list[Entry], minute: int) -> None:
    dropped = droppable(log, START + timedelta(minutes=minute))
    assert all(entry.recorded < START + timedelta(minutes=minute) for entry in dropped)
    rest = [entry for entry in log if entry not in dropped]
    assert fold(rest).live == fold(log).live


@given(logs())
def test_a_document_counts_once_and_a_source_holds_one(log: list[Entry]) -> None:
    live = fold(log).live
    sources = [d.entry.source for d in live.values() if d.entry.source]
    assert len(set(sources)) == len(sources)
    for id_, found in live.items():
        assert found.entry.document == id_
        assert all(v.pages_revision == found.entry.revision for v in found.vectors.values())


@given(logs(), logs())
def test_rows_once_deleted_are_never_asked_for_again(log: list[Entry], later: list[Entry]) -> None:
    # A writer deletes the rows of revisions that counted before its commit and do so no more.
    gone = set[str]()
    for end in range(len(log)):
        before, after = fold(log[:end]), fold(log[: end + 1])
        gone |= before.pages_revisions() - after.pages_revisions()
    whole = [*log, *(replace(e, order=len(log) + i) for i, e in enumerate(later))]
    assert not gone & fold(whole).pages_revisions()


@given(logs())
def test_a_slower_writer_does_not_undo_what_another_has_committed(log: list[Entry]) -> None:
    before = fold(log)
    late = [
        document("a", "z", "late", len(log)),
        vectors("a", "late-vectors", "late", len(log) + 1),
    ]
    after = fold([*log, *late])
    if "a" in before.live:
        assert after.live == before.live
    else:
        assert after.live["a"].entry.revision == "late"


@given(logs(), logs())
def test_what_is_abandoned_counts_no_more(log: list[Entry], later: list[Entry]) -> None:
    # Whoever abandons it deletes its rows when its own commit counts and those do not.
    deleted = set[str]()
    for end in range(len(log)):
        live = fold(log[: end + 1]).live.values()
        counting = {v.uid for document in live for v in document.vectors.values()}
        entry = log[end]
        if isinstance(entry, VectorsEntry) and entry.uid in counting:
            deleted |= set(entry.abandons) - set[str]().union(*(d.revisions() for d in live))
    whole = [*log, *(replace(e, order=len(log) + i) for i, e in enumerate(later))]
    for document in fold(whole).live.values():
        assert not deleted & document.revisions()


def test_a_commit_that_does_not_count_abandons_nothing() -> None:
    # Or two writers, each too late with its pages, would abandon each other's vectors.
    log: list[Entry] = [document("a", "x", "a1", 0)]
    log += [vectors("a", "v1", "late", 1, "v2"), vectors("a", "v2", "a1", 2)]
    assert fold(log).live["a"].vectors["text"].revision == "v2"


def test_another_document_from_the_same_place_replaces_the_first() -> None:
    log: list[Entry] = [document("a", "x", "a1", 0), document("b", "x", "b1", 1)]
    assert list(fold(log).live) == ["b"]
    log.append(removed("b", "b1", 2))
    assert fold(log).live == {}


def test_old_vectors_do_not_count_for_new_pages() -> None:
    log: list[Entry] = [document("a", "x", "a1", 0), vectors("a", "v1", "a1", 1)]
    log += [removed("a", "a1", 2), document("a", "x", "a2", 3)]
    assert fold(log).live["a"].vectors == {}


def test_moving_keeps_everything_but_the_place() -> None:
    entry = document("a", "x", "a1", 0)
    moved = replace(relocated(entry, "new name", "y"), order=2)
    live = fold([entry, vectors("a", "v1", "a1", 1), moved]).live["a"]
    assert (live.entry.name, live.entry.source, live.entry.added) == ("new name", "y", entry.added)
    assert live.vectors.keys() == {"text"}
