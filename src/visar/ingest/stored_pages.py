"""Reading stored pages with their layout, which an older version has not stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from visar.documents.blocks import lay_out
from visar.documents.options import ReadOptions
from visar.documents.page import Page
from visar.errors import DocumentError, StoreError, VisarError
from visar.ingest.sources import SourcePool
from visar.results import Document
from visar.store import Store


class StoredPages:
    """Reads pages of a store with their blocks.

    Pages that were stored without blocks are laid out from the original file, and their blocks
    are kept in the store. Words and vectors stay as they are.

    Parameters
    ----------
    store
        Store of the pages.
    sources
        Pool of the files that the documents were read from.
    options
        Function that returns the options for reading a document, by its id.
    """

    def __init__(
        self, store: Store, sources: SourcePool, options: Callable[[str], ReadOptions]
    ) -> None:
        self._store = store
        self._sources = sources
        self._options = options

    def read(self, document: Document, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages of a document with these numbers, in that order, or all."""
        pages = self._store.pages(document.id, numbers)
        bare = {page.number: page for page in pages if page.blocks is None}
        if not bare:
            return pages
        laid_out = self._lay_out(document, bare)
        # An index that cannot be written can be read nevertheless.
        with contextlib.suppress(StoreError):
            self._store.set_blocks(document.id, laid_out.values())
        return tuple(laid_out.get(page.number, page) for page in pages)

    def _lay_out(self, document: Document, pages: dict[int, Page]) -> dict[int, Page]:
        """Take the blocks from the original, or find them in the stored words."""
        # OCR would take seconds: its words are in the index.
        readable = [page for page in pages.values() if page.text_source == "text layer"]
        found = {page.number: page for page in self._read_again(document, readable)}
        return {number: found.get(number) or lay_out(page) for number, page in pages.items()}

    def _read_again(self, document: Document, pages: Sequence[Page]) -> list[Page]:
        """Return those of the pages whose blocks the original tells, with their stored words."""
        found: list[Page] = []
        if not pages:
            return found
        # The original may be gone, encrypted or damaged.
        with contextlib.suppress(VisarError):
            options, original = self._options(document.id), self._store.original(document.id)
            with self._sources.lease(document, options, original) as source:
                for page in pages:
                    with contextlib.suppress(DocumentError):
                        read = source.page(page.number)
                        # Vectors point at the stored words: blocks of others are of no use.
                        if _texts(read) == _texts(page) and read.blocks is not None:
                            found.append(replace(page, blocks=read.blocks))
        return found


def _texts(page: Page) -> list[str]:
    return [word.text for word in page.words]
