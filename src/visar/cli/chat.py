"""``visar chat``: several questions about the same documents."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from visar.cli.answers import print_answer, print_pages, shown_while_written
from visar.cli.asking import Documents, documents_asked
from visar.cli.options import (
    BaseUrl,
    Collection,
    DeviceChoice,
    EncoderName,
    Exact,
    GeneratorName,
    IndexLocation,
    MaxK,
    MethodName,
    Neighbors,
    OcrChoice,
    Password,
    Quiet,
    SendMegapixels,
    SendTokens,
    Where,
    open_generator,
    open_index,
)
from visar.cli.output import complain, console, print_json
from visar.documents import ReadOptions
from visar.errors import StoreError, VisarError
from visar.generation import extractive
from visar.generation.answering import USUAL_BUDGET, Budget
from visar.results import Answer
from visar.text import clean_line

_HELP = "a question · /history lists those asked · /pages shows the last ones' pages · /quit ends"

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Documents to ask about. Without: the whole index, or --doc."),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Write each answer as a line of JSON.")]


def chat(
    files: Files = None,
    *,
    documents: Documents = None,
    collection: Collection = None,
    where: Where = None,
    exact: Exact = False,
    method: MethodName = "visar",
    max_k: MaxK = None,
    neighbors: Neighbors = 0,
    generator: GeneratorName = extractive.NAME,
    base_url: BaseUrl = None,
    send_megapixels: SendMegapixels = USUAL_BUDGET.pixels / 1e6,
    send_tokens: SendTokens = USUAL_BUDGET.tokens,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    ocr: OcrChoice = "auto",
    index: IndexLocation = None,
    quiet: Quiet = False,
    as_json: JsonLines = False,
) -> None:
    """Ask question after question. Each is answered on its own pages; the models stay loaded."""
    options = ReadOptions(password=password, ocr=ocr)
    library = open_index(index, create=bool(files), device=device, options=options)
    writer = open_generator(generator, base_url, device)
    asked = documents_asked(library, [str(f) for f in files or []], documents, encoder, quiet=quiet)

    def answer(question: str) -> Answer:
        with shown_while_written(writer) as on_text:
            return library.ask(
                question,
                documents=asked,
                collection=collection,
                where=where,
                exact=exact,
                encoder=encoder,
                method=method,
                max_k=max_k,
                neighbors=neighbors,
                generator=writer,
                budget=Budget(pixels=int(send_megapixels * 1e6), tokens=send_tokens),
                on_text=on_text,
            )

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
                complain(f"{line} is no command here: {_HELP}")
            elif line:
                self._ask(line)

    def _ask(self, question: str) -> None:
        """Answer a question. An error ends the session only if the index is gone or damaged."""
        try:
            answer = self._answer(question)
        except StoreError:
            raise
        except VisarError as error:
            complain(str(error))
            return
        except KeyboardInterrupt:
            complain("stopped: ask another question, or end with /quit")
            return
        self._answers.append(answer)
        if self._as_json:
            print_json(answer, indent=None)
            sys.stdout.flush()
        else:
            print_answer(answer)

    def _print_history(self) -> None:
        for number, answer in enumerate(self._answers, start=1):
            pages = ", ".join(str(hit.page) for hit in answer.pages)
            line = Text.assemble(f"  {number:>3}  {answer.question}", (f"  page {pages}", "dim"))
            console.print(line, soft_wrap=True)

    def _print_last_pages(self) -> None:
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
