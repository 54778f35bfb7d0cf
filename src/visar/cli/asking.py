"""``visar ask`` and ``visar search``."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.options import (
    BaseUrl,
    Collection,
    DeviceChoice,
    EncoderName,
    Exact,
    GeneratorName,
    IndexLocation,
    Json,
    K,
    MaxK,
    MethodName,
    Neighbors,
    OcrChoice,
    OcrEngineChoice,
    Password,
    Quiet,
    SendMegapixels,
    SendTokens,
    ServerAddress,
    Where,
    Why,
    add_files,
    open_generator,
    open_index,
    was_given,
)
from visar.cli.output import console, print_json
from visar.cli.progress import waiting
from visar.documents import ReadOptions
from visar.documents.finding import DOCUMENT_SUFFIXES
from visar.errors import DocumentError, InvalidOption
from visar.files import write_whole
from visar.generation import extractive
from visar.generation.answering import USUAL_BUDGET, Budget
from visar.text import clean_line

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.encoders.protocol import Encoder
    from visar.index import Index
    from visar.results import Document, SearchResult

_WORDS = typer.Argument(
    metavar="[FILE]... QUESTION",
    help="The question, after the files it is about. Without files: the whole index, or --doc.",
)
Question = Annotated[list[str], _WORDS]
QuestionOrNone = Annotated[list[str] | None, _WORDS]
Documents = Annotated[
    list[str] | None,
    typer.Option(
        "--doc",
        autocompletion=completion.documents,
        help="Ask about this document: its id, or its name.",
    ),
]
OpenFolder = Annotated[
    Path | None,
    typer.Option(
        "--open",
        metavar="DIR",
        help="Write the chosen pages there as PNG, with the question's heat on them.",
    ),
]


ImageFile = Annotated[
    Path | None,
    typer.Option(
        "--image",
        metavar="FILE",
        help="Look for what this picture shows, such as a cut-out of a page; then there is no "
        "question, and the encoder must read page images.",
    ),
]


def ask(
    context: typer.Context,
    words: Question,
    *,
    documents: Documents = None,
    collection: Collection = None,
    where: Where = None,
    exact: Exact = False,
    method: MethodName = "visar",
    k: K = None,
    max_k: MaxK = None,
    neighbors: Neighbors = 0,
    open_folder: OpenFolder = None,
    why: Why = False,
    generator: GeneratorName = extractive.NAME,
    base_url: BaseUrl = None,
    send_megapixels: SendMegapixels = USUAL_BUDGET.pixels / 1e6,
    send_tokens: SendTokens = USUAL_BUDGET.tokens,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    ocr: OcrChoice = "auto",
    ocr_engine: OcrEngineChoice = "rapidocr",
    index: IndexLocation = None,
    server: ServerAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Ask a question about files, or about what is in the index. Files are remembered."""
    files, question = split_question(words)
    if server:
        from visar.cli import remote

        remote.ask(
            server,
            files,
            question,
            as_json=as_json,
            # What is set for this machine is not what the server has.
            generator=generator if was_given(context, "generator") else None,
            documents=documents,
            collection=collection,
            where=where,
            exact=exact or None,
            method=method,
            k=k,
            max_k=max_k,
            neighbors=neighbors,
        )
        return
    options = ReadOptions(password=password, ocr=ocr, ocr_engine=ocr_engine)
    library = open_index(index, create=bool(files), device=device, options=options)
    from visar.cli.answers import print_answer, print_pages, shown_while_written

    writer = open_generator(generator, base_url, device)
    asked = documents_asked(library, files, documents, encoder, quiet=quiet)
    with waiting("answering", quiet=quiet), shown_while_written(writer) as on_text:
        answer = library.ask(
            question,
            documents=asked,
            collection=collection,
            where=where,
            exact=exact,
            encoder=encoder,
            method=method,
            k=k,
            max_k=max_k,
            neighbors=neighbors,
            generator=writer,
            budget=Budget(pixels=int(send_megapixels * 1e6), tokens=send_tokens),
            on_text=on_text,
        )
    written = write_heat(library, answer.search, open_folder)
    if as_json:
        print_json(answer)
        return
    print_answer(answer)
    print_pages(answer.search, why=why)
    print_written(written)


