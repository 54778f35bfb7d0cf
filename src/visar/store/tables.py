"""LanceDB, and all of it: no other module imports it or pyarrow."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from visar.errors import NotAnIndex, StoreError

FORMAT = 1
FORMAT_KEY = b"visar.format"

# Row ids that outlive compaction need the first; blobs beside the data files need the second.
TABLE_OPTIONS = {
    "new_table_enable_stable_row_ids": "true",
    "new_table_data_storage_version": "2.2",
}

# Texts that indexes made before do not have; there they read as none.
LATER_COLUMNS = ("invalid",)

CONFLICT_RETRIES = 20
# Large values that are read ahead: few enough that their buffers are used again and again.
READ_AHEAD = 2

Row = dict[str, Any]
T = TypeVar("T")


# What LanceDB raises when a file is gone, cut short or not its own.
LANCE_ERRORS = (OSError, RuntimeError, ValueError)


class RowsMissing(Exception):
    """Rows asked for by id are not there (any more), or cannot be read."""


class LanceTable:
    """One table: the few things done with it, retried when two writers collide."""

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def version(self) -> int:
        """Grows with every change by any process."""
        return int(self._table.version)

    @property
    def fragments(self) -> int:
        """Into how many files the rows are spread; compacting makes it one."""
        return int(self._table.stats()["fragment_stats"]["num_fragments"])

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows in one step: all of them or none are there afterwards."""
        if any(row.get(name) is not None for name in LATER_COLUMNS for row in rows):
            self._add_later_columns()
        batch = _record_batch(rows, self._table.schema)
        _retried(lambda: self._table.add(batch))

    def _add_later_columns(self) -> None:
        """Give a table of an older index the columns it lacks, empty for its old rows."""
        import pyarrow as pa

        for name in LATER_COLUMNS:
            if name not in self._table.schema.names:
                try:
                    _retried(
                        lambda column=name: self._table.add_columns(  # type: ignore[misc]
                            pa.field(column, pa.string())
                        )
                    )
                except StoreError:
                    # Another process may have added it at the same moment.
                    if name not in self._table.schema.names:
                        raise

    def delete(self, where: str) -> None:
        """Delete rows in one step."""
        _retried(lambda: self._table.delete(where))

    def compact(self, keep_versions: timedelta) -> None:
        """Merge small files, and forget the versions older than that."""
        _retried(lambda: self._table.optimize(cleanup_older_than=keep_versions))

    def scan(self, columns: Sequence[str], where: str | None = None) -> list[Row]:
        """The rows that match, with their ids as ``_rowid``."""
        known = set(self._table.schema.names)
        present = [name for name in columns if name in known or name not in LATER_COLUMNS]
        query = self._table.search().select(present).with_row_id(True)
        if where is not None:
            query = query.where(where)
        try:
            rows: list[Row] = query.to_arrow().to_pylist()
        except LANCE_ERRORS as error:
            raise StoreError(f"the index cannot be read: {error}") from error
        absent = dict.fromkeys(set(columns) - set(present))
        return [row | absent for row in rows] if absent else rows

    def take(self, row_ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
        """The rows with these ids, in any order."""
        if not row_ids:
            return []
        query = self._table.take_row_ids(list(row_ids)).select(list(columns))
        try:
            rows: list[Row] = query.to_arrow().to_pylist()
        except LANCE_ERRORS as error:
            raise RowsMissing(str(error)) from error
        if len(rows) != len(row_ids):
            raise RowsMissing(f"{len(rows)} of {len(row_ids)} rows are there")
        return rows

    def blobs(self, column: str, row_ids: Sequence[int]) -> Iterator[bytes]:
        """The large values of these rows in the order of the ids.

        The next ones are read while the caller works on one.
        """
        if not row_ids:
            return
        try:
            blobs = self._table.fetch_blob_files(column, list(row_ids))
            with ThreadPoolExecutor(READ_AHEAD) as pool:
                reading = deque(pool.submit(_read, blob) for blob in blobs[:READ_AHEAD])
                for blob in blobs[READ_AHEAD:]:
                    yield reading.popleft().result()
                    reading.append(pool.submit(_read, blob))
                while reading:
                    yield reading.popleft().result()
        except LANCE_ERRORS as error:
            raise RowsMissing(str(error)) from error


def _read(blob: Any) -> bytes:
    value: bytes = blob.read_range(0, blob.size())
    return value


@dataclass(frozen=True, slots=True)
class Tables:
    """The three tables of an index."""

    catalog: LanceTable
    pages: LanceTable
    vectors: LanceTable


def quoted(text: str) -> str:
    """Quote a text for a filter expression."""
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str]) -> str:
    """Give the filter expression for "the column has one of these values"."""
    return f"{column} IN ({', '.join(quoted(value) for value in sorted(values))})"


