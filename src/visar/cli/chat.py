"""``visar chat``: several questions about the same documents."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli.library import documents_to_search
from visar.cli.options import AnswerOptions, option
from visar.cli.output import complain, console, print_json
from visar.errors import StoreError, VisarError
from visar.text import clean_line

if TYPE_CHECKING:
    from visar.library import AskOptions, Library
    from visar.results import Answer

_HELP = "Type a question, /pages for the last pages, /history for your questions, or /quit."

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="Documents to ask about. Without files: your whole index, or --doc.",
    ),
]
JsonLines = Annotated[bool, option("--json", "Print each answer as a line of JSON.")]


def chat(files: Files = None, *, options: AnswerOptions, as_json: JsonLines = False) -> None:
    """Ask several questions in a row. Models stay loaded in between."""
    from visar.cli.answers import print_answer, print_pages, warn_if_interrupted

    with options.open_library(create=bool(files)) as library:
        chosen = options.ask_options()
        chosen["documents"] = documents_to_search(library, files or [], options.documents, options)
        answers: list[Answer] = []
        for line in _lines(_HELP if not as_json else ""):
            if line == "/quit":
                return
            if line == "/history":
                _print_history(answers)
            elif line == "/pages":
                for answer in answers[-1:]:
                    print_pages(answer.search)
            elif line.startswith("/"):
                complain(f"Unknown command {line}. {_HELP}")
            elif (reply := _answer(library, line, chosen)) is not None:
                answers.append(reply)
                if as_json:
                    print_json(reply, indent=None)
                    sys.stdout.flush()
                else:
                    print_answer(reply)
                warn_if_interrupted(reply)


def _answer(library: Library, question: str, options: AskOptions) -> Answer | None:
    """Answer a question. An error ends the chat only if the index is gone or damaged."""
    from visar.cli.answers import read_answer

    try:
        return read_answer(library.stream(question, **options)) if question else None
    except StoreError:
        raise
    except VisarError as error:
        complain(str(error))
    except KeyboardInterrupt:
        complain("Stopped. Ask another question, or type /quit.")
    return None


def _print_history(answers: list[Answer]) -> None:
    for number, answer in enumerate(answers, start=1):
        pages = ", ".join(str(hit.page) for hit in answer.pages)
        line = Text.assemble(f"  {number:>3}  {answer.question}", (f"  page {pages}", "dim"))
        console.print(line, soft_wrap=True)


def _lines(hint: str) -> Iterator[str]:
    """Yield the lines typed, until the end; the arrow keys bring earlier ones back."""
    prompt = "? " if sys.stdin.isatty() else ""
    if prompt:
        console.print(Text(f"  {hint}", "dim"))
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() uses it once it is there
    while True:
        try:
            yield clean_line(input(prompt))
        except EOFError:
            return
        except KeyboardInterrupt:
            # As in a shell: the line is dropped, the session stays.
            console.print()
