"""LanceDB, and all of it: no other module imports it."""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from visar._version import DISTRIBUTION
from visar.errors import MissingExtra, NotAnIndex, StoreError, VisarError
from visar.store.checks import advice

FORMAT = 2
"""Of the tables; 1 had no originals, metadata and collections."""
_FORMAT_KEY = b"visar.format"

# Row ids that outlive compaction need the first; blobs beside the data files need the second.
_OPTIONS = {
    "new_table_enable_stable_row_ids": "true",
    "new_table_data_storage_version": "2.2",
}
_RETRIES = 20
# Large values that are read ahead: object storage answers late, but many requests at once.
_READ_AHEAD = 16

Row = dict[str, Any]


class RowsMissing(Exception):
    """Rows asked for by id are not there (any more), or are not what they should be."""


class LanceTable:
    """One table: the few things done with it, retried when two writers collide."""

    def __init__(self, table: Any, location: str) -> None:
        self._table = table
        self._location = location
        self._columns = frozenset(table.schema.names)

    @property
    def version(self) -> int:
        """Grows with every change by any process."""
        with _explained(self._location):
            return int(self._table.version)

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows in one step: all of them or none are there afterwards."""
        if rows:
            schema = _schemas()[self._table.name]
            batch = _record_batch(rows, schema, self._present(schema.names))
            self._write(lambda: self._table.add(batch))

    def set_blocks(self, pages: Mapping[int, tuple[int, str]]) -> None:
        """Write the blocks of pages that have none, in one step: by number, after row ids."""
        if "blocks" not in self._columns:
            raise StoreError(
                f"the index {self._location} was made by an older version, and could not be "
                "upgraded: check the rights to write it"
            )
        if not pages:
            return
        row_ids = ", ".join(str(row_id) for row_id, _ in pages.values())
        # An update has one expression for all rows, without CASE. Blocks are JSON: they have no
        # control characters.
        texts = "".join(f"\x1f{number}\x1e{blocks}" for number, (_, blocks) in pages.items())
        own = f"split_part({quoted(texts)}, concat('\x1f', number, '\x1e'), 2)"
        self._write(
            lambda: self._table.update(
                where=f"_rowid IN ({row_ids}) AND blocks IS NULL",
                values_sql={"blocks": f"split_part({own}, '\x1f', 1)"},
            )
        )

    def delete(self, column: str, values: Sequence[str]) -> None:
        """Delete the rows with one of these values in one step."""
        if values:
            listed = ", ".join(quoted(value) for value in sorted(values))
            self._write(lambda: self._table.delete(f"{column} IN ({listed})"))

    def compact(self, keep_versions: timedelta) -> None:
        """Merge small files, and forget the versions older than that."""
        self._write(lambda: self._table.optimize(cleanup_older_than=keep_versions))

    def count(self) -> int:
        """Return the number of rows."""
        with _explained(self._location):
            return int(self._table.count_rows())

    def scan(self, columns: Sequence[str], where: str | None = None, *, skip: int = 0) -> list[Row]:
        """Return the rows that match, in the order they were added, with ids as ``_rowid``.

        A filter reads all files of the table; without one, those of rows to skip are not read.
        """
        with _explained(self._location):
            query = self._table.search().select(self._present(columns)).with_row_id(True)
            if where is not None:
                query = query.where(where)
            if skip:
                query = query.offset(skip)
            return sorted(query.to_arrow().to_pylist(), key=lambda row: int(row["_rowid"]))

    def contents(self, row_ids: Sequence[int]) -> list[bytes | None]:
        """Return the values of the column ``content`` in the order of the ids, None for none."""
        return [row.get("content") for row in self.take(row_ids, ("content",))]

    def take(self, row_ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
        """Return these columns of rows in the order of the ids; {} for a row that is missing."""
        if not row_ids:
            return []
        with _explained(self._location):
            query = self._table.take_row_ids(list(row_ids)).select(self._present(columns))
            found = {row["_rowid"]: row for row in query.with_row_id().to_arrow().to_pylist()}
        return [found.get(row_id, {}) for row_id in row_ids]

    def blobs(self, row_ids: Sequence[int]) -> Iterator[bytes]:
        """Give the values of the column ``data`` in the order of the ids.

        The next ones are read while the caller works on one. Raises `RowsMissing`.
        """
        if not row_ids:
            return
        with _explained(self._location):
            blobs = self._table.fetch_blob_files("data", list(row_ids))
            with ThreadPoolExecutor(_READ_AHEAD) as pool:
                reading = deque(pool.submit(_read, blob) for blob in blobs[:_READ_AHEAD])
                for blob in blobs[_READ_AHEAD:]:
                    yield reading.popleft().result()
                    reading.append(pool.submit(_read, blob))
                while reading:
                    yield reading.popleft().result()

    def _present(self, columns: Sequence[str]) -> list[str]:
        """Leave out columns of a newer version that could not be added to this table."""
        return [column for column in columns if column in self._columns]

    def _write(self, write: Callable[[], object]) -> None:
        with _explained(self._location):
            _retried(write, "conflict", "concurrent")


def _retried(action: Callable[[], Any], *phrases: str) -> Any:
    """Repeat what fails in these words because another process does the same at the moment."""
    for attempt in range(1, _RETRIES + 1):
        try:
            return action()
        except Exception as error:
            said = str(error).lower()
            if attempt == _RETRIES or not any(phrase in said for phrase in phrases):
                raise
        time.sleep(random.uniform(0.01, 0.05) * attempt)
    raise AssertionError


def _read(blob: Any) -> bytes:
    return b"" if blob is None else bytes(blob.read_range(0, blob.size()))


@contextlib.contextmanager
def _explained(location: str) -> Iterator[None]:
    """Turn what LanceDB raises to `RowsMissing` or a `StoreError`."""
    try:
        yield
    except (VisarError, RowsMissing):
        raise
    except Exception as error:
        # Of any kind: OSError, RuntimeError, ValueError, and what Rust panics with. After the
        # reason come lines of LanceDB's source.
        reason = str(error).partition(", /")[0].removeprefix("lance error: ")
        if "Could not resolve all requested row IDs" in reason:
            raise RowsMissing(reason) from error
        if "Not found" in reason:
            reason = f"it, or a part of it, is not there any more ({reason})"
        raise StoreError(f"the index {location}: {advice(reason)}") from error


def quoted(text: str) -> str:
    """Quote a text for a filter expression."""
    return "'" + text.replace("'", "''") + "'"


def open_tables(
    location: str, create: bool, options: Mapping[str, str]
) -> tuple[LanceTable, LanceTable]:
    """Open the tables ``catalog`` and ``rows`` at an address, or make them.

    Credentials and endpoints that the options do not name are those of the environment
    (``AWS_ACCESS_KEY_ID`` and so on).
    """
    try:
        import lancedb
        import pyarrow as pa  # noqa: F401 - LanceDB needs it, and so do we
    except ImportError as error:
        raise MissingExtra("An index in object storage", "cloud") from error

    schemas = _schemas()
    with _explained(location):
        # Every read sees what other processes have committed before it.
        connection = lancedb.connect(
            location, read_consistency_interval=timedelta(0), storage_options=dict(options)
        )
        present = {}
        for name in sorted(connection.list_tables().tables):
            # It may be listed before it is there.
            present[name] = _retried(partial(connection.open_table, name), "not found")
            metadata = present[name].schema.metadata or {}
            _refuse_other_formats(location, name, metadata.get(_FORMAT_KEY))
        if not create and "catalog" not in present:
            raise NotAnIndex(f"there is no index at {location}. Adding a document makes one")
        made = partial(
            connection.create_table, exist_ok=True, storage_options={**_OPTIONS, **options}
        )
        # The catalog comes last: with it the index is complete.
        for name in ("rows", "catalog"):
            if name in present:
                _add_columns(present[name], schemas[name])
            else:
                make = partial(made, name, schema=schemas[name])
                present[name] = _retried(make, "not found", "exists", "conflict")
        return LanceTable(present["catalog"], location), LanceTable(present["rows"], location)


def _add_columns(table: Any, schema: Any) -> None:
    """Add the columns that a table of an older version lacks; a read-only one stays as it is."""

    def add() -> None:
        missing = [field for field in schema if field.name not in table.schema.names]
        if missing:
            table.add_columns(missing)

    # LanceDB raises anything. Whatever else is wrong, reading the table will tell.
    with contextlib.suppress(Exception):
        _retried(add, "conflict", "concurrent", "exist")


def _refuse_other_formats(location: str, table: str, found: bytes | None) -> None:
    if found is None:
        raise NotAnIndex(
            f"{location} is a LanceDB database, but not a ViSAR index: it has a table {table!r}. "
            "Choose another place"
        )
    if found != str(FORMAT).encode():
        raise NotAnIndex(
            f"{location} has the format {found.decode()}, and this version of ViSAR reads {FORMAT}"
            f": pip install --upgrade {DISTRIBUTION}, or add the documents again in another place"
        )


def _schemas() -> dict[str, Any]:
    import lancedb
    import pyarrow as pa

    text, time_utc = pa.string(), pa.timestamp("us", tz="UTC")
    fields: dict[str, list[Any]] = {
        "catalog": [
            *[("uid", text), ("recorded", time_utc), ("kind", text), ("document", text)],
            *[("seen", pa.int64()), ("content", text)],
        ],
        "rows": [
            *[("revision", text), ("document", text), ("written", time_utc)],
            *[("kind", text), ("number", pa.int32()), ("note", text)],
            *[("checksum", pa.int64()), ("size", pa.int64())],
            # What is read many at a time, and what is large.
            *[("content", pa.large_binary()), lancedb.blob("data")],
            # Of a page that was laid out; older tables got it later.
            ("blocks", text),
        ],
    }
    metadata = {_FORMAT_KEY: str(FORMAT).encode()}
    return {name: pa.schema(columns, metadata=metadata) for name, columns in fields.items()}


def _record_batch(rows: Sequence[Row], schema: Any, names: Sequence[str]) -> Any:
    import pyarrow as pa

    fields = [schema.field(name) for name in names]
    columns = []
    for field in fields:
        values = [row.get(field.name) for row in rows]
        if isinstance(field.type, pa.ExtensionType):
            # A blob is stored as a struct: its bytes, or a reference, which is never used here.
            stored = [None if value is None else {"data": value} for value in values]
            array = pa.array(stored, field.type.storage_type)
            columns.append(pa.ExtensionArray.from_storage(field.type, array))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))
