"""The protocol of all stores, in a local folder or in object storage, and opening one."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

from visar.documents.page import Page
from visar.errors import InvalidOption, StoreError
from visar.results import Document, EncoderRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from visar.encoders.encoder import PageEmbedding

Change: TypeAlias = Callable[[Any], Any]
"""Function from the old value of an item, or None, to the new one, or None to delete it."""
OPTIONS_VARIABLE = "VISAR_STORAGE_OPTIONS"
"""Environment variable with storage options: ``KEY=VALUE``, separated and quoted as in a shell."""


@dataclass(frozen=True, slots=True, eq=False)
class DocumentVectors:
    """All vectors of a document by one encoder, page by page, in read-only arrays."""

    vectors: NDArray[np.float16]
    """Vectors, of shape (n, D)."""
    offsets: NDArray[np.int64]
    """Page p (from 1) has the rows ``offsets[p - 1]`` to ``offsets[p]``."""
    boxes: NDArray[np.float32]
    """Box of each vector on its page, of shape (n, 4)."""
    words: NDArray[np.int32]
    """Index of the word of each vector, or -1, of shape (n,)."""

    def page(self, number: int) -> PageEmbedding:
        """Return the vectors of a page, counted from 1."""
        from visar.encoders.encoder import PageEmbedding

        rows = slice(self.offsets[number - 1], self.offsets[number])
        return PageEmbedding(self.vectors[rows], self.boxes[rows], self.words[rows])


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in the index."""

    kind: Literal["damage", "orphan"]
    """Damage means lost data; an orphan is left over from an interrupted write, and harmless."""
    document: str
    """Id of the document; empty for a problem of the whole index."""
    what: str

    def __str__(self) -> str:
        return f"document {self.document}: {self.what}" if self.document else self.what


@dataclass(frozen=True, slots=True)
class Compaction:
    """The data that compacting the index deleted."""

    pages: int
    """Number of pages of unfinished additions."""
    files: int
    """Number of files."""
    bytes: int
    """Total size of the files."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of an index."""

    documents: int
    """Number of documents in the copy."""
    bytes: int
    """Size of the copy."""


