"""What every store offers: one machine's folder, or object storage shared by many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from visar.documents.page import Page
from visar.results import Document, EncoderRef
from visar.store.records import Compaction, DocumentVectors, Problem

if TYPE_CHECKING:
    from visar.encoders.protocol import PageEmbedding


class Addition(Protocol):
    """One document being added: pages are put one by one, then committed together.

    Closed without a commit, or when its process dies, it leaves what was written to the next
    addition of the same document and encoder.
    """

    @property
    def stored(self) -> Document | None:
        """The document, if it is in the store with these vectors: nothing is left to do."""
        ...

    @property
    def written(self) -> frozenset[int]:
        """The numbers of the pages that an interrupted addition has written."""
        ...

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        """Write a page and its vectors, in any order; one that was written before is replaced.

        Of a document that is in the store with the vectors of another encoder the pages are kept:
        the embedding must have been made from those of `Store.pages`.
        """
        ...

    def commit(self) -> Document:
        """Make the document visible, whole, and return it."""
        ...

    def close(self) -> None:
        """End the addition."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Store(Protocol):
    """Documents, their pages with words, and their vectors by any number of encoders.

    Several processes may use the same index at once, several threads the same store. A document is
    always seen whole, in its old or its new state, whatever happens to a process that changes it.

    What is read by an id (pages, vectors, embeddings, summaries) is at least as new as the last
    catalog that this store has read (`documents`, `get`), and reads no catalog itself. `NotInIndex`
    says that the document was removed since.

    All methods raise `StoreError`: what is wrong, where, and what to do.
    """

    @property
    def location(self) -> str:
        """The folder, or the address."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What `open_store` was given, for other processes that open it too."""
        ...

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added.

        ``where`` keeps those whose metadata have these values, ``collection`` those of it.
        """
        ...

    def get(self, document: str) -> Document:
        """Return the document with this id or name, or whose id alone begins like this."""
        ...

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages with these numbers, in that order; all if none are given."""
        ...

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        """Keep the blocks of pages that are stored without any.

        Pages that have blocks by now, or other words, and those of a document that was removed
        stay as they are.
        """
        ...

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder."""
        ...

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of pages by an encoder, and read no others.

        ``page_ids`` are ids of documents, and numbers of pages from 1.
        """
        ...

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:
        """Return the summaries of a document (`visar.store.summaries`) if the store keeps them."""
        ...

    def original(self, document: str) -> Path | None:
        """Return the file or folder that was kept of a document, if any was."""
        ...

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> Addition:
        """Begin to add a document, or go on with an interrupted addition of it.

        Vectors of another version of the encoder are replaced at the commit, and so is another
        document with the same source. ``original`` is the file, or the folder of page images,
        that is kept with the document.
        """
        ...

    def remove(self, document: str) -> Document:
        """Remove a document with everything that belongs to it."""
        ...

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        """Replace the metadata of a document: names with texts, numbers, truth values or null."""
        ...

    def collections(self) -> dict[str, int]:
        """Return the names of the collections, and how many documents each has."""
        ...

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Put documents into a collection, which begins with its first document."""
        ...

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Take documents, or all, out of a collection; the documents stay."""
        ...

    def verify(self) -> list[Problem]:
        """Read everything and report what is wrong. Changes nothing."""
        ...

    def compact(self) -> Compaction:
        """Drop what interrupted additions have left, and what no document needs."""
        ...

    def close(self) -> None:
        """Let files and connections go."""
        ...
