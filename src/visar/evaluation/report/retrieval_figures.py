"""Figures of retrieval: how many pages are chosen, and how good these are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from visar.evaluation.findings import CORRECTED, Findings
from visar.evaluation.methods import DEPTH
from visar.evaluation.report import drawing, scope
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.fixed_k import fixed_k_curve
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.retrieval_tables import (
    Measure,
    f1_of,
    k_of,
    precision_of,
    recall_of,
)
from visar.evaluation.report.scope import LATE, Pairs, with_evidence
from visar.evaluation.statistics import Interval, PairedSamples, bootstrap, f1_of_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPARED = ("visar", "largest-gap", "score-cluster")
# The paper's: how far its figures of k* go.
_LARGEST_K = {"MMLongBench": 24}
_LARGEST_K_OTHERWISE = 30
# The paper's: the first and last k_oracle of each bin but the last.
ORACLE_BINS = (*((k, k) for k in range(1, 11)), (11, 15), (16, 20), (21, 25), (26, 35))
ORACLE_NAMES = (*(drawing.range_label(*one) for one in ORACLE_BINS), "36+")
# There are hundreds of intervals in a figure.
_SAMPLES = 1_000

_Looks = Mapping[str, dict[str, Any]]


def oracle_bin(k: int) -> int:
    """Return the place of a k_oracle among the paper's bins."""
    return next((at for at, (_, last) in enumerate(ORACLE_BINS) if k <= last), len(ORACLE_BINS))


def adaptive_others(findings: Findings) -> tuple[str, ...]:
    """Return the adaptive methods of a run that the main tables report beside the paper's."""
    return tuple(filter(scope.is_adaptive, scope.other_methods(findings)))


def foreign_methods(findings: Findings) -> tuple[str, ...]:
    """Return those of other packages alone: figures with a line a method have no room for more."""
    return tuple(filter(scope.is_other, adaptive_others(findings)))


def distribution_figures(findings: Findings) -> list[Picture]:
    """Figures S1 and S2: how often a method takes 1, 2, 3 … pages."""
    others = foreign_methods(findings)
    pictures = []
    for key, title, methods in (
        ("figure-s1", "Figure S1. Pages taken: ViSAR, Oracle and evidence", ("visar", "oracle")),
        (
            "figure-s2",
            "Figure S2. Pages taken: ViSAR and other adaptive methods",
            (*_COMPARED, *others),
        ),
    ):
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            ks = {"evidence": scope.evidence_counts(findings, dataset)} | {
                method: [one.k for _, one in with_evidence(findings, dataset, by_method[method])]
                for method in methods
                if method in by_method
            }
            if ks["evidence"] and len(ks) > 1:
                last = _LARGEST_K.get(dataset.removesuffix(CORRECTED), _LARGEST_K_OTHERWISE)
                name = with_count(f"{dataset}, {encoder}", map(len, ks.values()))
                panels.append((name, (ks, last)))
        pictures += draw_grid(
            key,
            title,
            "Share of the questions with evidence pages that a method takes k pages for. Larger k "
            "are not shown: Table 1 has means and medians over all.",
            partial(_draw_distribution, looks=drawing.method_looks(others)),
            panels,
            size=(5.6, 3.0),
            same_heights=True,
        )
    return pictures


def _draw_distribution(
    axes: Axes, data: tuple[Mapping[str, Sequence[int]], int], looks: _Looks
) -> None:
    ks, last = data
    places = range(1, last + 1)
    for method, values in ks.items():
        counts = Counter(values)
        shares = [100 * counts[k] / max(1, len(values)) for k in places]
        axes.plot(places, shares, **looks[method] | {"markersize": 4, "linewidth": 1.3})
    step = 2 if last <= 24 else 5
    axes.set_xticks([1, *range(step, last + 1, step)])
    axes.set(xlim=(0.4, last + 0.6), xlabel="k", ylabel="questions, %")


def oracle_figures(findings: Findings) -> list[Picture]:
    """Figures 3 and S3 to S6: a method's choice against the size of Oracle's."""
    others = foreign_methods(findings)
    measures: tuple[tuple[str, str, str, Measure], ...] = (
        ("figure-s3", "Figures 3 (a) and S3. k − k_oracle", "mean k − k_oracle", k_of),
        ("figure-s4", "Figures 3 (b) and S4. F1", "mean F1, %", f1_of),
        ("figure-s5", "Figure S5. Precision", "mean precision, %", precision_of),
        ("figure-s6", "Figure S6. Recall", "mean recall, %", recall_of),
    )
    pictures = []
    for key, title, heading, measure in measures:
        # Against itself, Oracle is a line at 0.
        methods = (*_COMPARED, *(() if measure is k_of else ("oracle",)), *others)
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            oracle = with_evidence(findings, dataset, by_method.get("oracle", {}))
            sizes = {asked.question: one.k for asked, one in oracle}
            lines = {
                method: by_oracle(
                    with_evidence(findings, dataset, by_method[method]), sizes, measure
                )
                for method in methods
                if method in by_method
            }
            if sizes and lines.keys() - {"oracle"}:
                name = with_count(f"{dataset}, {encoder}", [len(sizes)])
                panels.append((name, (lines, list(sizes.values()))))
        pictures += draw_grid(
            key,
            f"{title} against k_oracle",
            "Against the smallest k whose late-interaction top-k holds all evidence. Means of each "
            f"question's own value, with 95 % of {_SAMPLES:,} bootstrap samples. Grey: share of "
            "the questions.",
            partial(_draw_against_oracle, heading=heading, looks=drawing.method_looks(others)),
            panels,
            size=(8.4, 3.6),
            same_heights=True,
        )
    return pictures


