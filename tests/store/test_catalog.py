"""What counts must not depend on the order of the log, nor on when it was cleaned up."""

from __future__ import annotations

import random
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


def document(id_: str, source: str, revision: str, sequence: int) -> DocumentEntry:
    return DocumentEntry(
        document=id_,
        sequence=sequence,
        recorded=START + timedelta(minutes=sequence),
        name=source,
        source=source,
        pages=1,
        size=1,
        added=START + timedelta(minutes=sequence),
        revision=revision,
        rows=(0,),
        checksum=0,
    )


def vectors(id_: str, revision: str, pages_revision: str, sequence: int) -> VectorsEntry:
    return VectorsEntry(
        document=id_,
        sequence=sequence,
        recorded=START + timedelta(minutes=sequence),
        encoder=TEXT,
        revision=revision,
        pages_revision=pages_revision,
        rows=(0,),
        firsts=(1,),
        lengths=(1,),
    )


def removed(id_: str, revision: str, sequence: int) -> RemovedEntry:
    recorded = START + timedelta(minutes=sequence)
    return RemovedEntry(document=id_, sequence=sequence, recorded=recorded, revision=revision)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Anything that any number of racing writers could write."""
    log: list[Entry] = []
    for sequence in draw(st.lists(st.integers(1, 6), max_size=12)):
        id_ = draw(st.sampled_from("ab"))
        revision = f"{id_}{draw(st.integers(1, 2))}"
        kind = draw(st.sampled_from(["document", "vectors", "removed"]))
        if kind == "document":
            log.append(document(id_, draw(st.sampled_from(["x", "y", ""])), revision, sequence))
        elif kind == "vectors":
            log.append(vectors(id_, f"v{len(log)}", revision, sequence))
        else:
            log.append(removed(id_, revision, sequence))
    return log


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_reading_does_not_matter(log: list[Entry], chance: random.Random) -> None:
    shuffled = list(log)
    chance.shuffle(shuffled)
    assert fold(shuffled) == fold(log)


@given(logs(), st.integers(0, 7))
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


@given(logs())
def test_a_removed_revision_never_comes_back(log: list[Entry]) -> None:
    # Its rows are deleted: an entry that a slower process still writes about it must not count.
    catalog = fold([*log, removed("a", "a1", 1)])
    assert "a1" not in catalog.pages_revisions()
    late = document("a", "z", "a1", catalog.next_sequence)
    assert "a1" not in fold([*log, removed("a", "a1", 1), late]).pages_revisions()


@given(logs())
def test_a_new_document_counts_at_once(log: list[Entry]) -> None:
    sequence = fold(log).next_sequence
    assert "c" in fold([*log, document("c", "x", "c1", sequence)]).live


def test_old_vectors_do_not_count_for_new_pages() -> None:
    log = [document("a", "x", "a1", 1), vectors("a", "v1", "a1", 1), document("a", "x", "a2", 2)]
    assert fold(log).live["a"].vectors == {}


def test_moving_keeps_everything_but_the_place() -> None:
    entry = document("a", "x", "a1", 1)
    log = [entry, vectors("a", "v1", "a1", 1), relocated(entry, "new name", "y", 2)]
    live = fold(log).live["a"]
    assert (live.entry.name, live.entry.source, live.entry.added) == ("new name", "y", entry.added)
    assert live.vectors.keys() == {"text"}
