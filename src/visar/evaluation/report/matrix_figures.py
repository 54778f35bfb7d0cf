"""Figure 5 (a, b): the similarity matrix and J(k) of selected questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from visar.evaluation.details import Detail
from visar.evaluation.frames import Results
from visar.evaluation.report import drawing
from visar.evaluation.report.markup import Picture, make_key


def is_stale(detail: Detail, results: Results) -> bool:
    """Return whether the question of a detail is gone, or its inputs have changed since."""
    asked = results.of(detail.dataset)
    found: list[Any] = list(asked[asked.question == detail.question].itertuples())
    current = [results.definitions.detail(one, detail.encoder) for one in found]
    return detail.inputs not in (None, *current)


def matrix_figures(details: Iterable[Detail]) -> list[Picture]:
    """Draw Figure 5 (a, b): the similarity matrix and cost of each selected question."""
    return [
        Picture(
            make_key("figure-5", str(number), detail.name),
            f"Figure 5 (a, b). Similarity matrix and cost: {detail.name}",
            f"{len(detail.similarity)} pages; {(detail.similarity == 0).mean():.0%} of the entries "
            f"are zero (black). k* = {detail.k_star}, k_oracle = {detail.k_oracle or '—'}.",
            _draw_detail(detail),
        )
        for number, detail in enumerate(details, start=1)
    ]


def _draw_detail(detail: Detail) -> str:
    with drawing.figure_style():
        import matplotlib as mpl
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(8.4, 3.5))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
        # Leave out the darkest fifth of viridis, which is hard to distinguish from black for zero.
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
        for name, method, k, line in (
            ("k*, ViSAR", "visar", detail.k_star, "-"),
            ("k, Oracle", "oracle", detail.k_oracle, "--"),
        ):
            if k:
                color = drawing.LOOKS[method][0]
                right.axvline(k, color=color, linestyle=line, label=f"{name}: {k}")
        right.set(xlabel="k", title="J(k)")
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.legend(loc="best")
        return drawing.to_svg(figure)
