"""Sparsity of the similarity matrix and accuracy: Table S9, Figures 5 (c) and S14."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from visar.evaluation.methods import PAPER_INACTIVE
from visar.evaluation.report import drawing
from visar.evaluation.report.answer_tables import Setting, by_generator
from visar.evaluation.report.columns import ACCURACY
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Cell, Picture, Row, Table, make_key
from visar.evaluation.statistics import Estimate, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPARSITY = (
    f"Sparsity is the share of pages whose s_p, rescaled to [0, 1], is at most {PAPER_INACTIVE}, "
    "as in the paper."
)
_BINS = 5
# Bins with fewer verdicts aren't meaningful.
_FEWEST_VERDICTS = 3
_SAMPLES = 1_000
PERCENTILES = tuple(range(0, 100, 5))
"""The paper's percentiles of sparsity, at or above which the accuracy is computed."""


def sparsity_points(setting: Setting) -> pd.DataFrame:
    """Return ViSAR's answers with their sparsity in percent."""
    visar = setting.verdicts[setting.verdicts.method == "visar"]
    return visar.assign(sparsity=100 * visar.paper_sparsity.astype(float)).dropna(subset="sparsity")


def sparsity_tables(settings: Iterable[Setting]) -> list[Table]:
    """Return Table S9: sparsity of the similarity matrix for correct and wrong answers."""
    tables = []
    for setting in settings:
        points = sparsity_points(setting)
        counts: dict[tuple[str, str], int] = {}
        rows: list[Row] = []
        for encoder, of_encoder in points.groupby("encoder"):
            for kind, verdicts in (("Correct", [True]), ("Wrong", [False]), ("All", [True, False])):
                row: Row = {"Encoder": encoder, "Answers": kind}
                for k in setting.budgets:
                    of_budget = of_encoder[of_encoder.max_k == k]
                    values = of_budget.sparsity[of_budget.correct.isin(verdicts)]
                    counts[f"Max-{k}", encoder] = len(of_budget)
                    row[f"n, Max-{k}"] = len(values)
                    row[f"Sparsity, Max-{k} %"] = None
                    if len(values):
                        found, measure = summarize(values), f"sparsity_{kind.lower()}_mean"
                        row[f"Sparsity, Max-{k} %"] = Cell(
                            found.mean,
                            2,
                            spread=found.std,
                            remark=f"{values.min():.2f}–{values.max():.2f}",
                            paper=setting.paper.value(measure, encoder, "visar", k),
                        )
                rows.append(row)
        if rows:
            notes = [
                f"{_SPARSITY} For ViSAR: mean ± standard deviation (smallest–largest).",
                *setting.notes(counts),
            ]
            title = "Table S9. Sparsity given the answer"
            tables.append(setting.table("table-s9", title, rows, notes))
    return tables


def sparsity_figures(settings: Iterable[Setting]) -> list[Picture]:
    """Draw figures 5 (c) and S14: accuracy against sparsity, as the paper's curve and in bins."""
    pictures = []
    for (generator, judge), group in by_generator(settings).items():
        panels = []
        lowest = 100.0
        encoders = group[0].results.encoders
        for setting in group:
            for k, points in sparsity_points(setting).groupby("max_k"):
                counts = points.groupby("encoder").size()
                panels.append((with_count(f"{setting.dataset}, Max-{k}", counts), points))
                lowest = min(lowest, points.groupby("encoder").sparsity.mean().min())
        for key, title, caption, draw in (
            (
                "figure-s14",
                "Accuracy above a sparsity",
                "The paper's curve: for the 0th, 5th, … 95th percentile of sparsity, the accuracy "
                "of ViSAR's answers to questions at or above it, against their mean sparsity. "
                f"Shaded: 95% of {_SAMPLES:,} bootstrap samples. Each point includes all questions "
                "of the points to its right; the last point has 5% of the questions.",
                partial(_draw_cumulative, lowest=10 * int(lowest / 10)),
            ),
            (
                "figure-s14-bins",
                "Accuracy by sparsity",
                f"Share of ViSAR's correct answers in {_BINS} bins of sparsity, with 95% bootstrap "
                f"intervals. Bins with fewer than {_FEWEST_VERDICTS} questions are omitted.",
                _draw_bins,
            ),
        ):
            pictures += draw_grid(
                make_key(key, generator, judge),
                f"Figures 5 (c) and S14. {title}: {generator}, judged by {judge}",
                f"{caption} {_SPARSITY}",
                partial(draw, encoders=encoders),
                panels,
                same_heights=True,
            )
    return pictures


def cumulative(points: pd.DataFrame) -> list[tuple[float, Estimate]]:
    """Return mean sparsity and accuracy of the questions at or above each percentile."""
    found = []
    for threshold in np.percentile(points.sparsity, PERCENTILES):
        # A percentile of equal values may differ from them by rounding.
        above = points[points.sparsity >= threshold - 1e-9]
        accuracy = ACCURACY.estimate(above, samples=_SAMPLES)
        found.append((float(above.sparsity.mean()), accuracy))
    return found


def _draw_cumulative(
    axes: Axes, points: pd.DataFrame, encoders: Sequence[str], lowest: int
) -> None:
    for encoder, group in points.groupby("encoder"):
        look = drawing.encoder_look(encoder, encoders)
        places, sure = zip(*cumulative(group), strict=True)
        axes.plot(places, [one.value for one in sure], **look | {"markersize": 3.5})
        low, high = [one.low for one in sure], [one.high for one in sure]
        drawing.shade(axes, places, low, high, color=look["color"], alpha=0.12)
    axes.set(xlim=(lowest, 100), xlabel="mean sparsity, %", ylabel="accuracy, %")


def _draw_bins(axes: Axes, points: pd.DataFrame, encoders: Sequence[str]) -> None:
    width = 100 / _BINS
    places = (points.sparsity // width).clip(upper=_BINS - 1)
    groups = points.groupby([points.encoder, places])
    known = [(*key, ACCURACY.estimate(of)) for key, of in groups if len(of) >= _FEWEST_VERDICTS]
    drawn = list(dict.fromkeys(points.encoder))
    for at, encoder in enumerate(drawn):
        # Draw encoders side by side, so that intervals don't overlap.
        shift = width * 0.12 * (at - (len(drawn) - 1) / 2)
        placed = {width * (bin_ + 0.5) + shift: one for of, bin_, one in known if of == encoder}
        if placed:
            look = drawing.encoder_look(encoder, encoders) | {"capsize": 2.5, "elinewidth": 1}
            drawing.plot_intervals(axes, placed, **look)
    axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="sparsity, %", ylabel="accuracy, %")
    axes.set_xticks(range(0, 101, 100 // _BINS))
