"""The protocol of all stores, in a local folder or in object storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from visar.documents.page import Page
from visar.results import Document, EncoderRef
from visar.store.items import Change
from visar.store.records import Backup, Compaction, DocumentVectors, Problem

if TYPE_CHECKING:
    from visar.encoders.encoder import PageEmbedding


class Addition(Protocol):
    """The addition of one document: pages are put one by one, then committed together.

    If it is closed without a commit, or its process dies, the next addition of the same document
    and encoder resumes it.
    """

    @property
    def stored(self) -> Document | None:
        """The document, if the store already has it with these vectors."""
        ...

    @property
    def written(self) -> frozenset[int]:
        """The numbers of the pages that an interrupted addition wrote."""
        ...

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        """Write a page and its vectors, in any order; replace a page written before.

        If the store has the document with vectors of another encoder, its pages are kept, and the
        embedding must be that of the page from `Store.pages`.
        """
        ...

    def commit(self) -> Document:
        """Make the complete document visible, and return it."""
        ...

    def close(self) -> None:
        """End the addition."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Store(Protocol):
    """Documents, their pages with words, and their vectors by any number of encoders.

    Several processes can use the same index at the same time, and several threads the same store.
    Changes are atomic: readers see a document either before or after a change, even if the
    process that makes the change dies.

    Methods that take an id (pages, vectors, embeddings, summaries) don't read the catalog. Their
    results are at least as new as the last catalog that this store read (`documents`, `get`), and
    they raise `NotInIndex` if the document was removed since.

    All methods raise `StoreError`.
    """

    @property
    def location(self) -> str:
        """The folder or URL of the index."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options of `open_store`, so that other processes can open the same index."""
        ...

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added.

        ``where`` keeps documents with these metadata values, ``collection`` those in a collection.
        """
        ...

    def get(self, document: str) -> Document:
        """Return the document with this id or name, or the only one whose id begins with it."""
        ...

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages with these numbers, in this order, or all pages."""
        ...

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        """Save the blocks of pages that are stored without blocks.

        Pages that have blocks by now, have other words, or were removed aren't changed.
        """
        ...

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder."""
        ...

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of some pages by an encoder, without reading others.

        ``page_ids`` are pairs of document id and page number, from 1.
        """
        ...

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:
        """Return the summaries of a document (`visar.store.summaries`), if the store has them."""
        ...

    def original(self, document: str) -> Path | None:
        """Return the original file or folder of a document, if the store has it."""
        ...

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> Addition:
        """Start adding a document, or resume an interrupted addition.

        The commit replaces vectors of other versions of the encoder, and any other document with
        the same source. ``original`` is the file, or the folder of page images, to save with the
        document.
        """
        ...

    def remove(self, document: str) -> Document:
        """Remove a document with everything that belongs to it."""
        ...

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        """Replace the metadata of a document; values are text, numbers, booleans or None."""
        ...

    def collections(self) -> dict[str, int]:
        """Return the number of documents in each collection, by name."""
        ...

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Add documents to a collection; create it if it doesn't exist."""
        ...

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Remove documents, or all, from a collection without deleting them."""
        ...

    def items(self, kind: str, prefix: str = "") -> dict[str, Any]:
        """Return the items (`visar.store.items`) whose ids begin with a prefix, sorted by id."""
        ...

    def change_item(self, kind: str, id_: str, change: Change) -> Any:
        """Replace an item with the result of ``change(old)``, and return the result.

        The old value is None if there is no item; returning None deletes the item. No other
        process changes the item in between.
        """
        ...

    def backup(
        self, target: str | PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Backup:
        """Copy the index to a new folder, atomically.

        Other processes can write to the index meanwhile. Repeat an interrupted call to resume it.
        ``progress`` is called with the number of bytes copied so far and in total.
        """
        ...

    def verify(self) -> list[Problem]:
        """Check the whole index and return its problems, without changing anything."""
        ...

    def compact(self) -> Compaction:
        """Delete data of interrupted additions and data that no document needs."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...
