"""``visar calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from visar.cli.options import Json, ReadingOptions
from visar.cli.output import complain, console, plain_table, print_json
from visar.cli.progress import progress_shown
from visar.errors import CalibrationError, DocumentError
from visar.serialization import to_plain

if TYPE_CHECKING:
    from rich.table import Table

    from visar.evaluation.calibration import Quality

QuestionFile = Annotated[
    str,
    typer.Argument(
        metavar="QUESTIONS",
        help="Questions with evidence pages: JSON lines of your own, or a benchmark's folder.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Measure, but keep nothing.")]


def calibrate(
    questions: QuestionFile,
    *,
    dry_run: DryRun = False,
    options: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Fit how likely pages are, for an encoder and documents of your own, from questions."""
    # Imported here: no other command needs it.
    from visar.evaluation.calibration import cross_validate, fit
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
    calibration = fit(examples, reference, reader_name)
    quality = cross_validate(examples, reference, reader_name)
    path = calibration_path(reference)
    if not dry_run:
        save_calibration(calibration, path)
    if as_json:
        kept = None if dry_run else str(path)
        print_json({"calibration": to_plain(calibration), "quality": quality, "path": kept})
        return
    _print_quality(quality)
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


def _table(first: str, *numbers: str) -> Table:
    return plain_table(first, *numbers, numbers=numbers)
