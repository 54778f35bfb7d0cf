"""What all figures share: the picture itself, grids of panels, bins, legends."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from visar.evaluation.palette import COLOURS, MARKERS, figure_style, to_svg
from visar.evaluation.tables.scope import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.9, 2.7)
_TITLE_LENGTH = 35
GREY = "#D9D9D9"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the report."""

    key: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel of a grid shows, and how to draw it."""

    title: str
    draw: Callable[[Axes], None]


def draw_grid(
    key: str,
    title: str,
    caption: str,
    panels: Sequence[Panel],
    *,
    columns: int,
    size: tuple[float, float] = PANEL,
) -> Picture:
    """Panels row by row under one legend, which names each series once."""
    rows = -(-len(panels) // columns)
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(max(size[0] * columns, 5.0), size[1] * rows + 0.5))
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            axes.set_title(_wrapped(panel.title))
            panel.draw(axes)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        _add_legend(figure)
        with warnings.catch_warnings():
            # Text stays text: a letter that this machine's font lacks, the reader's may have.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            return Picture(key, title, caption, to_svg(figure))


def _add_legend(figure: Figure) -> None:
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    if named:
        # In characters: what a row of the legend has room for, and what each of its columns takes.
        room = int(figure.get_size_inches()[0] * 13)
        figure.legend(
            list(named.values()),
            list(named),
            loc="outside lower center",
            ncols=max(1, min(len(named), room // (6 + max(map(len, named))))),
        )


def _wrapped(title: str) -> str:
    return "\n".join(textwrap.wrap(plain(title, longest=80), _TITLE_LENGTH))


def with_count(title: str, counts: Iterable[int]) -> str:
    """A panel's title with how many questions are behind its points.

    >>> with_count("MMLongBench", [168, 172, 168])
    'MMLongBench, n=168–172'
    """
    known = sorted(counts)
    return f"{title}, n={range_label(known[0], known[-1])}" if known else title


def plain(text: str, longest: int = 44) -> str:
    """Text that matplotlib does not take for a formula, cut where it would overlap."""
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    return shown.replace("$", r"\$")


def method_style(method: str) -> dict[str, Any]:
    """The look of a method's line, the same in every figure."""
    return {
        "color": COLOURS[method],
        "marker": MARKERS[method],
        "label": "Evidence" if method == "evidence" else label(method),
    }


# Lines of ViSAR with several encoders: shades of ViSAR's hue, told apart by line and point too.
_ENCODER_STYLES = (
    ("#0072B2", "-", "o"),
    ("#0B3F78", "--", "s"),
    ("#7FB7DA", "-.", "^"),
    ("#444444", ":", "D"),
    ("#2E7EBC", (0, (6, 1)), "v"),
)


def encoder_style(encoder: str, encoders: Sequence[str]) -> dict[str, Any]:
    """The look of an encoder's line where all lines are ViSAR's."""
    colour, line, marker = _ENCODER_STYLES[encoders.index(encoder) % len(_ENCODER_STYLES)]
    return {"color": colour, "linestyle": line, "marker": marker, "label": plain(encoder)}


def bin_label(number: int, cap: int) -> str:
    """Of a bin that holds one number, or the last, which holds all larger ones too."""
    return f"{number}+" if number == cap else str(number)


def label_bins(axes: Axes, cap: int) -> None:
    """Ticks 1 … cap, the last with a plus; every second one where they would touch."""
    step = 1 if cap <= 12 else 2
    ticks = [number for number in range(1, cap + 1) if (cap - number) % step == 0]
    axes.set_xticks(ticks, [bin_label(number, cap) for number in ticks])


def size_bins(sizes: Iterable[int], most: int = 6) -> list[tuple[int, int]]:
    """Ranges of document sizes, first and last included, with about as many sizes in each.

    A document more than twice as large as all others has its own.

    >>> size_bins([3, 5, 5, 8, 40, 468], most=3)
    [(3, 5), (8, 40), (468, 468)]
    """
    known = sorted(set(sizes))
    has_giant = len(known) > 1 and known[-1] > 2 * known[-2]
    usual = known[:-1] if has_giant else known
    count = min(most - has_giant, len(usual))
    edges = [round(place * len(usual) / count) for place in range(count + 1)] if count else []
    bins = [(usual[first], usual[end - 1]) for first, end in pairwise(edges)]
    return [*bins, (known[-1], known[-1])] if has_giant else bins


def range_label(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
