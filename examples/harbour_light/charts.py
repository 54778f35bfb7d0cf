"""Charts as vector drawings: every label is text in the file, none of it a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reportlab.graphics.shapes import Circle, Drawing, Line, PolyLine, Rect, String, Wedge

from harbour_light import theme

LABEL = 7.6


def label(
    x: float, y: float, text: str, anchor: str = "middle", *, bold: bool = False, colour: Any = None
) -> Any:
    font = theme.SANS_BOLD if bold else theme.SANS
    fill = theme.INK if colour is None else colour
    return String(x, y, text, textAnchor=anchor, fontName=font, fontSize=LABEL, fillColor=fill)


def block(x: float, y: float, width: float, height: float, colour: Any) -> Any:
    return Rect(x, y, width, height, fillColor=colour, strokeColor=None)


def bars(
    width: float, height: float, names: Sequence[str], values: Sequence[float], form: str = "{:.1f}"
) -> Any:
    """Draw upright bars, the last one (this year) lit."""
    drawing = Drawing(width, height)
    step, scale = width / len(values), (height - 30) / max(values)
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        centre, tall = step * (i + 0.5), value * scale
        colour = theme.AMBER if i == len(values) - 1 else theme.SEA
        drawing.add(block(centre - step * 0.31, 14, step * 0.62, tall, colour))
        drawing.add(label(centre, 17 + tall, form.format(value), bold=True))
        drawing.add(label(centre, 3, name))
    drawing.add(Line(0, 14, width, 14, strokeColor=theme.STONE, strokeWidth=0.6))
    return drawing


def stacked_bars(
    width: float, height: float, names: Sequence[str], series: Mapping[str, Sequence[float]]
) -> Any:
    """Draw bars of parts, each part labelled, with the sum on top and a legend above."""
    drawing = Drawing(width, height)
    sums = [round(sum(column), 1) for column in zip(*series.values(), strict=True)]
    step, scale = width / len(names), (height - 50) / max(sums)
    for i, name in enumerate(names):
        centre, base = step * (i + 0.5), 14.0
        for colour, values in zip(theme.SERIES, series.values(), strict=False):
            tall = values[i] * scale
            drawing.add(block(centre - step * 0.33, base, step * 0.66, tall, colour))
            if tall >= LABEL + 1:
                ink = theme.WHITE if colour in (theme.NIGHT, theme.SEA) else theme.INK
                middle = base + tall / 2 - 2.7
                drawing.add(label(centre, middle, f"{values[i]:.1f}", colour=ink))
            base += tall
        drawing.add(label(centre, base + 3, f"{sums[i]:.1f}", bold=True))
        drawing.add(label(centre, 3, name))
    _legend(drawing, list(series), height - 9)
    return drawing


def _legend(drawing: Any, names: Sequence[str], y: float) -> None:
    x = 0.0
    for colour, name in zip(theme.SERIES, names, strict=False):
        drawing.add(block(x, y, 7, 7, colour))
        drawing.add(label(x + 11, y + 1, name, "start"))
        x += 26 + len(name) * 4.0


def lines(
    width: float,
    height: float,
    names: Sequence[str],
    series: Mapping[str, Sequence[float]],
    form: str = "{:.0f}",
    floor: float = 0.0,
) -> Any:
    """Draw lines with every point labelled; the scale begins at ``floor``."""
    drawing = Drawing(width, height)
    step = width / len(names)
    top = max(max(values) for values in series.values())
    scale = (height - 52) / (top - floor)
    for grid in range(5):
        y = 16 + (height - 52) * grid / 4
        drawing.add(Line(0, y, width, y, strokeColor=theme.MIST, strokeWidth=0.7))
    for colour, values in zip(theme.SERIES[1:], series.values(), strict=False):
        points = [(step * (i + 0.5), 16 + (v - floor) * scale) for i, v in enumerate(values)]
        flat = [coordinate for point in points for coordinate in point]
        drawing.add(PolyLine(flat, strokeColor=colour, strokeWidth=2))
        for (x, y), value in zip(points, values, strict=True):
            drawing.add(Circle(x, y, 3, fillColor=colour, strokeColor=theme.WHITE))
            drawing.add(label(x, y + 6, form.format(value), bold=True))
    for i, name in enumerate(names):
        drawing.add(label(step * (i + 0.5), 3, name))
    for i, name in enumerate(series):
        drawing.add(block(i * 170, height - 9, 7, 7, theme.SERIES[1 + i]))
        drawing.add(label(i * 170 + 11, height - 8, name, "start"))
    return drawing


def donut(width: float, height: float, shares: Mapping[str, float], middle: str) -> Any:
    """Draw a ring of shares that sum to 100, with a legend on its right."""
    drawing = Drawing(width, height)
    radius = min(height, width * 0.5) / 2 - 2
    x, y, start = radius + 2, height / 2, 90.0
    for colour, share in zip(theme.SERIES, shares.values(), strict=False):
        end = start - share * 3.6
        wedge = Wedge(x, y, radius, end, start, fillColor=colour, strokeColor=theme.WHITE)
        drawing.add(wedge)
        start = end
    hole = Circle(x, y, radius * 0.56, fillColor=theme.WHITE, strokeColor=None)
    drawing.add(hole)
    for i, word in enumerate(middle.split("\n")):
        drawing.add(label(x, y + 1 - i * 9, word, bold=True))
    line = y + (len(shares) - 1) * 8 - 3
    for colour, (name, share) in zip(theme.SERIES, shares.items(), strict=False):
        drawing.add(block(2 * radius + 18, line - 1, 8, 8, colour))
        drawing.add(label(2 * radius + 31, line, f"{name} {share:.0f}%", "start"))
        line -= 16
    return drawing


def waterfall(width: float, height: float, steps: Sequence[tuple[str, float]], end: str) -> Any:
    """Draw how an amount became another: the first step is the start, the others are changes."""
    drawing = Drawing(width, height)
    changes = [value for _, value in steps]
    levels = [round(sum(changes[: i + 1]), 1) for i in range(len(changes))]
    columns = [(steps[0][0], 0.0, levels[0], f"{levels[0]:.1f}", theme.NIGHT)]
    for (name, value), before, after in zip(steps[1:], levels[:-1], levels[1:], strict=True):
        colour = theme.SEA if value >= 0 else theme.CORAL
        low, high = min(before, after), max(before, after)
        columns.append((name, low, high, f"{value:+.1f}", colour))
    columns.append((end, 0.0, levels[-1], f"{levels[-1]:.1f}", theme.AMBER))
    # The axis is cut, so that changes of a few million show beside a level of fifty.
    cut = levels[0] * 0.7
    scale, step = (height - 32) / (max(levels) - cut), width / len(columns)
    for i, (name, low, high, text, colour) in enumerate(columns):
        bottom, tall = 14 + (max(low, cut) - cut) * scale, (high - max(low, cut)) * scale
        drawing.add(block(step * i + 5, bottom, step - 10, tall, colour))
        drawing.add(label(step * (i + 0.5), bottom + tall + 3, text, bold=True))
        drawing.add(label(step * (i + 0.5), 3, name))
    return drawing


def lying_bars(
    width: float, names: Sequence[str], values: Sequence[float], form: str = "{:,.0f}"
) -> Any:
    """Draw bars from left to right, for long names."""
    row, left = 19.0, width * 0.34
    drawing = Drawing(width, row * len(names))
    scale = (width - left - 40) / max(values)
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        y = row * (len(names) - 1 - i)
        drawing.add(label(left - 6, y + 6, name, "end"))
        drawing.add(block(left, y + 3, value * scale, row - 7, theme.SEA))
        drawing.add(label(left + value * scale + 5, y + 6, form.format(value), "start", bold=True))
    return drawing
