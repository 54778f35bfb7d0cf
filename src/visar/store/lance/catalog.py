"""The catalog: a log of what became of each document, and what of it counts now.

An entry says all there is to know of a document from then on, and up to where its writer had read
the log. It counts if nothing about that document was committed in between: whoever comes too late
reads again and tries again, so no writer undoes what another has done. The log grows by appending
alone, which LanceDB does in one step and without conflicts between writers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from threading import Lock
from typing import Any
from uuid import uuid4

from visar.errors import StoreError
from visar.results import Document, EncoderRef, InvalidPage, all_without_text
from visar.store.lance.tables import LanceTable, Row


def now() -> datetime:
    """The time in UTC, which all stored times are in."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the table ``rows`` that belong together: all that were written under a revision."""

    revision: str
    ids: list[int]
    checksums: list[int]
    """CRC-32 of what each holds."""
    sizes: list[int]
    """In bytes."""
    notes: list[tuple[int, str]]
    """Numbers and notes of those that have one: why a page is invalid, or the path of a file."""


@dataclass(frozen=True, slots=True)
class Vectors(Rows):
    """The vectors of a document by one encoder: a row for each page."""

    version: str
    dimension: int


@dataclass(frozen=True)
class DocumentState:
    """All that the catalog knows of a document."""

    id: str
    name: str
    source: str
    size: int
    added: str
    """In ISO format."""
    pages: Rows
    vectors: dict[str, Vectors]
    """By the name of the encoder."""
    metadata: dict[str, Any]
    collections: list[str]
    original: Rows | None
    """A row for each file, with its path within the folder; a single file has an empty path."""

    def encoders(self) -> tuple[EncoderRef, ...]:
        """Those it has vectors of, by name."""
        by_name = sorted(self.vectors.items())
        return tuple(EncoderRef(name, held.version, held.dimension) for name, held in by_name)

    @cached_property
    def stored(self) -> Document:
        """The document as users see it."""
        pages = len(self.pages.ids)
        invalid = tuple(
            InvalidPage(name, *note)
            for name, held in sorted(self.vectors.items())
            for note in held.notes
        )
        return Document(
            id=self.id,
            name=self.name,
            source=self.source,
            pages=pages,
            size=self.size,
            added=datetime.fromisoformat(self.added),
            encoders=self.encoders(),
            invalid=invalid,
            no_text=all_without_text(pages, invalid),
            metadata=dict(self.metadata),
            collections=tuple(self.collections),
        )

    def revisions(self) -> set[str]:
        """The revisions of all rows that it needs."""
        needed = {self.pages.revision, *(held.revision for held in self.vectors.values())}
        return needed if self.original is None else {*needed, self.original.revision}

    def changed(self, **values: Any) -> DocumentState:
        """A copy with other values; the same object if nothing differs."""
        other = replace(self, **values)
        return self if other == self else other


@dataclass(frozen=True, slots=True)
class Draft:
    """An addition that is going on, or was interrupted."""

    vectors: str
    """The revision of the vectors it writes."""
    encoder: EncoderRef
    pages: str
    """The revision of the pages these are made from."""
    brings_pages: bool
    """Whether it writes these pages; otherwise they are those of the index."""
    closed: bool
    """Whether its writer has given up; if not it may be at work, or dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log."""

    document: str
    content: DocumentState | Draft | None
    """None if the document is gone."""
    seen: int = -1
    """The highest order that its writer knew."""
    uid: str = field(default_factory=lambda: uuid4().hex)
    recorded: datetime = field(default_factory=now)
    order: int = -1
    """Its row id, which LanceDB counts up from commit to commit; unknown before."""


