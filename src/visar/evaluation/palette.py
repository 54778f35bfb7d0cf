"""How every figure looks: one colour per method, one style, and files that do not change by chance.

The colours are those of Okabe and Ito, which people with any kind of colour blindness can tell
apart; methods that belong together are shades of one hue.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from visar.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: dict[str, str] = {
    "visar": "#0072B2",
    "visar-approx": "#56B4E9",
    "top-k": "#E69F00",
    "single-vector": "#999999",
    "largest-gap": "#D55E00",
    "score-cluster": "#CC79A7",
    "oracle": "#009E73",
    "evidence": "#000000",
}
"""By the key of the method; ``evidence`` stands for what the data set says."""

MARKERS: dict[str, str] = {
    "visar": "o",
    "visar-approx": "s",
    "top-k": "^",
    "single-vector": "v",
    "largest-gap": "D",
    "score-cluster": "P",
    "oracle": "*",
    "evidence": "x",
}
"""Points that also differ in print without colours."""

STAGE_COLOURS: dict[str, str] = {
    "query to page": "#C6DBEF",
    "page to query": "#7FB7DA",
    "self-similarity": "#2E7EBC",
    "page to page": "#0B3F78",
}
"""By the stage of ``Selection.timings``: ViSAR's blue, darker from stage to stage."""

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
    # Text stays text: it can be searched, read aloud and copied. Where the font is missing, the
    # browser's sans-serif takes its place, which is hardly ever wider.
    "svg.fonttype": "none",
    # Ids within the file come from this and not from chance: the same figure is the same file.
    "svg.hashsalt": "visar",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Figures made and written while the block runs have the common look.

    Make them as ``matplotlib.figure.Figure()``, which needs no display and leaves nothing open,
    and write them with :func:`to_svg`.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("A figure", "eval") from None
    # From matplotlib's own defaults: a reader's matplotlibrc must not change the figures.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def to_svg(figure: Figure) -> str:
    """A figure as SVG, without the date and the program's version: the same whenever it is made."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
