"""``visar eval``: run, report, compare, convert."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from visar.cli import completion
from visar.cli.eval_cut import cut
from visar.cli.eval_verify import verify_model
from visar.cli.help import ANSWER, DOCUMENTS, MODELS, READING, SEARCH, App
from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    IndexOptions,
    Json,
    Quiet,
    RayAddress,
    fetch_model,
    option,
    ray_messages_on_stderr,
    with_options,
)
from visar.cli.output import complain, console, print_json
from visar.cli.progress import progress_shown
from visar.errors import InvalidOption, extra_needed
from visar.index import Index
from visar.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from visar.evaluation.run import Outcome
    from visar.evaluation.state import Progress, RunState

app = App("Run benchmarks and report the results.", no_args_is_help=True)

MAX_LISTED = 10
"""Maximum number of settings with missing results to list, of each kind."""

Folder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of the run. Results in it are reused.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.")]
Config = Annotated[Path | None, option("--config FILE", "TOML file with these options.")]
KnownAs = Annotated[
    str | None, option("--as NAME", "Model of a checkpoint in a folder, such as colpali.", MODELS)
]
Out = Annotated[
    Path | None,
    option("--out FOLDER", "Folder to write to. [default: the folder of the run]"),
]
Folders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
Baseline = Annotated[
    str | None,
    option(
        "--baseline ROW",
        "Row to compare with: RUN/ENCODER/METHOD, or the end of it. [default: the best]",
    ),
]
Benchmark = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        autocompletion=completion.converters,
        help="MMDocIR, MMDocRAG, VisR-Bench, SlideVQA, MP-DocVQA, FinanceBench or module:function.",
    ),
]
Source = Annotated[
    Path, typer.Argument(metavar="FILE", help="File with the questions of the benchmark.")
]
Questions = Annotated[
    Path, option("--out FILE", "JSON Lines file to write, in the folder of the documents.")
]
Comparison = Annotated[Path, option("--out FOLDER", "Folder to write to.")]

AllowDifferent = Annotated[
    bool,
    option(
        "--allow-different",
        "Compare runs with different versions of data, models, methods or ViSAR.",
    ),
]
InvalidPages = Annotated[
    Literal["auto", "leave-out", "empty"],
    option(
        "--invalid-pages NAME",
        "Pages that the encoder failed on: leave-out drops the questions about their documents, "
        "as in the paper; empty counts them as empty; auto picks what is comparable to the paper.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PlanOptions(IndexOptions):
    """Options of `visar eval run` that are settings of its plan, and the index."""

    data: Annotated[
        list[str] | None,
        option(
            "--data NAME",
            "Questions: a benchmark on the hub, a file, a folder or NAME=FOLDER. Repeatable.",
        ),
    ] = None
    encoder: Annotated[
        list[str] | None,
        option(
            "--encoder NAME",
            "Encoder, as for `visar ask`. Repeatable. [default: embedded]",
            autocompletion=completion.encoders,
            show_default=False,
        ),
    ] = None
    method: Annotated[
        list[str] | None,
        option(
            "--method NAME",
            "Method, group (main, others, ablation, T, gamma, acceleration) or module:function. "
            "Repeatable. [default: all groups]",
            autocompletion=completion.evaluated_methods,
        ),
    ] = None
    generator: Annotated[
        list[str] | None,
        option(
            "--generator NAME",
            "Generator to evaluate. Repeatable. Without one, only retrieval is evaluated.",
            autocompletion=completion.generators,
        ),
    ] = None
    prompt: Annotated[
        Literal["default", "paper"] | None,
        option(
            "--prompt NAME", "Prompt for generators: default, or paper. [default: default]", ANSWER
        ),
    ] = None
    as_authors: Annotated[
        bool | None,
        option(
            "--as-authors/--as-ours",
            "Prompt, decode and judge as the authors of the paper did. [default: as ours]",
            ANSWER,
        ),
    ] = None
    judge: Annotated[
        list[str] | None,
        option(
            "--judge NAME",
            "Judge: rules, quotes, llm, paper, paper:GENERATOR or a generator. Repeatable. "
            "[default: rules]",
            ANSWER,
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        option(
            "--concurrency N",
            "Questions at a time for a served model, or per batch for a local one. [default: 1]",
            ANSWER,
            min=1,
        ),
    ] = None
    max_k: Annotated[
        list[int] | None,
        option("--max-k N", "Maximum number of pages. Repeatable. [default: 5 and 10]", min=1),
    ] = None
    measure_latency: Annotated[
        bool | None,
        option(
            "--measure-latency/--no-measure-latency",
            "Also time retrieval, one question at a time on all cores.",
            SEARCH,
        ),
    ] = None
    corrections: Annotated[
        str | None,
        option(
            "--corrections FILE", "Corrections of the data; results come with and without them."
        ),
    ] = None
    detail: Annotated[
        list[str] | None,
        option("--detail ID", "Save the similarity matrix of this question. Repeatable.", SEARCH),
    ] = None
    share: Annotated[
        str | None,
        option("--share I/N", "Only run this share of the documents, such as 1/2. [default: 1/1]"),
    ] = None
    ocr: Annotated[
        Literal["auto", "always", "never"] | None,
        option(
            "--ocr WHEN",
            "OCR: auto (where text is missing), always or never. [default: auto]",
            READING,
        ),
    ] = None
    ocr_engine: Annotated[
        Literal["rapidocr", "tesseract"] | None,
        option(
            "--ocr-engine NAME", "OCR engine: rapidocr or tesseract. [default: rapidocr]", READING
        ),
    ] = None
    index: Annotated[
        str | None,
        option(
            "--index LOCATION",
            "Index of the documents. [default: in the folder of the run]",
            DOCUMENTS,
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the settings of the plan by name; None if they aren't given."""
        plurals = {
            name: f"{name}s" for name in ("encoder", "method", "generator", "judge", "detail")
        }
        others = {"index", "sources", "share"}
        given = {
            plurals.get(one.name, one.name): getattr(self, one.name)
            for one in fields(self)
            if one.name not in others
        }
        return {**given, "share": None if self.share is None else _share(self.share)}


