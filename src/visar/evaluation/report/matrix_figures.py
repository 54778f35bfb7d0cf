"""Figure 5 (a, b): the similarity matrix and J(k) of selected questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.errors import NotARun
from visar.evaluation.frames import Results
from visar.evaluation.report import drawing
from visar.evaluation.report.markup import Picture, make_key


@dataclass(frozen=True, slots=True, eq=False)
class Detail:
    """The similarity matrix and the costs of one question."""

    id: str
    """The data set, the encoder and the question's id."""
    similarity: NDArray[np.float64]
    cost: NDArray[np.float64]
    k_star: int
    k_oracle: int | None
    question: tuple[str, str, str] = ("", "", "")
    """Data set, encoder and id of the question."""
    inputs: str | None = None
    """Digest of what it was computed from; None where the file has none."""


def read_details(folder: Path) -> list[Detail]:
    """Read the details of selected questions, ``details/*.npz`` in a run's folder.

    Raises NotARun if a file is damaged or invalid.
    """
    return [_read_detail(path) for path in sorted((folder / "details").glob("*.npz"))]


def stale_details(details: Sequence[Detail], results: Results) -> list[Detail]:
    """Return the details of questions that are gone, or whose inputs have changed since."""
    asked = {(one.dataset, one.question): one for one in results.questions.itertuples()}
    stale = []
    for detail in details:
        dataset, encoder, question = detail.question
        one: Any = asked.get((dataset, question))
        current = None if one is None else results.definitions.detail(one, encoder)
        if detail.inputs not in (None, current):
            stale.append(detail)
    return stale


def _read_detail(path: Path) -> Detail:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            k_oracle = int(arrays["k_oracle"]) if "k_oracle" in arrays else 0
            dataset, encoder, question = (
                str(arrays[name]) if name in arrays else "" for name in ("dataset", "encoder", "id")
            )
            detail = Detail(
                id=", ".join(filter(None, (dataset, encoder, question))),
                similarity=np.asarray(arrays["similarity"], np.float64),
                cost=np.asarray(arrays["cost"], np.float64),
                k_star=int(arrays["k_star"]),
                k_oracle=k_oracle if k_oracle > 0 else None,
                question=(dataset, encoder, question),
                inputs=str(arrays["inputs"]) if "inputs" in arrays else None,
            )
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise NotARun(f"Can't read the details in {path}: {error}. Delete the file.") from None
    if detail.similarity.ndim != 2 or detail.cost.ndim != 1:
        raise NotARun(f"{path} must contain a matrix and its costs. Delete the file.")
    return detail


def matrix_figures(details: Sequence[Detail]) -> list[Picture]:
    """Draw Figure 5 (a, b): the similarity matrix and cost of each selected question."""
    return [
        Picture(
            make_key("figure-5", str(number), detail.id),
            f"Figure 5 (a, b). Similarity matrix and cost: {detail.id}",
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
