"""``visar calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from visar.cli.options import Json, ReadingOptions
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
        help="Questions with evidence pages: JSON lines of your own, or a benchmark's folder.",
    ),
]
CoverageLevel = Annotated[
    float | None,
    typer.Option(
        "--coverage",
        help="Promise that --method coverage takes all evidence for this share of questions.",
        metavar="SHARE",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Measure, but keep nothing.")]


def calibrate(
    questions: QuestionFile,
    *,
    coverage: CoverageLevel = None,
    dry_run: DryRun = False,
    options: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Fit how likely pages are, for an encoder and documents of your own, from questions."""
    # Imported here: no other command needs it.
    with extra_needed("A calibration", "eval"):
        from visar.evaluation.calibration import cross_validate, fit, measure_coverage
        from visar.evaluation.calibration_examples import gather
        from visar.evaluation.datasets import open_dataset
    from visar.results import EncoderRef
    from visar.retrieval.calibration import calibration_path, save_calibration

    dataset = open_dataset(questions)
    asked = dataset.questions()
    library = options.open_index(create=True)
    ids = {}
    with progress_shown(quiet=options.quiet) as display:
        for name in dict.fromkeys(question.document for question in asked):
            path = dataset.path(name)
            if path is None:
                complain(f"{name} is missing: its questions are left out.")
                continue
            try:
                ids[name] = library.add(
                    path, encoder=options.encoder, progress=display.document(path)
                ).id
            except DocumentError as error:
                complain(str(error))
    if not ids:
        raise CalibrationError(f"{questions} has no question about a document that is here.")
    reference = EncoderRef.of(library.encoder(options.encoder))
    with progress_shown(quiet=options.quiet) as display:
        examples = gather(
            library,
            asked,
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
        kept = None if dry_run else str(path)
        measured = {"quality": quality, "coverage": promise}
        print_json({"calibration": to_plain(calibration), **measured, "path": kept})
        return
    _print_quality(quality)
    if promise is not None and calibration.coverage is not None:
        _print_coverage(promise, calibration.coverage)
    wrote = "kept nothing (--dry-run)" if dry_run else f"wrote {path}"
    console.print(Text(f"  {wrote}", "dim"), soft_wrap=True)
    if not dry_run:
        again = f"every search with {reference.name} uses it; deleting the file undoes it"
        console.print(Text(f"  {again}", "dim"), soft_wrap=True)


def _print_quality(quality: Quality) -> None:
    """What was measured, on documents left out of the fit."""
    console.print(
        Padding(
            f"{quality.questions} questions, {quality.with_evidence} with evidence pages, about "
            f"{quality.documents} documents. Measured on documents left out of the fit:",
            (0, 0, 1, 2),
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
            bounds = f"{tenth * 10} to {tenth * 10 + 10} %"
            table.add_row(bounds, str(each.count), f"{each.probability:.0%}", share)
        console.print(Padding(table, (0, 0, 1, 2)))
    table = _table("QUESTIONS", '"NOTHING MATCHES"', '… OR "A WEAK MATCH"')
    for name, matches in (
        ("with an answer", quality.answerable),
        ("without one", quality.unanswerable),
        ("put to another document", quality.others),
    ):
        if matches is not None:
            table.add_row(name, f"{matches.none:.0%}", f"{matches.weak:.0%}")
    console.print(Padding(table, (0, 0, 1, 2)))
    table = _table("METHOD", "F1@K*", "MEAN F1", "MEAN K")
    together = {f"{name}, all documents": rule for name, rule in quality.library_rules.items()}
    for name, rule in {**quality.rules, **together}.items():
        table.add_row(
            name, f"{100 * rule.f1:.1f}", f"{100 * rule.mean_f1:.1f}", f"{rule.mean_k:.1f}"
        )
    console.print(Padding(table, (0, 0, 1, 2)))
    for suffix, reliability in measured.items():
        if reliability is not None:
            console.print(
                f"  expected calibration error{suffix.lower()}: "
                f"{100 * reliability.best_error:.1f} points for the most probable pages, "
                f"{100 * reliability.pages_error:.1f} for all"
            )


def _print_coverage(measured: CoverageQuality, promise: Coverage) -> None:
    console.print(
        f"  promised recall: all evidence for {promise.level:.0%} of questions; kept for "
        f"{measured.kept:.1%} of {measured.questions} on documents left out, with "
        f"{measured.mean_k:.1f} of {measured.mean_pages:.1f} pages"
    )
    if promise.threshold is None:
        console.print(
            f"  {promise.questions} questions are too few to leave any page out: --method "
            "coverage takes all pages. Add questions, or promise less."
        )


def _table(first: str, *numbers: str) -> Table:
    return plain_table(first, *numbers, numbers=numbers)
