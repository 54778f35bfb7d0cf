"""Figures of retrieval: how many pages are chosen, sweeps of T and γ, similarity and sparsity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.errors import NotARun
from visar.evaluation import metrics
from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Asked, Retrieved
from visar.evaluation.report import drawing, scope
from visar.evaluation.report.drawing import draw_grid, with_count
from visar.evaluation.report.markup import Picture, make_key
from visar.evaluation.report.retrieval_tables import RankMetric, f1, mean_precision, mean_recall
from visar.evaluation.report.scope import LATE, Pairs, with_evidence
from visar.evaluation.statistics import bootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPARED = ("visar", "largest-gap", "score-cluster")
# Few questions need more pages; they share the last bin.
_ORACLE_CAP = 10
_SMALLEST_CAP, _LARGEST_CAP = 8, 20
_SPARSITY_BINS = 5
# Fewer verdicts say nothing.
_FEWEST_VERDICTS = 3

_BY_T = {METHODS[key].options["top_t"]: key for key in scope.of_group("T")}
_BY_GAMMA = {METHODS[key].options["gamma"]: key for key in scope.of_group("gamma")}

_Looks = Mapping[str, dict[str, Any]]
_Line = dict[float, float]


def distribution_figures(findings: Findings) -> list[Picture]:
    """Figures S1 and S2: how often a method takes 1, 2, 3 … pages."""
    others = scope.other_methods(findings)
    pictures = []
    for key, title, methods in (
        ("figure-s1", "Figure S1. Pages taken: ViSAR, Oracle and evidence", ("visar", "oracle")),
        ("figure-s2", "Figure S2. Pages taken: ViSAR, Largest-Gap and Score-Cluster", _COMPARED),
    ):
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            ks = {"evidence": scope.evidence_counts(findings, dataset)} | {
                method: [one.k for _, one in with_evidence(findings, dataset, by_method[method])]
                for method in (*methods, *others)
                if method in by_method
            }
            if ks["evidence"] and len(ks) > 1:
                panels.append((with_count(f"{dataset}, {encoder}", map(len, ks.values())), ks))
        pictures += draw_grid(
            key,
            title,
            "Share of the questions with evidence pages; the last bin holds all that is larger. "
            "Table 1 has means and medians.",
            partial(_draw_distribution, looks=drawing.method_looks(others)),
            panels,
            columns=_encoder_columns(findings),
        )
    return pictures


def _encoder_columns(findings: Findings) -> int:
    """A row for each data set where that is not too wide."""
    return min(3, len(findings.encoders) or 1)


def _draw_distribution(axes: Axes, ks: Mapping[str, Sequence[int]], looks: _Looks) -> None:
    cap = max(_SMALLEST_CAP, min(_LARGEST_CAP, max(ks["evidence"])))
    width = 0.84 / len(ks)
    for place, (method, values) in enumerate(ks.items()):
        counts = Counter(min(k, cap) for k in values)
        axes.bar(
            [k + (place - (len(ks) - 1) / 2) * width for k in range(1, cap + 1)],
            [100 * counts[k] / max(1, len(values)) for k in range(1, cap + 1)],
            width,
            color=looks[method]["color"],
            label=looks[method]["label"],
        )
    drawing.label_bins(axes, cap)
    axes.grid(visible=False, axis="x")
    axes.set(xlabel="pages", ylabel="questions, %")


def oracle_figures(findings: Findings) -> list[Picture]:
    """Figures 3 and S3 to S6: a method's choice against the size of Oracle's."""
    others = scope.other_methods(findings)
    measures: tuple[tuple[str, str, str, Callable[[Pairs], float] | None], ...] = (
        ("figure-s3", "Figures 3 (a) and S3. k − k_oracle", "mean k − k_oracle", None),
        ("figure-s4", "Figures 3 (b) and S4. F1", "F1, %", f1),
        ("figure-s5", "Figure S5. Precision", "precision, %", mean_precision),
        ("figure-s6", "Figure S6. Recall", "recall, %", mean_recall),
    )
    pictures = []
    for key, title, heading, measure in measures:
        # Against itself, Oracle is a line at 0.
        methods = (*_COMPARED, *(() if measure is None else ("oracle",)), *others)
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            oracle = with_evidence(findings, dataset, by_method.get("oracle", {}))
            sizes = {asked.question: one.k for asked, one in oracle}
            lines = {
                method: _by_oracle(
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
            "Against the smallest k whose late-interaction top-k holds all evidence. Grey: share "
            f"of the questions. The last bin holds all k_oracle ≥ {_ORACLE_CAP}.",
            partial(_draw_against_oracle, heading=heading, looks=drawing.method_looks(others)),
            panels,
            columns=_encoder_columns(findings),
        )
    return pictures


def _by_oracle(
    pairs: Pairs, sizes: Mapping[str, int], measure: Callable[[Pairs], float] | None
) -> _Line:
    """A measure by the size of Oracle's choice; None: how much larger the method's choice is."""
    groups = drawing.group(
        (min(sizes[asked.question], _ORACLE_CAP), (asked, one))
        for asked, one in pairs
        if asked.question in sizes
    )
    return {
        size: fmean(one.k - sizes[asked.question] for asked, one in groups[size])
        if measure is None
        else measure(groups[size])
        for size in sorted(groups)
    }


def _draw_against_oracle(
    axes: Axes, data: tuple[Mapping[str, _Line], Sequence[int]], heading: str, looks: _Looks
) -> None:
    lines, sizes = data
    counts = Counter(min(size, _ORACLE_CAP) for size in sizes)
    behind = axes.twinx()
    shares = [100 * count / len(sizes) for count in counts.values()]
    behind.bar(list(counts), shares, 0.8, color="#D9D9D9", label="share of questions")
    behind.set_ylim(0, 100)
    behind.set_ylabel("questions, %", color="#767676")
    behind.tick_params(axis="y", colors="#767676")
    behind.grid(visible=False)
    # The lines' panel lies over that of the bars, and lets them through.
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    for method, line in lines.items():
        axes.plot(list(line), list(line.values()), **looks[method])
    if heading.startswith("mean"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(0, 104)
    drawing.label_bins(axes, _ORACLE_CAP)
    axes.set(xlim=(0.4, _ORACLE_CAP + 0.6), xlabel="k_oracle", ylabel=heading)


def top_t_figures(findings: Findings) -> list[Picture]:
    """Figures S7 and S8: how much better than late interaction the ranking is, by T."""
    pictures = []
    for number, rank in ((7, 5), (8, 10)):
        panels = []
        for dataset in findings.datasets:
            for name, metric in (("NDCG", metrics.ndcg_at), ("Recall", metrics.recall_at)):
                line_of = partial(_gains, findings, dataset, metric=metric, rank=rank)
                heading = f"gain in {name}@{rank}, points"
                panels += _sweep_panels(findings, dataset, _BY_T, line_of, heading)
        pictures += draw_grid(
            f"figure-s{number}",
            f"Figure S{number}. Gain in NDCG@{rank} and Recall@{rank} against T",
            "ViSAR minus late interaction (the line at 0), in hundredths, over the questions with "
            "evidence pages.",
            partial(_draw_sweep, name="T", sweep=_BY_T, encoders=findings.encoders),
            panels,
        )
    return pictures


def gamma_figures(findings: Findings) -> list[Picture]:
    """Figure S9: k* against γ, and how much it moves from one γ to the next."""
    panels = []
    for line, heading in ((_moves, "mean |Δk*|"), (_means, "mean k*")):
        for dataset in findings.datasets:
            line_of = partial(line, findings, dataset)
            panels += _sweep_panels(findings, dataset, _BY_GAMMA, line_of, heading)
    return draw_grid(
        "figure-s9",
        "Figure S9. k* against γ",
        "Above, the mean change of k* from the γ before; below, the mean of k*. Over the "
        "questions with evidence pages.",
        partial(_draw_sweep, name="γ", sweep=_BY_GAMMA, encoders=findings.encoders),
        panels,
        columns=max(1, len(panels) // 2),
    )


_Sweep = Mapping[float, str]
"""Keys of methods by the number that is swept."""
_Lines = tuple[dict[str, _Line], str]
"""A line for each encoder, and what it shows."""


def _sweep_panels(
    findings: Findings,
    dataset: str,
    sweep: _Sweep,
    line_of: Callable[[str], _Line],
    heading: str,
) -> list[tuple[str, _Lines]]:
    """One panel; none if there are no lines."""
    lines = {encoder: line for encoder in findings.encoders if (line := line_of(encoder))}
    counts = [
        len(with_evidence(findings, dataset, by_question))
        for encoder in lines
        for method, by_question in findings.choices[dataset, encoder].items()
        if method in sweep.values()
    ]
    return [(with_count(dataset, counts), (lines, heading))] if lines else []


def _swept(
    findings: Findings,
    dataset: str,
    encoder: str,
    sweep: _Sweep,
    value: Callable[[Asked, Retrieved], float],
) -> dict[float, dict[str, float]]:
    """A value of each question with evidence, by the number that is swept."""
    by_method = findings.choices.get((dataset, encoder), {})
    found = {
        float(number): {
            asked.question: value(asked, one)
            for asked, one in with_evidence(findings, dataset, by_method.get(method, {}))
        }
        for number, method in sorted(sweep.items())
    }
    return {number: values for number, values in found.items() if values}


def _gains(
    findings: Findings, dataset: str, encoder: str, *, metric: RankMetric, rank: int
) -> _Line:
    def value(asked: Asked, one: Retrieved) -> float:
        return metric(one.ranking, asked.evidence_pages, rank)

    late = _swept(findings, dataset, encoder, {0: LATE}, value).get(0, {})
    line = {}
    for t, values in _swept(findings, dataset, encoder, _BY_T, value).items():
        gains = [values[question] - late[question] for question in values if question in late]
        if gains:
            line[t] = 100 * fmean(gains)
    return line


def _means(findings: Findings, dataset: str, encoder: str) -> _Line:
    ks = _swept(findings, dataset, encoder, _BY_GAMMA, lambda _, one: one.k)
    return {gamma: fmean(values.values()) for gamma, values in ks.items()}


def _moves(findings: Findings, dataset: str, encoder: str) -> _Line:
    line = {}
    ks = _swept(findings, dataset, encoder, _BY_GAMMA, lambda _, one: one.k)
    for (_, before), (gamma, after) in pairwise(ks.items()):
        moves = [abs(k - before[question]) for question, k in after.items() if question in before]
        if moves:
            line[gamma] = fmean(moves)
    return line


def _draw_sweep(
    axes: Axes, data: _Lines, name: str, sweep: _Sweep, encoders: Sequence[str]
) -> None:
    lines, heading = data
    for encoder, line in lines.items():
        axes.plot(list(line), list(line.values()), **drawing.encoder_look(encoder, encoders))
    axes.set_xscale("log")
    # The panels of γ share their axis, though the first γ has no step before it.
    axes.set_xlim(min(sweep) / 1.6, max(sweep) * 1.6)
    if heading.startswith("gain"):
        axes.axhline(0, color="black", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=name, ylabel=heading)


@dataclass(frozen=True, slots=True)
class Detail:
    """The similarity matrix and the costs of one question."""

    id: str
    """Of the question, after its data set and the encoder."""
    similarity: NDArray[np.float64]
    cost: NDArray[np.float64]
    k_star: int
    k_oracle: int | None


def read_details(folder: Path) -> list[Detail]:
    """Read the questions chosen to be shown: ``details/*.npz`` of a run's folder.

    Raises NotARun if a file is damaged or holds something else.
    """
    return [_read_detail(path) for path in sorted((folder / "details").glob("*.npz"))]


def _read_detail(path: Path) -> Detail:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            k_oracle = int(arrays["k_oracle"]) if "k_oracle" in arrays else 0
            detail = Detail(
                id=", ".join(
                    str(arrays[name]) for name in ("dataset", "encoder", "id") if name in arrays
                ),
                similarity=np.asarray(arrays["similarity"], np.float64),
                cost=np.asarray(arrays["cost"], np.float64),
                k_star=int(arrays["k_star"]),
                k_oracle=k_oracle if k_oracle > 0 else None,
            )
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise NotARun(f"{path} is not a question's detail ({error}): take it away.") from None
    if detail.similarity.ndim != 2 or detail.cost.ndim != 1:
        raise NotARun(f"{path} must hold a matrix and its costs: take it away.")
    return detail


def matrix_figures(details: Sequence[Detail]) -> list[Picture]:
    """Figure 5 (a, b): similarity matrix and cost of each chosen question."""
    return [
        Picture(
            make_key("figure-5", str(place), detail.id),
            f"Figure 5 (a, b). Similarity matrix and cost: {detail.id}",
            f"{len(detail.similarity)} pages; {(detail.similarity == 0).mean():.0%} of the entries "
            f"are zero (black). k* = {detail.k_star}, k_oracle = {detail.k_oracle or '—'}.",
            _draw_detail(detail),
        )
        for place, detail in enumerate(details, start=1)
    ]


def _draw_detail(detail: Detail) -> str:
    with drawing.figure_style():
        import matplotlib as mpl
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.4, 3.5))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
        # Without viridis' darkest fifth, which is hard to tell from the black of zero.
        shades = mpl.colormaps["viridis"](np.linspace(0.2, 1, 256))
        count = len(detail.similarity)
        image = left.imshow(
            np.ma.masked_equal(detail.similarity, 0),
            cmap=ListedColormap(shades).with_extremes(bad="black"),
            vmin=0,
            extent=(0.5, count + 0.5, count + 0.5, 0.5),
            interpolation="nearest",
        )
        left.grid(visible=False)
        left.set(xlabel="page", ylabel="page", title="Sim(p, p')")
        figure.colorbar(image, ax=left, shrink=0.85)

        right.plot(range(1, len(detail.cost) + 1), detail.cost, color="black", linewidth=1.4)
        marks = (
            (f"k*, ViSAR: {detail.k_star}", "visar", detail.k_star, "-"),
            (f"k, Oracle: {detail.k_oracle}", "oracle", detail.k_oracle, "--"),
        )
        for name, method, k, line in marks:
            if k is not None:
                right.axvline(k, color=drawing.LOOKS[method][0], linestyle=line, label=name)
        right.set(xlabel="k", title="J(k)")
        right.legend(loc="best")
        return drawing.to_svg(figure)


_Points = dict[str, list[tuple[float, bool]]]
"""Sparsity and verdict of each answer, by encoder."""


def sparsity_figures(findings: Findings) -> list[Picture]:
    """Figures 5 (c) and S14: accuracy against sparsity, one figure for each generator and judge."""
    settings: dict[tuple[str, str], dict[tuple[str, int], _Points]] = {}
    for (dataset, generator, judge, encoder, k), by_method in findings.verdicts.items():
        chosen = findings.choices.get((dataset, encoder), {}).get("visar", {})
        verdicts = by_method.get("visar", {})
        points = [
            (sparsity, verdicts[question])
            for question in sorted(verdicts.keys() & chosen.keys())
            if (sparsity := chosen[question].sparsity) is not None
        ]
        if points:
            panels = settings.setdefault((generator, judge), {})
            panels.setdefault((dataset, k), {})[encoder] = points
    return [
        picture
        for (generator, judge), panels in settings.items()
        for picture in draw_grid(
            make_key("figure-s14", generator, judge),
            f"Figures 5 (c) and S14. Accuracy against sparsity: {generator}, judged by {judge}",
            "Share of right answers of ViSAR by the share of pages without any weight, with 95 % "
            f"bootstrap intervals; bins of fewer than {_FEWEST_VERDICTS} questions are left out.",
            partial(_draw_accuracy, encoders=findings.encoders),
            [
                (with_count(f"{dataset}, Max-{k}", map(len, points.values())), points)
                for (dataset, k), points in panels.items()
            ],
        )
    ]


def _draw_accuracy(axes: Axes, by_encoder: _Points, encoders: Sequence[str]) -> None:
    width = 100 / _SPARSITY_BINS
    for place, (encoder, points) in enumerate(by_encoder.items()):
        bins = drawing.group(
            (min(int(sparsity * _SPARSITY_BINS), _SPARSITY_BINS - 1), float(is_correct))
            for sparsity, is_correct in points
        )
        known = {at: bootstrap(v) for at, v in sorted(bins.items()) if len(v) >= _FEWEST_VERDICTS}
        if not known:
            continue
        # Beside each other, so that intervals do not hide one another.
        shift = width * 0.12 * (place - (len(by_encoder) - 1) / 2)
        axes.errorbar(
            [100 * (at + 0.5) / _SPARSITY_BINS + shift for at in known],
            [100 * one.mean for one in known.values()],
            yerr=[
                [100 * (one.mean - one.low) for one in known.values()],
                [100 * (one.high - one.mean) for one in known.values()],
            ],
            capsize=2.5,
            elinewidth=1,
            **drawing.encoder_look(encoder, encoders),
        )
    axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="sparsity, %", ylabel="accuracy, %")
    axes.set_xticks(range(0, 101, 100 // _SPARSITY_BINS))