def by_oracle(pairs: Pairs, sizes: Mapping[str, int], measure: Measure) -> dict[int, Interval]:
    """Return the mean of a measure by the bin of k_oracle; of k, how much larger than k_oracle."""
    groups = drawing.group(
        (
            oracle_bin(sizes[pair[0].question]),
            measure(pair) - (sizes[pair[0].question] if measure is k_of else 0),
        )
        for pair in pairs
        if pair[0].question in sizes
    )
    return {at: bootstrap(groups[at], samples=_SAMPLES) for at in sorted(groups)}


def _draw_against_oracle(
    axes: Axes,
    data: tuple[Mapping[str, dict[int, Interval]], Sequence[int]],
    heading: str,
    looks: _Looks,
) -> None:
    lines, sizes = data
    counts = Counter(map(oracle_bin, sizes))
    behind = axes.twinx()
    shares = [100 * count / len(sizes) for count in counts.values()]
    behind.bar(list(counts), shares, 0.9, color="#E3E3E3", label="share of questions")
    behind.set_ylim(0, 100)
    behind.set_ylabel("questions, %", color="#767676")
    behind.tick_params(axis="y", colors="#767676")
    behind.grid(visible=False)
    # The lines' panel lies over that of the bars, and lets them through.
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    for place, (method, line) in enumerate(lines.items()):
        # Beside each other, so that no method hides another.
        shift = 0.6 * (place - (len(lines) - 1) / 2) / len(lines)
        look = looks[method] | {"elinewidth": 0.8, "linewidth": 1.2, "markersize": 4}
        drawing.plot_intervals(axes, {at + shift: one for at, one in line.items()}, **look)
    if heading.startswith("mean k"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(0, 104)
    names = [f"{name}\n{counts[at]}" for at, name in enumerate(ORACLE_NAMES)]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=(-0.6, len(names) - 0.4), ylabel=heading)
    axes.set_xlabel("k_oracle, and how many questions have it")


def fixed_figures(findings: Findings) -> list[Picture]:
    """F1 of fixed k = 1 … 10 as a curve, and of adaptive methods at the pages that they take."""
    others = adaptive_others(findings)
    panels = []
    for (dataset, encoder), by_method in findings.choices.items():
        pairs = {
            method: with_evidence(findings, dataset, by_method.get(method, {}))
            for method in (LATE, "visar", *_COMPARED[1:], *others)
        }
        pairs = {method: of_method for method, of_method in pairs.items() if of_method}
        if LATE in pairs and len(pairs) > 1:
            name = with_count(f"{dataset}, {encoder}", map(len, pairs.values()))
            panels.append((name, pairs))
    return draw_grid(
        "figure-fixed-k",
        "Figure, not in the paper. F1 of fixed and of adaptive k",
        "Lines: the first k = 1 … 10 pages of the ranking of late interaction, and of ViSAR. "
        "Points: adaptive methods at their mean k, with 95 % bootstrap intervals of F1. F1 as in "
        "Table 1.",
        partial(_draw_fixed, looks=drawing.method_looks(others)),
        panels,
        size=(5.6, 3.2),
        same_heights=True,
    )


def _draw_fixed(axes: Axes, pairs: Mapping[str, Pairs], looks: _Looks) -> None:
    from matplotlib.ticker import NullLocator

    for method, name, line in ((LATE, "fixed k", "-"), ("visar", "fixed k, ViSAR's ranking", ":")):
        if method in pairs:
            curve = fixed_k_curve(pairs[method])
            axes.plot(
                [point.k for point in curve],
                [point.f1 for point in curve],
                color=looks[method]["color"],
                linestyle=line,
                marker=".",
                label=name,
            )
    largest = DEPTH
    for method, of_method in pairs.items():
        if method == LATE:
            continue
        values = np.array([[precision_of(pair), recall_of(pair)] for pair in of_method])
        sure = PairedSamples({method: values}, samples=_SAMPLES).interval(method, f1_of_means)
        mean_k = fmean(one.k for _, one in of_method)
        largest = max(largest, int(mean_k) + 1)
        look = looks[method] | {"linestyle": "none", "markersize": 7, "capsize": 2.5}
        drawing.plot_intervals(axes, {mean_k: sure}, **look)
    axes.set_xscale("log")
    ticks = [k for k in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500) if k <= largest * 1.2]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)
    axes.set(xlabel="mean k", ylabel="F1, %")
