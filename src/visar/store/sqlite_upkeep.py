"""Maintenance of the SQLite store: finding problems and deleting unused data."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from visar.core.vectors import find_invalid
from visar.encoders.coding import coding_of
from visar.errors import StoreError
from visar.results import EncoderRef
from visar.store.arrays import array_paths, checksum, map_arrays
from visar.store.database import (
    ARRAYS,
    FILES,
    named_documents,
    page_columns,
    read_catalog,
    summary_files,
)
from visar.store.pages import page_checksum, row_to_page
from visar.store.records import Problem
from visar.store.sqlite_addition import Claim

ORDERED = "-ordered"


def find_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[Problem]:
    """Check the whole index and yield its problems."""
    try:
        for (message,) in connection.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield Problem("damage", "", f"the database: {message}")
        for row in connection.execute("PRAGMA foreign_key_check"):
            yield Problem("damage", "", f"the database: a row of {row[0]} has no parent")
        for document, pages in connection.execute("SELECT id, pages FROM documents").fetchall():
            words = dict[int, int]()
            yield from _page_problems(connection, document, pages, words)
            yield from _vector_problems(connection, folder, document, words)
        read_catalog(connection)
        yield from _dimension_problems(connection)
        yield from _orphan_problems(connection, folder)
        yield from _text_problems(connection)
    except sqlite3.DatabaseError as error:
        yield _damage("the database", error)


def _damage(subject: str, error: sqlite3.DatabaseError) -> Problem:
    # The temporary tables of the check may not fit on a full disk. That isn't damage.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        raise error
    return Problem("damage", "", f"{subject}: {error}")


def _page_problems(
    connection: sqlite3.Connection, document: str, pages: int, words: dict[int, int]
) -> Iterator[Problem]:
    columns = page_columns(connection)
    query = f"SELECT {columns}, checksum FROM pages WHERE document = ?"  # noqa: S608
    for *values, expected in connection.execute(query, (document,)):
        number = values[0]
        try:
            words[number] = len(row_to_page((*values[:-1], None)).words)
            if page_checksum(*values[:-1]) != expected:
                yield Problem("damage", document, f"page {number} has a wrong checksum")
            else:
                row_to_page(tuple(values))
        except StoreError as error:
            yield Problem("damage", document, str(error))
        except (ValueError, TypeError) as error:
            words.setdefault(number, 0)
            yield Problem("damage", document, f"page {number} is malformed: {error}")
    for number in range(1, pages + 1):
        if number not in words:
            yield Problem("damage", document, f"page {number} is missing")
    for number in sorted(set(words) - set(range(1, pages + 1))):
        yield Problem("damage", document, f"page {number} is beyond the last page")


def _vector_problems(
    connection: sqlite3.Connection, folder: Path, document: str, words: dict[int, int]
) -> Iterator[Problem]:
    query = (
        "SELECT encoder, version, dimension, array, lengths, checksums FROM vectors "
        "WHERE document = ?"
    )
    for name, version, dimension, *entry in connection.execute(query, (document,)).fetchall():
        for message in _array_problems(folder, EncoderRef(name, version, dimension), entry, words):
            yield Problem("damage", document, f"vectors of {name}: {message}")


def _array_problems(
    folder: Path, encoder: EncoderRef, entry: list[Any], words: dict[int, int]
) -> Iterator[str]:
    array, lengths, checksums = entry
    try:
        counts, sums = np.frombuffer(lengths, "<i4"), np.frombuffer(checksums, "<u4")
    except ValueError as error:
        yield f"the lengths or checksums are malformed: {error}"
        return
    if len(counts) != len(words) or len(sums) != len(words):
        yield f"the index has vectors for {len(counts)} of {len(words)} pages"
        return
    try:
        vectors, patches = map_arrays(folder / ARRAYS, array, int(counts.sum()), encoder)
    except StoreError as error:
        yield str(error)
        return
    start, coding = 0, coding_of(encoder.name)
    for number, (count, expected) in enumerate(zip(counts, sums, strict=True), start=1):
        rows = slice(start, start := start + int(count))
        if checksum(vectors[rows].tobytes(), patches[rows].tobytes()) != expected:
            yield f"page {number} has a wrong checksum"
        elif count and patches["word"][rows].max() >= words.get(number, 0):
            yield f"page {number} refers to words that it doesn't have"
        elif find_invalid(coding.decode(vectors[rows], encoder.dimension)) is not None:
            yield f"page {number} has a vector that isn't finite or of length 1"


def _dimension_problems(connection: sqlite3.Connection) -> Iterator[Problem]:
    query = (
        "SELECT encoder, version, group_concat(DISTINCT dimension) FROM vectors "
        "GROUP BY encoder, version HAVING count(DISTINCT dimension) > 1"
    )
    for encoder, version, dimensions in connection.execute(query):
        yield Problem("damage", "", f"{encoder} {version} has vectors of {dimensions} dimensions")


def _text_problems(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the full-text index with a new one of the same pages in a temporary database.

    SQLite's own check needs a write lock, which isn't possible in a read-only index. The temporary
    tables are dropped when the transaction ends.
    """
    terms = "CREATE VIRTUAL TABLE temp.{} USING fts5vocab ({}, {}, instance)"
    statements = (
        "CREATE VIRTUAL TABLE temp.expected_text USING fts5 (words, content = '')",
        "INSERT INTO expected_text (rowid, words) SELECT id, words FROM pages",
        terms.format("expected_terms", "temp", "expected_text"),
        terms.format("stored_terms", "main", "page_text"),
    )
    try:
        for statement in statements:
            connection.execute(statement)
        expected = connection.execute("SELECT * FROM expected_terms")
        stored = connection.execute("SELECT * FROM stored_terms")
        if any(one != other for one, other in zip_longest(expected, stored)):
            yield Problem("damage", "", "the full-text index doesn't match the pages")
    except sqlite3.DatabaseError as error:
        yield _damage("the full-text index", error)


