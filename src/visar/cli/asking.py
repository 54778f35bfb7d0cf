"""``visar ask`` and ``visar search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from visar.cli.options import (
    DeviceChoice,
    EncoderName,
    IndexFolder,
    Json,
    K,
    MaxK,
    MethodChoice,
    Neighbors,
    OcrChoice,
    OcrEngineChoice,
    Password,
    open_index,
)
from visar.cli.output import complain, console, print_json, progress_bars
from visar.errors import DocumentError, InvalidOption
from visar.explain.words import why_so_many
from visar.index import Index, Reading
from visar.results import Answer, PageHit, SearchResult

WIDEST_BAR = 8
# What a line of the page table takes beside the snippet.
OTHER_COLUMNS = 9 + 8 + WIDEST_BAR

Question = Annotated[
    list[str],
    typer.Argument(
        metavar="[FILE]... QUESTION",
        help="The question, after the files it is about. Without files: the whole index, or --doc.",
        show_default=False,
    ),
]
Documents = Annotated[
    list[str] | None,
    typer.Option("--doc", help="Ask about this document: its id, or its name.", show_default=False),
]
OpenFolder = Annotated[
    Path | None,
    typer.Option(
        "--open",
        metavar="DIR",
        help="Write the chosen pages there as PNG, with the question's heat on them.",
        show_default=False,
    ),
]


def ask(
    words: Question,
    *,
    documents: Documents = None,
    method: MethodChoice = "visar",
    k: K = None,
    max_k: MaxK = None,
    neighbors: Neighbors = 0,
    open_folder: OpenFolder = None,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    ocr: OcrChoice = "auto",
    ocr_engine: OcrEngineChoice = "rapidocr",
    index: IndexFolder = None,
    as_json: Json = False,
) -> None:
    """Ask a question about files, or about what is in the index. Files are remembered."""
    files, question = _split(words)
    library = open_index(index, create=bool(files), device=device)
    reading = Reading(password=password, ocr=ocr, ocr_engine=ocr_engine)
    asked = _asked(library, files, documents, encoder, reading)
    answer = library.ask(
        question,
        documents=asked,
        encoder=encoder,
        method=method,
        k=k,
        max_k=max_k,
        neighbors=neighbors,
    )
    written = _write_heat(library, answer.search, open_folder)
    if as_json:
        print_json(answer)
        return
    _print_answer(answer)
    _print_pages(answer.search)
    _print_written(written)


def search(
    words: Question,
    *,
    documents: Documents = None,
    method: MethodChoice = "visar",
    k: K = None,
    max_k: MaxK = None,
    neighbors: Neighbors = 0,
    open_folder: OpenFolder = None,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    ocr: OcrChoice = "auto",
    ocr_engine: OcrEngineChoice = "rapidocr",
    index: IndexFolder = None,
    as_json: Json = False,
) -> None:
    """Find the pages a question needs, without an answer."""
    files, question = _split(words)
    library = open_index(index, create=bool(files), device=device)
    reading = Reading(password=password, ocr=ocr, ocr_engine=ocr_engine)
    asked = _asked(library, files, documents, encoder, reading)
    found = library.search(
        question,
        documents=asked,
        encoder=encoder,
        method=method,
        k=k,
        max_k=max_k,
        neighbors=neighbors,
    )
    written = _write_heat(library, found, open_folder)
    if as_json:
        print_json(found)
        return
    _print_pages(found)
    _print_written(written)


def _split(words: list[str]) -> tuple[list[str], str]:
    """The files, and the question after them."""
    *files, question = words
    if not question.strip():
        raise InvalidOption("The question is empty.")
    if Path(question).exists():
        raise InvalidOption(f"{question!r} is a file: the question comes last, after the files.")
    return files, question


def _asked(
    library: Index,
    files: list[str],
    documents: list[str] | None,
    encoder: str,
    reading: Reading,
) -> list[str] | None:
    """The documents asked about, once the files named are in the index; None for all."""
    if not files:
        return documents
    with progress_bars() as bars:
        additions = library.add_all(files, encoder=encoder, reading=reading, progress=bars)
    for refusal in additions.refused:
        complain(refusal.reason)
    if not additions.added:
        raise typer.Exit(2)
    return [*(document.id for document in additions.added), *(documents or [])]


def _write_heat(library: Index, found: SearchResult, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DocumentError(str(folder), f"cannot be written to: {error.strerror}") from error
    written = []
    for name, image in library.heat(found):
        image.save(folder / name)
        written.append(folder / name)
    return written


def _print_answer(answer: Answer) -> None:
    console.print()
    searched = answer.search.documents
    where = searched[0].name if len(searched) == 1 else f"these {len(searched)} documents"
    if answer.found and answer.search.strength == "weak":
        console.print(Text(f"  A weak match: the answer may not be in {where}.", style="yellow"))
    if not answer.found:
        console.print(Text(f"  Nothing in {where} matches this question well.", style="bold"))
        console.print("  [dim]What comes nearest:[/dim]")
    names = {hit.document: hit.name for hit in answer.search.pages}
    for passage in answer.passages:
        named = f"{names[passage.document]}, " if len(searched) > 1 else ""
        quoted = Text(passage.text, style="bold" if answer.found else "dim")
        line = Text.assemble(quoted, (f"  {named}page {passage.page}", "dim"))
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    if answer.found:
        console.print("  [dim]quoted from the pages: no language model is configured[/dim]")
    console.print()


def _print_pages(found: SearchResult) -> None:
    several = len(found.documents) > 1
    highest = max((hit.score for hit in found.pages), default=0) or 1
    width = max(20, min(console.width, 110) - OTHER_COLUMNS)
    console.print(f"  [bold]PAGE   {'MATCH':<{width}}  SCORE[/bold]")
    for hit in found.pages:
        console.print(_page_line(hit, highest, several, width), soft_wrap=True)
    console.print()
    console.print(Text(f"  {why_so_many(found)}", style="dim"), soft_wrap=True)


def _page_line(hit: PageHit, highest: float, several: bool, width: int) -> Text:
    snippet = f"{hit.name}: {hit.snippet}" if several else hit.snippet
    if hit.beside is not None:
        snippet = f"(beside page {hit.beside}) {snippet}"
    if len(snippet) > width:
        snippet = snippet[: width - 1] + "…"
    bar = "█" * max(1, round(WIDEST_BAR * hit.score / highest)) if hit.score else ""
    return (
        Text(f"  {hit.page:>4}   ", style="bold cyan")
        + Text(f"{snippet:<{width}}")
        + Text(f"  {hit.score:.2f} ")
        + Text(bar, style="cyan")
    )


def _print_written(written: list[Path]) -> None:
    for path in written:
        console.print(Text.assemble(("  wrote ", "dim"), str(path)), soft_wrap=True)
