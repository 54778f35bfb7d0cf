"""``visar add``, ``list``, ``show``, ``remove``, ``verify``, ``backup`` and ``compact``."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.help import LIMITS
from visar.cli.options import (
    Collection,
    IndexLocation,
    Json,
    LibraryOptions,
    MaxMegabytes,
    MaxPages,
    Quiet,
    RayAddress,
    ReadingOptions,
    Where,
    option,
    ray_messages_on_stderr,
)
from visar.cli.output import (
    SHORT_ID,
    complain,
    console,
    document_line,
    moment,
    note,
    plain_table,
    print_json,
    say,
)
from visar.cli.progress import progress_shown
from visar.documents import Limits, ReadOptions
from visar.documents.finding import SUPPORTED, document_name
from visar.errors import InvalidOption
from visar.ingest.downloads import is_web_url, url_source
from visar.query import unknown_collection
from visar.text import clean_line, counted

if TYPE_CHECKING:
    from visar.library import Library
    from visar.results import Document, Refusal

_LIMITS = Limits()
# Named in the note on files that were skipped.
_MOST_KINDS = 6

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="Files, folders, https:// addresses, or s3://bucket/prefix."
    ),
]
DocumentName = Annotated[
    str,
    typer.Argument(
        metavar="DOCUMENT",
        autocompletion=completion.documents,
        help="Name or id of the document, or the beginning of its id.",
    ),
]
Metadata = Annotated[
    list[str] | None,
    option("--set NAME=VALUE", "Attach metadata, for `--where`: year=2021. Repeatable."),
]
IntoCollection = Annotated[
    str | None, option("--collection NAME", "Put the documents into this collection.")
]
MaxMegapixels = Annotated[
    int,
    option(
        "--max-megapixels N",
        "Maximum image size in megapixels. Larger PDF pages are scaled down.",
        LIMITS,
        min=1,
    ),
]
SecondsPerPage = Annotated[
    float, option("--seconds-per-page N", "Maximum time to read a page.", LIMITS, min=0.1)
]


@dataclass(frozen=True, kw_only=True)
class AddOptions(ReadingOptions, LibraryOptions):
    """Options of ``visar add``: those of reading, and limits on a document."""

    max_pages: MaxPages = _LIMITS.max_pages
    max_megabytes: MaxMegabytes = _LIMITS.max_bytes // 1_000_000
    max_megapixels: MaxMegapixels = _LIMITS.max_pixels // 1_000_000
    seconds_per_page: SecondsPerPage = _LIMITS.seconds_per_page

    def read_options(self) -> ReadOptions:
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
    """Add documents to your index. Known documents are skipped."""
    from visar.results import Additions
    from visar.store.filters import parse_metadata

    values = parse_metadata(metadata or ())
    added: list[Document] = []
    refused: list[Refusal] = []
    skipped: list[str] = []
    with options.open_library(create=True) as library:
        try:
            into = {"metadata": values, "collection": collection, "ray": ray}
            skipped += add_files(library, files, options, added, refused, **into)
        finally:
            # Also if the index fails later: these documents are in it.
            if as_json:
                print_json(Additions(tuple(added), tuple(refused), tuple(skipped)))
            for document in added if not as_json else ():
                say(Text.assemble(("added", "green"), f"  {document_line(document)}"))
    if refused:
        total = len(added) + len(refused)
        if total > 1:
            complain(f"Couldn't add {len(refused)} of {total} documents.")
        raise typer.Exit(1 if added else 2)


def add_files(
    library: Library,
    files: Iterable[str | Path],
    options: ReadingOptions,
    added: list[Document],
    refused: list[Refusal],
    **more: Any,
) -> Sequence[str]:
    """Add files with progress, and print notes about them; return the files that were skipped.

    Each document is appended to ``added`` or ``refused`` as soon as it is done, so that both are
    right if an error ends the rest. ``more`` are options of `visar.Library.add_all`.
    """
    from visar.results import Refusal

    notes: list[str] = []

    def keep(path: str, result: Document | Refusal) -> None:
        if isinstance(result, Refusal):
            refused.append(result)
            return
        added.append(result)
        if is_web_url(path):
            is_known = result.source != url_source(path)
        else:
            is_known = result.name != document_name(Path(path))
        if is_known:
            notes.append(f"{path} has the same content as {result.name}, which is in the index.")
        if result.no_text:
            notes.append(f"No text found on any page of {result.name}.")
        notes.extend(
            f"Page {page.number} of {result.name} can't be searched: {page.reason}."
            for page in result.failed_pages()
        )

    is_on_ray = more.get("ray") is not None
    try:
        with progress_shown(quiet=options.quiet) as display, ray_messages_on_stderr(is_on_ray):
            additions = library.add_all(
                files,
                encoder=options.model("encoder"),
                options=options.read_options(),
                progress=display.many_documents() if is_on_ray else display.document,
                each=keep,
                **more,
            )
    finally:
        for line in notes:
            note(line)
        for refusal in refused:
            complain(refusal.reason)
    if additions.skipped and not options.quiet:
        note(_skipped_note(additions.skipped))
    return additions.skipped


def _skipped_note(paths: Sequence[str]) -> str:
    suffixes = Counter(clean_line(Path(path).suffix.lower(), 20) for path in paths)
    kinds = suffixes.most_common(_MOST_KINDS)
    counts = [f"{count} {suffix or 'without a suffix'}" for suffix, count in kinds]
    if others := len(paths) - sum(count for _, count in kinds):
        counts.append(f"{others} others")
    files = f"{counted(len(paths), 'file')} ({', '.join(counts)})"
    return f"Skipped {files}: supported types are {SUPPORTED}."


def documents_to_search(
    library: Library,
    files: Sequence[str | Path],
    documents: Sequence[str] | None,
    options: ReadingOptions,
) -> Sequence[str] | None:
    """Add files, and return their ids with the named documents; None for all."""
    if options.url is not None and options.password is not None:
        # A local index was opened with the password.
        for document in documents or ():
            library.unlock(document, options.password)
        if not (files or documents) and options.was_typed("password"):
            raise InvalidOption("--password with --server needs a document: add --doc NAME.")
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
        if not documents and collection is not None:
            names = [one.name for one in library.collections()]
            if collection not in names:
                raise unknown_collection(collection, names)
    if as_json:
        print_json(documents)
    elif documents:
        rows = (
            (one.id[:SHORT_ID], str(one.pages), moment(one.added), Text(one.name))
            for one in documents
        )
        console.print(plain_table("ID", "PAGES", "ADDED", "NAME", rows=rows, numbers={"PAGES"}))
    elif where is not None or collection is not None:
        say(f"No matching documents in {location}.")
    else:
        say(f"{location} is empty. Add documents with `visar add`.")


def show(document: DocumentName, *, options: LibraryOptions, as_json: Json = False) -> None:
    """Show the details of a document."""
    from visar.ingest.sources import source_text

    with options.open_library() as library:
        stored = library.get(document)
    if as_json:
        print_json(stored)
        return
    say(stored.name, "bold")
    for label, value in (
        ("id", stored.id),
        *([("file", source_text(stored.source))] if stored.source else []),
        ("pages", stored.pages),
        ("size", f"{stored.size / 1e6:.1f} MB"),
        ("added", moment(stored.added)),
        ("encoders", ", ".join(str(encoder) for encoder in stored.encoders)),
        ("collections", ", ".join(stored.collections) or "none"),
        *((name, clean_line(value)) for name, value in stored.metadata.items()),
        *(
            (f"page {page.number}", f"can't be searched with {page.encoder}: {page.reason}")
            for page in stored.failed_pages()
        ),
    ):
        say(Text.assemble("  ", (f"{label:<11}", "dim"), f" {value}"))


def remove(document: DocumentName, *, options: LibraryOptions, as_json: Json = False) -> None:
    """Remove a document from your index. Its file is kept."""
    with options.open_library() as library:
        removed = library.remove(document)
    if as_json:
        print_json(removed)
    else:
        say(f"removed  {document_line(removed)}")


def verify(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Check your index for damage. Nothing is changed."""
    from visar.store import open_store

    with contextlib.closing(open_store(index, read_only=True)) as store:
        problems = store.verify()
        damaged = sum(problem.kind == "damage" for problem in problems)
        if as_json:
            print_json(problems)
        else:
            names = {one.id: f"{one.name} ({one.id[:12]})" for one in store.documents()}
            for one in problems:
                subject = f"{names.get(one.document, one.document)}: " if one.document else ""
                say(Text.assemble((one.kind, "yellow"), f"  {subject}{one.what}"))
            console.print(
                f"{counted(len(store.documents()), 'document')}, {counted(damaged, 'problem')}, "
                f"{counted(len(problems) - damaged, 'leftover')}"
            )
    if damaged:
        raise typer.Exit(1)


def backup(
    target: Annotated[str, typer.Argument(metavar="FOLDER", help="New folder for the copy.")],
    *,
    index: IndexLocation = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Copy your index to a new folder. It may be in use."""
    from visar.store import open_store

    opened = contextlib.closing(open_store(index, create=False))
    with opened as store, progress_shown(quiet=quiet) as display:

        def report(done: int, total: int) -> None:
            display.step("copying", done // 1_000_000, total // 1_000_000, "MB")

        copy = store.backup(target, report)
    if as_json:
        print_json(copy)
    else:
        size = f"{copy.bytes / 1e6:.1f} MB"
        say(f"Copied {counted(copy.documents, 'document')} ({size}) to {target}.")


def compact(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Clean up after interrupted adds."""
    from visar.store import open_store

    with contextlib.closing(open_store(index, create=False)) as store:
        dropped = store.compact()
    if as_json:
        print_json(dropped)
    else:
        console.print(
            f"Removed {counted(dropped.pages, 'page')} of unfinished documents and "
            f"{counted(dropped.files, 'file')} ({dropped.bytes / 1e6:.1f} MB)."
        )
