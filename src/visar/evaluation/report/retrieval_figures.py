"""Figures of retrieval: the number and quality of chosen pages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from visar.evaluation.frames import Results
from visar.evaluation.methods import DEPTH
from visar.evaluation.report import drawing
from visar.evaluation.report.columns import ALL_EVIDENCE, F1, Column
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.methods import LATE, is_adaptive, is_other, other_methods
from visar.evaluation.report.retrieval_tables import fixed_k_curve
from visar.evaluation.state import CORRECTED
from visar.evaluation.statistics import Estimate, bootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPARED = ("visar", "largest-gap", "score-cluster")
# The largest k in the paper's figures.
_LARGEST_K = {"MMLongBench": 24}
_DEFAULT_LARGEST_K = 30
# The paper's bins of k_oracle, except the last.
ORACLE_BINS = (*((k, k) for k in range(1, 11)), (11, 15), (16, 20), (21, 25), (26, 35))
ORACLE_NAMES = (*(drawing.range_label(*one) for one in ORACLE_BINS), "36+")
# Fewer samples, because a figure has hundreds of intervals.
_SAMPLES = 1_000

_Looks = Mapping[str, dict[str, Any]]


def oracle_bin(k: int) -> int:
    """Return the index of the paper's bin for a k_oracle."""
    return next((at for at, (_, last) in enumerate(ORACLE_BINS) if k <= last), len(ORACLE_BINS))


def distribution_figures(results: Results) -> list[Picture]:
    """Draw Figures S1 and S2: the distribution of the number of chosen pages."""
    others = _plugin_methods(results)
    evidence = results.questions.assign(
        k=results.questions.evidence_pages.map(lambda pages: len(set(pages))), method="evidence"
    )
    pictures = []
    for key, title, methods in (
        ("figure-s1", "Figure S1. Pages chosen: ViSAR, Oracle and evidence", ("visar", "oracle")),
        (
            "figure-s2",
            "Figure S2. Pages chosen: ViSAR and other adaptive methods",
            (*_COMPARED, *others),
        ),
    ):
        panels = []
        chosen = results.counted[results.counted.method.isin(methods)]
        for (dataset, encoder), group in chosen.groupby(["dataset", "encoder"]):
            known = evidence[(evidence.dataset == dataset) & (evidence.k > 0)]
            both = pd.concat([known, group])[["method", "k"]]
            counts = both.groupby("method").size()
            last = _LARGEST_K.get(dataset.removesuffix(CORRECTED), _DEFAULT_LARGEST_K)
            panels.append((with_count(f"{dataset}, {encoder}", counts), both, last))
        pictures += draw_grid(
            key,
            title,
            "Share of the questions with evidence pages for which a method chooses k pages. Larger "
            "k aren't shown; Table 1 has means and medians over all k.",
            partial(_draw_distribution, looks=drawing.method_looks(others)),
            panels,
            size=(5.6, 3.0),
            same_heights=True,
        )
    return pictures


def _draw_distribution(axes: Axes, frame: pd.DataFrame, last: int, looks: _Looks) -> None:
    places = range(1, last + 1)
    for method, ks in frame.groupby("method", sort=False).k:
        shares = 100 * ks.value_counts(normalize=True).reindex(places, fill_value=0)
        axes.plot(places, shares, **looks[method] | {"markersize": 4, "linewidth": 1.3})
    step = 2 if last <= 24 else 5
    axes.set_xticks([1, *range(step, last + 1, step)])
    axes.set(xlim=(0.4, last + 0.6), xlabel="k", ylabel="questions, %")


def _plugin_methods(results: Results) -> list[str]:
    """Return adaptive plugin methods. There is no space for lines of other methods."""
    return [one for one in other_methods(results) if is_other(one) and is_adaptive(one)]


def oracle_figures(results: Results) -> list[Picture]:
    """Draw Figures 3 and S3 to S6: methods' choices against the size of Oracle's."""
    others = _plugin_methods(results)
    pictures = []
    for key, title, heading, measure in (
        ("figure-s3", "Figures 3 (a) and S3. k − k_oracle", "mean k − k_oracle", "surplus"),
        ("figure-s4", "Figures 3 (b) and S4. F1", "mean F1, %", "f1"),
        ("figure-s5", "Figure S5. Precision", "mean precision, %", "precision"),
        ("figure-s6", "Figure S6. Recall", "mean recall, %", "recall"),
    ):
        # Leave out Oracle's own surplus, which is always 0.
        methods = (*_COMPARED, *(() if measure == "surplus" else ("oracle",)), *others)
        panels = []
        for (dataset, encoder), group in results.counted.groupby(["dataset", "encoder"]):
            placed = with_oracle(group)
            placed = placed[placed.method.isin(methods)]
            if set(placed.method) - {"oracle"}:
                name = with_count(f"{dataset}, {encoder}", [placed.question.nunique()])
                panels.append((name, placed))
        pictures += draw_grid(
            key,
            f"{title} against k_oracle",
            "k_oracle is the smallest k whose late-interaction top-k has all evidence. Means over "
            f"questions, with 95% of {_SAMPLES:,} bootstrap samples. Gray: share of the questions.",
            partial(
                _draw_against_oracle,
                measure=measure,
                heading=heading,
                looks=drawing.method_looks(others),
            ),
            panels,
            size=(8.4, 3.6),
            same_heights=True,
        )
    return pictures


