"""Accuracy against pages sent, to compare fixed and adaptive k at the same budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from visar.evaluation.report import drawing
from visar.evaluation.report.answer_tables import Setting, by_generator
from visar.evaluation.report.columns import ACCURACY, INTERVALS
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Cell, Picture, Row, Table, make_key
from visar.evaluation.report.methods import LATE, is_adaptive, is_timed, label, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAMPLES = 1_000


def budget_points(setting: Setting) -> pd.DataFrame:
    """Return pages, tokens and accuracy of every encoder, method and budget of a setting.

    This excludes Oracle, which knows the evidence.
    """
    known = where(setting.verdicts, is_timed).dropna(subset="sent").astype({"input_tokens": float})
    return known.groupby(["encoder", "method", "max_k"], sort=False, as_index=False).agg(
        questions=("question", "size"),
        pages=("sent", "mean"),
        tokens=("input_tokens", "mean"),
        accuracy=("correct", lambda correct: 100 * correct.mean()),
    )


def budget_tables(settings: Iterable[Setting]) -> list[Table]:
    """Return tables of accuracy against pages and tokens sent, for fixed and adaptive k."""
    tables = []
    for setting in settings:
        points = budget_points(setting)
        rows: list[Row] = []
        for point in points.itertuples():
            fixed = points[(points.encoder == point.encoder) & (points.method == LATE)]
            fixed = fixed.sort_values("pages")
            same = None
            if is_adaptive(point.method) and fixed.pages.min() <= point.pages <= fixed.pages.max():
                same = float(np.interp(point.pages, fixed.pages, fixed.accuracy))
            rows.append(
                {
                    "Encoder": point.encoder,
                    "Method": label(point.method),
                    "Max-k": int(point.max_k),
                    "Questions": int(point.questions),
                    "Pages sent": Cell(point.pages, 2),
                    "Tokens sent": Cell(None if pd.isna(point.tokens) else point.tokens, 0),
                    "Accuracy %": ACCURACY.cell(setting.of(*point[1:4])),
                    "Fixed k, same pages %": Cell(same, 2),
                    "Difference": Cell(None if same is None else point.accuracy - same, 2),
                }
            )
        if rows:
            notes = [
                f"Means over judged questions. {INTERVALS} Tokens are the input tokens counted by "
                "the generator, if it does. “Fixed k, same pages” is the accuracy of fixed top-k "
                "with the same mean number of pages, interpolated between the run's budgets "
                "(use --max-k 1 … 10 for a full curve)."
            ]
            title = "Budget. Accuracy against pages sent"
            tables.append(setting.table("budget", title, rows, notes))
    return tables


def budget_figures(settings: Iterable[Setting]) -> list[Picture]:
    """Draw accuracy against mean pages, with fixed k as a curve and other methods as points."""
    pictures = []
    for (generator, judge), group in by_generator(settings).items():
        panels = []
        methods: list[str] = []
        for setting in group:
            for encoder, points in budget_points(setting).groupby("encoder"):
                name = with_count(f"{setting.dataset}, {encoder}", points.questions)
                panels.append((name, setting, encoder, points))
                methods += list(points.method)
        pictures += draw_grid(
            make_key("figure-budget", generator, judge),
            f"Figure, not in the paper. Accuracy against pages sent: {generator}, "
            f"judged by {judge}",
            "Line: fixed top-k late interaction with each budget. Points: other methods with each "
            "budget, at their mean number of pages sent, with 95% bootstrap intervals. A point "
            "above the line is more accurate than fixed k with the same number of pages.",
            partial(_draw_budget, looks=drawing.method_looks(dict.fromkeys(methods))),
            panels,
            size=(5.6, 3.2),
        )
    return pictures


def _draw_budget(
    axes: Axes,
    setting: Setting,
    encoder: str,
    points: pd.DataFrame,
    looks: Mapping[str, dict[str, Any]],
) -> None:
    for method, group in points.groupby("method", sort=False):
        sure = {
            point.pages: ACCURACY.estimate(
                setting.of(encoder, method, point.max_k), samples=_SAMPLES
            )
            for point in group.sort_values("pages").itertuples()
        }
        look = looks[method] | {"capsize": 2.5, "elinewidth": 1, "markersize": 6}
        drawing.plot_intervals(axes, sure, **look | {"linestyle": "-" if method == LATE else ""})
    drawing.set_log_pages(axes, int(points.pages.max()) + 1)
    axes.set(xlabel="pages sent, mean", ylabel="accuracy, %")
