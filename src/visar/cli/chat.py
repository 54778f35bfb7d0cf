"""``visar chat``: several questions about the same documents."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from visar.cli.library import documents_to_search
from visar.cli.options import AnswerOptions
from visar.cli.output import complain, console, print_json
from visar.errors import StoreError, VisarError
from visar.results import Answer
from visar.text import clean_line

_HELP = "Type a question, /pages for the last pages, /history for your questions, or /quit."

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="Documents to ask about. Without files: your whole index, or --doc.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print each answer as a line of JSON.")]


def chat(files: Files = None, *, options: AnswerOptions, as_json: JsonLines = False) -> None:
    """Ask several questions in a row. Models stay loaded in between."""
    from visar.cli.answers import read_answer

    with options.open_library(create=bool(files)) as library:
        chosen = options.ask_options()
        chosen["documents"] = documents_to_search(library, files or [], options.documents, options)

        def answer(question: str) -> Answer:
            return read_answer(library.stream(question, **chosen))

        _Session(answer, as_json=as_json).run()


class _Session:
    """A chat: reads lines from stdin, answers them, and keeps the answers."""

    def __init__(self, answer: Callable[[str], Answer], *, as_json: bool) -> None:
        self._answer = answer
        self._as_json = as_json
        self._answers: list[Answer] = []

    def run(self) -> None:
        if sys.stdin.isatty() and not self._as_json:
            console.print(Text(f"  {_HELP}", "dim"))
        for line in _lines():
            if line == "/quit":
                return
            if line == "/history":
                self._print_history()
            elif line == "/pages":
                self._print_last_pages()
            elif line.startswith("/"):
                complain(f"Unknown command {line}. {_HELP}")
            elif line:
                self._ask(line)

    def _ask(self, question: str) -> None:
        """Answer a question. An error ends the session only if the library is gone or damaged."""
        from visar.cli.answers import print_answer, warn_if_interrupted

        try:
            answer = self._answer(question)
        except StoreError:
            raise
        except VisarError as error:
            complain(str(error))
            return
        except KeyboardInterrupt:
            complain("Stopped. Ask another question, or type /quit.")
            return
        self._answers.append(answer)
        if self._as_json:
            print_json(answer, indent=None)
            sys.stdout.flush()
        else:
            print_answer(answer)
        warn_if_interrupted(answer)

    def _print_history(self) -> None:
        for number, answer in enumerate(self._answers, start=1):
            pages = ", ".join(str(hit.page) for hit in answer.pages)
            line = Text.assemble(f"  {number:>3}  {answer.question}", (f"  page {pages}", "dim"))
            console.print(line, soft_wrap=True)

    def _print_last_pages(self) -> None:
        from visar.cli.answers import print_pages

        if self._answers:
            print_pages(self._answers[-1].search)


def _lines() -> Iterator[str]:
    """Yield the lines typed, until the end; the arrow keys bring earlier ones back."""
    prompt = "? " if sys.stdin.isatty() else ""
    if prompt:
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
