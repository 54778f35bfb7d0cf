"""Figures of how many pages are chosen, and how good these are against Oracle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from visar.evaluation import metrics
from visar.evaluation.figures.drawing import (
    GREY,
    Panel,
    Picture,
    draw_grid,
    label_bins,
    method_style,
    with_count,
)
from visar.evaluation.findings import Findings
from visar.evaluation.records import Asked, Retrieved
from visar.evaluation.tables.scope import with_evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPARED = ("visar", "largest-gap", "score-cluster")
# Few questions need more pages; they share the last bin.
_ORACLE_CAP = 10
_SMALLEST_CAP, _LARGEST_CAP = 8, 20

_Pairs = Sequence[tuple[Asked, Retrieved]]


def distribution_figures(findings: Findings) -> list[Picture]:
    """Figures S1 and S2: how often a method takes 1, 2, 3 … pages."""
    wanted = (
        ("figure-s1", "Figure S1. Pages taken: ViSAR, Oracle and evidence", ("visar", "oracle")),
        ("figure-s2", "Figure S2. Pages taken: ViSAR, Largest-Gap and Score-Cluster", _COMPARED),
    )
    pictures = []
    for key, title, methods in wanted:
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            evidence = [
                len(set(one.evidence_pages))
                for one in findings.questions.get(dataset, {}).values()
                if one.evidence_pages
            ]
            ks = {"evidence": evidence} | {
                method: [one.k for _, one in with_evidence(findings, dataset, by_method[method])]
                for method in methods
                if method in by_method
            }
            if evidence and len(ks) > 1:
                draw = partial(_draw_distribution, ks=ks)
                counts = map(len, ks.values())
                panels.append(Panel(with_count(f"{dataset}, {encoder}", counts), draw))
        if panels:
            caption = (
                "Share of the questions with evidence pages; the last bin holds all that is "
                "larger. Table 1 has means and medians."
            )
            pictures.append(
                draw_grid(key, title, caption, panels, columns=_columns(findings, panels))
            )
    return pictures


def _draw_distribution(axes: Axes, ks: Mapping[str, Sequence[int]]) -> None:
    cap = max(_SMALLEST_CAP, min(_LARGEST_CAP, max(ks["evidence"])))
    width = 0.84 / len(ks)
    for place, (method, values) in enumerate(ks.items()):
        counts = Counter(min(k, cap) for k in values)
        style = method_style(method)
        axes.bar(
            [k + (place - (len(ks) - 1) / 2) * width for k in range(1, cap + 1)],
            [100 * counts[k] / max(1, len(values)) for k in range(1, cap + 1)],
            width,
            color=style["color"],
            label=style["label"],
        )
    label_bins(axes, cap)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("pages")
    axes.set_ylabel("questions, %")


def oracle_figures(findings: Findings) -> list[Picture]:
    """Figures 3 and S3 to S6: a method's choice against the size of Oracle's."""
    measures: tuple[tuple[str, str, str, Callable[[_Pairs, Mapping[str, int]], float]], ...] = (
        ("figure-s3", "Figures 3 (a) and S3. k − k_oracle", "mean k − k_oracle", _difference),
        ("figure-s4", "Figures 3 (b) and S4. F1", "F1, %", _f1),
        ("figure-s5", "Figure S5. Precision", "precision, %", _precision),
        ("figure-s6", "Figure S6. Recall", "recall, %", _recall),
    )
    pictures = []
    for key, title, heading, measure in measures:
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            sizes = {
                asked.question: one.k
                for asked, one in with_evidence(findings, dataset, by_method.get("oracle", {}))
            }
            series = {
                method: _by_oracle(
                    with_evidence(findings, dataset, by_method[method]), sizes, measure
                )
                for method in (*_COMPARED, "oracle")
                if method in by_method and not (method == "oracle" and measure is _difference)
            }
            if sizes and series.keys() - {"oracle"}:
                draw = partial(_draw_against_oracle, series=series, sizes=sizes, heading=heading)
                panels.append(Panel(with_count(f"{dataset}, {encoder}", [len(sizes)]), draw))
        if panels:
            caption = (
                "Against the smallest k whose late-interaction top-k holds all evidence. Grey: "
                f"share of the questions. The last bin holds all k_oracle ≥ {_ORACLE_CAP}."
            )
            pictures.append(
                draw_grid(
                    key,
                    f"{title} against k_oracle",
                    caption,
                    panels,
                    columns=_columns(findings, panels),
                )
            )
    return pictures


def _by_oracle(
    pairs: _Pairs,
    sizes: Mapping[str, int],
    measure: Callable[[_Pairs, Mapping[str, int]], float],
) -> dict[int, float]:
    groups: dict[int, list[tuple[Asked, Retrieved]]] = {}
    for asked, one in pairs:
        if asked.question in sizes:
            groups.setdefault(min(sizes[asked.question], _ORACLE_CAP), []).append((asked, one))
    return {size: measure(groups[size], sizes) for size in sorted(groups)}


def _difference(pairs: _Pairs, sizes: Mapping[str, int]) -> float:
    return fmean(one.k - sizes[asked.question] for asked, one in pairs)


def _precision(pairs: _Pairs, _: Mapping[str, int]) -> float:
    return 100 * fmean(metrics.precision(one.pages, asked.evidence_pages) for asked, one in pairs)


def _recall(pairs: _Pairs, _: Mapping[str, int]) -> float:
    return 100 * fmean(metrics.recall(one.pages, asked.evidence_pages) for asked, one in pairs)


def _f1(pairs: _Pairs, sizes: Mapping[str, int]) -> float:
    """Of the means over the questions of the bin, as Table 1 has it over all."""
    return metrics.f1_of_means([_precision(pairs, sizes)], [_recall(pairs, sizes)])


def _draw_against_oracle(
    axes: Axes, series: Mapping[str, Mapping[int, float]], sizes: Mapping[str, int], heading: str
) -> None:
    counts = Counter(min(size, _ORACLE_CAP) for size in sizes.values())
    behind = axes.twinx()
    behind.bar(
        list(counts),
        [100 * count / len(sizes) for count in counts.values()],
        0.8,
        color=GREY,
        label="share of questions",
    )
    behind.set_ylim(0, 100)
    behind.set_ylabel("questions, %", color="#767676")
    behind.tick_params(axis="y", colors="#767676")
    behind.grid(visible=False)
    # The lines' panel lies over that of the bars, and lets them through.
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    for method, values in series.items():
        axes.plot(list(values), list(values.values()), **method_style(method))
    if heading.startswith("mean"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(0, 104)
    label_bins(axes, _ORACLE_CAP)
    axes.set_xlim(0.4, _ORACLE_CAP + 0.6)
    axes.set_xlabel("k_oracle")
    axes.set_ylabel(heading)


def _columns(findings: Findings, panels: Sequence[Panel]) -> int:
    """A row for each data set where that is not too wide."""
    return min(3, len(panels), max(1, len(findings.encoders)))
