"""Fit the calibration shipped with the embedded encoder, and measure it on held-out documents.

python -m benchmarks.calibration DATA [--index FOLDER] [--save]

DATA is a data set with evidence pages (docs/evaluation-reference.md). Its documents are added to
the index if needed. --save writes the calibration to the package, and the table of matches and the
reliability diagram to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tables import markdown_table, save_section
from visar.evaluation.calibration import (
    ChoiceQuality,
    Quality,
    Reliability,
    cross_validate,
    fit,
    measure_choice,
)
from visar.evaluation.calibration_examples import Example, gather
from visar.evaluation.datasets import open_dataset
from visar.index import Index
from visar.results import EncoderRef
from visar.retrieval.calibration import FEATURES, calibration_path, save_calibration

ROOT = Path(__file__).parents[1]
DIAGRAM = ROOT / "docs" / "confidence.svg"
PACKAGE = ROOT / "src" / "visar" / "retrieval" / "calibrations"
SCORE = FEATURES.index("score")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--index", type=Path)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.data)
    questions = dataset.questions()
    with Index.open(arguments.index) as index:
        files = {question.document: dataset.path(question.document) for question in questions}
        ids = {name: index.add(file).id for name, file in files.items() if file is not None}
        examples = gather(index, questions, ids, "embedded")
        encoder = EncoderRef.of(index.encoder("embedded"))
        reader = index.reader()
    if reader is None:
        raise SystemExit("No reader found. Install it first, because the calibration includes it.")
    report(examples, encoder, reader.name, save=arguments.save)


def report(examples: Sequence[Example], encoder: EncoderRef, reader: str, *, save: bool) -> None:
    quality = cross_validate(examples, encoder, reader)
    matches = _matches(quality)
    print(_errors(quality), _choices(quality, examples), matches, sep="\n\n")
    if save:
        path = calibration_path(encoder)
        save_calibration(fit(examples, encoder, reader), PACKAGE / path.name)
        _draw(quality)
        save_section("matches", matches)


def _errors(quality: Quality) -> str:
    both = {"without reader": quality.without_reader, "with reader": quality.with_reader}

    def cells(each: Reliability) -> list[str]:
        errors = each.best_error, each.first_error, each.pages_error, each.library_error
        shares = each.likely, each.unanswerable_likely or 0.0
        return [*(f"{100 * error:.1f}" for error in errors), *(f"{share:.0%}" for share in shares)]

    return markdown_table(
        [
            "",
            "most probable page",
            "first page",
            "all pages",
            "first page, all documents",
            '"likely", with an answer',
            '"likely", without one',
        ],
        ([name, *cells(each)] for name, each in both.items() if each is not None),
    )


def _choices(quality: Quality, examples: Sequence[Example]) -> str:
    def measured(kind: str, rules: Mapping[str, ChoiceQuality]) -> dict[str, ChoiceQuality]:
        asked = [each for each in examples if each.kind == kind and each.evidence.any()]
        half = [(each, np.flatnonzero(each.features[:, SCORE] >= 0.5)) for each in asked]
        return {
            "`visar`, the paper's rule": rules["visar"],
            "`calibrated`, on documents left out of the fit": rules["calibrated"],
            "s_p of at least half of the best": measure_choice(half),
            "the first by s_p": measure_choice([(each, each.ranking[:1]) for each in asked]),
        }

    def cells(rule: ChoiceQuality) -> list[str]:
        return [f"{100 * rule.f1:.1f}", f"{100 * rule.mean_f1:.1f}", f"{rule.mean_k:.1f}"]

    alone = measured("own", quality.rules)
    together = measured("library", quality.library_rules)
    return markdown_table(
        ["pages taken", *2 * ["F1@k*", "mean F1", "mean k"]],
        ([name, *cells(alone[name]), *cells(together[name])] for name in alone),
    )


def _matches(quality: Quality) -> str:
    kinds = {
        "with an answer": quality.answerable,
        "without one": quality.unanswerable,
        "put to another document": quality.others,
    }
    return markdown_table(
        ["questions", '"nothing matches"', 'that or "a weak match"'],
        (
            [name, f"{matches.none:.0%}", f"{matches.weak:.0%}"]
            for name, matches in kinds.items()
            if matches is not None
        ),
    )


def _draw(quality: Quality) -> None:
    """Draw the reliability diagram: the share of pages with evidence by probability."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for bins, name, color in (
        (quality.without_reader.pages, "all pages", "#1f6f8b"),
        (quality.without_reader.best, "most probable page", "#d1603d"),
        (quality.with_reader.best if quality.with_reader else (), "the same, with reader", "0.3"),
    ):
        areas = [6 + 3 * np.sqrt(each.count) for each in bins]
        x, y = [each.probability for each in bins], [each.share for each in bins]
        axes.plot(x, y, color=color, linewidth=1)
        axes.scatter(x, y, areas, color=color, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that holds evidence")
    axes.legend(frameon=False, loc="upper left")
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "visar"}):
        figure.savefig(DIAGRAM, metadata={"Date": None})


if __name__ == "__main__":
    main()
