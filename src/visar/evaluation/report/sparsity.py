"""Sparsity of the similarity matrix given the answer: Table S9, and figures 5 (c) and S14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from visar.evaluation.findings import Findings
from visar.evaluation.methods import PAPER_INACTIVE
from visar.evaluation.report import drawing
from visar.evaluation.report.accuracy_tables import Setting, settings_of
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Cell, Picture, Row, Table, make_key
from visar.evaluation.report.scope import answer_notes, name_generator
from visar.evaluation.statistics import Interval, bootstrap, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ANSWER_TYPES = ("Correct", "Wrong", "All")
_BINS = 5
# Fewer verdicts say nothing.
_FEWEST_VERDICTS = 3
_SAMPLES = 1_000
# The paper's: the accuracy of the questions at or above these percentiles of sparsity.
PERCENTILES = tuple(range(0, 100, 5))
_INACTIVE = f"pages whose s_p, rescaled to [0, 1], is at most {PAPER_INACTIVE}"

Points = list[tuple[float, bool]]
"""Sparsity and verdict of each answer."""


def points_of(setting: Setting, encoder: str, max_k: int) -> Points:
    """Return sparsity in per cent and verdict of ViSAR's answers."""
    findings = setting.findings
    chosen = findings.choices.get((setting.dataset, encoder), {}).get("visar", {})
    verdicts = setting.verdicts[encoder].get("visar", {}).get(max_k, {})
    values = {
        question: one.paper_sparsity if findings.has_paper_sparsity else one.sparsity
        for question, one in chosen.items()
    }
    return [
        (100 * value, verdicts[question])
        for question in sorted(verdicts.keys() & values.keys())
        if (value := values[question]) is not None
    ]


def _definition(findings: Findings) -> str:
    if findings.has_paper_sparsity:
        return f"Sparsity is the share of {_INACTIVE}, as in the paper."
    return (
        "Sparsity is the share of pages without any weight: the records were written before the "
        f"paper's, the share of {_INACTIVE}, was kept."
    )


def sparsity_tables(findings: Findings) -> list[Table]:
    """Table S9: how sparse the similarity matrix is where the answer is right, and where wrong."""
    tables = []
    for setting in settings_of(findings):
        counts: dict[tuple[str, str], int] = {}
        rows = [
            _row(setting, encoder, answer_type, counts)
            for encoder, by_method in setting.verdicts.items()
            if "visar" in by_method
            for answer_type in _ANSWER_TYPES
        ]
        if rows:
            notes = [
                f"{_definition(findings)} Of ViSAR: mean ± standard deviation, smallest–largest in "
                "parentheses.",
                *answer_notes(findings, setting.dataset, counts),
                *setting.paper.notes(counts),
            ]
            title = f"Table S9. Sparsity given the answer: {setting.name}"
            tables.append(Table.of(make_key("table-s9", setting.key), title, rows, notes))
    return tables


def _row(
    setting: Setting, encoder: str, answer_type: str, counts: dict[tuple[str, str], int]
) -> Row:
    row: Row = {"Encoder": encoder, "Answers": answer_type}
    for k in setting.budgets:
        points = points_of(setting, encoder, k)
        counts[f"Max-{k}", encoder] = len(points)
        values = [
            sparsity
            for sparsity, is_correct in points
            if answer_type in ("All", "Correct" if is_correct else "Wrong")
        ]
        row[f"n, Max-{k}"] = len(values)
        cell = Cell(None)
        if values:
            summary, remark = summarize(values), f"{min(values):.2f}–{max(values):.2f}"
            measure = f"sparsity_{answer_type.lower()}_mean"
            paper = None
            if setting.findings.has_paper_sparsity:
                paper = setting.paper.value(measure, encoder, "visar", len(points), k)
            cell = Cell(summary.mean, 2, spread=summary.std, remark=remark, paper=paper)
        row[f"Sparsity, Max-{k} %"] = cell
    return row


