"""Figures of judged answers: accuracy against the pages sent, and against sparsity (5 c, S14)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from visar.evaluation.frames import Results
from visar.evaluation.report import drawing
from visar.evaluation.report.answer_tables import (
    Setting,
    budget_points,
    define_sparsity,
    settings_of,
    sparsity_points,
)
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Picture, make_key
from visar.evaluation.report.methods import LATE, name_generator
from visar.evaluation.statistics import Interval, bootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 5
# Fewer verdicts say nothing.
_FEWEST_VERDICTS = 3
_SAMPLES = 1_000
PERCENTILES = tuple(range(0, 100, 5))
"""The paper's: the accuracy of the questions at or above these percentiles of sparsity."""


def budget_figures(results: Results) -> list[Picture]:
    """Accuracy against mean pages: fixed k as a curve, other methods as points."""
    pictures = []
    for who, judge, settings in _by_generator(results):
        panels = []
        methods: list[str] = []
        for setting in settings:
            for encoder, points in budget_points(results, setting).groupby("encoder"):
                name = with_count(f"{setting.dataset}, {encoder}", points.questions)
                panels.append((name, (setting, encoder, points)))
                methods += list(points.method)
        pictures += draw_grid(
            make_key("figure-budget", who, judge),
            f"Figure, not in the paper. Accuracy against pages sent: {who}, judged by {judge}",
            "Line: fixed top-k late interaction under each budget. Points: the other methods under "
            "each budget, at the mean number of pages they send, with 95% bootstrap intervals. A "
            "point above the line is more accurate than fixed k with as many pages.",
            partial(_draw_budget, looks=drawing.method_looks(dict.fromkeys(methods))),
            panels,
            size=(5.6, 3.2),
        )
    return pictures


def _by_generator(results: Results) -> list[tuple[str, str, list[Setting]]]:
    """Generators with their prompts, judges, and their settings: a figure each."""
    found: dict[tuple[str, str], list[Setting]] = {}
    for setting in settings_of(results):
        who = name_generator(setting.generator, setting.prompt)
        found.setdefault((who, setting.judge), []).append(setting)
    return [(*key, settings) for key, settings in found.items()]


def _draw_budget(
    axes: Axes, data: tuple[Setting, str, pd.DataFrame], looks: dict[str, dict[str, Any]]
) -> None:
    setting, encoder, points = data
    for method, group in points.groupby("method", sort=False):
        sure = {
            point.pages: bootstrap(
                100 * setting.of(encoder, method, point.max_k).correct.astype(float),
                samples=_SAMPLES,
            )
            for point in group.sort_values("pages").itertuples()
        }
        look = looks[method] | {"capsize": 2.5, "elinewidth": 1, "markersize": 6}
        drawing.plot_intervals(axes, sure, **look | {"linestyle": "-" if method == LATE else ""})
    drawing.set_log_pages(axes, int(points.pages.max()) + 1)
    axes.set(xlabel="pages sent, mean", ylabel="accuracy, %")


def sparsity_figures(results: Results) -> list[Picture]:
    """Figures 5 (c) and S14: accuracy against sparsity, as the paper's curve and in bins."""
    pictures = []
    for who, judge, settings in _by_generator(results):
        panels = []
        lowest = 100.0
        for setting in settings:
            for k, points in sparsity_points(results, setting).groupby("max_k"):
                counts = points.groupby("encoder").size()
                panels.append((with_count(f"{setting.dataset}, Max-{k}", counts), points))
                lowest = min(lowest, points.groupby("encoder").sparsity.mean().min())
        for key, title, caption, draw in (
            (
                "figure-s14",
                "Accuracy above a sparsity",
                "The paper's curve: for the 0th, 5th, … 95th percentile of sparsity, the accuracy "
                "of ViSAR's answers to the questions at or above it, against their mean sparsity. "
                f"Shaded: 95% of {_SAMPLES:,} bootstrap samples. Each point holds all questions "
                "of the points to its right; the last, one in twenty.",
                partial(_draw_cumulative, lowest=10 * int(lowest / 10)),
            ),
            (
                "figure-s14-bins",
                "Accuracy by sparsity",
                f"Share of right answers of ViSAR in {_BINS} bins of sparsity, with 95% bootstrap "
                f"intervals; bins of fewer than {_FEWEST_VERDICTS} questions are left out.",
                _draw_bins,
            ),
        ):
            pictures += draw_grid(
                make_key(key, who, judge),
                f"Figures 5 (c) and S14. {title}: {who}, judged by {judge}",
                f"{caption} {define_sparsity(results)}",
                partial(draw, encoders=results.encoders),
                panels,
                same_heights=True,
            )
    return pictures


def cumulative(points: pd.DataFrame) -> list[tuple[float, Interval]]:
    """Return mean sparsity and accuracy of the questions at or above each percentile."""
    found = []
    for threshold in np.percentile(points.sparsity, PERCENTILES):
        # The percentile of equal values may differ from them by rounding.
        above = points[points.sparsity >= threshold - 1e-9]
        accuracy = bootstrap(100 * above.correct.astype(float), samples=_SAMPLES)
        found.append((float(above.sparsity.mean()), accuracy))
    return found


def _draw_cumulative(
    axes: Axes, points: pd.DataFrame, encoders: Sequence[str], lowest: int
) -> None:
    for encoder, group in points.groupby("encoder"):
        look = drawing.encoder_look(encoder, encoders)
        places, sure = zip(*cumulative(group), strict=True)
        axes.plot(places, [one.mean for one in sure], **look | {"markersize": 3.5})
        low, high = [one.low for one in sure], [one.high for one in sure]
        axes.fill_between(places, low, high, color=look["color"], alpha=0.12, linewidth=0)
    axes.set(xlim=(lowest, 100), xlabel="mean sparsity, %", ylabel="accuracy, %")


def _draw_bins(axes: Axes, points: pd.DataFrame, encoders: Sequence[str]) -> None:
    width = 100 / _BINS
    places = (points.sparsity // width).clip(upper=_BINS - 1)
    groups = points.correct.astype(float).mul(100).groupby([points.encoder, places])
    known = [(*key, bootstrap(of)) for key, of in groups if len(of) >= _FEWEST_VERDICTS]
    drawn = list(dict.fromkeys(points.encoder))
    for at, encoder in enumerate(drawn):
        # Beside each other, so that intervals do not hide one another.
        shift = width * 0.12 * (at - (len(drawn) - 1) / 2)
        placed = {width * (bin_ + 0.5) + shift: one for of, bin_, one in known if of == encoder}
        if placed:
            look = drawing.encoder_look(encoder, encoders) | {"capsize": 2.5, "elinewidth": 1}
            drawing.plot_intervals(axes, placed, **look)
    axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="sparsity, %", ylabel="accuracy, %")
    axes.set_xticks(range(0, 101, 100 // _BINS))
