"""``visar add``, ``list``, ``show``, ``remove``, ``verify`` and ``compact``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.options import (
    Collection,
    DeviceChoice,
    EncoderName,
    IndexLocation,
    IntoCollection,
    Json,
    MaxMegabytes,
    MaxMegapixels,
    MaxPages,
    OcrChoice,
    OcrEngineChoice,
    Password,
    Quiet,
    RayAddress,
    SecondsPerPage,
    ServerAddress,
    Settings,
    Where,
    add_files,
    open_index,
)
from visar.cli.output import complain, console, document_line, print_documents, print_json
from visar.documents import Limits, ReadOptions
from visar.errors import InvalidOption
from visar.store import open_store
from visar.store.filters import filtered, parse_metadata
from visar.text import clean_line

if TYPE_CHECKING:
    from visar.results import Document, Refusal

_LIMITS = Limits()

Files = Annotated[
    list[str], typer.Argument(help="Documents, folders of them, or addresses (s3://bucket/prefix).")
]
DocumentName = Annotated[
    str,
    typer.Argument(
        autocompletion=completion.documents, help="Its id, the beginning of it, or its name."
    ),
]


def add(
    files: Files,
    *,
    settings: Settings = None,
    collection: IntoCollection = None,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    ocr: OcrChoice = "auto",
    ocr_engine: OcrEngineChoice = "rapidocr",
    max_pages: MaxPages = _LIMITS.max_pages,
    max_megabytes: MaxMegabytes = _LIMITS.max_bytes // 1_000_000,
    max_megapixels: MaxMegapixels = _LIMITS.max_pixels // 1_000_000,
    seconds_per_page: SecondsPerPage = _LIMITS.seconds_per_page,
    index: IndexLocation = None,
    ray: RayAddress = None,
    server: ServerAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Add documents to the index. What is there already is not read again."""
    if server:
        from visar.cli import remote

        if settings:
            raise InvalidOption("--set goes with an index of this machine, not with --server.")
        remote.add(server, files, collection=collection, quiet=quiet, as_json=as_json)
        return
    metadata = parse_metadata(settings or ())
    limits = Limits(
        max_pages=max_pages,
        max_bytes=max_megabytes * 1_000_000,
        max_pixels=max_megapixels * 1_000_000,
        seconds_per_page=seconds_per_page,
    )
    options = ReadOptions(password=password, ocr=ocr, ocr_engine=ocr_engine, limits=limits)
    library = open_index(index, create=True, device=device, options=options)
    added: list[Document] = []
    refused: tuple[Refusal, ...] = ()
    try:
        refused = add_files(
            library,
            files,
            encoder,
            quiet=quiet,
            added=added,
            metadata=metadata,
            collection=collection,
            ray=ray,
        )
    finally:
        # Also when the index fails: these are in it.
        if as_json:
            from visar.results import Additions

            print_json(Additions(tuple(added), refused))
        for document in added if not as_json else ():
            line = Text.assemble(("added", "green"), f"  {document_line(document)}")
            console.print(line, soft_wrap=True)
    if refused:
        complain(f"{len(refused)} of {len(added) + len(refused)} documents were refused")
        raise typer.Exit(1 if added else 2)


def list_documents(
    *,
    collection: Collection = None,
    where: Where = None,
    index: IndexLocation = None,
    server: ServerAddress = None,
    as_json: Json = False,
) -> None:
    """List the documents of the index."""
    if server:
        from visar.cli import remote

        if where is not None:
            raise InvalidOption("--where lists an index of this machine alone.")
        remote.list_documents(server, collection, as_json=as_json)
        return
    store = open_store(index, create=False)
    documents = filtered(store.documents(collection=collection), where)
    if as_json:
        print_json(documents)
        return
    if not documents:
        chosen = where is not None or collection is not None
        said = "has no such documents" if chosen else "is empty"
        console.print(Text(f"The index {store.location} {said}."), soft_wrap=True)
        return
    print_documents(documents)


def show(document: DocumentName, *, index: IndexLocation = None, as_json: Json = False) -> None:
    """Show what the index knows of a document."""
    from visar.ingest.sources import source_text

    stored = open_store(index, create=False).get(document)
    if as_json:
        print_json(stored)
        return
    console.print(Text(stored.name, style="bold"), soft_wrap=True)
    for label, value in (
        ("id", stored.id),
        ("file", source_text(stored.source)),
        ("pages", stored.pages),
        ("size", f"{stored.size / 1e6:.1f} MB"),
        ("added", stored.added.astimezone().strftime("%Y-%m-%d %H:%M")),
        ("encoders", ", ".join(str(encoder) for encoder in stored.encoders)),
        ("in", ", ".join(stored.collections) or "no collection"),
        *((name, clean_line(value)) for name, value in stored.metadata.items()),
    ):
        console.print(Text.assemble("  ", (f"{label:<9}", "dim"), f" {value}"), soft_wrap=True)


def remove(
    document: DocumentName,
    *,
    index: IndexLocation = None,
    server: ServerAddress = None,
    as_json: Json = False,
) -> None:
    """Remove a document from the index. Its file stays."""
    if server:
        from visar.cli import remote

        remote.remove(server, document, as_json=as_json)
        return
    removed = open_store(index, create=False).remove(document)
    if as_json:
        print_json(removed)
    else:
        console.print(Text(f"removed  {document_line(removed)}"), soft_wrap=True)


def verify(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Check everything in the index; change nothing."""
    store = open_store(index, create=False)
    problems = store.verify()
    if as_json:
        print_json(problems)
    else:
        for problem in problems:
            console.print(Text.assemble((problem.kind, "yellow"), f"  {problem}"), soft_wrap=True)
        damaged = sum(problem.kind == "damage" for problem in problems)
        documents = len(store.documents())
        console.print(
            f"{documents} documents, {damaged} problems, {len(problems) - damaged} leftovers"
        )
    if any(problem.kind == "damage" for problem in problems):
        raise typer.Exit(1)


def compact(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Drop what interrupted additions have left in the index."""
    dropped = open_store(index, create=False).compact()
    if as_json:
        print_json(dropped)
    else:
        console.print(
            f"dropped {dropped.pages} pages of unfinished additions and {dropped.files} files "
            f"({dropped.bytes / 1e6:.1f} MB)"
        )
