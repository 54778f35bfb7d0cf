"""``visar calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from visar.cli.options import Json, ReadingOptions, option
from visar.cli.output import complain, console, plain_table, print_json
from visar.cli.progress import progress_shown
from visar.errors import CalibrationError, DocumentError, extra_needed
from visar.serialization import to_plain

if TYPE_CHECKING:
    from rich.table import Table

    from visar.evaluation.calibration import CoverageQuality, Quality
    from visar.retrieval.calibration import Coverage

QuestionFile = Annotated[
    str,
    typer.Argument(
        metavar="QUESTIONS",
        help="Questions with evidence pages: a JSON Lines file, or the folder of a benchmark.",
    ),
]
CoverageLevel = Annotated[
    float | None,
    option(
        "--coverage SHARE",
        "Share of questions, such as 0.9, for which --method coverage keeps all evidence.",
    ),
]
DryRun = Annotated[bool, option("--dry-run", "Measure, but save nothing.")]


def calibrate(
    questions: QuestionFile,
    *,
    coverage: CoverageLevel = None,
    dry_run: DryRun = False,
    options: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Fit page probabilities to your documents. Needs questions with known pages."""
    # Imported here: no other command needs it.
    with extra_needed("A calibration", "eval"):
        from visar.evaluation.calibration import cross_validate, fit, measure_coverage
        from visar.evaluation.calibration_examples import gather
        from visar.evaluation.datasets import open_dataset
    from visar.results import EncoderRef
    from visar.retrieval.calibration import calibration_path, save_calibration

    dataset = open_dataset(questions)
    entries = dataset.questions()
    library = options.open_index(create=True)
    ids = {}
    with progress_shown(quiet=options.quiet) as display:
        for name in dict.fromkeys(question.document for question in entries):
            path = dataset.path(name)
            if path is None:
                complain(f"{name}: no such file. Its questions are left out.")
                continue
            try:
                ids[name] = library.add(
                    path, encoder=options.encoder, progress=display.document(path)
                ).id
            except DocumentError as error:
                complain(str(error))
    if not ids:
        raise CalibrationError(f"None of the documents that {questions} asks about could be read.")
    reference = EncoderRef.of(library.encoder(options.encoder))
    with progress_shown(quiet=options.quiet) as display:
        examples = gather(
            library,
            entries,
            ids,
            options.encoder,
            lambda done, total: display.step("asking", done, total, "questions"),
        )
    reader = library.reader()
    reader_name = None if reader is None else reader.name
    calibration = fit(examples, reference, reader_name, coverage=coverage)
    quality = cross_validate(examples, reference, reader_name)
    promise = None if coverage is None else measure_coverage(examples, coverage)
    path = calibration_path(reference)
    if not dry_run:
        save_calibration(calibration, path)
    if as_json:
        saved_path = None if dry_run else str(path)
        measured = {"quality": quality, "coverage": promise}
        print_json({"calibration": to_plain(calibration), **measured, "path": saved_path})
        return
    _print_quality(quality)
    if promise is not None and calibration.coverage is not None:
        _print_coverage(promise, calibration.coverage)
    wrote = "dry run, nothing saved" if dry_run else f"wrote {path}"
    console.print(Text(f"  {wrote}", "dim"), soft_wrap=True)
    if not dry_run:
        use = f"Searches with {reference.name} now use it. Delete the file to undo this."
        console.print(Text(f"  {use}", "dim"), soft_wrap=True)


def _print_quality(quality: Quality) -> None:
    """Print the measurements on documents that were left out of the fit."""
    console.print(
        Padding(
            f"{quality.questions} questions, {quality.with_evidence} with evidence pages, about "
            f"{quality.documents} documents. Measured by cross-validation over documents:",
            (0, 0, 1, 2),
            expand=False,
        )
    )
    measured = {"": quality.without_reader, ", WITH READER": quality.with_reader}
    for suffix, reliability in measured.items():
        if reliability is None:
            continue
        table = _table(
            f"MOST PROBABLE PAGE{suffix}", "QUESTIONS", "MEAN PROBABILITY", "WAS EVIDENCE"
        )
        for each in reliability.best:
            tenth = min(int(each.probability * 10), 9)
            share = f"{each.share:.0%}"
            bounds = f"{tenth * 10} to {tenth * 10 + 10}%"
            table.add_row(bounds, str(each.count), f"{each.probability:.0%}", share)
        console.print(Padding(table, (0, 0, 1, 2), expand=False))
    table = _table("QUESTIONS", '"NOTHING MATCHES"', '… OR "A WEAK MATCH"')
    for name, matches in (
        ("with an answer", quality.answerable),
        ("without one", quality.unanswerable),
        ("entries of another document", quality.others),
    ):
        if matches is not None:
            table.add_row(name, f"{matches.none:.0%}", f"{matches.weak:.0%}")
    console.print(Padding(table, (0, 0, 1, 2), expand=False))
    table = _table("METHOD", "F1@K*", "MEAN F1", "MEAN K")
    together = {f"{name}, all documents": rule for name, rule in quality.library_rules.items()}
    for name, rule in {**quality.rules, **together}.items():
        table.add_row(
            name, f"{100 * rule.f1:.1f}", f"{100 * rule.mean_f1:.1f}", f"{rule.mean_k:.1f}"
        )
    console.print(Padding(table, (0, 0, 1, 2), expand=False))
    for suffix, reliability in measured.items():
        if reliability is not None:
            console.print(
                f"  expected calibration error{suffix.lower()}: "
                f"{100 * reliability.best_error:.1f} points for the most probable pages, "
                f"{100 * reliability.pages_error:.1f} for all"
            )


def _print_coverage(measured: CoverageQuality, promise: Coverage) -> None:
    console.print(
        f"  coverage: all evidence kept for {measured.kept:.1%} of {measured.questions} questions "
        f"(target {promise.level:.0%}), with {measured.mean_k:.1f} of {measured.mean_pages:.1f} "
        "pages"
    )
    if promise.threshold is None:
        console.print(
            f"  {promise.questions} questions are too few for this target: --method coverage keeps "
            "all pages. Add questions, or lower --coverage."
        )


def _table(first: str, *numbers: str) -> Table:
    return plain_table(first, *numbers, numbers=numbers)
