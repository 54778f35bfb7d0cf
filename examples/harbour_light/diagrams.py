"""Drawings that are not charts: the steps of a contract, the map, the risks, the portraits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reportlab.graphics.shapes import Circle, Drawing, Line, Polygon, Rect, String
from reportlab.lib.colors import HexColor

from harbour_light import theme
from harbour_light.charts import block, label


def process(width: float, steps: Sequence[tuple[str, str, str]]) -> Any:
    """Draw arrows from left to right, each with a name, how long it takes and what it gives."""
    height, tip, gap = 96.0, 13.0, 3.0
    drawing = Drawing(width, height)
    step = (width - tip) / len(steps)
    shades = (theme.NIGHT, HexColor("#14496A"), theme.SEA, HexColor("#3D95A5"), theme.AMBER)
    for i, (name, takes, gives) in enumerate(steps):
        x, right = step * i, step * (i + 1) - gap
        low, high = 46.0, height
        middle = (low + high) / 2
        notch = tip if i else 0
        corners = [x, low, right, low, right + tip, middle, right, high, x, high, x + notch, middle]
        drawing.add(Polygon(corners, fillColor=shades[i % len(shades)], strokeColor=None))
        centre = (x + notch + right + tip) / 2 - 2
        ink = theme.INK if i == len(shades) - 1 else theme.WHITE
        drawing.add(label(centre, middle + 4, name, bold=True, colour=ink))
        drawing.add(label(centre, middle - 8, takes, colour=ink))
        for j, line in enumerate(gives.split("\n")):
            drawing.add(label(centre - 3, 32 - 10 * j, line, colour=theme.STONE))
    return drawing


Depot = tuple[str, float, float, str]
"""A name, its place on the map (shares of width and height), and what is written under it."""


def sea_map(width: float, height: float, depots: Sequence[Depot]) -> Any:
    """Draw a stylised sea between two coasts with depots on them."""
    drawing = Drawing(width, height)
    drawing.add(Rect(0, 0, width, height, fillColor=HexColor("#DCEBF0"), strokeColor=None))
    for i in range(1, 6):
        y = height * i / 6
        drawing.add(Line(0, y, width, y, strokeColor=theme.WHITE, strokeWidth=0.6))
        x = width * i / 6
        drawing.add(Line(x, 0, x, height, strokeColor=theme.WHITE, strokeWidth=0.6))
    for coast in (_WEST, _EAST, _SOUTH, _ISLES):
        corners = [c * (width, height)[i % 2] for i, c in enumerate(coast)]
        land = HexColor("#C9CFC4")
        drawing.add(Polygon(corners, fillColor=land, strokeColor=HexColor("#A9B2A2")))
    for name, x, y, fact in depots:
        px, py = x * width, y * height
        side = "start" if x < 0.65 else "end"
        shift = 9 if side == "start" else -9
        drawing.add(Circle(px, py, 7.5, fillColor=theme.AMBER, fillOpacity=0.35, strokeColor=None))
        drawing.add(Circle(px, py, 3.4, fillColor=theme.NIGHT, strokeColor=theme.WHITE))
        drawing.add(label(px + shift, py + 2, name, side, bold=True, colour=theme.NIGHT))
        drawing.add(label(px + shift, py - 7.5, fact, side))
    return drawing


_WEST: tuple[float, ...] = (
    *(0, 0.12, 0.1, 0.16, 0.2, 0.14, 0.26, 0.24, 0.22, 0.34, 0.27, 0.44, 0.2, 0.55, 0.24, 0.66),
    *(0.17, 0.78, 0.19, 0.88, 0.1, 0.96, 0, 0.98),
)
_EAST: tuple[float, ...] = (
    *(1, 1, 0.9, 0.98, 0.78, 0.9, 0.72, 0.78, 0.76, 0.68, 0.74, 0.58, 0.8, 0.5, 0.9, 0.54, 1, 0.5),
)
_SOUTH: tuple[float, ...] = (
    *(0.42, 0, 0.5, 0.08, 0.58, 0.12, 0.68, 0.2, 0.78, 0.22, 0.86, 0.3, 0.94, 0.28, 1, 0.32, 1, 0),
)
_ISLES: tuple[float, ...] = (0.4, 0.86, 0.43, 0.84, 0.45, 0.88, 0.43, 0.93, 0.41, 0.92)


def risk_grid(width: float, height: float, risks: Sequence[tuple[int, float, float]]) -> Any:
    """Draw numbered risks by likelihood (across) and impact (up), both as shares of the grid."""
    drawing = Drawing(width, height)
    left, low, cells = 40.0, 20.0, 4
    across, up = (width - left) / cells, (height - low) / cells
    shades = ("#E3EFE9", "#EEF3DD", "#F9ECC8", "#F8D9B8", "#F2BDB3", "#E79C97", "#DD8480")
    for i in range(cells):
        for j in range(cells):
            shade = HexColor(shades[i + j])
            drawing.add(block(left + i * across, low + j * up, across - 2, up - 2, shade))
    for number, likelihood, impact in risks:
        x, y = left + likelihood * (width - left), low + impact * (height - low)
        drawing.add(Circle(x, y, 9, fillColor=theme.NIGHT, strokeColor=theme.WHITE))
        drawing.add(label(x, y - 2.8, str(number), bold=True, colour=theme.WHITE))
    drawing.add(label(left + (width - left) / 2, 5, "Likelihood: rare to almost certain"))
    for i, word in enumerate(("low", "medium", "high", "severe")):
        drawing.add(label(left - 4, low + (i + 0.5) * up - 3, word, "end", colour=theme.STONE))
    return drawing


def portrait(initials: str, size: float = 44) -> Any:
    """Draw a medallion in place of a photograph."""
    drawing = Drawing(size, size)
    half = size / 2
    drawing.add(Circle(half, half, half - 1, fillColor=theme.SEA, strokeColor=theme.AMBER))
    name = String(half, half - 5, initials, textAnchor="middle", fontName=theme.SERIF)
    name.fontSize, name.fillColor = 16, theme.WHITE
    drawing.add(name)
    return drawing
