"""The paper's figures of latency, from what was measured here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from visar.evaluation.methods import METHODS
from visar.evaluation.palette import COLOURS, MARKERS, STAGE_COLOURS, figure_style, to_svg
from visar.evaluation.timing import APPROXIMATE, COMPARED, EXACT, SHORTCUTS, Bench, Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {key: METHODS[key].label for key in COMPARED} | {
    name: f"{option.replace('_', '-')} = {value} only"
    for name, options in SHORTCUTS.items()
    for option, value in options.items()
}
# Of a bar, where one document size takes the space of 1.
BAR_WIDTH = 0.38


def figures(bench: Bench) -> dict[str, str]:
    """The paper's figures of latency, as SVG by file name."""
    with figure_style():
        return {
            "latency-size.svg": _latency_against_size(bench),
            "latency-components.svg": _latency_by_component(bench),
            "latency-strategies.svg": _latency_by_strategy(bench),
        }


def in_milliseconds(value: float) -> str:
    """With as many digits as a reader can use."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def counted(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _axes(title: str, **options: Any) -> Axes:
    from matplotlib.figure import Figure

    axes: Axes = Figure(**options).add_subplot()
    axes.set_title(title)
    return axes


def _drawn(axes: Axes) -> str:
    from matplotlib.figure import Figure

    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)  # noqa: S101 - it was made by _axes
    return to_svg(figure)


def _latency_against_size(bench: Bench) -> str:
    """A line per method over the parts of the longest document; a point per document."""
    from matplotlib.ticker import LogLocator

    axes = _axes(f"Latency against document size ({bench.encoder})")
    for key in COMPARED:
        look: dict[str, Any] = {"color": COLOURS[key], "marker": MARKERS[key]}
        measured = [(part.pages, part.timings[key]) for part in bench.sizes if key in part.timings]
        if measured:
            pages = [n for n, _ in measured]
            ms = [timing.milliseconds for _, timing in measured]
            axes.plot(pages, [each.median for each in ms], label=LABELS[key], **look)
            axes.fill_between(
                pages,
                [each.lower_quartile for each in ms],
                [each.upper_quartile for each in ms],
                color=COLOURS[key],
                alpha=0.2,
                linewidth=0,
            )
        others = [
            (part.pages, part.timings[key].milliseconds.median)
            for part in bench.documents
            if key in part.timings
        ]
        axes.plot(*zip(*others, strict=True), linestyle="", alpha=0.35, **look)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(left=0)
    axes.set_xlabel("pages")
    axes.annotate(
        "lines: the first pages of the longest document · points: whole documents",
        (0, 0),
        (0, -34),
        xycoords="axes fraction",
        textcoords="offset points",
        va="top",
        fontsize=8,
        color="#555555",
    )
    axes.set_ylabel("milliseconds")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _drawn(axes)


def _latency_by_component(bench: Bench) -> str:
    """For each part of the longest document: ViSAR exact and approximate, stage upon stage."""
    axes = _axes(f"Latency by component, exact and approximate ({bench.encoder})")
    bars = [
        (place + side * (BAR_WIDTH / 2 + 0.02), part.timings[key])
        for place, part in enumerate(bench.sizes)
        for side, key in ((-1, EXACT), (1, APPROXIMATE))
    ]
    _stack(axes, bars)
    axes.set_xticks(
        [place for place, _ in bars],
        ["exact", "appr."] * len(bench.sizes),
        fontsize="small",
    )
    for place, part in enumerate(bench.sizes):
        axes.annotate(
            counted(part.pages, "page"),
            (place, 0),
            (0, -22),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            va="top",
        )
    return _drawn(axes)


def _latency_by_strategy(bench: Bench) -> str:
    """On the whole longest document: no shortcut, each of them alone, and all of them."""
    whole = bench.sizes[-1]
    axes = _axes(f"Latency by acceleration strategy, {counted(whole.pages, 'page')}")
    names = {EXACT: "none\n(exact)"}
    names |= {
        name: f"{option.replace('_', '-')}\n= {value}"
        for name, options in SHORTCUTS.items()
        for option, value in options.items()
    }
    names[APPROXIMATE] = "all three\n(approx.)"
    _stack(axes, [(place, whole.timings[name]) for place, name in enumerate(names)])
    axes.set_xticks(range(len(names)), list(names.values()))
    return _drawn(axes)


def _stack(axes: Axes, bars: Sequence[tuple[float, Timing]]) -> None:
    """Bars of stages, the first lowest, with the whole above."""
    heights = [0.0] * len(bars)
    places = [place for place, _ in bars]
    for stage, colour in STAGE_COLOURS.items():
        values = [timing.stages.get(stage, 0.0) for _, timing in bars]
        axes.bar(places, values, BAR_WIDTH, heights, color=colour, label=stage)
        heights = [low + value for low, value in zip(heights, values, strict=True)]
    for place, height in zip(places, heights, strict=True):
        axes.annotate(
            in_milliseconds(height),
            (place, height),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("milliseconds")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