def with_oracle(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of questions with an Oracle, adding surplus = k − k_oracle and its bin."""
    oracle = frame[frame.method == "oracle"].set_index("question").k
    frame = frame[frame.question.isin(oracle.index)]
    k_oracle = frame.question.map(oracle).astype(float)
    return frame.assign(surplus=frame.k - k_oracle, bin=k_oracle.map(oracle_bin))


def by_oracle(frame: pd.DataFrame, measure: str) -> dict[int, Estimate]:
    """Return the mean of a measure by bin of k_oracle."""
    groups = frame.groupby("bin")[measure]
    return {int(at): bootstrap(values, samples=_SAMPLES) for at, values in groups}


def _draw_against_oracle(
    axes: Axes, frame: pd.DataFrame, measure: str, heading: str, looks: _Looks
) -> None:
    counts = frame.drop_duplicates("question").bin.value_counts()
    behind = axes.twinx()
    shares = 100 * counts / counts.sum()
    behind.bar(list(shares.index), shares, 0.9, color="#E3E3E3", label="share of questions")
    behind.set_ylim(0, 100)
    behind.set_ylabel("questions, %", color="#767676")
    behind.tick_params(axis="y", colors="#767676")
    behind.grid(visible=False)
    # Draw the lines above the bars, on a transparent background.
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    methods = frame.method.nunique()
    for place, (method, group) in enumerate(frame.groupby("method", sort=False)):
        # Draw methods side by side, so that they don't overlap.
        shift = 0.6 * (place - (methods - 1) / 2) / methods
        look = looks[method] | {"elinewidth": 0.8, "linewidth": 1.2, "markersize": 4}
        line = {at + shift: one for at, one in by_oracle(group, measure).items()}
        drawing.plot_intervals(axes, line, **look)
    if measure == "surplus":
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(0, 104)
    names = [f"{name}\n{counts.get(at, 0)}" for at, name in enumerate(ORACLE_NAMES)]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=(-0.6, len(names) - 0.4), ylabel=heading)
    axes.set_xlabel("k_oracle, with its number of questions")


def fixed_figures(results: Results) -> list[Picture]:
    """Draw fixed k = 1 … 10 as a curve, and adaptive methods as points at their mean k."""
    others = [one for one in other_methods(results) if is_adaptive(one)]
    chosen = results.counted[results.counted.method.isin((LATE, *_COMPARED, *others))]
    panels = []
    for (dataset, encoder), group in chosen.groupby(["dataset", "encoder"]):
        counts = group.groupby("method").size()
        if LATE in counts and len(counts) > 1:
            name = with_count(f"{dataset}, {encoder}", counts)
            panels += [(name, group, F1, "f1"), (name, group, ALL_EVIDENCE, "perfect_recall")]
    return draw_grid(
        "figure-fixed-k",
        "Figure, not in the paper. Fixed and adaptive k at the same number of pages",
        "Lines: the top k = 1 … 10 pages ranked by late interaction and by ViSAR. Points: adaptive "
        "methods at their mean k, with 95% bootstrap intervals. F1 as in Table 1; all evidence: "
        "the share of questions with all evidence pages among the chosen pages.",
        partial(_draw_fixed, looks=drawing.method_looks(others)),
        panels,
        size=(5.6, 3.2),
    )


def _draw_fixed(
    axes: Axes, frame: pd.DataFrame, column: Column, measure: str, looks: _Looks
) -> None:
    by_method = dict(iter(frame.groupby("method", sort=False)))
    for method, name, line in ((LATE, "fixed k", "-"), ("visar", "fixed k, ViSAR's ranking", ":")):
        if method in by_method:
            curve = fixed_k_curve(by_method[method])
            look = {"color": looks[method]["color"], "linestyle": line, "marker": "."}
            axes.plot(curve.k, curve[measure], label=name, **look)
    largest = DEPTH
    for method, group in by_method.items():
        if method == LATE:
            continue
        sure = column.estimate(group, samples=_SAMPLES)
        largest = max(largest, int(group.k.mean()) + 1)
        look = looks[method] | {"linestyle": "none", "markersize": 7, "capsize": 2.5}
        drawing.plot_intervals(axes, {float(group.k.mean()): sure}, **look)
    drawing.set_log_pages(axes, largest)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="mean k", ylabel="F1, %" if measure == "f1" else "all evidence, %")
