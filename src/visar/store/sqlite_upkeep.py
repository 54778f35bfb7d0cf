"""Looking after the SQLite store: finding what is wrong, dropping what is not needed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from visar.core.vectors import find_invalid
from visar.errors import StoreError
from visar.store.arrays import array_paths, checksum, map_arrays
from visar.store.database import (
    ARRAYS,
    FILES,
    named_documents,
    page_columns,
    read_catalog,
    summary_files,
)
from visar.store.pages import page_checksum, page_of
from visar.store.records import Problem
from visar.store.sqlite_addition import Claim

ORDERED = "-ordered"


def find_text_problems(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the full text with itself; SQLite takes that for writing, though it is not."""
    try:
        connection.execute("INSERT INTO page_text (page_text) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            yield Problem("damage", "", f"the full text: {error}")


def find_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[Problem]:
    """Read the whole index and compare it with itself."""
    try:
        for (said,) in connection.execute("PRAGMA integrity_check"):
            if said != "ok":
                yield Problem("damage", "", f"the database: {said}")
        for row in connection.execute("PRAGMA foreign_key_check"):
            yield Problem("damage", "", f"the database: a row of {row[0]} belongs to nothing")
        for document, pages in connection.execute("SELECT id, pages FROM documents").fetchall():
            words = dict[int, int]()
            yield from _page_problems(connection, document, pages, words)
            yield from _vector_problems(connection, folder, document, words)
        read_catalog(connection)
        yield from _dimension_problems(connection)
        yield from _orphan_problems(connection, folder)
    except sqlite3.DatabaseError as error:
        yield Problem("damage", "", f"the database: {error}")


def _page_problems(
    connection: sqlite3.Connection, document: str, pages: int, words: dict[int, int]
) -> Iterator[Problem]:
    columns = page_columns(connection)
    query = f"SELECT {columns}, checksum FROM pages WHERE document = ?"  # noqa: S608
    for *values, expected in connection.execute(query, (document,)):
        number = values[0]
        try:
            words[number] = len(page_of((*values[:-1], None)).words)
            if page_checksum(*values[:-1]) != expected:
                yield Problem("damage", document, f"page {number} has a wrong checksum")
            else:
                page_of(tuple(values))
        except StoreError as error:
            yield Problem("damage", document, str(error))
        except (ValueError, TypeError) as error:
            words.setdefault(number, 0)
            yield Problem("damage", document, f"page {number} cannot be read: {error}")
    for number in range(1, pages + 1):
        if number not in words:
            yield Problem("damage", document, f"page {number} is missing")
    for number in sorted(set(words) - set(range(1, pages + 1))):
        yield Problem("damage", document, f"page {number} should not be there")


def _vector_problems(
    connection: sqlite3.Connection, folder: Path, document: str, words: dict[int, int]
) -> Iterator[Problem]:
    query = "SELECT encoder, dimension, array, lengths, checksums FROM vectors WHERE document = ?"
    for encoder, *entry in connection.execute(query, (document,)).fetchall():
        for what in _array_problems(folder, entry, words):
            yield Problem("damage", document, f"vectors of {encoder}: {what}")


def _array_problems(folder: Path, entry: list[Any], words: dict[int, int]) -> Iterator[str]:
    dimension, array, lengths, checksums = entry
    try:
        counts, sums = np.frombuffer(lengths, "<i4"), np.frombuffer(checksums, "<u4")
    except ValueError as error:
        yield f"their lengths and checksums cannot be read: {error}"
        return
    if len(counts) != len(words) or len(sums) != len(words):
        yield f"they are for {len(counts)} of {len(words)} pages"
        return
    try:
        vectors, patches = map_arrays(folder / ARRAYS, array, int(counts.sum()), dimension)
    except StoreError as error:
        yield str(error)
        return
    start = 0
    for number, (count, expected) in enumerate(zip(counts, sums, strict=True), start=1):
        rows = slice(start, start := start + int(count))
        if checksum(vectors[rows].tobytes(), patches[rows].tobytes()) != expected:
            yield f"page {number} has a wrong checksum"
        elif count and patches["word"][rows].max() >= words.get(number, 0):
            yield f"page {number} names words that it does not have"
        elif find_invalid(vectors[rows]) is not None:
            yield f"page {number} has a vector that is not finite or not of length 1"


def _dimension_problems(connection: sqlite3.Connection) -> Iterator[Problem]:
    query = (
        "SELECT encoder, version, group_concat(DISTINCT dimension) FROM vectors "
        "GROUP BY encoder, version HAVING count(DISTINCT dimension) > 1"
    )
    for encoder, version, dimensions in connection.execute(query):
        yield Problem("damage", "", f"{encoder} {version} has vectors of {dimensions} dimensions")


def _orphan_problems(connection: sqlite3.Connection, folder: Path) -> Iterator[Problem]:
    query = (
        "SELECT array, document, count(number) FROM drafts LEFT JOIN draft_pages USING (array) "
        "GROUP BY array"
    )
    for array, document, pages in connection.execute(query).fetchall():
        if not Claim.is_taken(folder / ARRAYS, array):
            yield Problem("orphan", document, f"{pages} pages of an unfinished addition")
    for path in sorted(_garbage(connection, folder)):
        yield Problem("orphan", "", f"the file {path.name} belongs to nothing")


def _garbage(connection: sqlite3.Connection, folder: Path) -> Iterator[Path]:
    """The files that no row names.

    A file is made after the row of its draft, and deleted after the row is: whatever no row
    names, nobody needs.
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
        being_copied = path.suffix == ".part" and path.name.rsplit(".", 2)[0] in adding
        if path.name not in documents and not being_copied:
            yield path


def delete_path(path: Path) -> tuple[int, int]:
    """Delete a file or a folder; return how many files and bytes that were."""
    files = [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
    try:
        size = sum(file.stat().st_size for file in files)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return 0, 0  # another process was faster
    return len(files), size


def drop_drafts(connection: sqlite3.Connection, folder: Path) -> int:
    """Delete the rows of drafts that nobody works on; return how many pages these had."""
    pages = 0
    query = (
        "SELECT array, count(number) FROM drafts LEFT JOIN draft_pages USING (array) GROUP BY array"
    )
    for array, count in connection.execute(query).fetchall():
        claim = Claim.take(folder / ARRAYS, array, None)
        if claim is not None:
            connection.execute("DELETE FROM drafts WHERE array = ?", (array,))
            claim.release()
            pages += count
    return pages


def delete_garbage(connection: sqlite3.Connection, folder: Path) -> tuple[int, int]:
    """Delete the files that no row names, in a transaction, so that none gets a row meanwhile.

    Returns how many files and bytes that were.
    """
    deleted = [delete_path(path) for path in _garbage(connection, folder)]
    files, size = (sum(counts) for counts in zip((0, 0), *deleted, strict=True))
    return files, size
