"""The catalog: a log of changes to documents, and its current state; and a log of items.

An entry has the complete new state of a document, and the position up to which its writer had read
the log. The entry is rejected if another change of that document was committed in between; its
writer then reads the log again and retries, so that no writer undoes the change of another. The
log is append-only, because LanceDB appends atomically and without conflicts between writers.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import takewhile
from threading import Lock
from typing import Any
from uuid import uuid4

from visar.errors import StoreError
from visar.results import Document, EncoderRef, InvalidPage
from visar.store.checks import all_without_text
from visar.store.lance.tables import LanceTable, Row, create_items, open_items, quote
from visar.store.store import Change

# Attempts to change an item before other processes.
_ATTEMPTS = 20


def now() -> datetime:
    """Return the current time in UTC, the time zone of all stored times."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the table ``rows`` with the same revision."""

    revision: str
    ids: list[int]
    checksums: list[int]
    """CRC-32 of each value."""
    sizes: list[int]
    """Size of each value in bytes."""
    notes: list[tuple[int, str]]
    """Numbers and notes of rows that have a note: why a page is invalid, or the path of a file."""


@dataclass(frozen=True, slots=True)
class Vectors(Rows):
    """The vectors of a document by one encoder: a row for each page."""

    version: str
    dimension: int


@dataclass(frozen=True)
class DocumentState:
    """The state of a document in the catalog."""

    id: str
    name: str
    source: str
    size: int
    added: str
    """Time in ISO format."""
    pages: Rows
    vectors: dict[str, Vectors]
    """Vectors by the name of their encoder."""
    metadata: dict[str, Any]
    collections: list[str]
    original: Rows | None
    """A row for each file, with its path within the folder; a single file has an empty path."""

    def encoders(self) -> tuple[EncoderRef, ...]:
        """Return the encoders of the document's vectors, sorted by name."""
        by_name = sorted(self.vectors.items())
        return tuple(EncoderRef(name, own.version, own.dimension) for name, own in by_name)

    @cached_property
    def stored(self) -> Document:
        """The document as users see it."""
        pages = len(self.pages.ids)
        invalid = tuple(
            InvalidPage(name, *note)
            for name, vectors in sorted(self.vectors.items())
            for note in vectors.notes
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
        """Return the revisions of all rows that the document needs."""
        needed = {self.pages.revision, *(vectors.revision for vectors in self.vectors.values())}
        return needed if self.original is None else {*needed, self.original.revision}

    def with_values(self, **values: Any) -> DocumentState:
        """Return a copy with other values, or the same object if nothing differs."""
        other = replace(self, **values)
        return self if other == self else other


@dataclass(frozen=True, slots=True)
class Draft:
    """An addition that is in progress or was interrupted."""

    vectors: str
    """Revision of the vectors that the addition writes."""
    encoder: EncoderRef
    pages: str
    """Revision of the pages that the vectors are made from."""
    brings_pages: bool
    """True if the addition also writes these pages, false if the index already has them."""
    closed: bool
    """True if the addition was closed without a commit. False if it is in progress, or died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the log."""

    document: str
    content: DocumentState | Draft | None
    """New state of the document, or None if it was removed."""
    seen: int = -1
    """Highest order that the writer had read."""
    uid: str = field(default_factory=lambda: uuid4().hex)
    recorded: datetime = field(default_factory=now)
    order: int = -1
    """Row id, which increases with every commit; -1 before the commit."""


@dataclass(slots=True)
class Catalog:
    """An immutable snapshot of the log's current state."""

    live: dict[str, DocumentState] = field(default_factory=dict)
    """Documents by id, in the order they were added."""
    drafts: dict[str, tuple[str, Draft]] = field(default_factory=dict)
    """Document ids and drafts by the revision of the vectors, oldest first."""
    rejected: set[str] = field(default_factory=set)
    """Uids of entries that came too late."""
    seen: int = -1
    """Highest order in the snapshot."""
    _last_changes: dict[str, int] = field(default_factory=dict)
    """Order of each document's last change, lowest first."""
    _source_ids: dict[str, str] = field(default_factory=dict)
    """Id of the last document that was added from each source."""

    def revisions(self, documents: Iterable[str] | None = None) -> set[str]:
        """Return the revisions of all rows that these documents, or all, need.

        Documents never share a revision.
        """
        ids = self.live if documents is None else self.live.keys() & set(documents)
        return set().union(*(self.live[document].revisions() for document in ids))

    def find_by_source(self, source: str) -> DocumentState | None:
        """Return the document that was added from a source, or None."""
        state = self.live.get(self._source_ids.get(source, ""))
        return state if source and state and state.source == source else None

    def changed_since(self, order: int) -> list[str]:
        """Return the documents that entries of a higher order added, changed or removed."""
        latest = takewhile(lambda item: item[1] > order, reversed(self._last_changes.items()))
        return [document for document, _ in latest]

    def after(self, entries: Iterable[Entry]) -> Catalog:
        """Return the catalog after applying these entries."""
        new = Catalog(*(copy(getattr(self, field.name)) for field in fields(self)))
        in_order = [new._apply(entry) for entry in sorted(entries, key=lambda entry: entry.order)]
        if not all(in_order):
            new.live = dict(sorted(new.live.items(), key=lambda item: item[1].added))
        return new

    def _apply(self, entry: Entry) -> bool:
        """Apply an entry; return whether the documents are still in the order they were added."""
        self.seen = entry.order
        if isinstance(entry.content, Draft):
            self.drafts[entry.content.vectors] = entry.document, entry.content
        elif entry.seen < self._last_changes.get(entry.document, -1):
            self.rejected.add(entry.uid)
        else:
            self._remove(entry.document, entry.order)
            if entry.content is not None:
                self._delete_previous_version(entry.content, entry.order)
                last = next(reversed(self.live.values()), entry.content)
                self.live[entry.document] = entry.content
                return last.added <= entry.content.added
        return True

    def _remove(self, document: str, order: int) -> None:
        # Reinserted, because the order of the dict is that of the changes.
        self._last_changes.pop(document, None)
        self._last_changes[document] = order
        self.live.pop(document, None)

    def _delete_previous_version(self, state: DocumentState, order: int) -> None:
        """Delete any other document with the same source, and finished drafts."""
        other = self.find_by_source(state.source)
        if other and other.id != state.id:
            self._remove(other.id, order)
        self._source_ids[state.source] = state.id
        for revision, (document, draft) in list(self.drafts.items()):
            finished = draft.closed and draft.encoder in state.encoders()
            if document == state.id and (finished or revision in state.revisions()):
                del self.drafts[revision]


def find_droppable(log: Sequence[Entry], before: datetime, revisions: set[str]) -> list[Entry]:
    """Return the entries older than ``before`` that can be deleted without changing the catalog.

    A draft can be deleted if its revision isn't in ``revisions``. A rejected entry may be the
    reason why another one is rejected, and a removal may be the reason why a draft is kept, so the
    result is checked by replaying the rest.
    """
    catalog = Catalog().after(log)

    def needed(entry: Entry) -> bool:
        if isinstance(entry.content, Draft):
            revision = entry.content.vectors
            draft = catalog.drafts.get(revision)
            return draft is not None and draft[1] is entry.content and revision in revisions
        return entry.content is not None and entry.content is catalog.live.get(entry.document)

    dropped = [entry for entry in log if entry.recorded < before and not needed(entry)]
    uids = {entry.uid for entry in dropped}
    rest = Catalog().after(entry for entry in log if entry.uid not in uids)
    drafts = catalog.drafts.keys() & revisions
    unchanged = rest.live == catalog.live and drafts <= rest.drafts.keys()
    return dropped if unchanged else []


class CatalogLog:
    """The table of the catalog, read incrementally. Thread-safe."""

    def __init__(self, table: LanceTable) -> None:
        self.table = table
        self._lock = Lock()
        self._version = -1
        self._catalog = Catalog()

    def read(self) -> Catalog:
        with self._lock:
            version = self.table.version
            if version < self._version:
                # The index was removed and created again.
                self._catalog = Catalog()
            if version != self._version:
                # Entries newer than the version are read again next time.
                self._catalog = self._catalog.after(self.entries(self._catalog.seen))
                self._version = version
            return self._catalog

    @property
    def latest(self) -> Catalog:
        """The catalog as of the last read; the first access reads it."""
        return self._catalog if self._version >= 0 else self.read()

    def entries(self, after: int = -1) -> list[Entry]:
        where = None if after < 0 else f"_rowid > {after}"
        return [_entry(row) for row in self.table.scan((*_COLUMNS, "kind", "content"), where)]

    def append(self, entries: Sequence[Entry]) -> None:
        """Commit entries atomically; those that come too late are rejected when they are read."""
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
        raise StoreError(
            f"Can't read an entry of the catalog: {error}. Run visar verify to check the index."
        ) from error
    values = {name: row[name] for name in _COLUMNS}
    return Entry(**values, content=content, order=row["_rowid"])


def _content(kind: str, values: Any) -> DocumentState | Draft | None:
    if kind == "removed":
        return None
    if kind == "Draft":
        return Draft(**values | {"encoder": EncoderRef(**values["encoder"])})
    values["vectors"] = {name: Vectors(**rows) for name, rows in values["vectors"].items()}
    values["original"] = values["original"] and Rows(**values["original"])
    return DocumentState(**values | {"pages": Rows(**values["pages"])})


_ITEM_COLUMNS = ("uid", "id", "number", "content")


class ItemLog:
    """A log of items by kind and id.

    Each row of an item has the next number. If two processes append the same number, the first
    row is valid.
    """

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._location, self._options = location, options
        self._table: LanceTable | None = None

    def read(self, kind: str, prefix: str) -> dict[str, Any]:
        table = self._open()
        if table is None:
            return {}
        rows = table.scan(
            _ITEM_COLUMNS, f"kind = {quote(kind)} AND starts_with(id, {quote(prefix)})"
        )
        latest = _latest(rows)
        return {
            id_: json.loads(latest[id_]["content"])
            for id_ in sorted(latest)
            if latest[id_]["content"] is not None
        }

    def change(self, kind: str, id_: str, change: Change) -> Any:
        """Replace an item and return the new value; retry if another process changed it first."""
        table = self._table = self._open() or create_items(self._location, self._options)
        where = f"kind = {quote(kind)} AND id = {quote(id_)}"
        for _ in range(_ATTEMPTS):
            before = _latest(table.scan(_ITEM_COLUMNS, where)).get(id_)
            old = None if before is None else before["content"]
            value = change(None if old is None else json.loads(old))
            if value is None and old is None:
                return None
            new: Row = {
                "uid": uuid4().hex,
                "kind": kind,
                "id": id_,
                "number": 0 if before is None else before["number"] + 1,
                "content": None if value is None else json.dumps(value, ensure_ascii=False),
            }
            table.append([new])
            rows = table.scan(_ITEM_COLUMNS, where)
            if next(row["uid"] for row in rows if row["number"] == new["number"]) == new["uid"]:
                return value
            table.delete("uid", [str(new["uid"])])
            time.sleep(random.uniform(0, 0.1))
        raise StoreError(f"Can't change {kind} {id_}: other processes keep changing it. Try again.")

    def _open(self) -> LanceTable | None:
        if self._table is None:
            self._table = open_items(self._location, self._options)
        return self._table

    def compact(self, keep_versions: timedelta) -> None:
        """Delete all rows but the latest of each item; a deletion keeps its row and number."""
        table = self._open()
        if table is None:
            return
        rows = table.scan((*_ITEM_COLUMNS, "kind"))
        kinds = {row["kind"] for row in rows}
        uids = {
            row["uid"]
            for kind in kinds
            for row in _latest(row for row in rows if row["kind"] == kind).values()
        }
        table.delete("uid", [row["uid"] for row in rows if row["uid"] not in uids])
        table.compact(keep_versions)


def _latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the valid row of each id: the first with the highest number."""
    latest: dict[str, Row] = {}
    for row in rows:
        current = latest.get(row["id"])
        if current is None or row["number"] > current["number"]:
            latest[row["id"]] = row
    return latest