@dataclass(slots=True)
class Catalog:
    """What of the log counts. Never changed once it was handed out."""

    live: dict[str, DocumentState] = field(default_factory=dict)
    """By document id, in the order they were added."""
    drafts: dict[str, tuple[str, Draft]] = field(default_factory=dict)
    """By revision, with the ids of their documents, the oldest first."""
    rejected: set[str] = field(default_factory=set)
    """The uids of entries that came too late."""
    seen: int = -1
    """The highest order."""
    _changed: dict[str, int] = field(default_factory=dict)
    """The order of each document's last change, the lowest first."""
    _at_source: dict[str, str] = field(default_factory=dict)

    def revisions(self, documents: Iterable[str] | None = None) -> set[str]:
        """The revisions of all rows that these documents need, or all; no two need the same."""
        asked = self.live if documents is None else self.live.keys() & set(documents)
        return set().union(*(self.live[document].revisions() for document in asked))

    def at_source(self, source: str) -> DocumentState | None:
        """The document that came from a source, if any."""
        state = self.live.get(self._at_source.get(source, ""))
        return state if source and state and state.source == source else None

    def changed_since(self, order: int) -> list[str]:
        """The documents that entries of a higher order have added, changed or removed."""
        latest = takewhile(lambda item: item[1] > order, reversed(self._changed.items()))
        return [document for document, _ in latest]

    def after(self, entries: Iterable[Entry]) -> Catalog:
        """What counts after the entries that follow."""
        new = Catalog(*(copy(getattr(self, field.name)) for field in fields(self)))
        in_order = [new._take(entry) for entry in sorted(entries, key=lambda entry: entry.order)]
        if not all(in_order):
            new.live = dict(sorted(new.live.items(), key=lambda item: item[1].added))
        return new

    def _take(self, entry: Entry) -> bool:
        """Take an entry in; return whether the document belongs to the end of those there are."""
        self.seen = entry.order
        if isinstance(entry.content, Draft):
            self.drafts[entry.content.vectors] = entry.document, entry.content
        elif entry.seen < self._changed.get(entry.document, -1):
            self.rejected.add(entry.uid)
        else:
            self._forget(entry.document, entry.order)
            if entry.content is not None:
                self._make_room(entry.content, entry.order)
                last = next(reversed(self.live.values()), entry.content)
                self.live[entry.document] = entry.content
                return last.added <= entry.content.added
        return True

    def _forget(self, document: str, order: int) -> None:
        self._changed.pop(document, None)
        self._changed[document] = order
        self.live.pop(document, None)

    def _make_room(self, state: DocumentState, order: int) -> None:
        """Let another document go that came from the same place, and drafts that are finished."""
        other = self.at_source(state.source)
        if other and other.id != state.id:
            self._forget(other.id, order)
        self._at_source[state.source] = state.id
        for revision, (document, draft) in list(self.drafts.items()):
            finished = draft.closed and draft.encoder in state.encoders()
            if document == state.id and (finished or revision in state.revisions()):
                del self.drafts[revision]


def droppable(log: Sequence[Entry], before: datetime, kept: set[str]) -> list[Entry]:
    """Which entries recorded before can go, and drafts without rows among the ``kept`` revisions.

    One that does not count may be why another does not, so the rest is gone through again.
    """
    catalog = Catalog().after(log)

    def needed(entry: Entry) -> bool:
        if isinstance(entry.content, Draft):
            revision = entry.content.vectors
            held = catalog.drafts.get(revision)
            return held is not None and held[1] is entry.content and revision in kept
        return entry.content is not None and entry.content is catalog.live.get(entry.document)

    dropped = [entry for entry in log if entry.recorded < before and not needed(entry)]
    uids = {entry.uid for entry in dropped}
    rest = Catalog().after(entry for entry in log if entry.uid not in uids)
    return dropped if rest.live == catalog.live else []


class CatalogLog:
    """The catalog's table, of which only what is new is read. Safe among threads."""

    def __init__(self, table: LanceTable) -> None:
        self.table = table
        self._lock = Lock()
        self._version = -1
        self._catalog = Catalog()

    def read(self) -> Catalog:
        """What counts now, including what other processes did."""
        with self._lock:
            version = self.table.version
            if version < self._version:
                # Somebody has removed the index and made another one.
                self._catalog = Catalog()
            if version != self._version:
                # Read after its version: what is newer than it is read again next time.
                self._catalog = self._catalog.after(self.entries(self._catalog.seen))
                self._version = version
            return self._catalog

    @property
    def latest(self) -> Catalog:
        """What counted when the log was last read, which it is here if it never was."""
        return self._catalog if self._version >= 0 else self.read()

    def entries(self, after: int = -1) -> list[Entry]:
        """The lines of the log with a higher order."""
        where = None if after < 0 else f"_rowid > {after}"
        return [_entry(row) for row in self.table.scan((*_COLUMNS, "kind", "content"), where)]

    def append(self, entries: Sequence[Entry]) -> None:
        """Commit: after this, in one step, the entries count, unless they come too late."""
        self.table.append([_row(entry) for entry in entries])


_COLUMNS = ("uid", "recorded", "document", "seen")


def _row(entry: Entry) -> Row:
    content = entry.content
    return {
        **{name: getattr(entry, name) for name in _COLUMNS},
        "kind": "removed" if content is None else type(content).__name__,
        "content": None if content is None else json.dumps(asdict(content), ensure_ascii=False),
    }


def _entry(row: Row) -> Entry:
    try:
        content = _content(row["kind"], json.loads(row["content"] or "null"))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the catalog has an entry that cannot be read: {error}") from error
    values = {name: row[name] for name in _COLUMNS}
    return Entry(**values, content=content, order=row["_rowid"])


def _content(kind: str, values: Any) -> DocumentState | Draft | None:
    if kind == "removed":
        return None
    if kind == "Draft":
        return Draft(**values | {"encoder": EncoderRef(**values["encoder"])})
    values["vectors"] = {name: Vectors(**held) for name, held in values["vectors"].items()}
    values["original"] = values["original"] and Rows(**values["original"])
    return DocumentState(**values | {"pages": Rows(**values["pages"])})
