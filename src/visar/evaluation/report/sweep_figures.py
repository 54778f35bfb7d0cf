"""Figures of sensitivity: the ranking against T, and k* against γ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from visar.evaluation import metrics
from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.report import drawing, scope
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.retrieval_tables import Measure, at_rank
from visar.evaluation.report.scope import LATE, with_evidence
from visar.evaluation.statistics import summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BY_T = {METHODS[key].options["top_t"]: key for key in scope.of_group("T")}
_BY_GAMMA = {METHODS[key].options["gamma"]: key for key in scope.of_group("gamma")}

_Line = dict[float, float]
_Panel = tuple[str, tuple[dict[str, _Line], str]]
"""A title, a line for each encoder, and what it shows."""


def top_t_figures(findings: Findings) -> list[Picture]:
    """Figures S7 and S8: how much better than late interaction the ranking is, by T."""
    pictures = []
    for number, rank in ((7, 5), (8, 10)):
        panels = [
            panel
            for dataset in findings.datasets
            for name, metric in (
                ("NDCG", metrics.ndcg_at),
                ("the paper's NDCG", metrics.paper_ndcg_at),
                ("recall", metrics.recall_at),
            )
            for panel in _panels(
                findings,
                dataset,
                partial(gains, findings, dataset, measure=at_rank(metric, rank, 100)),
                f"gain in {name}@{rank}",
                len(scope.evidence_counts(findings, dataset)),
            )
        ]
        pictures += draw_grid(
            f"figure-s{number}",
            f"Figure S{number}. Gain in NDCG@{rank} and Recall@{rank} against T",
            "ViSAR minus late interaction (the line at 0), in hundredths, over the questions with "
            "evidence pages. The paper shows its own NDCG, which divides by the evidence pages "
            "that were found.",
            partial(_draw_sweep, name="T", places=list(_BY_T), encoders=findings.encoders),
            panels,
            columns=3,
            same_heights=True,
        )
    return pictures


def gains(findings: Findings, dataset: str, encoder: str, *, measure: Measure) -> _Line:
    """Return the mean gain over late interaction by T."""
    by_method = findings.choices.get((dataset, encoder), {})

    def values(method: str) -> dict[str, float]:
        pairs = with_evidence(findings, dataset, by_method.get(method, {}))
        return {pair[0].question: measure(pair) for pair in pairs}

    late = values(LATE)
    line = {}
    for t, method in sorted(_BY_T.items()):
        gained = [value - late[q] for q, value in values(method).items() if q in late]
        if gained:
            line[float(t)] = fmean(gained)
    return line


def gamma_figures(findings: Findings) -> list[Picture]:
    """Figure S9: k* against γ over all questions, and how much it moves from one γ to the next."""
    panels = [
        panel
        for line, heading in ((moves, "mean |Δk*|"), (means, "mean k*"))
        for dataset in findings.datasets
        for panel in _panels(
            findings,
            dataset,
            partial(line, findings, dataset),
            heading,
            len(findings.questions[dataset]),
        )
    ]
    spreads = [
        (with_count(f"{dataset}, {encoder}", map(len, ks.values())), ks)
        for dataset, encoder in findings.choices
        if (ks := ks_by_gamma(findings, dataset, encoder))
    ]
    return [
        *draw_grid(
            "figure-s9",
            "Figure S9. k* against γ",
            "Above, the mean change of k* from the γ before; below, the mean of k*. Over all "
            "questions.",
            partial(_draw_sweep, name="γ", places=list(_BY_GAMMA), encoders=findings.encoders),
            panels,
            columns=max(1, len(panels) // 2),
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


def ks_by_gamma(findings: Findings, dataset: str, encoder: str) -> dict[float, dict[str, int]]:
    """Return k* of every question by γ."""
    by_method = findings.choices.get((dataset, encoder), {})
    found = {
        gamma: {question: one.k for question, one in by_method.get(method, {}).items()}
        for gamma, method in sorted(_BY_GAMMA.items())
    }
    return {gamma: ks for gamma, ks in found.items() if ks}


def means(findings: Findings, dataset: str, encoder: str) -> _Line:
    """Return the mean k* by γ."""
    by_gamma = ks_by_gamma(findings, dataset, encoder)
    return {gamma: fmean(ks.values()) for gamma, ks in by_gamma.items()}


def moves(findings: Findings, dataset: str, encoder: str) -> _Line:
    """Return the mean |Δk*| from the γ before, by γ."""
    line = {}
    for (_, before), (gamma, after) in pairwise(ks_by_gamma(findings, dataset, encoder).items()):
        moved = [abs(k - before[question]) for question, k in after.items() if question in before]
        if moved:
            line[gamma] = fmean(moved)
    return line


def _panels(
    findings: Findings, dataset: str, line_of: Callable[[str], _Line], heading: str, count: int
) -> list[_Panel]:
    """One panel, about so many questions; none if there are no lines."""
    lines = {encoder: line for encoder in findings.encoders if (line := line_of(encoder))}
    return [(with_count(dataset, [count]), (lines, heading))] if lines else []


def _draw_sweep(
    axes: Axes,
    data: tuple[Mapping[str, _Line], str],
    name: str,
    places: Sequence[float],
    encoders: Sequence[str],
) -> None:
    lines, heading = data
    for encoder, line in lines.items():
        axes.plot(list(line), list(line.values()), **drawing.encoder_look(encoder, encoders))
    # Of the whole sweep: panels share their axis, though the first γ has no step before it.
    drawing.set_decades(axes, places)
    if heading.startswith("gain"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=name, ylabel=heading)


def _draw_spread(axes: Axes, data: Mapping[float, Mapping[str, int]]) -> None:
    colour = drawing.LOOKS["visar"][0]
    by_gamma = {gamma: list(ks.values()) for gamma, ks in data.items()}
    drawing.plot_quartiles(axes, by_gamma, {"color": colour, "marker": "o", "label": "mean"})
    medians = [summarize(ks).median for ks in by_gamma.values()]
    axes.plot(list(by_gamma), medians, color="black", linestyle="--", marker="s", label="median")
    drawing.set_decades(axes, list(_BY_GAMMA))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="γ", ylabel="k*")
