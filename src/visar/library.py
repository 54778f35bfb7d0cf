"""`Library`: the interface shared by `visar.Index` and `visar.Client`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

from visar.documents import Page, ReadOptions
from visar.errors import EncryptedDocument, ServiceError, StoreError
from visar.ingest.sources import source_text
from visar.results import (
    Additions,
    Answer,
    Collection,
    Document,
    Explanation,
    Job,
    Patches,
    PatchPair,
    Refusal,
    SearchResult,
    Thread,
    Turn,
)
from visar.trace import PageId

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.encoders.encoder import Encoder
    from visar.generation.answering import Budget
    from visar.generation.generator import Generator as TextGenerator
    from visar.ingest.pipeline import Progress
    from visar.retrieval.methods import Method, MethodFunction

MAX_PAGES = 10
"""Default maximum number of pages for an answer: the largest number that the paper uses."""


class SearchOptions(TypedDict, total=False):
    """Options of `Library.search`, which ``ask`` and ``stream`` also accept.

    They are the fields of `visar.query.Query`. For ``encoder`` and ``method``, a `Client` only
    accepts names, and an `Index` also objects.
    """

    documents: Sequence[str] | None
    collection: str | None
    where: str | None
    exact: bool
    encoder: str | Encoder | None
    method: str | Method | MethodFunction
    k: int | None
    max_k: int | None
    neighbors: int


class AskOptions(SearchOptions, total=False):
    """Options of `Library.ask` and `Library.stream`."""

    generator: str | TextGenerator | None
    budget: Budget | None
    history: Sequence[Turn]
    thread: str | None
    standalone: bool


def limit_pages(options: SearchOptions) -> SearchOptions:
    """Return search options that limit the pages to `MAX_PAGES`, unless they have a limit."""
    if options.get("k") is not None or options.get("max_k") is not None:
        return options
    return {**options, "max_k": MAX_PAGES}


class Library(Protocol):
    """A set of documents to search and ask questions about.

    `visar.Index` is a library on this machine; `visar.Client` is one behind ``visar serve``. An
    option that a library doesn't support raises `InvalidOption`.
    """

    @property
    def location(self) -> str:
        """Folder or address of the library."""

    def documents(
        self, *, where: str | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return all documents, or those that match, in the order they were added.

        Parameters
        ----------
        where
            Filter on metadata, such as ``'year >= 2020 and kind = "report"'``.
        collection
            Collection that the documents must be in.
        """

    def get(self, document: str) -> Document:
        """Return a document by its id, a prefix of its id, or its name.

        Raises NotInIndex if no document matches, or several do.
        """

    def collections(self) -> list[Collection]:
        """Return the collections, sorted by name."""

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Add documents to a collection, and create it if needed."""

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Remove documents from a collection, by default all; the library keeps them."""

    def add(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Progress | None = None,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
    ) -> Document:
        """Add a document and return it. Adding the same content again changes nothing.

        Parameters
        ----------
        path
            A file of a supported type, or a folder of page images.
        encoder
            Encoder for the pages; by default the library's own.
        options
            Password, OCR and limits for reading the document.
        progress
            Function called with the stage, the number of pages done and the number of all pages.
        name
            Name of the document; by default the file name.
        metadata
            Values to filter by with ``where``: text, numbers, booleans or None, by name. They
            override the title, author and year in a PDF's own metadata.
        collection
            Collection to add the document to.

        Raises
        ------
        DocumentError
            If the document can't be read.
        """

    def add_all(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Callable[[str], Progress] | None = None,
        each: Callable[[str, Document | Refusal], None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
        ray: str | None = None,
    ) -> Additions:
        """Add several documents. One that can't be added doesn't stop the others."""

    def remove(self, document: str) -> Document:
        """Remove a document and everything stored for it. The file it was added from stays."""

    def unlock(self, document: str, password: str) -> None:
        """Keep the password of an encrypted document in memory, so that its pages can be shown.

        Raises EncryptedDocument if the password is wrong.
        """

    def jobs(self) -> list[Job]:
        """Return the jobs that add uploaded documents, newest first."""

    def search(self, question: str, **options: Unpack[SearchOptions]) -> SearchResult:
        """Find the pages a question needs.

        Parameters
        ----------
        question
            Question in plain words.
        documents
            Ids or names of the documents to search; all by default.
        collection, where
            Only search this collection, and documents whose metadata match a filter such as
            ``'year >= 2020 and kind = "report"'``.
        exact
            Compare the question with every page. By default, small summaries of the pages narrow
            down a large library first (``docs/documents.md``).
        encoder
            Name of the encoder; by default the library's own.
        method
            Method that decides the number of pages: ``"visar"``, or for comparison ``"top-k"``
            (with ``k``), ``"largest-gap"``, ``"score-cluster"`` and others.
        k
            Number of pages for ``"top-k"``.
        max_k
            Maximum number of pages.
        neighbors
            Number of pages to include on either side, for tables that span pages.

        Raises
        ------
        NotInIndex
            If a document isn't in the library, or no document has vectors from the encoder.
        InvalidOption
            If the method or encoder doesn't exist, the filter is invalid, or an option is out of
            range.
        """

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answer a question from the pages it needs.

        All options of `search` apply. Without ``k`` or ``max_k``, at most 10 pages are used.

        Parameters
        ----------
        question
            Question in plain words. A follow-up is rewritten as a question that makes sense by
            itself: by the generator, or else by rules.
        generator
            Name of the language model that writes the answer. By default, the answer quotes the
            pages. It also does so if the model fails; ``Answer.problem`` then says why.
        budget
            Limits on what the generator reads and writes.
        history
            Earlier questions and answers.
        thread
            Id of a saved conversation to continue. Its exchanges are the history, and the answer
            is saved to it. Repeating the last question replaces its answer.
        standalone
            Search for the question as typed, even if it could be a follow-up.
        """

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AnswerStream:
        """Answer a question and stream the text; the options are those of `ask`."""

    def threads(self) -> list[Thread]:
        """Return the saved conversations without their exchanges, latest first."""

    def thread(self, thread: str) -> Thread:
        """Return a saved conversation by its id."""

    def create_thread(self, name: str = "", collection: str | None = None) -> Thread:
        """Save a new conversation. Without a name, it is named after its first question."""

    def rename_thread(self, thread: str, name: str) -> Thread:
        """Rename a saved conversation."""

    def delete_thread(self, thread: str) -> None:
        """Delete a saved conversation."""

    def explain(self, found: SearchResult) -> Explanation:
        """Explain a result: weights, similarities, cost, and the choices of other methods."""

    def patches(self, found: SearchResult, document: str, number: int) -> Patches:
        """Return the patches of a searched page with their weights for the question."""

    def pairs(self, found: SearchResult, first: PageId, second: PageId) -> tuple[PatchPair, ...]:
        """Return the best matching patches of two searched pages."""

    def page(self, document: str, number: int) -> Page:
        """Return a page of a document with its words. The first page is 1."""

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Render a page as an image."""

    def close(self) -> None:
        """Stop processes, free models and close connections."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class AnswerStream(Iterator[str]):
    """An answer that is being written: iterate over pieces of its text, then read `answer`.

    `search` holds the pages before the first piece arrives. Closing the stream, or leaving its
    ``with`` block, stops the generator.
    """

    def __init__(self, search: SearchResult, pieces: Generator[str, None, Answer]) -> None:
        self.search = search
        self._pieces = pieces
        self._answer: Answer | None = None

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except StopIteration as end:
            self._answer = end.value or self._answer
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def answer(self) -> Answer:
        """The complete answer. Waits for the rest of the text."""
        for _ in self:
            pass
        assert self._answer is not None  # noqa: S101 - set when the pieces end
        return self._answer

    def close(self) -> None:
        """Stop generating the answer."""
        self._pieces.close()


def public_message(error: object, library: Library) -> str:
    """Return an error's message with local paths removed."""
    hint = "Its pages are shown once it is unlocked with its password"
    message = str(error).replace(EncryptedDocument.HINT, hint)
    location = library.location
    name = "the server" if location.startswith(("http://", "https://")) else "the index"
    message = message.replace(f"index {location}", "index").replace(location, name)
    # It may be the path of a document. Errors of a server don't contain its paths, and a server
    # that failed can't list its documents.
    if os.sep in message and not isinstance(error, ServiceError):
        with contextlib.suppress(StoreError, ServiceError):
            for document in library.documents():
                if document.source:
                    message = message.replace(source_text(document.source), document.name)
    return message