def sparsity_figures(findings: Findings) -> list[Picture]:
    """Figures 5 (c) and S14: accuracy against sparsity, as the paper's curve and in bins."""
    grouped: dict[tuple[str, str, str], list[tuple[str, Mapping[str, Points]]]] = {}
    for setting in settings_of(findings):
        for k in setting.budgets:
            by_encoder = {
                encoder: points
                for encoder in setting.verdicts
                if (points := points_of(setting, encoder, k))
            }
            if by_encoder:
                name = with_count(f"{setting.dataset}, Max-{k}", map(len, by_encoder.values()))
                panels = grouped.setdefault((setting.generator, setting.prompt, setting.judge), [])
                panels.append((name, by_encoder))
    pictures = []
    for (generator, prompt, judge), panels in grouped.items():
        who = name_generator(generator, prompt)
        # Panels share both axes.
        means = [
            fmean(sparsity for sparsity, _ in points)
            for _, by_encoder in panels
            for points in by_encoder.values()
        ]
        lowest = 10 * int(min(means) / 10)
        for key, title, caption, draw in (
            (
                "figure-s14",
                "Accuracy above a sparsity",
                "The paper's curve: for the 0th, 5th, … 95th percentile of sparsity, the accuracy "
                "of ViSAR's answers to the questions at or above it, against their mean sparsity. "
                f"Shaded: 95 % of {_SAMPLES:,} bootstrap samples. Each point holds all questions "
                "of the points to its right; the last, one in twenty.",
                partial(_draw_cumulative, lowest=lowest),
            ),
            (
                "figure-s14-bins",
                "Accuracy by sparsity",
                f"Share of right answers of ViSAR in {_BINS} bins of sparsity, with 95 % bootstrap "
                f"intervals; bins of fewer than {_FEWEST_VERDICTS} questions are left out.",
                _draw_bins,
            ),
        ):
            pictures += draw_grid(
                make_key(key, who, judge),
                f"Figures 5 (c) and S14. {title}: {who}, judged by {judge}",
                f"{caption} {_definition(findings)}",
                partial(draw, encoders=findings.encoders),
                panels,
                same_heights=True,
            )
    return pictures


def cumulative(points: Points) -> list[tuple[float, Interval]]:
    """Return mean sparsity and accuracy of the questions at or above each percentile."""
    sparsity = np.array([value for value, _ in points])
    correct = np.array([float(is_correct) for _, is_correct in points])
    found = []
    for threshold in np.percentile(sparsity, PERCENTILES):
        # The percentile of equal values may differ from them by rounding.
        above = sparsity >= threshold - 1e-9
        accuracy = bootstrap(100 * correct[above], samples=_SAMPLES)
        found.append((float(sparsity[above].mean()), accuracy))
    return found


def _draw_cumulative(
    axes: Axes, by_encoder: Mapping[str, Points], encoders: Sequence[str], lowest: int
) -> None:
    for encoder, points in by_encoder.items():
        look = drawing.encoder_look(encoder, encoders)
        line = cumulative(points)
        places = [place for place, _ in line]
        axes.plot(places, [one.mean for _, one in line], **look | {"markersize": 3.5})
        axes.fill_between(
            places,
            [one.low for _, one in line],
            [one.high for _, one in line],
            color=look["color"],
            alpha=0.12,
            linewidth=0,
        )
    axes.set(xlim=(lowest, 100), xlabel="mean sparsity, %", ylabel="accuracy, %")


def _draw_bins(axes: Axes, by_encoder: Mapping[str, Points], encoders: Sequence[str]) -> None:
    width = 100 / _BINS
    for place, (encoder, points) in enumerate(by_encoder.items()):
        bins = drawing.group(
            (min(int(sparsity / width), _BINS - 1), 100.0 * is_correct)
            for sparsity, is_correct in points
        )
        known = {at: bootstrap(v) for at, v in sorted(bins.items()) if len(v) >= _FEWEST_VERDICTS}
        if not known:
            continue
        # Beside each other, so that intervals do not hide one another.
        shift = width * 0.12 * (place - (len(by_encoder) - 1) / 2)
        placed = {width * (at + 0.5) + shift: one for at, one in known.items()}
        look = drawing.encoder_look(encoder, encoders) | {"capsize": 2.5, "elinewidth": 1}
        drawing.plot_intervals(axes, placed, **look)
    axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="sparsity, %", ylabel="accuracy, %")
    axes.set_xticks(range(0, 101, 100 // _BINS))
