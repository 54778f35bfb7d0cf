"""What can be asked of a library, on this machine or behind a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

from visar.documents import Page, ReadOptions
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
)
from visar.trace import PageId

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.encoders.protocol import Encoder
    from visar.generation.answering import Budget
    from visar.generation.protocol import Generator as TextGenerator
    from visar.ingest.pipeline import Progress
    from visar.retrieval.methods import Method, MethodFunction


MAX_PAGES = 10
"""Maximum number of pages of an answer, unless ``k`` or ``max_k`` says otherwise: the largest
number that the paper gives a generator."""


class SearchOptions(TypedDict, total=False):
    """The options of `Library.search`, which ``ask`` and ``stream`` take too.

    They are the fields of `visar.query.Query`. An `Index` also takes encoders, methods and
    functions themselves; a `Client` takes names.
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
    """The options of `Library.ask` and `Library.stream`."""

    generator: str | TextGenerator | None
    budget: Budget | None


def limit_pages(options: SearchOptions) -> SearchOptions:
    """Return the options of the search for an answer: at most `MAX_PAGES` pages by default."""
    if options.get("k") is not None or options.get("max_k") is not None:
        return options
    return {**options, "max_k": MAX_PAGES}


class Library(Protocol):
    """Documents that questions can be asked about.

    `visar.Index` is a library on this machine, `visar.Client` one behind ``visar serve``. What a
    library cannot do, it refuses with `InvalidOption`, which names the option.
    """

    @property
    def location(self) -> str:
        """Folder or address of the library."""
        ...

    def documents(
        self, *, where: str | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added: all, or those that match."""
        ...

    def get(self, document: str) -> Document:
        """Return a document by its id, the beginning of its id, or its name."""
        ...

    def collections(self) -> list[Collection]:
        """Return the collections by name."""
        ...

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Put documents into a collection, which begins with its first document."""
        ...

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Take documents, or all, out of a collection; the documents stay."""
        ...

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
        """Add a document and return it; the same content again changes nothing.

        Parameters
        ----------
        path
            A PDF, an image, a folder of page images, or an office document.
        encoder
            Encoder of the pages; by default the library's own.
        options
            Password, OCR and limits for reading the document.
        progress
            Function that is called with a stage, the number of pages done, and of all pages.
        name
            Name of the document, if not that of the file.
        metadata
            Values for filters (``where``): text, numbers, booleans or None by name. They override
            the title, author and year that a PDF names itself.
        collection
            Collection to put the document into.

        Raises
        ------
        DocumentError
            If the document can't be read.
        """
        ...

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
        """Add documents; one that is refused does not stop the others."""
        ...

    def remove(self, document: str) -> Document:
        """Remove a document with everything that belongs to it; the file it came from stays."""
        ...

    def unlock(self, document: str, password: str) -> None:
        """Keep the password of an encrypted document, to show its pages."""
        ...

    def jobs(self) -> list[Job]:
        """Return the documents on their way into the library, the newest first."""
        ...

    def search(self, question: str, **options: Unpack[SearchOptions]) -> SearchResult:
        """Find the pages a question needs.

        Parameters
        ----------
        question
            Question in plain words.
        documents
            Ids or names of the documents to search; all by default.
        collection, where
            Restrict the search to a collection, and to documents whose metadata match a filter:
            ``'year >= 2020 and kind = "report"'``.
        exact
            Compare every page of a large library with the question. By default only the pages
            that small summaries find (``docs/library.md``).
        encoder
            Name of an encoder; by default the library's own.
        method
            Method that decides the number of pages: ``"visar"``, or for comparison ``"top-k"``
            (with ``k``), ``"largest-gap"``, ``"score-cluster"`` and others.
        k
            Number of pages for top-k.
        max_k
            Maximum number of pages.
        neighbors
            Number of pages to include on either side, for tables that span pages.

        Raises
        ------
        NotInIndex
            If a document is not in the library, or none has vectors of the encoder.
        InvalidOption
            If there is no such method or encoder, the filter cannot be read, or an option is out
            of its range.
        """
        ...

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answer a question from the pages it needs, at most 10 without ``k`` or ``max_k``."""
        ...

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AnswerStream:
        """Answer a question piece by piece."""
        ...

    def explain(self, found: SearchResult) -> Explanation:
        """Explain a result: weights, matrix, cost, and what other methods would take."""
        ...

    def patches(self, found: SearchResult, document: str, number: int) -> Patches:
        """Return the patches of a searched page with their weights for the question."""
        ...

    def pairs(self, found: SearchResult, first: PageId, second: PageId) -> tuple[PatchPair, ...]:
        """Return the best matching patches of two searched pages."""
        ...

    def page(self, document: str, number: int) -> Page:
        """Return a page with its words; 1 is the first."""
        ...

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Return a page as a picture."""
        ...

    def close(self) -> None:
        """Free processes, models and connections."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class AnswerStream(Iterator[str]):
    """An answer while it is written: iterate over its pieces, then read `answer`.

    The pages are known before the first piece (`search`). Closing it stops the generator.
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
        """The whole answer; waits for the rest of it."""
        for _ in self:
            pass
        assert self._answer is not None  # noqa: S101 - the pieces end with it
        return self._answer

    def close(self) -> None:
        """Stop the generator."""
        self._pieces.close()
