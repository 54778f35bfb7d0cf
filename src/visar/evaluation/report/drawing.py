"""Colors, styles, panel grids, bins and legends shared by all figures.

The colors are those of Okabe and Ito, which are distinguishable with any kind of color blindness.
Related methods have shades of the same hue.
"""

from __future__ import annotations

import io
import math
import textwrap
import threading
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd

from visar.errors import extra_needed
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.methods import LATE, label
from visar.evaluation.state import CORRECTED
from visar.evaluation.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, tuple[str, str]] = {
    "visar": ("#0072B2", "o"),
    "visar-approx": ("#56B4E9", "s"),
    LATE: ("#E69F00", "^"),
    "single-vector": ("#999999", "v"),
    "largest-gap": ("#D55E00", "D"),
    "score-cluster": ("#CC79A7", "P"),
    "oracle": ("#009E73", "*"),
    "evidence": ("#000000", "x"),
}
"""Color and marker by method; ``evidence`` is for the data set's evidence pages."""
# Dark colors for all other methods, in turn. The numbers of colors, markers and line styles have no
# common factor, so that many combinations are distinct.
OTHER_COLORS = (
    "#332288",
    "#999933",
    "#882255",
    "#117733",
    "#AA4499",
    "#661100",
    "#44AA99",
    "#6699CC",
)
OTHER_MARKERS = ("X", "p", "h", "<", ">", "d", "H")
OTHER_LINES: tuple[Any, ...] = ((0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

STAGE_COLORS: dict[str, str] = {
    "query to page": "#C6DBEF",
    "page to query": "#7FB7DA",
    "self-similarity": "#2E7EBC",
    "page to page": "#0B3F78",
    "ranking": "#E08A1E",
}
"""Colors by stage of ``Selection.timings``: light for weights, dark for the matrix."""
_OTHER_STAGE_COLORS = ("#444444", "#767676", "#A6A6A6", "#D9D9D9")

# Looks of ViSAR's lines by encoder, which also differ in line style and marker.
_ENCODER_LOOKS: tuple[tuple[str, Any, str], ...] = (
    ("#0072B2", "-", "o"),
    ("#0B3F78", "--", "s"),
    ("#7FB7DA", "-.", "^"),
    ("#444444", ":", "D"),
    ("#2E7EBC", (0, (6, 1)), "v"),
    ("#E69F00", "-", "P"),
    ("#009E73", "--", "X"),
    ("#CC79A7", "-.", "*"),
)

PANEL_SIZE = (3.9, 2.7)
"""The size of a panel in inches."""
_TITLE_LENGTH = 35
_STYLE: dict[Any, Any] = {
    "figure.figsize": (6.0, 3.6),
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    # Keep text as text, so that it can be searched, read aloud and copied. If the font is missing,
    # browsers use their sans-serif font, which is rarely wider.
    "svg.fonttype": "none",
    # Makes the ids in the file deterministic.
    "svg.hashsalt": "visar",
}
# matplotlib's settings are process-wide, so draw one figure at a time.
_DRAWING = threading.RLock()


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the common style to figures that are drawn and saved within this block.

    Create figures with ``matplotlib.figure.Figure()``, which needs no display or cleanup, and save
    them with `to_svg`. Raises MissingExtra if matplotlib isn't installed.
    """
    with extra_needed("A figure", "eval"):
        import matplotlib as mpl
    # Start from matplotlib's defaults, so that a matplotlibrc doesn't change the figures.
    with _DRAWING, mpl.rc_context():
        # The reader's font may have glyphs that are missing here. The filter is never removed,
        # because catch_warnings could undo filters that other threads set in the meantime.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def to_svg(figure: Figure) -> str:
    """Return a figure as deterministic SVG, without date and version."""
    layout = figure.get_layout_engine()
    if layout is not None:
        # Compute the layout once; otherwise savefig would draw everything twice.
        layout.execute(figure)
        figure.set_layout_engine("none")
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def draw_grid(
    key: str,
    title: str,
    caption: str,
    draw: Callable[..., None],
    panels: Sequence[tuple[Any, ...]],
    *,
    columns: int = 2,
    size: tuple[float, float] = PANEL_SIZE,
    same_heights: bool = False,
) -> list[Picture]:
    """Draw a grid of panels with a common legend.

    ``panels`` are titles, each with the arguments of ``draw`` after the axes. Each row has at most
    ``columns`` panels of ``size`` inches. With ``same_heights``, all panels have the same value
    range. Returns a list of one figure, or of none if there are no panels.
    """
    if not panels:
        return []
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with figure_style():
        from matplotlib.figure import Figure

        width, height = size
        figure = Figure(figsize=(max(width * columns, 5.0), height * rows + 0.5))
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        letters = int(_TITLE_LENGTH * width / PANEL_SIZE[0])
        for axes, (name, *data) in zip(grid, panels, strict=False):
            axes.set_title("\n".join(textwrap.wrap(plain(name, longest=2 * letters), letters)))
            draw(axes, *data)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if same_heights:
            limits = [axes.get_ylim() for axes in grid[: len(panels)]]
            for axes in grid[: len(panels)]:
                axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        _add_legend(figure)
        return [Picture(key, title, caption, to_svg(figure))]


def _add_legend(figure: Figure) -> None:
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles:
        # Estimate the number of columns from the width of the figure and names in characters.
        width = int(figure.get_size_inches()[0] * 13)
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=max(1, min(len(handles), width // (6 + max(map(len, handles))))),
        )


def plain(text: str, longest: int = 44) -> str:
    r"""Escape text for matplotlib, removing the middle if it is too long.

    >>> plain("package.methods:costs_$5", longest=16)
    'package…osts_\\$5'
    """
    if len(text) > longest:
        # Keep the end, because names from one package share their beginning.
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text.replace("$", r"\$")


def method_looks(others: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the arguments of ``Axes.plot`` for each method, the same in every figure.

    ``others`` are methods without an entry in `LOOKS`, which get other colors in turn.
    """
    looks: dict[str, dict[str, Any]] = {
        method: {"color": color, "marker": marker} for method, (color, marker) in LOOKS.items()
    }
    unknown = [method for method in others if method not in looks]
    turns = zip(cycle(OTHER_COLORS), cycle(OTHER_MARKERS), cycle(OTHER_LINES), strict=False)
    for method, (color, marker, line) in zip(unknown, turns, strict=False):
        looks[method] = {"color": color, "marker": marker, "linestyle": line}
    names = {method: plain(label(method)) for method in looks} | {"evidence": "Evidence"}
    return {method: look | {"label": names[method]} for method, look in looks.items()}


def set_decades(axes: Axes, places: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, with ticks at powers of ten in the range."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    powers = range(round(math.log10(min(places))), round(math.log10(max(places))) + 1)
    exponents = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    axes.set_xticks(
        [10.0**power for power in powers], [f"10{str(p).translate(exponents)}" for p in powers]
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(places) / 1.6, max(places) * 1.6)


def plot_spread(
    axes: Axes, places: Any, values: Any, look: Mapping[str, Any], *, deviations: bool
) -> None:
    """Draw a line through the means at each place, with shaded quartiles.

    With ``deviations``, shade the mean ± standard deviation instead, and draw the quartiles as
    bars. The shading is cut off at the smallest value, because times aren't negative. ``places``
    and ``values`` are pandas Series of the same length.
    """
    groups = values.groupby(places)
    means = groups.mean()
    axes.plot(means.index, means, **look)
    low, high = groups.quantile(0.25), groups.quantile(0.75)
    if deviations:
        axes.vlines(means.index, low, high, color=look["color"], linewidth=1)
        deviation = groups.std(ddof=0)
        low, high = (means - deviation).clip(lower=values.min()), means + deviation
    shade(axes, means.index, low, high, color=look["color"])


def shade(axes: Axes, places: Any, low: Any, high: Any, *, color: str, alpha: float = 0.15) -> None:
    """Shade the range between two lines."""
    axes.fill_between(places, low, high, color=color, alpha=alpha, linewidth=0)


def set_log_pages(axes: Axes, largest: int) -> None:
    """Make the horizontal axis logarithmic, with ticks at numbers of pages."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    ticks = [k for k in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500) if k <= largest * 1.2]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())


def set_log_heights(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def plot_intervals(axes: Axes, by_place: Mapping[float, Estimate], **look: Any) -> None:
    """Draw points with intervals; ``look`` are arguments of ``Axes.errorbar``."""
    values = [one.value for one in by_place.values()]
    below = [one.value - one.low for one in by_place.values()]
    above = [one.high - one.value for one in by_place.values()]
    axes.errorbar(list(by_place), values, yerr=[below, above], **look)


def encoder_look(encoder: str, encoders: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of ``Axes.plot`` for ViSAR's line with an encoder."""
    color, line, marker = _ENCODER_LOOKS[encoders.index(encoder) % len(_ENCODER_LOOKS)]
    return {"color": color, "linestyle": line, "marker": marker, "label": plain(encoder)}


def stack_stages(
    axes: Axes, stages: pd.DataFrame, width: float, deviations: pd.DataFrame | None = None
) -> pd.Series[float]:
    """Draw bars of stacked stages, with a column for each; return their heights by place.

    ``deviations`` are drawn at the top of each stage, side by side, and cut off at 0.
    """
    heights = pd.Series(0.0, stages.index)
    known = [stage for stage in STAGE_COLORS if stage in stages]
    others = sorted({*stages} - STAGE_COLORS.keys())
    colors = STAGE_COLORS | dict(zip(others, cycle(_OTHER_STAGE_COLORS), strict=False))
    for at, stage in enumerate((*known, *others)):
        axes.bar(
            heights.index, stages[stage], width, heights, color=colors[stage], label=plain(stage)
        )
        heights = heights + stages[stage]
        if deviations is not None:
            places = heights.index + width * ((at + 0.5) / len(stages.columns) - 0.5)
            above = deviations[stage]
            axes.errorbar(
                places,
                heights,
                [above.clip(upper=heights), above],
                fmt="none",
                ecolor="#CC0044",
                elinewidth=1,
            )
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("milliseconds")
    return heights


def with_count(title: str, counts: Iterable[int]) -> str:
    """Add the range of numbers of questions to a panel's title.

    >>> with_count("MMLongBench", [168, 172, 168])
    'MMLongBench, n=168–172'
    """
    known = sorted(counts)
    return f"{title}, n={range_label(known[0], known[-1])}" if known else title


def range_label(first: int, last: int | None) -> str:
    """Format a range: "3–5", "3" for a single number, or "7+" without an end."""
    if last is None:
        return f"{first}+"
    return str(first) if first == last else f"{first}–{last}"


_PAPER_SIZES: dict[str, Sequence[tuple[int, int | None]]] = {
    "MMLongBench": ((1, 50), (51, 100), (101, 150), (151, 200), (201, None)),
    "LongDocURL": ((50, 75), (76, 100), (101, 125), (126, 150)),
}


def document_bins(dataset: str, sizes: Iterable[int]) -> dict[str, float]:
    """Return ranges of document sizes: the largest size of each by its name.

    The paper's data sets have the paper's ranges, and others ranges of similar counts. Empty ranges
    are omitted, and the last range has no end.

    >>> document_bins("MMLongBench", [9, 120, 468])
    {'1–50': 50, '101–150': 150, '201+': inf}
    """
    ranges = _PAPER_SIZES.get(dataset.removesuffix(CORRECTED)) or size_bins(sizes)
    lasts = [*(last or math.inf for _, last in ranges[:-1]), math.inf]
    used = {bisect_left(lasts, size) for size in sizes}
    return {range_label(*ranges[at]): lasts[at] for at in sorted(used)}


def size_bins(sizes: Iterable[int], most: int = 6) -> list[tuple[int, int]]:
    """Return ranges of document sizes, including both ends, with similar counts.

    A document more than twice as large as all others gets its own range.

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
