"""``visar ask``, ``search``, ``explain`` and ``demo``."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.text import Text

from visar._version import __version__
from visar.cli.help import OUTPUT, SEARCH
from visar.cli.library import documents_to_search
from visar.cli.options import AnswerOptions, Json, QuestionOptions, option
from visar.cli.output import console, errors, print_json, say
from visar.cli.progress import waiting
from visar.documents.finding import DOCUMENT_SUFFIXES
from visar.errors import DocumentError, InvalidOption
from visar.files import write_whole
from visar.samples import REPORT
from visar.text import clean_line

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.encoders.encoder import Encoder
    from visar.index import Index
    from visar.library import Library
    from visar.results import Explanation, SearchResult

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]... QUESTION",
        help="Files or URLs, then the question. Without files: your whole index.",
    ),
]
OpenFolder = Annotated[
    Path | None,
    option("--open FOLDER", "Save the pages as PNG, with a heat map of the question.", OUTPUT),
]
Why = Annotated[bool, option("--why", "Show the numbers behind the choice of pages.", OUTPUT)]
ImageFile = Annotated[
    Path | None,
    option(
        "--image FILE",
        "Search for this picture instead of a question. Needs a visual encoder.",
        SEARCH,
    ),
]
ReportFile = Annotated[Path | None, option("--out FILE", "Save a report as one HTML file.")]
PictureFolder = Annotated[
    Path | None, option("--png FOLDER", "Save heat maps and charts of the choice as PNG.")
]


def ask(
    words: Words = None,
    *,
    options: AnswerOptions,
    open_folder: OpenFolder = None,
    why: Why = False,
    as_json: Json = False,
) -> None:
    """Ask a question. Files are added to your index, so later questions are fast."""
    files, question = split_question(words)
    with options.open_library(create=bool(files)) as library:
        from visar.cli.answers import print_answer, print_pages, read_answer, warn_of_problem

        chosen = options.ask_options()
        chosen["documents"] = documents_to_search(library, files, options.documents, options)
        with waiting("answering", quiet=options.quiet):
            answer = read_answer(library.stream(question, **chosen))
        written = save_heat(library, answer.search, open_folder)
    if as_json:
        print_json(answer)
    else:
        print_answer(answer)
        print_pages(answer.search, why=why)
        _print_files(written)
    if warn_of_problem(answer):
        raise typer.Exit(1)


def search(
    words: Words = None,
    *,
    options: QuestionOptions,
    image: ImageFile = None,
    open_folder: OpenFolder = None,
    why: Why = False,
    as_json: Json = False,
) -> None:
    """Find the pages a question needs. Writes no answer."""
    files, question = _files_and_question(words or []) if image else split_question(words)
    if image and question:
        raise InvalidOption(f"--image replaces the question. Leave out {question!r:.60}.")
    with options.open_library(create=bool(files)) as library:
        from visar.cli.answers import print_pages

        index = cast("Index", library)  # a server is refused together with --image
        picture = None if image is None else _read_picture(image, index.encoder(options.encoder))
        chosen = options.search_options()
        chosen["documents"] = documents_to_search(library, files, options.documents, options)
        with waiting("searching", quiet=options.quiet):
            if picture is None:
                found = library.search(question, **chosen)
            else:
                found = index.search(image=picture, **chosen)
        written = save_heat(library, found, open_folder)
    if as_json:
        print_json(found)
        return
    print_pages(found, why=why)
    _print_files(written)


def _read_picture(path: Path, encoder: Encoder) -> Image:
    """Read the picture of ``--image`` like a document, in a sandbox and within limits."""
    from visar.documents import open_document
    from visar.encoders.encoder import refuse_image_query

    refuse_image_query(encoder)
    with open_document(path) as document:
        return document.image(1)


def explain(
    words: Words = None,
    *,
    options: QuestionOptions,
    out: ReportFile = None,
    pictures: PictureFolder = None,
    as_json: Json = False,
) -> None:
    """Explain why pages were chosen. Can save a report."""
    files, question = split_question(words)
    with options.open_library(create=bool(files)) as library:
        from visar.cli.answers import print_answer, print_pages
        from visar.generation.answering import quoted_answer
        from visar.library import AnswerStream, limit_pages

        chosen = options.search_options()
        chosen["documents"] = documents_to_search(library, files, options.documents, options)
        with waiting("explaining", quiet=options.quiet):
            found = library.search(question, **limit_pages(chosen))
            answer = AnswerStream(found, quoted_answer(found)).answer
            explanation = library.explain(found)
            written = []
            if out is not None:
                from visar.explain.report import html_report

                report = html_report(library, answer, explanation)
                written.append(save(out, report.encode()))
            if pictures is not None:
                written += _save_pictures(library, found, explanation, pictures)
    if as_json:
        print_json({"answer": answer, "explanation": explanation, "written": written})
        return
    print_answer(answer)
    print_pages(found, why=True)
    _print_reasons(explanation)
    _print_files(written)


def split_question(words: list[str] | None) -> tuple[list[str], str]:
    """Return the files and the question after them; prompt for the question at a terminal."""
    files, question = _files_and_question(words or [])
    if not question and files and sys.stdin.isatty():
        question = input("? ")
    question = clean_line(question)
    if not question:
        raise InvalidOption('No question given. Put it last: `visar ask report.pdf "…"`')
    return files, question


def _files_and_question(words: list[str]) -> tuple[list[str], str]:
    if not words:
        return [], ""
    *before, last = words
    if len(last.split()) > 1 and not _is_path(last):  # a question in quotes
        return before, last
    # Without quotes a question is several words, and none of them is a file.
    count = next((n for n, word in enumerate(words) if not _is_file(word)), len(words))
    files, question = words[:count], words[count:]
    for word in question:
        if _is_path(word):
            raise InvalidOption(
                f'{word!r} is a file. Put the question last, in quotes: `visar ask {word} "…"`'
            )
    return files, " ".join(question)


def _is_file(word: str) -> bool:
    """Return whether a word is, or looks like, a file."""
    return _is_path(word) or os.sep in word or Path(word).suffix.lower() in DOCUMENT_SUFFIXES


def _is_path(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # longer than a name can be, or with a null character
        return False


def save_heat(library: Library, found: SearchResult, folder: Path | None) -> list[Path]:
    """Save the chosen pages as PNG, with a heat map of the question; return the files."""
    if folder is None:
        return []
    from visar.explain.pictures import pages_with_heat

    written = []
    for rank, (hit, image) in enumerate(pages_with_heat(library, found), start=1):
        # Short enough for every file system, whatever the document is called.
        stem = clean_line(Path(hit.name).stem)[:50].replace("/", "-")
        written.append(_save_png(folder / f"{rank:02d}-{stem}-page-{hit.page}.png", image))
    return written


def _save_pictures(
    library: Library, found: SearchResult, explanation: Explanation, folder: Path
) -> list[Path]:
    from visar.explain.pictures import activity_picture, cost_picture, similarity_picture

    return [
        _save_png(folder / "activity.png", activity_picture(found, explanation)),
        _save_png(folder / "similarity.png", similarity_picture(found, explanation)),
        _save_png(folder / "cost.png", cost_picture(explanation)),
        *save_heat(library, found, folder),
    ]


def _save_png(path: Path, image: Image) -> Path:
    picture = io.BytesIO()
    image.save(picture, "PNG")
    return save(path, picture.getvalue())


def save(path: Path, content: bytes) -> Path:
    """Write an output file and its folder; return its path."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise DocumentError(str(path), f"can't be written: {error.strerror}") from error
    return path


