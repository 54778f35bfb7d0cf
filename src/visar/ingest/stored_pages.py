"""Reading stored pages with their layout, which older versions didn't store."""

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
    """A reader of stored pages with their blocks.

    Blocks of pages that were stored without them are found in the original file, and saved in the
    store. Words and vectors don't change. ``options`` returns the options for reading a document,
    by its id.
    """

    def __init__(
        self, store: Store, sources: SourcePool, options: Callable[[str], ReadOptions]
    ) -> None:
        self._store = store
        self._sources = sources
        self._options = options

    def read(self, document: Document, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages of a document with these numbers, in this order, or all pages."""
        pages = self._store.pages(document.id, numbers)
        bare = {page.number: page for page in pages if page.blocks is None}
        if not bare:
            return pages
        with_blocks = self._lay_out(document, bare)
        # A read-only index can still be read.
        with contextlib.suppress(StoreError):
            self._store.set_blocks(document.id, with_blocks.values())
        return tuple(with_blocks.get(page.number, page) for page in pages)

    def _lay_out(self, document: Document, pages: dict[int, Page]) -> dict[int, Page]:
        """Return pages with blocks, from the original if possible, or else from stored words."""
        # Running OCR again would take seconds.
        readable = [page for page in pages.values() if page.text_source == "text layer"]
        with_blocks = {page.number: page for page in self._read_again(document, readable)}
        return {number: with_blocks.get(number) or lay_out(page) for number, page in pages.items()}

    def _read_again(self, document: Document, pages: Sequence[Page]) -> list[Page]:
        """Return the stored pages with the blocks of the original, where the words are equal."""
        results: list[Page] = []
        if not pages:
            return results
        # The original may be gone, encrypted or damaged.
        with contextlib.suppress(VisarError):
            options, original = self._options(document.id), self._store.original(document.id)
            with self._sources.lease(document, options, original) as source:
                for page in pages:
                    with contextlib.suppress(DocumentError):
                        read = source.page(page.number)
                        # Blocks refer to words by index, so the words must be the same.
                        if _texts(read) == _texts(page) and read.blocks is not None:
                            results.append(replace(page, blocks=read.blocks))
        return results


def _texts(page: Page) -> list[str]:
    return [word.text for word in page.words]