def open_tables(location: str, create: bool) -> Tables:
    """Open the index at a folder or an object store's address, or make an empty one there."""
    _refuse_other_folders(location, create)
    import lancedb

    # Every read sees what other processes have committed before it.
    try:
        connection = lancedb.connect(location, read_consistency_interval=timedelta(0))
        present = set(connection.list_tables().tables)
    except LANCE_ERRORS as error:
        raise StoreError(f"cannot open the index {location}: {error}") from error
    schemas = _schemas()
    if not present <= set(schemas):
        raise NotAnIndex(
            f"{location} is a LanceDB database, but not a ViSAR index: it has a table "
            f"{min(present - set(schemas))!r}. Choose another place"
        )
    if not create and "catalog" not in present:
        raise _no_index(location)
    try:
        # The catalog comes last: with it the index is complete.
        for name in ("pages", "vectors", "catalog"):
            if name not in present:
                _create_table(connection, name, schemas[name])
        opened = {name: connection.open_table(name) for name in schemas}
    except LANCE_ERRORS as error:
        raise StoreError(f"cannot open the index {location}: {error}") from error
    for table in opened.values():
        _refuse_other_formats(location, table.schema)
    return Tables(**{name: LanceTable(table) for name, table in opened.items()})


def _create_table(connection: Any, name: str, schema: Any) -> None:
    try:
        connection.create_table(name, schema=schema, storage_options=TABLE_OPTIONS)
    except LANCE_ERRORS:
        # Another process may have made it at the same moment; then it is there now.
        if name not in connection.list_tables().tables:
            raise


def _no_index(location: str) -> NotAnIndex:
    return NotAnIndex(f"there is no index at {location}. Adding a document makes one")


def _refuse_other_folders(location: str, create: bool) -> None:
    """Refuse a local folder that is something else, before LanceDB makes it its own."""
    if "://" in location:
        return
    folder = Path(location)
    if folder.exists() and not folder.is_dir():
        raise NotAnIndex(f"{location} is a file; an index is a folder")
    if not folder.exists():
        if not create:
            raise _no_index(location)
        return
    ours = {f"{name}.lance" for name in ("catalog", "pages", "vectors")}
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & ours:
        raise NotAnIndex(
            f"{location} is not an index: it holds other files, such as {min(names)!r}. "
            "Choose an empty or a new folder"
        )


def _refuse_other_formats(location: str, schema: Any) -> None:
    found = (schema.metadata or {}).get(FORMAT_KEY)
    if found is None:
        raise NotAnIndex(f"{location} is not an index: its tables do not come from ViSAR")
    if not found.isdigit() or int(found) > FORMAT:
        raise NotAnIndex(
            f"{location} was written by a newer version of ViSAR (format {found.decode()}; "
            f"this one reads format {FORMAT}): pip install --upgrade visar"
        )


def _retried(write: Callable[[], T]) -> T:
    """Repeat a write that lost against another writer's; LanceDB has then changed nothing."""
    for attempt in range(CONFLICT_RETRIES):
        try:
            return write()
        except LANCE_ERRORS as error:
            message = str(error).lower()
            conflict = "conflict" in message or "concurrent" in message
            if not conflict or attempt == CONFLICT_RETRIES - 1:
                raise StoreError(f"cannot write to the index: {error}") from error
        time.sleep(random.uniform(0.01, 0.05) * (attempt + 1))
    raise AssertionError("unreachable")


def _schemas() -> dict[str, Any]:
    import lancedb
    import pyarrow as pa

    text, time_utc = pa.string(), pa.timestamp("us", tz="UTC")
    written = [("revision", text), ("document", text), ("written", time_utc)]
    fields: dict[str, list[Any]] = {
        "catalog": [
            *[("uid", text), ("recorded", time_utc), ("kind", text), ("document", text)],
            *[("name", text), ("source", text), ("pages", pa.int32()), ("size", pa.int64())],
            *[("added", time_utc), ("checksum", pa.int64())],
            *[("encoder", text), ("version", text), ("dimension", pa.int32())],
            *[("revision", text), ("pages_revision", text)],
            *[("rows", pa.binary()), ("firsts", pa.binary()), ("lengths", pa.binary())],
            *[("abandons", pa.list_(text)), ("invalid", text)],
        ],
        "pages": [
            *written,
            *[("number", pa.int32()), ("width", pa.float64()), ("height", pa.float64())],
            *[("rotation", pa.int32()), ("text_source", text)],
            *[("texts", pa.list_(text)), ("boxes", pa.list_(pa.float32()))],
            *[("lines", pa.list_(pa.int32())), ("checksum", pa.int64())],
        ],
        "vectors": [
            *written,
            *[("encoder", text), ("version", text), ("dimension", pa.int32())],
            *[("pages_revision", text), ("first", pa.int32())],
            *[("lengths", pa.list_(pa.int32())), ("checksum", pa.int64()), ("invalid", text)],
            lancedb.blob("data"),
        ],
    }
    metadata = {FORMAT_KEY: str(FORMAT).encode()}
    return {name: pa.schema(columns, metadata=metadata) for name, columns in fields.items()}


def _record_batch(rows: Sequence[Row], schema: Any) -> Any:
    import pyarrow as pa

    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa

    if not isinstance(kind, pa.ExtensionType):
        return pa.array(values, kind)
    # A blob is stored as a struct: its bytes, or a reference, which is never used here.
    fields = list(kind.storage_type)
    children = [pa.array(values, fields[0].type)]
    children += [pa.nulls(len(values), child.type) for child in fields[1:]]
    return pa.ExtensionArray.from_storage(kind, pa.StructArray.from_arrays(children, fields=fields))
