"""The catalog: a log of what was added and removed, and what of it counts now.

The log only grows by appending, which LanceDB does in one step and without conflicts between
writers; what counts is computed from it. A later entry outdoes an earlier one. Entries written
at the same moment by two processes have the same sequence number and are told apart by their
random id, so that every reader comes to the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from visar.store.records import EncoderRef, StoredDocument


def _new_uid() -> str:
    return uuid4().hex


def now() -> datetime:
    """The time in UTC, which all stored times are in."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log."""

    document: str
    sequence: int
    uid: str = field(default_factory=_new_uid)
    recorded: datetime = field(default_factory=now)

    @property
    def order(self) -> tuple[int, str]:
        """What decides which of two entries is the later one."""
        return self.sequence, self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentEntry(Entry):
    """The document is there, with the pages written under ``revision``."""

    name: str
    source: str
    pages: int
    size: int
    added: datetime
    revision: str
    rows: tuple[int, ...]
    """Row ids in the table of pages, in page order."""
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsEntry(Entry):
    """The document has vectors of an encoder, in the blocks written under ``revision``."""

    encoder: EncoderRef
    revision: str
    pages_revision: str
    """The pages they were made from; without these they count for nothing."""
    rows: tuple[int, ...]
    """Row ids of the blocks in the table of vectors, in page order."""
    firsts: tuple[int, ...]
    """The number of the first page of each block."""
    lengths: tuple[int, ...]
    """How many vectors each page has, in page order."""

    @property
    def consistent(self) -> bool:
        """Whether the blocks cover the pages from the first to the last."""
        ends = (*self.firsts[1:], len(self.lengths) + 1)
        ascending = all(first < end for first, end in zip(self.firsts, ends, strict=False))
        return len(self.rows) == len(self.firsts) and self.firsts[:1] == (1,) and ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEntry(Entry):
    """The document is gone, as far as it had the pages of ``revision``.

    Whatever else is said of that revision, before or after, counts no more: its rows are deleted
    once this entry is there. Adding the document again gives it another revision.
    """

    revision: str


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """A document that counts, with the vectors that count."""

    entry: DocumentEntry
    vectors: dict[str, VectorsEntry]
    """By encoder name."""

    def stored(self) -> StoredDocument:
        """The document as users see it."""
        encoders = tuple(self.vectors[name].encoder for name in sorted(self.vectors))
        e = self.entry
        return StoredDocument(e.document, e.name, e.source, e.pages, e.size, e.added, encoders)

    def has(self, encoder: EncoderRef) -> bool:
        """Whether it has vectors of exactly this version of the encoder."""
        vectors = self.vectors.get(encoder.name)
        return vectors is not None and vectors.encoder.version == encoder.version


@dataclass(frozen=True, slots=True)
class Catalog:
    """What of the log counts."""

    live: dict[str, LiveDocument]
    """By document id, in the order they were added."""
    dead: tuple[Entry, ...]
    next_sequence: int

    def others_at(self, source: str, document: str) -> list[LiveDocument]:
        """The document with another id that came from there: one, or none."""
        others = (d for d in self.live.values() if d.entry.document != document)
        return [d for d in others if source and d.entry.source == source]

    def pages_revisions(self) -> set[str]:
        """The revisions whose rows count in the table of pages."""
        return {d.entry.revision for d in self.live.values()}

    def vectors_revisions(self) -> set[str]:
        """The revisions whose rows count in the table of vectors."""
        return {v.revision for d in self.live.values() for v in d.vectors.values()}


def fold(log: Iterable[Entry]) -> Catalog:
    """Compute what counts, whatever order the entries come in."""
    entries = sorted(log, key=lambda entry: entry.order)
    removed = {entry.revision for entry in entries if isinstance(entry, RemovedEntry)}
    of_id: dict[str, DocumentEntry] = {}
    of_source: dict[str, DocumentEntry] = {}
    for entry in entries:
        if isinstance(entry, DocumentEntry):
            if entry.revision not in removed:
                of_id[entry.document] = entry
            if entry.source:
                of_source[entry.source] = entry
    current = [e for e in of_id.values() if of_source.get(e.source, e) is e]
    current.sort(key=lambda entry: (entry.added, entry.document))
    live = {entry.document: LiveDocument(entry, {}) for entry in current}
    for entry in entries:
        if isinstance(entry, VectorsEntry):
            document = live.get(entry.document)
            if document is not None and document.entry.revision == entry.pages_revision:
                document.vectors[entry.encoder.name] = entry
    counting = {d.entry.uid for d in live.values()}
    counting |= {v.uid for d in live.values() for v in d.vectors.values()}
    dead = tuple(entry for entry in entries if entry.uid not in counting)
    return Catalog(live, dead, entries[-1].sequence + 1 if entries else 1)


def droppable(log: Iterable[Entry], older_than: datetime) -> list[Entry]:
    """Which dead entries recorded before can go without a change to what counts.

    A dead entry may be the reason why another is dead, so the rest is folded again.
    """
    entries = list(log)
    before = fold(entries)
    drop = [entry for entry in before.dead if entry.recorded < older_than]
    dropped = {entry.uid for entry in drop}
    after = fold(entry for entry in entries if entry.uid not in dropped)
    return drop if after.live == before.live else []


def relocated(entry: DocumentEntry, name: str, source: str, sequence: int) -> DocumentEntry:
    """The entry that says the same document now lies elsewhere."""
    return replace(
        entry, name=name, source=source, sequence=sequence, uid=_new_uid(), recorded=now()
    )
