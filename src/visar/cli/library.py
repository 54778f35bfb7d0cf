"""``visar add``, ``list``, ``show``, ``remove``, ``verify`` and ``compact``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.options import (
    Collection,
    IndexLocation,
    Json,
    LibraryOptions,
    RayAddress,
    ReadingOptions,
    Where,
    advanced,
    option,
    ray_messages_on_stderr,
)
from visar.cli.output import complain, console, document_line, errors, print_documents, print_json
from visar.cli.progress import progress_shown
from visar.documents import Limits, ReadOptions
from visar.documents.finding import document_name
from visar.errors import InvalidOption
from visar.text import clean_line, counted

if TYPE_CHECKING:
    from visar.library import Library
    from visar.results import Document, Refusal

_LIMITS = Limits()

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="Documents, folders, or addresses such as s3://bucket/prefix."
    ),
]
DocumentName = Annotated[
    str,
    typer.Argument(
        metavar="DOCUMENT",
        autocompletion=completion.documents,
        help="Name or id of the document; the beginning of its id is enough.",
    ),
]
Metadata = Annotated[
    list[str] | None,
    option("--set NAME=VALUE", "Attach metadata, usable in --where: year=2021. Repeatable."),
]
IntoCollection = Annotated[
    str | None, option("--collection NAME", "Put the documents into this collection.")
]
MaxPages = Annotated[
    int, advanced("--max-pages N", "Maximum number of pages of a document.", min=1)
]
MaxMegabytes = Annotated[int, advanced("--max-megabytes N", "Maximum size of a file.", min=1)]
MaxMegapixels = Annotated[
    int,
    advanced(
        "--max-megapixels N", "Maximum size of an image. Larger PDF pages are scaled down.", min=1
    ),
]
SecondsPerPage = Annotated[
    float, advanced("--seconds-per-page N", "Maximum time to read a page.", min=0.1)
]


@dataclass(frozen=True, kw_only=True)
class AddOptions(ReadingOptions, LibraryOptions):
    """Options of ``visar add``: those of reading, and limits on a document."""

    max_pages: MaxPages = _LIMITS.max_pages
    max_megabytes: MaxMegabytes = _LIMITS.max_bytes // 1_000_000
    max_megapixels: MaxMegapixels = _LIMITS.max_pixels // 1_000_000
    seconds_per_page: SecondsPerPage = _LIMITS.seconds_per_page

    def read_options(self) -> ReadOptions:
        """Return how documents are read."""
        limits = Limits(
            max_pages=self.max_pages,
            max_bytes=self.max_megabytes * 1_000_000,
            max_pixels=self.max_megapixels * 1_000_000,
            seconds_per_page=self.seconds_per_page,
        )
        return replace(super().read_options(), limits=limits)


def add(
    files: Files,
    *,
    metadata: Metadata = None,
    collection: IntoCollection = None,
    options: AddOptions,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Add documents to your index. Known documents are not read again."""
    from visar.results import Additions
    from visar.store.filters import parse_metadata

    named = parse_metadata(metadata or ())
    added: list[Document] = []
    refused: list[Refusal] = []
    with options.open_library(create=True) as library:
        try:
            into = {"metadata": named, "collection": collection, "ray": ray}
            add_files(library, files, options, added, refused, **into)
        finally:
            # Also when the index fails: these are in it.
            if as_json:
                print_json(Additions(tuple(added), tuple(refused)))
            for document in added if not as_json else ():
                line = Text.assemble(("added", "green"), f"  {document_line(document)}")
                console.print(line, soft_wrap=True)
    if refused:
        total = counted(len(added) + len(refused), "document")
        complain(f"{len(refused)} of {total} could not be added.")
        raise typer.Exit(1 if added else 2)


