"""Adding a document: rows under a fresh revision first, one commit at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from uuid import uuid4

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.errors import StoreConflict, StoreError
from visar.store.catalog import (
    Catalog,
    DocumentEntry,
    Entry,
    LiveDocument,
    RemovedEntry,
    VectorsEntry,
    now,
    relocated,
)
from visar.store.leftovers import find_leftovers
from visar.store.log import CatalogLog
from visar.store.records import EncoderRef, NewDocument
from visar.store.rows import (
    block_row,
    check_embedding,
    checksum_of_pages,
    embedding_bytes,
    invalid_of,
    page_row,
)
from visar.store.tables import LanceTable, Row, RowsMissing, Tables, one_of, quoted

# LanceDB packs blobs up to 4 MiB into one file; buffers of that size are also cheap to reuse.
BLOCK_BYTES = 4 << 20
# How much may be lost when the process dies: this many bytes, or this many seconds of work.
FLUSH_BYTES = 32 << 20
FLUSH_SECONDS = 10.0

COMMIT_ATTEMPTS = 5


class Draft:
    """Rows of one document by one encoder, written and not yet committed."""

    def __init__(
        self, tables: Tables, document: NewDocument, encoder: EncoderRef, pages: str | None
    ) -> None:
        """``pages`` is the revision of the pages that are there already, if any."""
        self._tables = tables
        self._document = document
        self._encoder = encoder
        self.revision = uuid4().hex
        self.brings_pages = pages is None
        self.pages_revision = self.revision if pages is None else pages
        self._pending: list[tuple[Page, PageEmbedding]] = []
        self._pending_bytes = 0
        self._flushed_at = time.monotonic()
        self._lengths: dict[int, int] = {}
        self._checksums: dict[int, int] = {}

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        """Take in a page; write when enough have gathered."""
        if not 1 <= page.number <= self._document.pages or page.number in self._lengths:
            raise StoreError(
                f"page {page.number} of {self._document.name} came twice or does not exist: "
                f"the document has {self._document.pages} pages"
            )
        check_embedding(page, embedding, self._encoder.dimension)
        self._lengths[page.number] = len(embedding.vectors)
        self._pending.append((page, embedding))
        self._pending_bytes += embedding_bytes(len(embedding.vectors), self._encoder.dimension)
        waited = time.monotonic() - self._flushed_at
        if self._pending_bytes >= FLUSH_BYTES or waited >= FLUSH_SECONDS:
            self.flush()

    def missing(self) -> set[int]:
        """The pages that have not come yet."""
        return set(range(1, self._document.pages + 1)) - set(self._lengths)

    def flush(self) -> None:
        """Write what has gathered: the pages first, so that no vectors are without."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending and self.brings_pages:
            rows = [page_row(page) for page, _ in pending]
            self._checksums.update((row["number"], row["checksum"]) for row in rows)
            self._tables.pages.append([self._common() | row for row in rows])
        if pending:
            made_by = {
                "encoder": self._encoder.name,
                "version": self._encoder.version,
                "dimension": self._encoder.dimension,
                "pages_revision": self.pages_revision,
            }
            blocks = [
                block_row(self.revision, block[0][0].number, [e for _, e in block])
                for block in _blocks(pending)
            ]
            self._tables.vectors.append([self._common() | made_by | block for block in blocks])
        self._flushed_at = time.monotonic()

    def _common(self) -> Row:
        return {"revision": self.revision, "document": self._document.id, "written": now()}

    def pages_checksum(self) -> int:
        """Tells whether two drafts brought the same pages."""
        return checksum_of_pages([self._checksums[number] for number in sorted(self._checksums)])

    def document_entry(self) -> DocumentEntry:
        """What commits the pages."""
        numbered = sorted(
            (row["number"], row["_rowid"])
            for row in self._tables.pages.scan(("number",), f"revision = {quoted(self.revision)}")
        )
        self._expect([number for number, _ in numbered])
        return DocumentEntry(
            document=self._document.id,
            name=self._document.name,
            source=self._document.source,
            pages=self._document.pages,
            size=self._document.size,
            added=now(),
            revision=self.revision,
            rows=tuple(row for _, row in numbered),
            checksum=self.pages_checksum(),
        )

    def vectors_entry(self, pages_revision: str, abandons: tuple[str, ...]) -> VectorsEntry:
        """What commits the vectors."""
        where = f"revision = {quoted(self.revision)}"
        blocks = self._tables.vectors.scan(("first", "lengths", "invalid"), where)
        blocks.sort(key=lambda block: int(block["first"]))
        self._expect([b["first"] + i for b in blocks for i in range(len(b["lengths"]))])
        return VectorsEntry(
            document=self._document.id,
            encoder=self._encoder,
            revision=self.revision,
            pages_revision=pages_revision,
            rows=tuple(block["_rowid"] for block in blocks),
            firsts=tuple(block["first"] for block in blocks),
            lengths=tuple(length for block in blocks for length in block["lengths"]),
            invalid=tuple(page for block in blocks for page in invalid_of(block["invalid"])),
            abandons=abandons,
        )

    def _expect(self, numbers: list[int]) -> None:
        if numbers != list(range(1, self._document.pages + 1)):
            raise RowsMissing(f"pages {numbers} are there of 1 to {self._document.pages}")


