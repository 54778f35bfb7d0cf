"""The sea at night, for the cover and as a band across the top of a page."""

from __future__ import annotations

from typing import Any, Literal

from reportlab.graphics.shapes import Circle, Drawing, Path, Polygon
from reportlab.lib.colors import HexColor

from harbour_light import theme
from harbour_light.charts import block
from harbour_light.parts import Part

Subject = Literal["lighthouse", "turbines", "buoys", "tug"]

_DUSK = ("#0A2038", "#0B2A45", "#0F3552", "#144260", "#1A526F", "#23657F", "#33798F")
_SWELL = ("#1F6B80", "#185A70", "#12485E", "#0D374D", "#0A2A3F")
_PALE = HexColor("#F3F1EA")
_LIT = HexColor("#FFE3A8")


def cover_scene(width: float, height: float) -> Part:
    """Draw a lighthouse at night over the whole page."""
    drawing = Drawing(width, height)
    _sky(drawing, width, height, 0.72)
    lamp_x, lamp_y = width * 0.72, height * 0.60
    _beam(drawing, lamp_x, lamp_y, height)
    _tower(drawing, lamp_x, lamp_y, height * 0.27 - 40, 1.0)
    for i, shade in enumerate(_SWELL):
        drawing.add(_wave(width, height * (0.29 - i * 0.058), 9 + 2 * i, HexColor(shade), i))
    return drawing


def band(subject: Subject, width: float = theme.TEXT_WIDTH, height: float = 112.0) -> Part:
    """Draw a strip of sea with one thing of the trade in it."""
    drawing = Drawing(width, height)
    _sky(drawing, width, height, 0.8)
    if subject == "lighthouse":
        _beam(drawing, width * 0.8, height * 0.78, height)
        _tower(drawing, width * 0.8, height * 0.78, height * 0.1, 0.5)
    if subject == "turbines":
        for i, share in enumerate((0.45, 0.58, 0.69, 0.79, 0.9)):
            _turbine(drawing, width * share, height * (0.72 - 0.05 * (i % 2)), 20 - 3 * (i % 2), i)
    if subject == "tug":
        _tug(drawing, width * 0.68, height * 0.27)
    for i, shade in enumerate(_SWELL[1:4]):
        drawing.add(_wave(width, height * (0.3 - i * 0.09), 3 + i, HexColor(shade), i))
    if subject == "buoys":
        for share, size in ((0.56, 0.7), (0.7, 0.85), (0.86, 1.1)):
            _buoy(drawing, width * share, height * 0.2, size)
    return drawing


def _sky(drawing: Any, width: float, height: float, share: float) -> None:
    for i, shade in enumerate(_DUSK):
        bottom = height * (1 - (i + 1) / len(_DUSK) * share)
        drawing.add(block(0, bottom, width, height * share / len(_DUSK) + 1, HexColor(shade)))


def _beam(drawing: Any, x: float, y: float, height: float) -> None:
    for spread, opacity in ((0.16, 0.10), (0.10, 0.14), (0.045, 0.24)):
        edge = [x, y, 0, y + height * (0.05 + spread), 0, y + height * (0.05 - spread)]
        drawing.add(Polygon(edge, fillColor=theme.AMBER, fillOpacity=opacity, strokeColor=None))
    for radius, opacity in ((0.055, 0.12), (0.033, 0.22), (0.018, 0.5)):
        glow = Circle(x, y, max(radius * height, 120 * radius), strokeColor=None)
        glow.fillColor, glow.fillOpacity = theme.AMBER, opacity
        drawing.add(glow)