@app.command("run")
@with_options
def run_evaluation(
    folder: Folder,
    *,
    config: Config = None,
    options: PlanOptions,
    base_url: BaseUrl = None,
    known_as: KnownAs = None,
    device: DeviceChoice = "auto",
    ray: RayAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Encode, retrieve, answer and judge. Re-run the same command to resume."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.plan import open_question_sets, read_plan
        from visar.evaluation.run import run

    plan = read_plan(config, options.settings(), checkpoint_is=known_as)
    question_sets = open_question_sets(plan)
    location = options.index or folder / plan.index_name
    with Index.open(location, device=device, reader="none") as library:
        for name in plan.encoders:
            fetch_model(library.encoder(name), quiet=quiet)
        with progress_shown(quiet=quiet) as display:

            def step(name: str, done: int, total: int) -> None:
                display.step(name, done, total)
                if name == "documents" and done == total:
                    display.clear("pages")

            with ray_messages_on_stderr(ray is not None):
                outcome = run(
                    folder, plan, question_sets, library, step, base_url=base_url, ray=ray
                )
    if as_json:
        print_json(outcome.model_dump())
    else:
        _print_outcome(folder, outcome)
    for name, failure in outcome.failures.items():
        complain(f"{name} failed {failure}")
    if outcome.failures:
        raise typer.Exit(1)


@app.command("status")
def status(folder: RunFolder, *, as_json: Json = False) -> None:
    """Show which results of a run are done, stale or missing."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.state import progress, read_state

    state = read_state(folder)
    found = progress(state)
    if as_json:
        print_json(
            {
                "questions": len(state.asked),
                "unreadable": list(state.unreadable),
                **{name: asdict(one) | {"missing": one.missing} for name, one in found.items()},
            }
        )
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("", "done", "stale", "missing"):
        table.add_column(column, justify="right" if column else "left")
    for name, one in found.items():
        table.add_row(name, *(f"{count:,}" for count in (one.done, one.stale, one.missing)))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    for line in _status_lines(state, found):
        console.print(Text(f"  {line}", "dim"), soft_wrap=True)


def _status_lines(state: RunState, found: Mapping[str, Progress]) -> Iterator[str]:
    """Yield the lines below the table of the status."""
    yield counted(len(state.asked), "question")
    if any(one.stale for one in found.values()):
        yield "Stale results are not counted, because their inputs have changed."
    if state.unreadable:
        yield f"{counted(len(state.unreadable), 'line')} can't be read."
    for name, one in found.items():
        for setting, count in sorted(one.missing_by_setting.items())[:MAX_LISTED]:
            yield f"missing {name}: {setting}: {count:,}"
        if (more := len(one.missing_by_setting) - MAX_LISTED) > 0:
            yield f"missing {name}: {counted(more, 'more setting')} (--json)"
    if any(one.missing for one in found.values()):
        yield "Re-run `visar eval run` with the same options to compute what is missing."


@app.command("report")
def report(
    folder: Folder,
    *,
    out: Out = None,
    invalid_pages: InvalidPages = "auto",
    as_json: Json = False,
) -> None:
    """Write the tables and figures of a run as HTML, Markdown and JSON."""
    with extra_needed("A report", "eval"):
        from visar.evaluation.report import write_report

    written = write_report(folder, out, invalid_pages=invalid_pages)
    _show_written(written, as_json=as_json)


@app.command("compare")
def compare(
    folders: Folders,
    *,
    baseline: Baseline = None,
    out: Comparison = Path("comparison"),
    invalid_pages: InvalidPages = "auto",
    allow_different: AllowDifferent = False,
    as_json: Json = False,
) -> None:
    """Compare runs, with paired significance tests. Writes HTML, Markdown and JSON."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.report.leaderboard import write_leaderboard

    written = write_leaderboard(
        folders,
        out,
        baseline=baseline,
        invalid_pages=invalid_pages,
        allow_different=allow_different,
    )
    _show_written(written, as_json=as_json)


@app.command("convert")
def convert(name: Benchmark, source: Source, *, out: Questions, as_json: Json = False) -> None:
    """Convert another benchmark for `visar eval run --data`."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.datasets.converters import convert as convert_file

    converted = convert_file(name, source, out)
    if as_json:
        print_json(asdict(converted))
        return
    lines = [
        f"{counted(converted.questions, 'question')}, {converted.with_evidence} with evidence "
        f"pages, on {counted(converted.documents, 'document')}",
        f"wrote {converted.file}",
    ]
    if converted.missing:
        lines.append(
            f"missing: {counted(len(converted.missing), 'document')}, such as "
            f"{out.parent / converted.missing[0]}"
        )
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _show_written(page: Path, *, as_json: bool) -> None:
    """Print the JSON of a report, or the paths of its files."""
    if as_json:
        sys.stdout.write(page.with_suffix(".json").read_text(encoding="utf-8"))
        return
    for path in (page, *map(page.with_suffix, (".md", ".json", ".csv"))):
        console.print(Text.assemble(("  wrote ", "dim"), str(path)), soft_wrap=True)


def _share(text: str) -> tuple[int, int]:
    mine, slash, shares = text.partition("/")
    if not (slash and mine.isdecimal() and shares.isdecimal()):
        raise InvalidOption(f"--share {text}: not a share. Use I/N, such as 1/2.")
    return int(mine), int(shares)


def _print_outcome(folder: Path, outcome: Outcome) -> None:
    skipped = outcome.skipped
    lines = [
        f"{counted(outcome.questions, 'question')} on {counted(outcome.documents, 'document')}",
        f"new: {counted(outcome.retrieved, 'retrieval')}, {counted(outcome.answered, 'answer')}, "
        f"{counted(outcome.judged, 'verdict')}",
    ]
    if outcome.stale:
        lines.append(
            f"{counted(outcome.stale, 'earlier result')} not counted, because an input has changed"
        )
    for name, missing in skipped.missing.items():
        lines.append(f"{name}: {counted(len(missing), 'document')} missing")
    for name, refused in skipped.refused.items():
        lines += [f"{name}: {reason}" for reason in refused.values()]
    for name, outside in skipped.pages_outside.items():
        lines.append(
            f"{name}: {counted(len(outside), 'question')} with evidence pages that don't exist"
        )
    for name, pages in skipped.invalid_pages.items():
        lines.append(f"{name}: {counted(pages, 'page')} left out, because the encoder failed")
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(Text(f"  for the tables: visar eval report {folder}", "dim"), soft_wrap=True)


app.command("verify")(verify_model)
app.command("cut")(cut)
