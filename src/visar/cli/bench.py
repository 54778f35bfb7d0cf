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
from visar.cli.options import Json, ReadingOptions, option
from visar.cli.output import complain, console, print_json
from visar.cli.progress import progress_shown
from visar.errors import InvalidOption, extra_needed

if TYPE_CHECKING:
    from visar.evaluation.report.markup import Table as MeasuredTable

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...", help="Documents to measure. Without files: your whole index."
    ),
]
Documents = Annotated[
    list[str] | None,
    option(
        "--doc NAME",
        "Only measure this document, by name or id. Repeatable.",
        autocompletion=completion.documents,
    ),
]
QuestionFile = Annotated[
    Path | None,
    option("--questions FILE", "Questions, one per line. [default: three per document]"),
]
Methods = Annotated[
    list[str] | None,
    option(
        "--method NAME",
        "Also measure this method: a name, or module:function. Repeatable.",
        autocompletion=completion.methods,
    ),
]
Rounds = Annotated[int, option("--rounds N", "Number of measurements of each step.", min=1)]
SaveFolder = Annotated[
    Path | None, option("--save FOLDER", "Save the numbers as JSON and Markdown, charts as SVG.")
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
    """Time the choice of pages on your documents."""
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
        complain("interrupted. No measurement was finished.")
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
        raise InvalidOption(f"Can't read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{path} isn't UTF-8 text (byte {error.start}).") from error
    questions = [line.strip() for line in lines if line.strip()]
    if not questions:
        raise InvalidOption(f"{path} has no questions. Write one per line.")
    return questions


def _print(measured: MeasuredTable) -> None:
    console.print(Text(measured.title, "bold"), soft_wrap=True)
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 0, 0, 2))
    first, *others = measured.columns
    table.add_column(first, overflow="fold")
    for column in others:
        # Numbers must not wrap; names may.
        heading = "\n".join(column.split())
        table.add_column(heading, justify="right", no_wrap=True)
    for row in measured.rows:
        table.add_row(*(Text(cell.text) for cell in row))
    console.print(Padding(table, (0, 0, 1, 2)))