def _blocks(
    pending: list[tuple[Page, PageEmbedding]],
) -> Iterator[list[tuple[Page, PageEmbedding]]]:
    """Cut into runs of consecutive pages, of at most BLOCK_BYTES unless a page is larger."""
    block: list[tuple[Page, PageEmbedding]] = []
    size = 0
    for page, embedding in pending:
        own = embedding_bytes(len(embedding.vectors), embedding.vectors.shape[1])
        follows = bool(block) and page.number == block[-1][0].number + 1
        if block and (not follows or size + own > BLOCK_BYTES):
            yield block
            block, size = [], 0
        block.append((page, embedding))
        size += own
    yield block


class Addition:
    """One call of ``Store.add``."""

    def __init__(
        self, tables: Tables, log: CatalogLog, document: NewDocument, encoder: EncoderRef
    ) -> None:
        self._tables = tables
        self._log = log
        self._document = document
        self._encoder = encoder

    def run(self, pages: Iterable[tuple[Page, PageEmbedding]]) -> LiveDocument:
        """Write, fill up from an interrupted try, commit, tidy up."""
        catalog = self._log.read()
        self._refuse_other_dimension(catalog)
        live = catalog.live.get(self._document.id)
        if live is not None and live.has(self._encoder):
            return self._update_place(live, catalog)
        if live is not None and live.entry.pages != self._document.pages:
            raise StoreError(
                f"{self._document.name} has {self._document.pages} pages now and "
                f"{live.entry.pages} in the index, under the same id {self._document.id}"
            )
        revision = None if live is None else live.entry.revision
        draft = Draft(self._tables, self._document, self._encoder, revision)
        self._write(draft, pages)
        return self._commit(draft)

    def _refuse_other_dimension(self, catalog: Catalog) -> None:
        for document in catalog.live.values():
            stored = document.vectors.get(self._encoder.name)
            if stored is None or stored.encoder.version != self._encoder.version:
                continue
            if stored.encoder.dimension != self._encoder.dimension:
                raise StoreError(
                    f"the index has vectors of {stored.encoder}: those of {self._encoder} do not "
                    "go with them. An encoder with other vectors needs another version"
                )

    def _write(self, draft: Draft, pages: Iterable[tuple[Page, PageEmbedding]]) -> None:
        try:
            for page, embedding in pages:
                draft.put(page, embedding)
        finally:
            # Also when the caller fails or is interrupted: the next try goes on from here.
            draft.flush()
        if not draft.missing():
            return
        catalog = self._log.read()
        leftovers = find_leftovers(self._tables, catalog, self._document.id, self._encoder)
        for page, embedding in leftovers.read(self._tables, self._encoder, draft.missing()):
            draft.put(page, embedding)
        draft.flush()
        absent = sorted(draft.missing())
        if absent:
            raise StoreConflict(
                f"{len(absent)} of {self._document.pages} pages of {self._document.name} were not "
                f"given, the first is page {absent[0]}. Those given are kept: add the others"
            )

    def _commit(self, draft: Draft) -> LiveDocument:
        for _ in range(COMMIT_ATTEMPTS):
            before = self._log.read()
            live = before.live.get(self._document.id)
            if live is not None and live.has(self._encoder):
                self._sweep(before, before, {draft.revision})
                return self._update_place(live, before)
            found = find_leftovers(self._tables, before, self._document.id, self._encoder)
            leftovers = found.revisions - {draft.revision}
            try:
                entries = self._entries(draft, before, tuple(leftovers))
            except RowsMissing as error:
                if self._log.read() is not before:
                    continue  # Another process has added the document and tidied up.
                raise StoreConflict(
                    f"rows of {self._document.name} vanished while it was being added: the index "
                    "was compacted with too short a grace, or is damaged. Add it again"
                ) from error
            self._log.append(entries)
            after = self._log.read()
            live = after.live.get(self._document.id)
            if live is not None and live.has(self._encoder):
                self._sweep(before, after, {draft.revision, *leftovers})
                return live
        raise StoreConflict(f"other processes keep changing {self._document.name}: add it again")

    def _entries(self, draft: Draft, catalog: Catalog, abandons: tuple[str, ...]) -> list[Entry]:
        live = catalog.live.get(self._document.id)
        if live is None:
            if not draft.brings_pages:
                raise StoreConflict(
                    f"{self._document.name} was removed by another process while vectors were "
                    "being added to it. Add it again"
                )
            vectors = draft.vectors_entry(draft.revision, abandons)
            return [draft.document_entry(), vectors, *self._replaced(catalog)]
        same_pages = (
            draft.pages_checksum() == live.entry.checksum
            if draft.brings_pages
            else draft.pages_revision == live.entry.revision
        )
        if not same_pages:
            raise StoreConflict(
                f"another process added {self._document.name} with other words at the same time. "
                "Add it again"
            )
        vectors = draft.vectors_entry(live.entry.revision, abandons)
        return [vectors, *self._move(live, catalog)]

    def _replaced(self, catalog: Catalog) -> list[Entry]:
        """Say that what came from the same place before is gone."""
        others = catalog.others_at(self._document.source, self._document.id)
        return [removal(other) for other in others]

    def _move(self, live: LiveDocument, catalog: Catalog) -> list[Entry]:
        """Say that the document now lies where it was added from last."""
        place = self._document.name, self._document.source
        if place == (live.entry.name, live.entry.source):
            return []
        return [relocated(live.entry, *place), *self._replaced(catalog)]

    def _update_place(self, live: LiveDocument, catalog: Catalog) -> LiveDocument:
        """Nothing to write; but the file may have moved, or have taken another's place."""
        moves = self._move(live, catalog)
        if not moves:
            return live
        self._log.append(moves)
        after = self._log.read()
        self._sweep(catalog, after, set())
        return after.live.get(self._document.id, live)

    def _sweep(self, before: Catalog, after: Catalog, unused: set[str]) -> None:
        """Delete the rows this addition has made useless. Dying here leaves orphans, no harm.

        Only of revisions that cannot count again: this draft's own, those abandoned, and
        those that counted before. Somebody else may be about to commit any other.
        """
        touched = before.others_at(self._document.source, self._document.id)
        touched += [d for id_, d in before.live.items() if id_ == self._document.id]
        pages = unused | {document.entry.revision for document in touched}
        vectors = unused | {v.revision for document in touched for v in document.vectors.values()}
        delete_useless(self._tables, after, pages, vectors)


def removal(document: LiveDocument) -> RemovedEntry:
    """Make the entry that removes the document."""
    return RemovedEntry(document=document.entry.document, revision=document.entry.revision)


def delete_useless(tables: Tables, catalog: Catalog, pages: set[str], vectors: set[str]) -> None:
    """Delete the rows of these revisions of pages and of vectors, except those that count."""
    _delete(tables.pages, pages - catalog.pages_revisions())
    _delete(tables.vectors, vectors - catalog.vectors_revisions())


def _delete(table: LanceTable, revisions: set[str]) -> None:
    if revisions:
        table.delete(one_of("revision", sorted(revisions)))