def _tower(drawing: Any, x: float, lamp_y: float, base_y: float, size: float) -> None:
    foot, top, neck = 24 * size, 13 * size, lamp_y - 16 * size
    trunk = [x - foot, base_y, x + foot, base_y, x + top, neck, x - top, neck]
    drawing.add(Polygon(trunk, fillColor=_PALE, strokeColor=None))
    tall = neck - base_y

    def half(share: float) -> float:
        return foot - (foot - top) * share

    for share in (0.24, 0.52, 0.80):
        low, high = base_y + tall * share, base_y + tall * (share + 0.13)
        wide, narrow = half(share), half(share + 0.13)
        stripe = [x - wide, low, x + wide, low, x + narrow, high, x - narrow, high]
        drawing.add(Polygon(stripe, fillColor=theme.CORAL, strokeColor=None))
    drawing.add(block(x - 18 * size, neck - 2 * size, 36 * size, 5 * size, theme.NIGHT))
    drawing.add(block(x - 9 * size, neck + 3 * size, 18 * size, 22 * size, _LIT))
    eaves, tip = neck + 25 * size, neck + 40 * size
    roof = [x - 13 * size, eaves, x + 13 * size, eaves, x, tip]
    drawing.add(Polygon(roof, fillColor=theme.NIGHT, strokeColor=None))


def _turbine(drawing: Any, x: float, hub_y: float, blade: float, turn: int) -> None:
    mast = [x - 1.6, 0, x + 1.6, 0, x + 0.9, hub_y, x - 0.9, hub_y]
    drawing.add(Polygon(mast, fillColor=_PALE, strokeColor=None))
    # Blades a third of a turn apart, by their directions so that no trigonometry is needed.
    thirds = (
        ((0.0, 1.0), (0.87, -0.5), (-0.87, -0.5))
        if turn % 2
        else ((0.0, -1.0), (0.87, 0.5), (-0.87, 0.5))
    )
    for dx, dy in thirds:
        wing = [x - dy * 1.5, hub_y + dx * 1.5, x + dy * 1.5, hub_y - dx * 1.5]
        wing += [x + dx * blade, hub_y + dy * blade]
        drawing.add(Polygon(wing, fillColor=_PALE, strokeColor=None))
    drawing.add(Circle(x, hub_y, 2, fillColor=theme.CORAL, strokeColor=None))


def _buoy(drawing: Any, x: float, y: float, size: float) -> None:
    glow = Circle(x, y + 50 * size, 12 * size, fillColor=theme.AMBER, strokeColor=None)
    glow.fillOpacity = 0.3
    drawing.add(glow)
    drawing.add(Circle(x, y + 50 * size, 4 * size, fillColor=_LIT, strokeColor=None))
    cage = [x - 11 * size, y + 10 * size, x + 11 * size, y + 10 * size]
    cage += [x + 3 * size, y + 46 * size, x - 3 * size, y + 46 * size]
    drawing.add(Polygon(cage, fillColor=theme.CORAL, strokeColor=None))
    hull = [
        x - 16 * size,
        y + 10 * size,
        x + 16 * size,
        y + 10 * size,
        x + 11 * size,
        y,
        x - 11 * size,
        y,
    ]
    drawing.add(Polygon(hull, fillColor=theme.AMBER, strokeColor=None))


def _tug(drawing: Any, x: float, y: float) -> None:
    hull = [x - 62, y - 10, x + 52, y - 10, x + 74, y + 18, x + 30, y + 12, x - 66, y + 10]
    drawing.add(Polygon(hull, fillColor=theme.NIGHT, strokeColor=None))
    drawing.add(block(x - 62, y + 6, 110, 3, theme.CORAL))
    drawing.add(block(x - 14, y + 12, 52, 16, _PALE))
    drawing.add(block(x + 2, y + 28, 30, 15, _PALE))
    drawing.add(block(x + 5, y + 33, 24, 6, _LIT))
    drawing.add(block(x - 12, y + 28, 9, 17, theme.CORAL))
    drawing.add(block(x + 16, y + 43, 1.6, 18, _PALE))
    drawing.add(Circle(x + 16.8, y + 62, 2.4, fillColor=theme.AMBER, strokeColor=None))


def _wave(width: float, top: float, swell: float, colour: Any, shift: int) -> Any:
    path = Path(fillColor=colour, strokeColor=None)
    path.moveTo(0, 0)
    path.lineTo(0, top)
    step = width / 5
    for i in range(5):
        up = swell if (i + shift) % 2 else -swell
        x = step * i
        path.curveTo(x + step / 3, top + up, x + 2 * step / 3, top + up, x + step, top)
    path.lineTo(width, 0)
    path.closePath()
    return path
