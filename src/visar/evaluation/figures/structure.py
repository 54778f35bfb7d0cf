"""Figures of the similarity matrix: some matrices, and how its sparsity goes with accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visar.errors import NotARun
from visar.evaluation.figures.drawing import Panel, Picture, draw_grid, encoder_style, with_count
from visar.evaluation.findings import Findings
from visar.evaluation.palette import COLOURS, figure_style, to_svg
from visar.evaluation.statistics import bootstrap
from visar.evaluation.tables.table import make_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 5
# Fewer verdicts say nothing.
_FEWEST = 3


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
    """The questions chosen to be shown: ``details/*.npz`` of a run's folder."""
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
    """Figure 5 (a, b): a picture for each chosen question."""
    return [_matrix_figure(place, detail) for place, detail in enumerate(details, start=1)]


def _matrix_figure(place: int, detail: Detail) -> Picture:
    with figure_style():
        import matplotlib as mpl
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.4, 3.5))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
        # Without viridis' darkest fifth, which is hard to tell from the black of zero.
        shades = mpl.colormaps["viridis"](np.linspace(0.2, 1, 256))
        colours = ListedColormap(shades).with_extremes(bad="black")
        count = len(detail.similarity)
        image = left.imshow(
            np.ma.masked_equal(detail.similarity, 0),
            cmap=colours,
            vmin=0,
            extent=(0.5, count + 0.5, count + 0.5, 0.5),
            interpolation="nearest",
        )
        left.grid(visible=False)
        left.set_xlabel("page")
        left.set_ylabel("page")
        left.set_title("Sim(p, p')")
        figure.colorbar(image, ax=left, shrink=0.85)
        _draw_cost(right, detail)
        svg = to_svg(figure)
    empty = float((detail.similarity == 0).mean())
    return Picture(
        make_key("figure-5", str(place), detail.id),
        f"Figure 5 (a, b). Similarity matrix and cost: {detail.id}",
        f"{count} pages; {empty:.0%} of the entries are zero (black). k* = {detail.k_star}, "
        f"k_oracle = {'—' if detail.k_oracle is None else detail.k_oracle}.",
        svg,
    )


def _draw_cost(axes: Axes, detail: Detail) -> None:
    ks = np.arange(1, len(detail.cost) + 1)
    axes.plot(ks, detail.cost, color="black", linewidth=1.4)
    marks = (("k*, ViSAR", "visar", detail.k_star), ("k, Oracle", "oracle", detail.k_oracle))
    for name, method, k in marks:
        if k is not None:
            line = "-" if method == "visar" else "--"
            axes.axvline(k, color=COLOURS[method], linestyle=line, label=f"{name}: {k}")
    axes.set_xlabel("k")
    axes.set_title("J(k)")
    axes.legend(loc="best")


def sparsity_figures(findings: Findings) -> list[Picture]:
    """Figures 5 (c) and S14: accuracy against sparsity, one figure for each generator and judge."""
    settings: dict[tuple[str, str], dict[tuple[str, int], dict[str, list[tuple[float, bool]]]]] = {}
    for (dataset, generator, judge, encoder, k), by_method in findings.verdicts.items():
        chosen = findings.choices.get((dataset, encoder), {}).get("visar", {})
        verdicts = by_method.get("visar", {})
        points = [
            (sparsity, verdicts[question])
            for question in sorted(verdicts)
            if question in chosen and (sparsity := chosen[question].sparsity) is not None
        ]
        if points:
            panels = settings.setdefault((generator, judge), {})
            panels.setdefault((dataset, k), {})[encoder] = points
    return [
        draw_grid(
            make_key("figure-s14", generator, judge),
            f"Figures 5 (c) and S14. Accuracy against sparsity: {generator}, judged by {judge}",
            "Share of right answers of ViSAR by the share of pages without any weight, with 95 % "
            f"bootstrap intervals; bins of fewer than {_FEWEST} questions are left out.",
            [
                Panel(
                    with_count(f"{dataset}, Max-{k}", map(len, by_encoder.values())),
                    partial(_draw_accuracy, by_encoder=by_encoder, encoders=findings.encoders),
                )
                for (dataset, k), by_encoder in panels.items()
            ],
            columns=min(2, len(panels)),
        )
        for (generator, judge), panels in settings.items()
    ]


def _draw_accuracy(
    axes: Axes,
    by_encoder: Mapping[str, Sequence[tuple[float, bool]]],
    encoders: Sequence[str],
) -> None:
    for place, (encoder, points) in enumerate(by_encoder.items()):
        bins: dict[int, list[float]] = {}
        for sparsity, is_correct in points:
            bins.setdefault(min(int(sparsity * _BINS), _BINS - 1), []).append(float(is_correct))
        known = {at: bootstrap(bins[at]) for at in sorted(bins) if len(bins[at]) >= _FEWEST}
        if not known:
            continue
        # Beside each other, so that intervals do not hide one another.
        shift = 100 / _BINS * 0.12 * (place - (len(by_encoder) - 1) / 2)
        means = [100 * one.mean for one in known.values()]
        axes.errorbar(
            [100 * (at + 0.5) / _BINS + shift for at in known],
            means,
            yerr=[
                [100 * (one.mean - one.low) for one in known.values()],
                [100 * (one.high - one.mean) for one in known.values()],
            ],
            capsize=2.5,
            elinewidth=1,
            **encoder_style(encoder, encoders),
        )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 104)
    axes.set_xticks(range(0, 101, 100 // _BINS))
    axes.set_xlabel("sparsity, %")
    axes.set_ylabel("accuracy, %")
