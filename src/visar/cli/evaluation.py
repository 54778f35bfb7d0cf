"""``visar eval``: run, report, compare, convert."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from visar.cli import completion
from visar.cli.eval_cut import cut
from visar.cli.eval_verify import verify_model
from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    Json,
    Quiet,
    RayAddress,
    fetch_model,
    ray_messages_on_stderr,
    with_options,
)
from visar.cli.output import complain, console, print_json
from visar.cli.progress import ProgressDisplay, progress_shown
from visar.errors import InvalidOption, extra_needed
from visar.index import Index
from visar.ingest.pipeline import Progress as PageProgress
from visar.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from visar.evaluation.state import Progress, RunState
    from visar.evaluation.work import Outcome, ProgressListener

app = typer.Typer(
    help="Evaluate on a benchmark, and report it as the paper does.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MOST_LISTED = 10
"""Number of settings with missing results that the status lists, of each kind."""

Folder = Annotated[Path, typer.Argument(help="Folder of the run; results in it are reused.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")]
Config = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with the settings below.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="A folder or file of questions, NAME=FOLDER, or a benchmark's name at the hub.",
    ),
]
Encoders = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        autocompletion=completion.encoders,
        help="As visar ask takes it. [default: embedded]",
        show_default=False,
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        autocompletion=completion.evaluated_methods,
        help="A method, a group (main, others, ablation, T, gamma, acceleration), or your own as "
        "module:function. [default: all groups]",
    ),
]
Generators = Annotated[
    list[str] | None,
    typer.Option(
        "--generator",
        autocompletion=completion.generators,
        help="What answers; without, retrieval alone.",
    ),
]
PromptChoice = Annotated[
    Literal["default", "paper"] | None,
    typer.Option(
        "--prompt", help="What generators are asked with: paper as in the paper. [default: default]"
    ),
]
AsAuthors = Annotated[
    bool | None,
    typer.Option(
        "--as-authors/--as-ours",
        help="Prompt, decode and judge as the paper's authors did. [default: as ours]",
    ),
]
KnownAs = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Model that the checkpoint in a folder is, such as colpali.",
    ),
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        help="rules, quotes (for extractive answers), llm or a generator, paper or "
        "paper:GENERATOR (the paper's protocol). Several are compared. [default: rules]",
    ),
]
MaxKs = Annotated[
    list[int] | None, typer.Option("--max-k", help="A budget of pages. [default: 5 and 10]", min=1)
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="Ask a served generator or judge so many questions at a time, and give one that runs "
        "here so many in a batch. [default: 1]",
        min=1,
    ),
]
MeasureLatency = Annotated[
    bool | None,
    typer.Option(
        "--measure-latency/--no-measure-latency",
        help="Time retrieval again: one question at a time, with all cores.",
    ),
]
Corrections = Annotated[
    str | None, typer.Option(help="A file of corrections; results come with and without.")
]
Details = Annotated[
    list[str] | None, typer.Option("--detail", help="A question's id: keep its similarity matrix.")
]
Share = Annotated[
    str | None,
    typer.Option(
        help="Only run this share of the documents, such as 1/2 on the first of two machines. "
        "[default: 1/1]",
        metavar="I/N",
    ),
]
Ocr = Annotated[
    Literal["auto", "always", "never"] | None,
    typer.Option("--ocr", help="When to use OCR. [default: auto]"),
]
OcrEngineName = Annotated[
    Literal["rapidocr", "tesseract"] | None,
    typer.Option("--ocr-engine", help="OCR engine. [default: rapidocr]"),
]
IndexFolder = Annotated[
    str | None,
    typer.Option("--index", help="Of documents and vectors. [default: in the run's folder]"),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Where to. [default: the run's folder]", metavar="DIR")
]
Folders = Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="RUN...")]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="The row to test the others against: RUN/ENCODER/METHOD, or the end of it. "
        "[default: the best]"
    ),
]
Benchmark = Annotated[
    str,
    typer.Argument(
        autocompletion=completion.converters,
        help="MMDocIR, MMDocRAG, VisR-Bench, SlideVQA, MP-DocVQA, FinanceBench, or your own as "
        "module:function.",
    ),
]
Source = Annotated[Path, typer.Argument(help="The benchmark's file of questions.")]
Questions = Annotated[
    Path,
    typer.Option("--out", help="The file to write, beside the documents.", metavar="FILE.jsonl"),
]
Comparison = Annotated[Path, typer.Option("--out", help="Where to.", metavar="DIR")]

AllowDifferent = Annotated[
    bool,
    typer.Option(
        "--allow-different",
        help="Compare runs with different versions of data, models or ViSAR.",
    ),
]
InvalidPages = Annotated[
    Literal["auto", "leave-out", "empty"],
    typer.Option(
        help="Pages that the encoder failed on: leave their documents' questions out, as the "
        "paper does, or count them as empty. auto: as the paper where its numbers can stand "
        "beside ours."
    ),
]


@app.command("run")
@with_options
def run_evaluation(
    folder: Folder,
    *,
    config: Config = None,
    data: Data = None,
    encoder: Encoders = None,
    method: Methods = None,
    generator: Generators = None,
    base_url: BaseUrl = None,
    prompt: PromptChoice = None,
    as_authors: AsAuthors = None,
    known_as: KnownAs = None,
    judge: Judges = None,
    concurrency: Concurrency = None,
    max_k: MaxKs = None,
    measure_latency: MeasureLatency = None,
    corrections: Corrections = None,
    detail: Details = None,
    share: Share = None,
    ocr: Ocr = None,
    ocr_engine: OcrEngineName = None,
    device: DeviceChoice = "auto",
    index: IndexFolder = None,
    ray: RayAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Encode, retrieve, answer and judge. Re-run the same command to resume."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.plan import open_question_sets, read_plan
        from visar.evaluation.run import Run

    plan = read_plan(
        config,
        {
            "data": data,
            "encoders": encoder,
            "methods": method,
            "generators": generator,
            "prompt": prompt,
            "as_authors": as_authors,
            "judges": judge,
            "max_k": max_k,
            "corrections": corrections,
            "details": detail,
            "ocr": ocr,
            "ocr_engine": ocr_engine,
            "concurrency": concurrency,
            "measure_latency": measure_latency,
            "share": None if share is None else _share(share),
        },
        checkpoint_is=known_as,
    )
    question_sets = open_question_sets(plan)
    location = index or folder / plan.index_name
    with Index.open(location, device=device, reader="none") as library:
        for name in plan.encoders:
            fetch_model(library.encoder(name), quiet=quiet)
        with progress_shown(quiet=quiet) as display:
            listener = _listener(display)
            run = Run(folder, plan, question_sets, library, listener, base_url=base_url, ray=ray)
            with ray_messages_on_stderr(ray is not None):
                outcome = run.run()
    if as_json:
        print_json(_plain(outcome))
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
    """Yield what there is to say below the table of the status."""
    yield counted(len(state.asked), "question")
    if any(one.stale for one in found.values()):
        yield "Stale results have inputs that changed since. They are not counted."
    if state.unreadable:
        yield f"{counted(len(state.unreadable), 'line')} can't be read."
    for name, one in found.items():
        for setting, count in sorted(one.missing_by_setting.items())[:MOST_LISTED]:
            yield f"missing {name}: {setting}: {count:,}"
        if (more := len(one.missing_by_setting) - MOST_LISTED) > 0:
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
    """Write the paper's tables and figures of a run as HTML, Markdown and JSON."""
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
    """Put runs side by side, with paired tests between their rows, as HTML, Markdown and JSON."""
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
    """Convert the questions of another benchmark to the format of visar eval run --data."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.datasets.converters import convert as convert_file

    converted = convert_file(name, source, out)
    if as_json:
        print_json(converted.to_json())
        return
    lines = [
        f"{counted(converted.questions, 'question')}, {converted.with_evidence} with evidence "
        f"pages, on {counted(converted.documents, 'document')}",
        f"wrote {converted.file}",
    ]
    if converted.missing:
        lines.append(
            f"not there: {counted(len(converted.missing), 'document')}, such as "
            f"{out.parent / converted.missing[0]}"
        )
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _show_written(page: Path, *, as_json: bool) -> None:
    """Print the JSON beside a page, or say which files were written."""
    if as_json:
        sys.stdout.write(page.with_suffix(".json").read_text(encoding="utf-8"))
        return
    for path in (page, *map(page.with_suffix, (".md", ".json", ".csv"))):
        console.print(Text.assemble(("  wrote ", "dim"), str(path)), soft_wrap=True)


def _share(text: str) -> tuple[int, int]:
    mine, slash, shares = text.partition("/")
    if not (slash and mine.isdecimal() and shares.isdecimal()):
        raise InvalidOption(f"A share is written 1/2, not {text!r}.")
    return int(mine), int(shares)


def _listener(display: ProgressDisplay) -> ProgressListener:
    """What a run tells how far it is: a stage each, and one for the pages of a new document."""
    from visar.evaluation.work import ProgressListener

    def step(name: str, done: int, total: int) -> None:
        display.step(name, done, total)
        if name == "documents" and done == total:
            display.clear("pages")

    def document(_: Path) -> PageProgress:
        return lambda _, done, total: step("pages", done, total)

    return ProgressListener(document, step)


def _print_outcome(folder: Path, outcome: Outcome) -> None:
    skipped = outcome.skipped
    lines = [
        f"{counted(outcome.questions, 'question')} on {counted(outcome.documents, 'document')}",
        f"new: {counted(outcome.retrieved, 'retrieval')}, {counted(outcome.answered, 'answer')}, "
        f"{counted(outcome.judged, 'verdict')}",
    ]
    if outcome.stale:
        lines.append(
            f"{counted(outcome.stale, 'earlier result')} not counted: the inputs have changed"
        )
    for name, missing in skipped.missing.items():
        lines.append(f"{name}, not there: {counted(len(missing), 'document')}")
    for name, refused in skipped.refused.items():
        lines += [f"{name}: {reason}" for reason in refused.values()]
    for name, outside in skipped.pages_outside.items():
        lines.append(
            f"{name}, with pages that their document lacks: {counted(len(outside), 'question')}"
        )
    for name, pages in skipped.invalid_pages.items():
        lines.append(f"{name}, left out because the encoder failed: {counted(pages, 'page')}")
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(Text(f"  see it: visar eval report {folder}", "dim"), soft_wrap=True)


def _plain(outcome: Outcome) -> dict[str, object]:
    return {
        "questions": outcome.questions,
        "documents": outcome.documents,
        "retrieved": outcome.retrieved,
        "answered": outcome.answered,
        "judged": outcome.judged,
        "stale": outcome.stale,
        "skipped": outcome.skipped.model_dump(),
        "failures": outcome.failures,
    }


app.command("verify")(verify_model)
app.command("cut")(cut)
