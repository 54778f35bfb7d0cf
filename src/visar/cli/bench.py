"""``visar bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from visar.cli import completion
from visar.cli.library import documents_to_search
from visar.cli.options import Json, ReadingOptions
from visar.cli.output import complain, console, print_json
from visar.cli.progress import progress_shown
from visar.errors import InvalidOption, extra_needed

if TYPE_CHECKING:
    from visar.evaluation.bench_report import Table as MeasuredTable

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="The documents to measure. Without files: the whole index, or --doc.",
    ),
]
Documents = Annotated[
    list[str] | None,
    typer.Option(
        "--doc",
        autocompletion=completion.documents,
        help="Measure this document: its id, or its name.",
    ),
]
QuestionFile = Annotated[
    Path | None,
    typer.Option(
        "--questions",
        metavar="FILE",
        help="Questions to ask, one a line; by default three from each document's own words.",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        autocompletion=completion.methods,
        help="Measure this method too: one of visar eval, or your own as module:function.",
    ),
]
Rounds = Annotated[int, typer.Option("--rounds", help="How often each is measured.", min=1)]
SaveFolder = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="DIR",
        help="Write the numbers there as JSON and Markdown, and the figures as SVG.",
    ),
]


def bench(
    files: Files = None,
    *,
    documents: Documents = None,
    question_file: QuestionFile = None,
    method: Methods = None,
    rounds: Rounds = 5,
    save_folder: SaveFolder = None,
    options: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Measure on your documents and this machine how long it takes to choose pages."""
    # Imported here: no other command needs it.
    with extra_needed("A measurement", "eval"):
        from visar.evaluation import bench_report, timing

    questions = None if question_file is None else _read_questions(question_file)
    if save_folder is not None:
        bench_report.make_ready(save_folder)
    library = options.open_index(create=bool(files))
    chosen = documents_to_search(library, files or [], documents, options)
    try:
        with progress_shown(quiet=options.quiet) as display:
            measured = timing.bench(
                library,
                chosen,
                encoder=options.encoder,
                questions=questions,
                methods=method or (),
                rounds=rounds,
                progress=lambda done, total: display.step("measuring", done, total, "questions"),
            )
    except KeyboardInterrupt:
        complain("interrupted. Nothing was measured to the end.")
        sys.exit(130)
    written = [] if save_folder is None else bench_report.save(measured, save_folder)
    if as_json:
        print_json(measured)
        return
    for table in bench_report.tables(measured):
        _print(table)
    for line in bench_report.summary_lines(measured):
        console.print(Padding(Text(line, "dim"), (0, 0, 0, 2)))
    for path in written:
        console.print(Text.assemble(("  wrote ", "dim"), str(path)), soft_wrap=True)


def _read_questions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{path} is not a text in UTF-8 (byte {error.start}).") from error
    questions = [line.strip() for line in lines if line.strip()]
    if not questions:
        raise InvalidOption(f"{path} has no questions: write one a line.")
    return questions


def _print(measured: MeasuredTable) -> None:
    console.print(Text(measured.title, "bold"), soft_wrap=True)
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 0, 0, 2))
    first, *others = measured.columns
    table.add_column(first, overflow="fold")
    for column in others:
        # Numbers must not be broken; where room is short, the names are.
        heading = "\n".join(column.split())
        table.add_column(heading, justify="right", no_wrap=True)
    for row in measured.rows:
        table.add_row(*map(Text, row))
    console.print(Padding(table, (0, 0, 1, 2)))
