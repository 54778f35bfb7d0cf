"""Looking after an index: finding what is wrong, dropping what is not needed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from zlib import crc32

from visar.errors import StoreError
from visar.store.catalog import Catalog, DocumentEntry, LiveDocument, VectorsEntry, droppable, now
from visar.store.log import CatalogLog
from visar.store.records import Compaction, Problem
from visar.store.rows import (
    HEADER_BYTES,
    PAGE_COLUMNS,
    checksum_of_pages,
    embedding_bytes,
    embeddings_of,
    page_checksum,
)
from visar.store.tables import LanceTable, Row, RowsMissing, Tables, one_of, quoted

BLOCK_COLUMNS = ("document", "encoder", "version", "dimension", "first", "lengths", "checksum")


def find_problems(tables: Tables, log: CatalogLog) -> Iterator[Problem]:
    """Read the whole index and compare it with itself."""
    # Rows before the catalog: what is committed meanwhile must not be taken for an orphan.
    listed: dict[str, dict[str, list[Row]]] = {}
    for name, table in _row_tables(tables):
        try:
            listed[name] = _revisions(table)
        except StoreError as error:
            yield Problem("damage", "", f"the {name}: {error}")
    catalog = log.read()
    for document in catalog.live.values():
        try:
            yield from _document_problems(tables, document)
        except StoreError as error:
            yield Problem("damage", document.entry.document, str(error))
    yield from _dimension_problems(catalog)
    for (name, _), live in zip(_row_tables(tables), _live_revisions(catalog), strict=True):
        yield from _orphan_problems(name, listed.get(name, {}), live)


def _document_problems(tables: Tables, document: LiveDocument) -> Iterator[Problem]:
    word_counts: dict[int, int] = {}
    yield from _page_problems(tables.pages, document.entry, word_counts)
    for vectors in document.vectors.values():
        yield from _vector_problems(tables.vectors, vectors, document.entry, word_counts)


def _row_tables(tables: Tables) -> tuple[tuple[str, LanceTable], tuple[str, LanceTable]]:
    return ("pages", tables.pages), ("blocks of vectors", tables.vectors)


def _live_revisions(catalog: Catalog) -> tuple[set[str], set[str]]:
    return catalog.pages_revisions(), catalog.vectors_revisions()


def _revisions(table: LanceTable) -> dict[str, list[Row]]:
    revisions: dict[str, list[Row]] = defaultdict(list)
    for row in table.scan(("revision", "document", "written")):
        revisions[row["revision"]].append(row)
    return revisions


def _orphan_problems(
    what: str, revisions: dict[str, list[Row]], live: set[str]
) -> Iterator[Problem]:
    counts = Counter[str]()
    for revision, rows in revisions.items():
        if revision not in live:
            counts[rows[0]["document"]] += len(rows)
    for document, count in sorted(counts.items()):
        yield Problem("orphan", document, f"{count} {what} of an unfinished or replaced version")


def _page_problems(
    table: LanceTable, entry: DocumentEntry, word_counts: dict[int, int]
) -> Iterator[Problem]:
    where = f"revision = {quoted(entry.revision)}"
    found: dict[int, Row] = {}
    for row in table.scan(PAGE_COLUMNS, where):
        number = row["number"]
        if number in found:
            yield Problem("damage", entry.document, f"page {number} is there twice")
        found[number] = row
        word_counts[number] = len(row["texts"])
        if page_checksum(row) != row["checksum"] or len(row["boxes"]) != 4 * len(row["texts"]):
            yield Problem("damage", entry.document, f"page {number} has a wrong checksum")
    expected = dict(enumerate(entry.rows, start=1))
    if len(expected) != entry.pages:
        yield Problem("damage", entry.document, f"{len(expected)} of {entry.pages} pages are named")
    for number, row_id in expected.items():
        if number not in found:
            yield Problem("damage", entry.document, f"page {number} is missing")
        elif found[number]["_rowid"] != row_id:
            yield Problem("damage", entry.document, f"page {number} is not where it should be")
    yield from (
        Problem("damage", entry.document, f"page {number} should not be there")
        for number in sorted(set(found) - set(expected))
    )
    checksums = [found[number]["checksum"] for number in sorted(found)]
    if set(found) == set(expected) and checksum_of_pages(checksums) != entry.checksum:
        yield Problem("damage", entry.document, "the pages are not those that were added")


def _vector_problems(
    table: LanceTable, entry: VectorsEntry, document: DocumentEntry, word_counts: dict[int, int]
) -> Iterator[Problem]:
    def damage(what: str) -> Problem:
        return Problem("damage", entry.document, f"vectors of {entry.encoder.name}: {what}")

    if not entry.consistent:
        yield damage("the catalog contradicts itself")
        return
    if len(entry.lengths) != document.pages:
        yield damage(f"they are for {len(entry.lengths)} of {document.pages} pages")
    blocks = table.scan(BLOCK_COLUMNS, f"revision = {quoted(entry.revision)}")
    by_id = {block["_rowid"]: block for block in blocks}
    if len(blocks) > len(entry.rows):
        yield damage(f"there are {len(blocks)} blocks instead of {len(entry.rows)}")
    ends = [*entry.firsts[1:], len(entry.lengths) + 1]
    for row_id, first, end in zip(entry.rows, entry.firsts, ends, strict=True):
        pages = f"pages {first} to {end - 1}"
        block = by_id.get(row_id)
        if block is None:
            yield damage(f"{pages} are missing")
        elif (
            block["first"] != first or tuple(block["lengths"]) != entry.lengths[first - 1 : end - 1]
        ):
            yield damage(f"{pages} do not have the lengths they should have")
        elif block["dimension"] != entry.encoder.dimension:
            yield damage(f"{pages} have {block['dimension']} dimensions")
        else:
            what = _block_problem(table, block, entry, word_counts)
            if what is not None:
                yield damage(f"{pages} {what}")


def _block_problem(
    table: LanceTable, block: Row, entry: VectorsEntry, word_counts: dict[int, int]
) -> str | None:
    try:
        (data,) = table.blobs("data", [block["_rowid"]])
    except RowsMissing as error:
        return f"cannot be read: {error}"
    expected = HEADER_BYTES + embedding_bytes(sum(block["lengths"]), entry.encoder.dimension)
    if len(data) != expected:
        return f"have {len(data)} bytes instead of {expected}"
    if crc32(data) != block["checksum"] or data[:HEADER_BYTES] != bytes.fromhex(entry.revision):
        return "have a wrong checksum"
    embeddings = embeddings_of(data[HEADER_BYTES:], block["lengths"], entry.encoder.dimension)
    for number, embedding in enumerate(embeddings, start=block["first"]):
        if len(embedding.words) and embedding.words.max() >= word_counts.get(number, 0):
            return f"name words that page {number} does not have"
    return None


def _dimension_problems(catalog: Catalog) -> Iterator[Problem]:
    dimensions: dict[tuple[str, str], int] = {}
    for document in catalog.live.values():
        for entry in document.vectors.values():
            encoder = entry.encoder
            known = dimensions.setdefault((encoder.name, encoder.version), encoder.dimension)
            if known != encoder.dimension:
                what = f"vectors of {encoder}, where other documents have {known} dimensions"
                yield Problem("damage", entry.document, what)


def compact(tables: Tables, log: CatalogLog, grace: timedelta) -> Compaction:
    """Drop what nobody needs, then merge small files.

    Whatever is younger than ``grace`` stays: it may belong to a write that is going on, or be
    read by a process that has just looked it up.
    """
    before = now() - grace
    listed = [_revisions(table) for _, table in _row_tables(tables)]
    dropped = []
    live = _live_revisions(log.read())
    for (_, table), revisions, keep in zip(_row_tables(tables), listed, live, strict=True):
        orphans = [r for r, rows in revisions.items() if r not in keep and _older(rows, before)]
        if orphans:
            table.delete(one_of("revision", orphans))
        dropped.append(sum(len(revisions[revision]) for revision in orphans))
    entries = droppable(log.entries(), before)
    if entries:
        tables.catalog.delete(one_of("uid", [entry.uid for entry in entries]))
    for table in (tables.pages, tables.vectors, tables.catalog):
        table.compact(grace)
    return Compaction(dropped[0], dropped[1], len(entries))


def _older(rows: list[Row], moment: datetime) -> bool:
    return all(row["written"] < moment for row in rows)