def _print_files(files: list[Path]) -> None:
    for path in files:
        say(Text.assemble(("  wrote ", "dim"), str(path)))


def _print_reasons(explanation: Explanation) -> None:
    """Print the influence of each word, and the number of pages by other methods."""
    if explanation.words:
        ordered = sorted(explanation.words, key=lambda word: -word.influence)
        shares = ", ".join(f"{word.text} {word.influence:.0%}" for word in ordered)
        say(f"  influence of words: {shares}", "dim")
    cuts = ", ".join(f"{one.label} {one.k}" for one in explanation.choices if one.adaptive)
    say(f"  pages by method: {cuts}", "dim")


QUESTIONS = (
    "How long is the warranty on the Aurora 4 lantern?",
    "How did capital expenditure change between 2020 and 2024?",
    "Which vaccines does the company produce?",
)
# The parameter isn't called "index": VISAR_INDEX and the user's setting must not apply.
DemoIndex = Annotated[
    str | None,
    option("--index FOLDER", "Folder for the index of the demo. Your own index isn't used."),
]


def demo(*, folder: DemoIndex = None) -> None:
    """Answer three questions about a sample report."""
    from platformdirs import user_cache_path

    from visar.cli.answers import print_answer, print_pages
    from visar.index import Index

    with Index.open(folder or user_cache_path("visar") / f"demo-{__version__}") as library:
        if not library.documents():
            errors.print(f"Adding {REPORT.name} to the index of the demo (only the first time).")
        document = library.add(REPORT)
        console.print(f"{document.name} · {document.pages} pages")
        for question in QUESTIONS:
            console.print(Text(f"\n{question}", style="bold"))
            answer = library.ask(question, documents=[document.id])
            print_answer(answer)
            print_pages(answer.search)
    console.print('\nNow ask about your own files: visar ask FILE "your question"')
