"""Figures of ViSAR's two numbers: T, how many interactions count, and γ, what leakage costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from visar.evaluation import metrics
from visar.evaluation.figures.drawing import Panel, Picture, draw_grid, encoder_style, with_count
from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.tables.scope import with_evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AtRank = Callable[[Sequence[int], Collection[int], int], float]
_MEASURES: tuple[tuple[str, _AtRank], ...] = (
    ("NDCG", metrics.ndcg_at),
    ("Recall", metrics.recall_at),
)
_BY_T = {m.options["top_t"]: key for key, m in METHODS.items() if m.group == "T"}
_BY_GAMMA = {m.options["gamma"]: key for key, m in METHODS.items() if m.group == "gamma"}

_Line = dict[float, float]


def top_t_figures(findings: Findings) -> list[Picture]:
    """Figures S7 and S8: how much better than late interaction the ranking is, by T."""
    pictures = []
    for number, rank in ((7, 5), (8, 10)):
        panels = [
            _panel(
                findings,
                dataset,
                partial(_gains, measure=measure, rank=rank),
                ("T", f"gain in {name}@{rank}, points"),
            )
            for dataset in findings.datasets
            for name, measure in _MEASURES
        ]
        drawn = [panel for panel in panels if panel is not None]
        if drawn:
            pictures.append(
                draw_grid(
                    f"figure-s{number}",
                    f"Figure S{number}. Gain in NDCG@{rank} and Recall@{rank} against T",
                    "ViSAR minus late interaction (the line at 0), in hundredths, over the "
                    "questions with evidence pages.",
                    drawn,
                    columns=2,
                )
            )
    return pictures


def gamma_figures(findings: Findings) -> list[Picture]:
    """Figure S9: k* against γ, and how much it moves from one γ to the next."""
    panels = [
        _panel(findings, dataset, lines, ("γ", heading))
        for lines, heading in ((_moves, "mean |Δk*|"), (_means, "mean k*"))
        for dataset in findings.datasets
    ]
    drawn = [panel for panel in panels if panel is not None]
    if not drawn:
        return []
    return [
        draw_grid(
            "figure-s9",
            "Figure S9. k* against γ",
            "Above, the mean change of k* from the γ before; below, the mean of k*. Over the "
            "questions with evidence pages.",
            drawn,
            columns=max(1, len(drawn) // 2),
        )
    ]


def _panel(
    findings: Findings,
    dataset: str,
    line_of: Callable[[Findings, str, str], _Line],
    headings: tuple[str, str],
) -> Panel | None:
    lines = {
        encoder: line
        for encoder in findings.encoders
        if (line := line_of(findings, dataset, encoder))
    }
    if not lines:
        return None
    swept = (_BY_T if headings[0] == "T" else _BY_GAMMA).values()
    counts = [
        len(with_evidence(findings, dataset, by_question))
        for encoder in lines
        for method, by_question in findings.choices[dataset, encoder].items()
        if method in swept
    ]
    return Panel(
        with_count(dataset, counts),
        partial(_draw, lines=lines, encoders=findings.encoders, headings=headings),
    )


def _gains(findings: Findings, dataset: str, encoder: str, *, measure: _AtRank, rank: int) -> _Line:
    by_method = findings.choices.get((dataset, encoder), {})

    def values(method: str) -> dict[str, float]:
        return {
            asked.question: measure(one.ranking, asked.evidence_pages, rank)
            for asked, one in with_evidence(findings, dataset, by_method.get(method, {}))
        }

    late = values("top-k")
    line = {}
    for t, method in _BY_T.items():
        found = values(method)
        gains = [found[question] - late[question] for question in found if question in late]
        if gains:
            line[float(t)] = 100 * fmean(gains)
    return line


def _means(findings: Findings, dataset: str, encoder: str) -> _Line:
    return {
        gamma: fmean(by_question.values())
        for gamma, by_question in _by_gamma(findings, dataset, encoder).items()
    }


def _moves(findings: Findings, dataset: str, encoder: str) -> _Line:
    line = {}
    steps = _by_gamma(findings, dataset, encoder).items()
    for (_, before), (gamma, after) in pairwise(steps):
        moves = [
            abs(after[question] - before[question]) for question in after if question in before
        ]
        if moves:
            line[gamma] = fmean(moves)
    return line


def _by_gamma(findings: Findings, dataset: str, encoder: str) -> dict[float, dict[str, int]]:
    by_method = findings.choices.get((dataset, encoder), {})
    found = {
        gamma: {
            asked.question: one.k
            for asked, one in with_evidence(findings, dataset, by_method.get(method, {}))
        }
        for gamma, method in sorted(_BY_GAMMA.items())
    }
    return {gamma: by_question for gamma, by_question in found.items() if by_question}


def _draw(
    axes: Axes,
    lines: Mapping[str, _Line],
    encoders: Sequence[str],
    headings: tuple[str, str],
) -> None:
    for encoder, line in lines.items():
        axes.plot(list(line), list(line.values()), **encoder_style(encoder, encoders))
    axes.set_xscale("log")
    # The panels of γ share their axis, though the first γ has no step before it.
    sweep = _BY_T if headings[0] == "T" else _BY_GAMMA
    axes.set_xlim(min(sweep) / 1.6, max(sweep) * 1.6)
    if headings[1].startswith("gain"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(headings[0])
    axes.set_ylabel(headings[1])