def add_files(
    library: Library,
    files: Iterable[str | Path],
    options: ReadingOptions,
    added: list[Document],
    refused: list[Refusal],
    **more: Any,
) -> None:
    """Add files with progress; say which were refused, have no text, or are known by another name.

    ``added`` and ``refused`` get each document as soon as it is done: an error ends the rest.
    ``more`` are options of `visar.Library.add_all`.
    """
    from visar.results import Refusal

    notes: list[str] = []

    def keep(path: str, result: Document | Refusal) -> None:
        if isinstance(result, Refusal):
            refused.append(result)
            return
        added.append(result)
        if result.name != document_name(Path(path)):
            notes.append(f"{path} has the same content as {result.name}, which is in the index")
        if result.no_text:
            notes.append(f"No text was found on any page of {result.name}.")

    is_on_ray = more.get("ray") is not None
    try:
        with progress_shown(quiet=options.quiet) as display, ray_messages_on_stderr(is_on_ray):
            library.add_all(
                files,
                encoder=options.model("encoder"),
                options=options.read_options(),
                progress=display.many_documents() if is_on_ray else display.document,
                each=keep,
                **more,
            )
    finally:
        for line in notes:
            errors.print(Text(line), soft_wrap=True)
        for refusal in refused:
            complain(refusal.reason)


def documents_to_search(
    library: Library,
    files: Sequence[str | Path],
    documents: Sequence[str] | None,
    options: ReadingOptions,
) -> Sequence[str] | None:
    """Add files, and return them together with documents that are named; None for all."""
    if options.url is not None and options.password is not None:
        # A local index was opened with the password.
        for document in documents or ():
            library.unlock(document, options.password)
        if not (files or documents) and options.was_typed("password"):
            raise InvalidOption("--password with --server needs the document: name it with --doc.")
    if not files:
        return documents
    added: list[Document] = []
    add_files(library, files, options, added, [])
    if not added:
        raise typer.Exit(2)
    return [*(document.id for document in added), *(documents or ())]


def list_documents(
    *,
    collection: Collection = None,
    where: Where = None,
    options: LibraryOptions,
    as_json: Json = False,
) -> None:
    """List the documents in your index."""
    with options.open_library() as library:
        documents = library.documents(where=where, collection=collection)
        location = library.location
    if as_json:
        print_json(documents)
    elif documents:
        print_documents(documents)
    elif where is not None or collection is not None:
        console.print(Text(f"No document in {location} matches."), soft_wrap=True)
    else:
        console.print(Text(f"{location} is empty. Add documents with `visar add`."), soft_wrap=True)


def show(document: DocumentName, *, options: LibraryOptions, as_json: Json = False) -> None:
    """Show the details of a document."""
    from visar.ingest.sources import source_text

    with options.open_library() as library:
        stored = library.get(document)
    if as_json:
        print_json(stored)
        return
    console.print(Text(stored.name, style="bold"), soft_wrap=True)
    for label, value in (
        ("id", stored.id),
        *([("file", source_text(stored.source))] if stored.source else []),
        ("pages", stored.pages),
        ("size", f"{stored.size / 1e6:.1f} MB"),
        ("added", stored.added.astimezone().strftime("%Y-%m-%d %H:%M")),
        ("encoders", ", ".join(str(encoder) for encoder in stored.encoders)),
        ("collections", ", ".join(stored.collections) or "none"),
        *((name, clean_line(value)) for name, value in stored.metadata.items()),
    ):
        console.print(Text.assemble("  ", (f"{label:<11}", "dim"), f" {value}"), soft_wrap=True)


def remove(document: DocumentName, *, options: LibraryOptions, as_json: Json = False) -> None:
    """Remove a document from your index. Its file is kept."""
    with options.open_library() as library:
        removed = library.remove(document)
    if as_json:
        print_json(removed)
    else:
        console.print(Text(f"removed  {document_line(removed)}"), soft_wrap=True)


def verify(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Check everything in your index. Nothing is changed."""
    from visar.store import open_store

    store = open_store(index, create=False)
    problems = store.verify()
    damaged = sum(problem.kind == "damage" for problem in problems)
    if as_json:
        print_json(problems)
    else:
        for problem in problems:
            console.print(Text.assemble((problem.kind, "yellow"), f"  {problem}"), soft_wrap=True)
        console.print(
            f"{counted(len(store.documents()), 'document')}, {counted(damaged, 'problem')}, "
            f"{counted(len(problems) - damaged, 'leftover')}"
        )
    if damaged:
        raise typer.Exit(1)


def compact(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Clean up after interrupted adds."""
    from visar.store import open_store

    dropped = open_store(index, create=False).compact()
    if as_json:
        print_json(dropped)
    else:
        console.print(
            f"Removed {counted(dropped.pages, 'page')} of unfinished documents and "
            f"{counted(dropped.files, 'file')} ({dropped.bytes / 1e6:.1f} MB)."
        )