def search(
    words: QuestionOrNone = None,
    *,
    image: ImageFile = None,
    documents: Documents = None,
    collection: Collection = None,
    where: Where = None,
    exact: Exact = False,
    method: MethodName = "visar",
    k: K = None,
    max_k: MaxK = None,
    neighbors: Neighbors = 0,
    open_folder: OpenFolder = None,
    why: Why = False,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    ocr: OcrChoice = "auto",
    ocr_engine: OcrEngineChoice = "rapidocr",
    index: IndexLocation = None,
    server: ServerAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find the pages a question needs, without an answer."""
    files, question = _files_and_question(words or []) if image else split_question(words or [])
    if image and question:
        raise InvalidOption(f"--image is the question: leave out {question!r:.60}, or the image.")
    if server:
        if image:
            raise InvalidOption("--image goes with an index of this machine: leave out --server.")
        from visar.cli import remote

        remote.search(
            server,
            files,
            question,
            as_json=as_json,
            documents=documents,
            collection=collection,
            where=where,
            exact=exact or None,
            method=method,
            k=k,
            max_k=max_k,
            neighbors=neighbors,
        )
        return
    options = ReadOptions(password=password, ocr=ocr, ocr_engine=ocr_engine)
    library = open_index(index, create=bool(files), device=device, options=options)
    from visar.cli.answers import print_pages

    picture = None if image is None else _picture(image, library.encoder(encoder))
    asked = documents_asked(library, files, documents, encoder, quiet=quiet)
    with waiting("searching", quiet=quiet):
        found = library.search(
            question,
            image=picture,
            documents=asked,
            collection=collection,
            where=where,
            exact=exact,
            encoder=encoder,
            method=method,
            k=k,
            max_k=max_k,
            neighbors=neighbors,
        )
    written = write_heat(library, found, open_folder)
    if as_json:
        print_json(found)
        return
    print_pages(found, why=why)
    print_written(written)


def split_question(words: list[str]) -> tuple[list[str], str]:
    """The files, and the question after them; it is asked for where it is missing."""
    files, question = _files_and_question(words)
    if not question and files and sys.stdin.isatty():
        question = input("? ")
    question = clean_line(question)
    if not question:
        missing = " is missing: it comes last, after the files." if files else " is empty."
        raise InvalidOption(f"The question{missing}")
    return files, question


def _picture(path: Path, encoder: Encoder) -> Image:
    """Read the picture of ``--image``, with the checks of a document that is added."""
    from visar.documents import open_document
    from visar.encoders.protocol import refuse_image_query

    refuse_image_query(encoder)
    with open_document(path) as document:
        return document.image(1)


def _files_and_question(words: list[str]) -> tuple[list[str], str]:
    if not words:
        return [], ""
    *before, last = words
    if len(last.split()) > 1 and not _is_path(last):  # a question in quotes
        return before, last
    # Without quotes a question is several words, of which none is a file.
    count = next((n for n, word in enumerate(words) if not _is_file(word)), len(words))
    files, question = words[:count], words[count:]
    for word in question:
        if _is_path(word):
            raise InvalidOption(
                f"{word!r} is a file: the question comes last, after the files, in quotes."
            )
    return files, " ".join(question)


def _is_file(word: str) -> bool:
    """Whether a word is a file, or is meant to be one."""
    return _is_path(word) or os.sep in word or Path(word).suffix.lower() in DOCUMENT_SUFFIXES


def _is_path(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # longer than a name can be, or with a null character
        return False


def documents_asked(
    library: Index,
    files: list[str],
    documents: list[str] | None,
    encoder: str,
    *,
    quiet: bool,
) -> list[str] | None:
    """The documents asked about, once the files named are in the index; None for all."""
    if not files:
        return documents
    added: list[Document] = []
    add_files(library, files, encoder, quiet=quiet, added=added)
    if not added:
        raise typer.Exit(2)
    return [*(document.id for document in added), *(documents or [])]


def write_heat(library: Index, found: SearchResult, folder: Path | None) -> list[Path]:
    """Write the chosen pages as PNG with the question's heat on them; return the files."""
    if folder is None:
        return []
    written = []
    for rank, (hit, image) in enumerate(library.heat(found), start=1):
        # Short enough for every file system, whatever the document is called.
        stem = clean_line(Path(hit.name).stem)[:50].replace("/", "-")
        path = folder / f"{rank:02d}-{stem}-page-{hit.page}.png"
        written.append(write_png(path, image))
    return written


def write_png(path: Path, image: Image) -> Path:
    """Write a picture; return its path."""
    picture = io.BytesIO()
    image.save(picture, "PNG")
    return write_file(path, picture.getvalue())


def write_file(path: Path, content: bytes) -> Path:
    """Write a file that an option names, and the folder it is in; return its path."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise DocumentError(str(path), f"cannot be written: {error.strerror}") from error
    return path


def print_written(written: list[Path]) -> None:
    """Name the files that were written."""
    for path in written:
        console.print(Text.assemble(("  wrote ", "dim"), str(path)), soft_wrap=True)
