"""``visar demo``: questions about a sample report, to try a new installation."""

from __future__ import annotations

from typing import Annotated

from platformdirs import user_cache_path
from rich.text import Text

from visar._version import __version__
from visar.cli.answers import print_answer, print_pages
from visar.cli.options import option
from visar.cli.output import console, errors
from visar.index import Index
from visar.samples import REPORT

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