def _orphan_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[Problem]:
    query = (
        "SELECT array, document, count(number) FROM drafts LEFT JOIN draft_pages USING (array) "
        "GROUP BY array"
    )
    for array, document, pages in connection.execute(query).fetchall():
        if not Claim.is_claimed(folder / ARRAYS, array):
            yield Problem("orphan", document, f"{pages} pages of an unfinished addition")
    for path in sorted(_garbage(connection, folder)):
        yield Problem("orphan", "", f"the file {path.name} is unused")


def _garbage(connection: sqlite3.Connection, folder: Path) -> Iterator[Path]:
    """Yield the files that no row refers to.

    A file is created after the row of its draft, and deleted after its row. So a file without a
    row is never in use.
    """
    arrays = {array for (array,) in connection.execute("SELECT array FROM vectors")}
    named = {path.name for array in arrays for path in array_paths(folder / ARRAYS, array)}
    drafts = {array for (array,) in connection.execute("SELECT array FROM drafts")}
    for path in list((folder / ARRAYS).iterdir()):
        draft = path.name.partition(".")[0].removesuffix(ORDERED)
        if path.name not in named and draft not in drafts:
            yield path
    documents = named_documents(connection)
    yield from (path for document, path in summary_files(folder) if document not in documents)
    adding = {document for (document,) in connection.execute("SELECT document FROM drafts")}
    for path in list((folder / FILES).iterdir()):
        in_progress = path.suffix == ".part" and path.name.rsplit(".", 2)[0] in adding
        if path.name not in documents and not in_progress:
            yield path


def delete_path(path: Path) -> tuple[int, int]:
    """Delete a file or a folder; return the number of files and bytes."""
    files = [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
    try:
        size = sum(file.stat().st_size for file in files)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return 0, 0  # another process deleted it first
    return len(files), size


def drop_drafts(connection: sqlite3.Connection, folder: Path) -> int:
    """Delete the rows of drafts without an owner; return their number of pages."""
    pages = 0
    query = (
        "SELECT array, count(number) FROM drafts LEFT JOIN draft_pages USING (array) GROUP BY array"
    )
    for array, count in connection.execute(query).fetchall():
        claim = Claim.acquire(folder / ARRAYS, array, None)
        if claim is not None:
            connection.execute("DELETE FROM drafts WHERE array = ?", (array,))
            claim.release()
            pages += count
    return pages


def delete_garbage(connection: sqlite3.Connection, folder: Path) -> tuple[int, int]:
    """Delete the files that no row refers to; return the number of files and bytes.

    Must run in a write transaction, so that no file gets a row in the meantime.
    """
    deleted = [delete_path(path) for path in _garbage(connection, folder)]
    files, size = (sum(counts) for counts in zip((0, 0), *deleted, strict=True))
    return files, size
