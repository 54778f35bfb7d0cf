"""From rows back to pages and vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visar.documents.page import Page
from visar.store.catalog import DocumentEntry, VectorsEntry
from visar.store.records import DocumentVectors
from visar.store.rows import BOX, HEADER_BYTES, PAGE_COLUMNS, VECTOR, WORD, page_of
from visar.store.tables import LanceTable, RowsMissing


def load_pages(table: LanceTable, entry: DocumentEntry, numbers: Sequence[int]) -> list[Page]:
    """The pages with these numbers, in that order."""
    wanted = dict.fromkeys(numbers)
    rows = table.take([entry.rows[number - 1] for number in wanted], ("revision", *PAGE_COLUMNS))
    pages = {row["number"]: page_of(row) for row in rows if row["revision"] == entry.revision}
    if set(pages) != set(wanted):
        raise RowsMissing(f"not every page of {sorted(wanted)} is there")
    return [pages[number] for number in numbers]


def load_vectors(table: LanceTable, entry: VectorsEntry) -> DocumentVectors:
    """All vectors of a document, each block read straight to its place.

    Block by block, not all at once: buffers of a few MB are used again and again by the
    allocator, while one buffer of the whole size costs a page fault for every 4 KB of it.
    """
    if not entry.consistent:
        raise RowsMissing("the catalog contradicts itself")
    lengths = np.array(entry.lengths, np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    arrays = (
        np.empty((n, entry.encoder.dimension), VECTOR),
        np.empty((n, 4), BOX),
        np.empty(n, WORD),
    )
    edges = [*offsets[np.array(entry.firsts) - 1].tolist(), n]
    for i, data in enumerate(table.blobs("data", entry.rows)):
        _place(data, entry.revision, [array[edges[i] : edges[i + 1]] for array in arrays])
    for array in (offsets, *arrays):
        array.setflags(write=False)
    vectors, boxes, words = arrays
    return DocumentVectors(vectors, offsets, boxes, words)


def _place(block: bytes, revision: str, places: list[np.ndarray]) -> None:
    expected = HEADER_BYTES + sum(place.nbytes for place in places)
    if len(block) != expected:
        raise RowsMissing(f"a block has {len(block)} bytes instead of {expected}")
    data = memoryview(block)
    if data[:HEADER_BYTES] != bytes.fromhex(revision):
        raise RowsMissing("a block belongs to another revision")
    start = HEADER_BYTES
    for place in places:
        end = start + place.nbytes
        place.reshape(-1).view(np.uint8)[:] = np.frombuffer(data[start:end], np.uint8)
        start = end