class Addition(Protocol):
    """The addition of one document: pages are put one by one, then committed together.

    If it is closed without a commit, or its process dies, the next addition of the same document
    and encoder resumes it.
    """

    stored: Document | None
    """The document, if the store already has it with these vectors."""
    written: frozenset[int]
    """The numbers of the pages that an interrupted addition wrote."""

    def put(self, page: Page, embedding: PageEmbedding) -> None:
        """Write a page and its vectors, in any order; replace a page written before.

        If the store has the document with vectors of another encoder, its pages are kept, and the
        embedding must be that of the page from `Store.pages`.
        """

    def commit(self) -> Document:
        """Make the complete document visible, and return it.

        Raises StoreError if pages are missing, or another process changed the document meanwhile.
        """

    def close(self) -> None:
        """End the addition."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # The first error matters more than one of `close`.
        with contextlib.suppress(StoreError) if error[0] else contextlib.nullcontext():
            self.close()


class Store(Protocol):
    """Documents, their pages with words, and their vectors by any number of encoders.

    Several processes can use the same index at the same time, and several threads the same store.
    Changes are atomic: readers see a document either before or after a change, even if the
    process that makes the change dies.

    Methods that take an id (pages, vectors, embeddings, summaries) don't read the catalog. Their
    results are at least as new as the last catalog that this store read (`documents`, `get`), and
    they raise `NotInIndex` if the document was removed since.

    All methods raise `StoreError`. The stores don't inherit from this class, because `visar.forks`
    couldn't replace theirs after a fork.
    """

    location: str
    """The folder or URL of the index."""
    storage_options: Mapping[str, str]
    """The options of `open_store`, so that other processes can open the same index."""

    def documents(
        self, *, where: Mapping[str, Any] | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added.

        ``where`` keeps documents with these metadata values, ``collection`` those in a collection.
        """

    def get(self, document: str) -> Document:
        """Return the document with this id or name, or the only one whose id begins with it."""

    def pages(self, document: str, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages with these numbers, in this order, or all pages."""

    def set_blocks(self, document: str, pages: Iterable[Page]) -> None:
        """Save the blocks of pages that are stored without blocks.

        Pages that have blocks by now, have other words, or were removed aren't changed.
        """

    def vectors(self, document: str, encoder: EncoderRef) -> DocumentVectors:
        """Return all vectors of a document by an encoder."""

    def embeddings(
        self, page_ids: Sequence[tuple[str, int]], encoder: EncoderRef
    ) -> list[PageEmbedding]:
        """Return the vectors of some pages by an encoder, without reading others.

        ``page_ids`` are pairs of document id and page number, from 1.
        """

    def summaries(self, document: str, encoder: EncoderRef) -> bytes | None:
        """Return the summaries of a document (`visar.store.summaries`), if the store has them."""

    def original(self, document: str) -> Path | None:
        """Return the original file or folder of a document, if the store has it."""

    def adding(
        self, document: Document, encoder: EncoderRef, original: Path | None = None
    ) -> Addition:
        """Start adding a document, or resume an interrupted addition.

        The commit replaces vectors of other versions of the encoder, and any other document with
        the same source. ``original`` is the file, or the folder of page images, to save with the
        document.
        """

    def remove(self, document: str) -> Document:
        """Remove a document with everything that belongs to it."""

    def set_metadata(self, document: str, metadata: Mapping[str, Any]) -> Document:
        """Replace the metadata of a document; values are text, numbers, booleans or None."""

    def collections(self) -> dict[str, int]:
        """Return the number of documents in each collection, by name."""

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Add documents to a collection; create it if it doesn't exist."""

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Remove documents, or all, from a collection without deleting them."""

    def items(self, kind: str, prefix: str = "") -> dict[str, Any]:
        """Return the items whose ids begin with a prefix, sorted by id.

        Items are small values besides documents, such as conversations and access tokens: JSON with
        a kind and an id.
        """

    def change_item(self, kind: str, id_: str, change: Change) -> Any:
        """Replace an item with the result of ``change(old)``, and return the result.

        The old value is None if there is no item; returning None deletes the item. No other
        process changes the item in between.
        """

    def backup(
        self, target: str | PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Backup:
        """Copy the index to a new folder, atomically.

        Other processes can write to the index meanwhile. Repeat an interrupted call to resume it.
        ``progress`` is called with the number of bytes copied so far and in total.
        """

    def verify(self) -> list[Problem]:
        """Check the whole index and return its problems, without changing anything."""

    def compact(self) -> Compaction:
        """Delete data of interrupted additions and data that no document needs."""

    def close(self) -> None:
        """Close files and connections."""


def default_location() -> str:
    """Return ``VISAR_INDEX``, or a folder in the user's data directory."""
    from platformdirs import user_data_path

    return os.environ.get("VISAR_INDEX") or str(user_data_path("visar") / "index")


def parse_storage_options(texts: Iterable[str]) -> dict[str, str]:
    """Parse storage options of the form ``KEY=VALUE``.

    >>> parse_storage_options(["aws_region=eu-west-1", "allow_http=true"])
    {'aws_region': 'eu-west-1', 'allow_http': 'true'}
    """
    options = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign):
            # Only the key is shown, because the value may be a secret.
            raise InvalidOption(f"Invalid storage option {key!r}: write KEY=VALUE.")
        options[key.lower()] = value
    return options


def storage_options(options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options of `OPTIONS_VARIABLE`, overridden by ``options``."""
    try:
        texts = shlex.split(os.environ.get(OPTIONS_VARIABLE, ""))
    except ValueError as error:
        raise InvalidOption(
            f"Can't read {OPTIONS_VARIABLE}: {error}. Quote its values as in a shell."
        ) from error
    return parse_storage_options(texts) | dict(options or {})


def open_store(
    location: str | PathLike[str] | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    options: Mapping[str, str] | None = None,
) -> Store:
    """Open the index at a location; create it if it is missing, unless ``create`` is false.

    A folder is opened with SQLite, a URL such as ``s3://bucket/prefix`` with LanceDB, which needs
    ``pip install 'visar-rag[cloud]'``. The default location is `default_location`.

    ``read_only`` guarantees that nothing is created or changed. A process that writes to the index
    must not also open it read-only, because SQLite shares its files within a process.

    ``options`` are for object storage, such as ``aws_access_key_id``, ``aws_endpoint`` and
    ``allow_http``. Other options come from the environment: ``VISAR_STORAGE_OPTIONS``, then
    ``AWS_ACCESS_KEY_ID`` and so on.

    Raises NotAnIndex if there is no index that this version can read.
    """
    location = fspath(location or default_location())
    options = storage_options(options)
    if "://" in location:
        from visar.store.lance.store import LanceStore

        return LanceStore.open(location, create=create, read_only=read_only, options=options)
    from visar.store.sqlite import SqliteStore

    store = SqliteStore.open(location, create=create, read_only=read_only)
    # Documents may come from object storage.
    store.storage_options = options
    return store
