"""Sensitivity figures: the ranking against T, and k* against γ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from visar.evaluation.frames import Results
from visar.evaluation.methods import METHODS
from visar.evaluation.report import drawing
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.methods import LATE, of_group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_T = {key: float(METHODS[key].options["top_t"]) for key in of_group("T")}
_GAMMA = {key: float(METHODS[key].options["gamma"]) for key in of_group("gamma")}

_Panel = tuple[str, Mapping[str, "pd.Series[float]"], str]
"""A title, a line for each encoder, and the label of the vertical axis."""


def gains(frame: pd.DataFrame, measure: str) -> pd.Series[float]:
    """Return the mean gain over late interaction by T, in hundredths."""
    table = frame.pivot(index="question", columns="method", values=measure)
    known = [method for method in _T if method in table and LATE in table]
    factor = 1 if measure.startswith("recall") else 100
    line = pd.Series({_T[name]: factor * (table[name] - table[LATE]).mean() for name in known})
    return line.dropna().sort_index()


def ks_by_gamma(frame: pd.DataFrame) -> pd.DataFrame:
    """Return k* with a row for each question and a column for each γ."""
    table = frame[frame.method.isin(list(_GAMMA))].pivot(
        index="question", columns="method", values="k"
    )
    return table.rename(columns=_GAMMA).sort_index(axis=1)


def moves(ks: pd.DataFrame) -> pd.Series[float]:
    """Return the mean |Δk*| from the previous γ, by γ."""
    return ks.diff(axis=1).abs().mean().dropna()


def top_t_figures(results: Results) -> list[Picture]:
    """Draw Figures S7 and S8: the gain over late interaction by T."""
    pictures = []
    for number, rank in ((7, 5), (8, 10)):
        panels: list[_Panel] = []
        for dataset, frame in results.counted.groupby("dataset"):
            count = [frame.question.nunique()]
            for name, measure in (
                ("NDCG", "ndcg"),
                ("the paper's NDCG", "paper_ndcg"),
                ("recall", "recall"),
            ):
                lines = {
                    encoder: line
                    for encoder, group in frame.groupby("encoder")
                    if len(line := gains(group, f"{measure}@{rank}"))
                }
                if lines:
                    heading = f"gain in {name}@{rank}"
                    panels.append((with_count(dataset, count), lines, heading))
        pictures += draw_grid(
            f"figure-s{number}",
            f"Figure S{number}. Gain in NDCG@{rank} and Recall@{rank} against T",
            "ViSAR minus late interaction (the line at 0), in hundredths, over questions with "
            "evidence pages. The paper shows its own NDCG, which divides by the evidence pages "
            "that were found.",
            partial(_draw_sweep, name="T", places=[*_T.values()], encoders=results.encoders),
            panels,
            columns=3,
            same_heights=True,
        )
    return pictures


def gamma_figures(results: Results) -> list[Picture]:
    """Draw Figure S9: k* against γ over all questions, and its change between steps of γ."""
    settings = results.retrievals.groupby(["dataset", "encoder"])
    found = {key: ks for key, group in settings if len(ks := ks_by_gamma(group))}

    def panels(heading: str, line: Callable[[pd.DataFrame], pd.Series[float]]) -> list[_Panel]:
        return [
            (
                with_count(dataset, [len(results.of(dataset))]),
                {encoder: line(ks) for (of, encoder), ks in found.items() if of == dataset},
                heading,
            )
            for dataset in dict.fromkeys(dataset for dataset, _ in found)
        ]

    above, below = panels("mean |Δk*|", moves), panels("mean k*", pd.DataFrame.mean)
    spreads = [
        (with_count(f"{dataset}, {encoder}", ks.count()), ks)
        for (dataset, encoder), ks in found.items()
    ]
    return [
        *draw_grid(
            "figure-s9",
            "Figure S9. k* against γ",
            "Top: the mean change of k* from the previous γ. Bottom: the mean of k*. Over all "
            "questions.",
            partial(_draw_sweep, name="γ", places=[*_GAMMA.values()], encoders=results.encoders),
            [*above, *below],
            columns=max(1, len(above)),
        ),
        *draw_grid(
            "figure-s9-quartiles",
            "Figure S9, with spread. k* against γ",
            "Mean, median and quartiles (shaded) of k* over all questions.",
            _draw_spread,
            spreads,
            same_heights=True,
        ),
    ]


def _draw_sweep(
    axes: Axes,
    lines: Mapping[str, pd.Series[float]],
    heading: str,
    name: str,
    places: Sequence[float],
    encoders: Sequence[str],
) -> None:
    for encoder, line in lines.items():
        axes.plot(line.index, line, **drawing.encoder_look(encoder, encoders))
    # Use the range of the whole sweep for all panels, although the first γ has no change.
    drawing.set_decades(axes, places)
    if heading.startswith("gain"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=name, ylabel=heading)


def _draw_spread(axes: Axes, ks: pd.DataFrame) -> None:
    long = ks.melt(var_name="gamma", value_name="k").dropna().astype(float)
    look = {"color": drawing.LOOKS["visar"][0], "marker": "o", "label": "mean"}
    drawing.plot_spread(axes, long.gamma, long.k, look, deviations=False)
    medians = ks.median()
    axes.plot(medians.index, medians, color="black", linestyle="--", marker="s", label="median")
    drawing.set_decades(axes, [*_GAMMA.values()])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="γ", ylabel="k*")
