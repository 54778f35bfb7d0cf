"""Figure 5 (a, b): the similarity matrix and J(k) of chosen questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visar.errors import NotARun
from visar.evaluation.report import drawing
from visar.evaluation.report.markup import Picture, make_key


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
        from matplotlib.ticker import MaxNLocator

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
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.legend(loc="best")
        return drawing.to_svg(figure)
