"""The catalog: a log of what was added and removed, and what of it counts now.

The log only grows by appending, which LanceDB does in one step and without conflicts between
writers; what counts is found by going through it in the order of the commits. Nothing a writer
has read as committed is undone by what a slower one appends: of two that bring pages for the same
document the first wins, and what is said of a revision that is gone counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from visar.store.records import EncoderRef, InvalidPage, StoredDocument


def _new_uid() -> str:
    return uuid4().hex


def now() -> datetime:
    """The time in UTC, which all stored times are in."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log."""

    document: str
    uid: str = field(default_factory=_new_uid)
    recorded: datetime = field(default_factory=now)
    order: int = -1
    """Its row id, which LanceDB counts up from commit to commit; unknown before."""


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
    invalid: tuple[tuple[int, str], ...] = ()
    """Pages the encoder could make nothing of, and why."""
    abandons: tuple[str, ...] = ()
    """Revisions of other, unfinished adds of the same vectors: their rows are deleted once this
    entry counts, and should they be committed later, that does not count."""

    @property
    def consistent(self) -> bool:
        """Whether the blocks cover the pages from the first to the last."""
        ends = (*self.firsts[1:], len(self.lengths) + 1)
        ascending = all(first < end for first, end in zip(self.firsts, ends, strict=False))
        return len(self.rows) == len(self.firsts) and self.firsts[:1] == (1,) and ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEntry(Entry):
    """The document is gone that had the pages of ``revision``.

    Its rows are deleted once this entry is there, so nothing said of them later counts.
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
        invalid = tuple(
            InvalidPage(name, number, reason)
            for name in sorted(self.vectors)
            for number, reason in self.vectors[name].invalid
        )
        e = self.entry
        return StoredDocument(
            e.document, e.name, e.source, e.pages, e.size, e.added, encoders, invalid
        )

    def has(self, encoder: EncoderRef) -> bool:
        """Whether it has vectors of exactly this version of the encoder."""
        vectors = self.vectors.get(encoder.name)
        return vectors is not None and vectors.encoder.version == encoder.version

    def revisions(self) -> set[str]:
        """All that count: of its pages and of its vectors."""
        return {self.entry.revision, *(vectors.revision for vectors in self.vectors.values())}


@dataclass(frozen=True, slots=True)
class Catalog:
    """What of the log counts."""

    live: dict[str, LiveDocument]
    """By document id, in the order they were added."""
    dead: tuple[Entry, ...]

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


class _Replay:
    """The state after the entries gone through so far."""

    def __init__(self) -> None:
        self.live: dict[str, LiveDocument] = {}
        self._at_source: dict[str, str] = {}
        self._gone: set[str] = set()

    def take(self, entry: Entry) -> None:
        known = self.live.get(entry.document)
        if isinstance(entry, RemovedEntry):
            self._gone.add(entry.revision)
            if known is not None and known.entry.revision == entry.revision:
                del self.live[entry.document]
        elif isinstance(entry, DocumentEntry):
            first = known is None or known.entry.revision == entry.revision
            if first and entry.revision not in self._gone:
                self._make_room(entry)
                self.live[entry.document] = LiveDocument(entry, known.vectors if known else {})
        elif isinstance(entry, VectorsEntry) and known is not None:
            fits = known.entry.revision == entry.pages_revision
            if fits and entry.revision not in self._gone:
                known.vectors[entry.encoder.name] = entry
                self._gone |= set(entry.abandons) - known.revisions()

    def _make_room(self, entry: DocumentEntry) -> None:
        """Let go of another document that came from the same place."""
        if not entry.source:
            return
        other = self.live.get(self._at_source.get(entry.source, entry.document))
        still_there = other is not None and other.entry.source == entry.source
        if other is not None and still_there and other.entry.document != entry.document:
            self._gone.add(other.entry.revision)
            del self.live[other.entry.document]
        self._at_source[entry.source] = entry.document


def fold(log: Iterable[Entry]) -> Catalog:
    """Go through the log and find what counts."""
    entries = sorted(log, key=lambda entry: entry.order)
    replay = _Replay()
    for entry in entries:
        replay.take(entry)
    live = sorted(replay.live.values(), key=lambda document: document.entry.added)
    counting = {document.entry.uid for document in live}
    counting |= {vectors.uid for document in live for vectors in document.vectors.values()}
    dead = tuple(entry for entry in entries if entry.uid not in counting)
    return Catalog({document.entry.document: document for document in live}, dead)


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


def relocated(entry: DocumentEntry, name: str, source: str) -> DocumentEntry:
    """The entry that says the same document now lies elsewhere."""
    return replace(entry, name=name, source=source, uid=_new_uid(), recorded=now())
