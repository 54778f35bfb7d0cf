"""LanceDB tables. No other module imports LanceDB."""

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
from visar.store.checks import no_index_error, store_error

FORMAT = 2
"""Format version of the tables; format 1 had no originals, metadata and collections."""
_FORMAT_KEY = b"visar.format"

# The first option keeps row ids stable under compaction; the second allows blobs in own files.
_OPTIONS = {
    "new_table_enable_stable_row_ids": "true",
    "new_table_data_storage_version": "2.2",
}
_RETRIES = 20
# Number of large values to prefetch: object storage is slow, but serves requests in parallel.
_READ_AHEAD = 16

Row = dict[str, Any]


class RowsMissing(Exception):
    """Rows that were requested by id are missing or damaged."""


class LanceTable:
    """A table whose writes are retried when they conflict with other writers."""

    def __init__(self, table: Any, location: str) -> None:
        self._table = table
        self._location = location
        self._columns = frozenset(table.schema.names)

    @property
    def version(self) -> int:
        """Version of the table, which grows with every change by any process."""
        with _translate_errors(self._location):
            return int(self._table.version)

    def append(self, rows: Sequence[Row]) -> None:
        if rows:
            schema = _schemas()[self._table.name]
            batch = _record_batch(rows, schema, self._present(schema.names))
            self._write(lambda: self._table.add(batch))

    def set_blocks(self, pages: Mapping[int, tuple[int, str]]) -> None:
        """Write the blocks of pages that have none, atomically.

        ``pages`` maps page numbers to row ids and blocks.
        """
        if "blocks" not in self._columns:
            raise StoreError(
                f"The index {self._location} was created by an older version of ViSAR and couldn't "
                "be upgraded. Check that you are allowed to write to it."
            )
        if not pages:
            return
        row_ids = ", ".join(str(row_id) for row_id, _ in pages.values())
        # An update takes one expression for all rows, and CASE isn't supported. Blocks are JSON and
        # contain no control characters.
        texts = "".join(f"\x1f{number}\x1e{blocks}" for number, (_, blocks) in pages.items())
        own = f"split_part({quote(texts)}, concat('\x1f', number, '\x1e'), 2)"
        self._write(
            lambda: self._table.update(
                where=f"_rowid IN ({row_ids}) AND blocks IS NULL",
                values_sql={"blocks": f"split_part({own}, '\x1f', 1)"},
            )
        )

    def delete(self, column: str, values: Sequence[str]) -> None:
        """Delete the rows with one of these values, atomically."""
        if values:
            quoted = ", ".join(quote(value) for value in sorted(values))
            self._write(lambda: self._table.delete(f"{column} IN ({quoted})"))

    def compact(self, keep_versions: timedelta) -> None:
        """Merge small files, and delete versions older than ``keep_versions``."""
        self._write(lambda: self._table.optimize(cleanup_older_than=keep_versions))

    def count(self) -> int:
        with _translate_errors(self._location):
            return int(self._table.count_rows())

    def scan(self, columns: Sequence[str], where: str | None = None, *, skip: int = 0) -> list[Row]:
        """Return the rows that match, in the order they were added, with their ids as ``_rowid``.

        With ``where`` all files of the table are read. Without it, the files of skipped rows
        aren't.
        """
        with _translate_errors(self._location):
            query = self._table.search().select(self._present(columns)).with_row_id(True)
            if where is not None:
                query = query.where(where)
            if skip:
                query = query.offset(skip)
            return sorted(query.to_arrow().to_pylist(), key=lambda row: int(row["_rowid"]))

    def take(self, row_ids: Sequence[int], columns: Sequence[str]) -> list[Row]:
        """Return these columns of rows in the order of the ids; {} for a row that is missing."""
        if not row_ids:
            return []
        with _translate_errors(self._location):
            query = self._table.take_row_ids(list(row_ids)).select(self._present(columns))
            rows = {row["_rowid"]: row for row in query.with_row_id().to_arrow().to_pylist()}
        return [rows.get(row_id, {}) for row_id in row_ids]

    def blobs(self, row_ids: Sequence[int]) -> Iterator[bytes]:
        """Yield the values of the column ``data`` in the order of the ids.

        The next values are prefetched in the background. Raises `RowsMissing`.
        """
        if not row_ids:
            return
        with _translate_errors(self._location):
            blobs = self._table.fetch_blob_files("data", list(row_ids))
            with ThreadPoolExecutor(_READ_AHEAD) as pool:
                reading = deque(pool.submit(_read, blob) for blob in blobs[:_READ_AHEAD])
                for blob in blobs[_READ_AHEAD:]:
                    yield reading.popleft().result()
                    reading.append(pool.submit(_read, blob))
                while reading:
                    yield reading.popleft().result()

    def _present(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that this table has; an older table may lack newer columns."""
        return [column for column in columns if column in self._columns]

    def _write(self, write: Callable[[], object]) -> None:
        with _translate_errors(self._location):
            _retry(write, "conflict", "concurrent")


def _retry(action: Callable[[], Any], *phrases: str) -> Any:
    """Retry an action while its error message has one of these phrases."""
    for attempt in range(1, _RETRIES + 1):
        try:
            return action()
        except Exception as error:
            message = str(error).lower()
            if attempt == _RETRIES or not any(phrase in message for phrase in phrases):
                raise
        time.sleep(random.uniform(0.01, 0.05) * attempt)
    raise AssertionError


def _read(blob: Any) -> bytes:
    return b"" if blob is None else bytes(blob.read_range(0, blob.size()))


@contextlib.contextmanager
def _translate_errors(location: str) -> Iterator[None]:
    """Convert errors of LanceDB to `RowsMissing` or `StoreError`."""
    try:
        yield
    except (VisarError, RowsMissing):
        raise
    except Exception as error:
        # LanceDB raises OSError, RuntimeError, ValueError and Rust panics. Its messages end with
        # paths in its source code.
        reason = str(error).partition(", /")[0].removeprefix("lance error: ")
        if "Could not resolve all requested row IDs" in reason:
            raise RowsMissing(reason) from error
        if "Not found" in reason:
            reason = f"it, or a part of it, no longer exists ({reason})"
        raise store_error(f"Can't use the index {location}", reason) from error


def quote(text: str) -> str:
    """Quote a text for a filter expression."""
    return "'" + text.replace("'", "''") + "'"


def open_tables(
    location: str, create: bool, options: Mapping[str, str], *, upgrade: bool = True
) -> tuple[LanceTable, LanceTable]:
    """Open or create the tables ``catalog`` and ``rows`` at a URL.

    Credentials and endpoints that aren't in the options come from the environment
    (``AWS_ACCESS_KEY_ID`` and so on).
    """
    try:
        import lancedb  # noqa: F401
        import pyarrow as pa  # noqa: F401 - LanceDB needs it too
    except ImportError as error:
        raise MissingExtra("An index in object storage", "cloud") from error

    schemas = _schemas()
    with _translate_errors(location):
        connection = _connect(location, options)
        tables = {}
        for name in sorted(connection.list_tables().tables):
            # A table can be listed shortly before it can be opened.
            tables[name] = _retry(partial(connection.open_table, name), "not found")
            metadata = tables[name].schema.metadata or {}
            _check_format(location, name, metadata.get(_FORMAT_KEY))
        if not create and "catalog" not in tables:
            raise no_index_error(location)
        create_table = partial(
            connection.create_table, exist_ok=True, storage_options={**_OPTIONS, **options}
        )
        # The catalog is created last, because an index with a catalog is complete.
        for name in ("rows", "catalog"):
            if name in tables:
                if upgrade:
                    _add_columns(tables[name], schemas[name])
            else:
                action = partial(create_table, name, schema=schemas[name])
                tables[name] = _retry(action, "not found", "exists", "conflict")
        return LanceTable(tables["catalog"], location), LanceTable(tables["rows"], location)


def open_items(location: str, options: Mapping[str, str]) -> LanceTable | None:
    """Open the table ``items`` of an index; return None if it is missing."""
    with _translate_errors(location):
        connection = _connect(location, options)
        if "items" not in connection.list_tables().tables:
            return None
        table = _retry(partial(connection.open_table, "items"), "not found")
        return LanceTable(table, location)


def create_items(location: str, options: Mapping[str, str]) -> LanceTable:
    """Create the table ``items`` of an index, unless another process just did."""
    with _translate_errors(location):
        action = partial(
            _connect(location, options).create_table,
            "items",
            schema=_schemas()["items"],
            exist_ok=True,
            storage_options={**_OPTIONS, **options},
        )
        return LanceTable(_retry(action, "not found", "exists", "conflict"), location)


def _connect(location: str, options: Mapping[str, str]) -> Any:
    import lancedb

    # An interval of 0 means that every read sees all earlier commits of other processes.
    return lancedb.connect(
        location, read_consistency_interval=timedelta(0), storage_options=dict(options)
    )


def _add_columns(table: Any, schema: Any) -> None:
    """Add the columns that a table of an older version lacks, unless it is read-only."""

    def add() -> None:
        missing = [field for field in schema if field.name not in table.schema.names]
        if missing:
            table.add_columns(missing)

    # LanceDB raises any type of error. If anything else is wrong, reading the table will fail.
    with contextlib.suppress(Exception):
        _retry(add, "conflict", "concurrent", "exist")


def _check_format(location: str, table: str, version: bytes | None) -> None:
    if version is None:
        raise NotAnIndex(
            f"{location} is a LanceDB database, but not a ViSAR index: it has a table {table!r}. "
            "Choose another location."
        )
    if version != str(FORMAT).encode():
        raise NotAnIndex(
            f"{location} has format {version.decode()}, but this version of ViSAR reads format "
            f"{FORMAT}. Run pip install --upgrade {DISTRIBUTION}, or choose another location."
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
            # Small values that are read in bulk, and large values.
            *[("content", pa.large_binary()), lancedb.blob("data")],
            # The layout of a page. Older tables are upgraded with this column.
            ("blocks", text),
        ],
        "items": [
            *[("uid", text), ("kind", text), ("id", text)],
            *[("number", pa.int64()), ("content", text)],
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
            # A blob is stored as a struct with either its bytes or a reference.
            stored = [None if value is None else {"data": value} for value in values]
            array = pa.array(stored, field.type.storage_type)
            columns.append(pa.ExtensionArray.from_storage(field.type, array))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))
