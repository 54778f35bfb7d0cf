"""What an interrupted add has left behind, to go on from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from zlib import crc32

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.store.catalog import Catalog
from visar.store.records import EncoderRef
from visar.store.rows import (
    HEADER_BYTES,
    PAGE_COLUMNS,
    embeddings_of,
    invalid_of,
    page_checksum,
    page_of,
)
from visar.store.tables import Row, RowsMissing, Tables, one_of, quoted


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Pages and vectors that were written but never committed."""

    blocks: dict[int, Row]
    """For each page number that is complete: the block with its vectors."""
    page_rows: dict[int, int]
    """For each of them: the row id of the page."""
    revisions: frozenset[str]
    """All unfinished revisions of this document by this encoder, usable or not."""

    def read(
        self, tables: Tables, encoder: EncoderRef, numbers: Iterable[int]
    ) -> Iterator[tuple[Page, PageEmbedding]]:
        """Give back those of these pages that are intact, in page order."""
        held_row, held = -1, dict[int, PageEmbedding]()
        for number in sorted(set(numbers) & set(self.blocks)):
            block = self.blocks[number]
            if block["_rowid"] != held_row:
                held_row, held = block["_rowid"], _read_block(tables, encoder, block)
            if number in held:
                page = _read_page(tables, self.page_rows[number])
                if page is not None:
                    yield page, held[number]


def find_leftovers(
    tables: Tables, catalog: Catalog, document: str, encoder: EncoderRef
) -> Leftovers:
    """Look for pages written for this document by this very encoder and never committed."""
    blocks = tables.vectors.scan(
        ("revision", "pages_revision", "first", "lengths", "checksum", "invalid"),
        f"document = {quoted(document)} AND encoder = {quoted(encoder.name)} "
        f"AND version = {quoted(encoder.version)} AND dimension = {encoder.dimension}",
    )
    committed = catalog.vectors_revisions()
    blocks = [block for block in blocks if block["revision"] not in committed]
    rows = _page_rows(tables, catalog, document, blocks)
    found: dict[int, Row] = {}
    page_rows: dict[int, int] = {}
    for block in blocks:
        for number in range(block["first"], block["first"] + len(block["lengths"])):
            row = rows.get((block["pages_revision"], number))
            if row is not None:
                found[number], page_rows[number] = block, row
    return Leftovers(found, page_rows, frozenset(block["revision"] for block in blocks))


def _page_rows(
    tables: Tables, catalog: Catalog, document: str, blocks: list[Row]
) -> dict[tuple[str, int], int]:
    """Row ids of the pages that vectors may refer to, by revision and number.

    Vectors point to words of the pages they were made from: of a document that is there these
    are its own, of one that is not those written together with the vectors.
    """
    live = catalog.live.get(document)
    if live is not None:
        return {(live.entry.revision, i): row for i, row in enumerate(live.entry.rows, start=1)}
    revisions = {b["revision"] for b in blocks if b["revision"] == b["pages_revision"]}
    if not revisions:
        return {}
    scanned = tables.pages.scan(("revision", "number"), one_of("revision", sorted(revisions)))
    return {(row["revision"], row["number"]): row["_rowid"] for row in scanned}


def _read_block(tables: Tables, encoder: EncoderRef, block: Row) -> dict[int, PageEmbedding]:
    try:
        (data,) = tables.vectors.blobs("data", [block["_rowid"]])
    except RowsMissing:
        return {}
    if crc32(data) != block["checksum"]:
        return {}
    pages = embeddings_of(data[HEADER_BYTES:], block["lengths"], encoder.dimension)
    found = dict(enumerate(pages, start=block["first"]))
    for number, reason in invalid_of(block["invalid"]):
        found[number] = replace(found[number], invalid=reason)
    return found


def _read_page(tables: Tables, row_id: int) -> Page | None:
    try:
        (row,) = tables.pages.take([row_id], PAGE_COLUMNS)
    except RowsMissing:
        return None
    return page_of(row) if page_checksum(row) == row["checksum"] else None
