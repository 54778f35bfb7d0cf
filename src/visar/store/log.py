"""The catalog's entries as rows of its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from threading import Lock

import numpy as np

from visar.errors import StoreError
from visar.store.catalog import (
    Catalog,
    DocumentEntry,
    Entry,
    RemovedEntry,
    VectorsEntry,
    fold,
)
from visar.store.records import EncoderRef
from visar.store.rows import invalid_of, invalid_to_text
from visar.store.tables import LanceTable, Row

KINDS: dict[str, type[Entry]] = {
    "document": DocumentEntry,
    "vectors": VectorsEntry,
    "removed": RemovedEntry,
}
# Numbers kept as bytes: a catalog of many documents is read in one go, and lists are slow.
PACKED = {"rows": "<i8", "firsts": "<i4", "lengths": "<i4"}
COMMON = ("uid", "recorded", "document")
COLUMNS = {
    "document": ("name", "source", "pages", "size", "added", "revision", "rows", "checksum"),
    "vectors": ("revision", "pages_revision", "rows", "firsts", "lengths", "invalid", "abandons"),
    "removed": ("revision",),
}
ENCODER = ("encoder", "version", "dimension")


class CatalogLog:
    """The catalog's table, read again only when it has changed. Safe among threads."""

    def __init__(self, table: LanceTable) -> None:
        self._table = table
        self._lock = Lock()
        self._version: int | None = None
        self._catalog = fold(())

    def read(self) -> Catalog:
        """What counts now, including what other processes did."""
        with self._lock:
            version = self._table.version
            if version != self._version:
                # Read after its version: what is newer than it is read again next time.
                self._catalog = fold(self.entries())
                self._version = version
            return self._catalog

    def entries(self) -> list[Entry]:
        """Every line of the log."""
        columns = (*COMMON, "kind", *ENCODER, *dict.fromkeys(sum(COLUMNS.values(), ())))
        return [_entry(row) for row in self._table.scan(columns)]

    def append(self, entries: Sequence[Entry]) -> None:
        """Commit: after this, in one step, the entries count."""
        self._table.append([_row(entry) for entry in entries])


def _row(entry: Entry) -> Row:
    row = asdict(entry)
    row["kind"] = next(kind for kind, type_ in KINDS.items() if isinstance(entry, type_))
    if isinstance(entry, VectorsEntry):
        row.update(zip(ENCODER, _encoder_fields(entry.encoder), strict=True))
        row["invalid"] = invalid_to_text(entry.invalid)
    for name, dtype in PACKED.items():
        if name in row:
            row[name] = np.array(row[name], dtype).tobytes()
    return row


def _encoder_fields(encoder: EncoderRef) -> tuple[str, str, int]:
    return encoder.name, encoder.version, encoder.dimension


def _entry(row: Row) -> Entry:
    kind = row["kind"]
    if kind not in KINDS:
        raise StoreError(f"the catalog has an entry of an unknown kind: {kind!r}")
    values = {name: row[name] for name in (*COMMON, *COLUMNS[kind])}
    values["order"] = row["_rowid"]
    for name, dtype in PACKED.items():
        if name in values:
            values[name] = tuple(np.frombuffer(values[name], dtype).tolist())
    if kind == "vectors":
        values["abandons"] = tuple(values["abandons"])
        values["invalid"] = invalid_of(values["invalid"])
        values["encoder"] = EncoderRef(*(row[name] for name in ENCODER))
    return KINDS[kind](**values)
