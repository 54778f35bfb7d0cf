"""Pictures that explain a choice of pages: heat maps, page activity, similarity and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from visar.library import Library
from visar.results import Explanation, PageHit, SearchResult

if TYPE_CHECKING:
    from PIL.Image import Image

# Colors of the web page.
_PAPER, _INK, _SOFT, _LINE, _ACCENT = "#ffffff", "#1c1917", "#6b645e", "#e7e5e4", "#c2410c"
_IDLE = "#cfcac5"
_MARGIN = 40
_SCALE = 2  # pixels per unit, for sharp pictures on any screen
_FINER = 2  # drawing larger and scaling down smooths lines
_BIG, _SMALL = 22, 17
# Orange to red: visible on light and dark pages, and to colorblind people.
_COOL = np.array([255, 196, 0])
_HOT = np.array([214, 40, 40])
_MAX_OPACITY = 0.75


class _Canvas:
    """A white picture with a title. Coordinates are units; y grows downward."""

    def __init__(self, width: int, height: int, title: str) -> None:
        from PIL import Image, ImageDraw, ImageFont

        self._size = width * _SCALE, height * _SCALE
        self._unit = _SCALE * _FINER
        self._image = Image.new("RGB", (width * self._unit, height * self._unit), _PAPER)
        self._draw = ImageDraw.Draw(self._image)
        self._fonts = {size: ImageFont.load_default(size * self._unit) for size in (_BIG, _SMALL)}
        self.text(_MARGIN, 42, title, color=_INK, size=_BIG, anchor="ls")

    def box(
        self, left: float, top: float, right: float, bottom: float, *, fill: str | None = None,
        outline: str | None = None, width: float = 1,
    ) -> None:  # fmt: skip
        corners = self._pixels([(left, top), (right, bottom)])
        if corners[1][0] > corners[0][0] and corners[1][1] > corners[0][1]:
            self._draw.rectangle(corners, fill, outline, round(width * self._unit))

    def line(
        self, points: Iterable[tuple[float, float]], color: str = _LINE, width: float = 1
    ) -> None:
        thick = round(width * self._unit)
        self._draw.line(self._pixels(points), color, thick, joint="curve")

    def dashes(self, x: float, top: float, bottom: float) -> None:
        for start in np.arange(top, bottom, 9):
            self.line([(x, start), (x, min(start + 5, bottom))], _ACCENT, 1.5)

    def dot(self, x: float, y: float) -> None:
        self._draw.circle((x * self._unit, y * self._unit), 7 * self._unit, _ACCENT)

    def text(
        self, x: float, y: float, text: str, *, color: str = _SOFT, size: int = _SMALL,
        anchor: Literal["ls", "ms", "rs"] = "ms",
    ) -> None:  # fmt: skip
        """Draw a line of text; the anchor is its left, middle or right on the baseline."""
        position = x * self._unit, y * self._unit
        self._draw.text(position, text, color, self._fonts[size], anchor=anchor)

    def paste(self, image: Image, left: float, top: float, side: float) -> None:
        from PIL.Image import Resampling

        size = round(side * self._unit)
        enlarged = image.resize((size, size), Resampling.NEAREST)
        self._image.paste(enlarged, (round(left * self._unit), round(top * self._unit)))

    def finish(self) -> Image:
        from PIL.Image import Resampling

        return self._image.resize(self._size, Resampling.LANCZOS)

    def _pixels(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(x * self._unit, y * self._unit) for x, y in points]


def activity_picture(found: SearchResult, explanation: Explanation) -> Image:
    """Draw a bar for each page; its height shows relevance."""
    canvas = _Canvas(900, 300, "Relevance of each page")
    chosen = {(hit.document, hit.page) for hit in found.pages}
    step = (900 - 2 * _MARGIN) / len(explanation.pages)
    floor = 250
    labels: list[tuple[float, str, str]] = []
    for position, page in enumerate(explanation.pages):
        taken = (page.document, page.page) in chosen
        left = _MARGIN + position * step
        # In long documents, bars are thin: keep those of chosen pages visible.
        width = max(step * 0.8, 3 if taken else 0.5)
        top = floor - max(2, 170 * page.activity)
        canvas.box(left, top, left + width, floor, fill=_ACCENT if taken else _IDLE)
        labels.append((left + width / 2, str(page.page), _ACCENT if taken else _SOFT))
    canvas.line([(_MARGIN, floor), (900 - _MARGIN, floor)])
    _draw_labels(canvas, labels, floor + 24)
    return canvas.finish()


def _draw_labels(canvas: _Canvas, labels: list[tuple[float, str, str]], y: float) -> None:
    """Draw the labels of chosen pages, then of every fifth, tenth, … page if there is room."""
    gap = 34.0
    every = next((n for n in (1, 5, 10, 50, 100, 500) if 820 / (len(labels) / n) > 40), 1000)
    # Labels can repeat: each document starts with page 1.
    ordered = [one for one in labels if one[2] == _ACCENT]
    ordered += [one for one in labels if one[2] != _ACCENT and int(one[1]) % every == 0]
    taken: list[float] = []
    for x, text, color in ordered:
        if all(abs(x - other) >= gap for other in taken):
            canvas.text(x, y, text, color=color)
            taken.append(x)


def similarity_picture(found: SearchResult, explanation: Explanation) -> Image:
    """Draw the similarity matrix of the best pages, with a frame around the chosen ones."""
    from PIL.Image import fromarray

    side, top = 620, 66
    canvas = _Canvas(side + 2 * _MARGIN, side + 130, "How much pages overlap on the question")
    matrix = np.asarray(explanation.similarity)
    count = len(matrix)
    if count:
        share = (matrix / (float(matrix.max()) or 1.0))[..., None]
        colors = [np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in (_PAPER, _ACCENT)]
        shades = colors[0] + (colors[1] - colors[0]) * share
        canvas.paste(fromarray(shades.round().astype(np.uint8)), _MARGIN, top, side)
    canvas.box(_MARGIN, top, _MARGIN + side, top + side, outline=_LINE)
    chosen = {(hit.document, hit.page) for hit in found.pages}
    best = [page for page in explanation.pages if page.rank <= found.k]
    # Other methods can rank pages differently.
    is_first = all((page.document, page.page) in chosen for page in best)
    taken = found.k if is_first else explanation.k_star
    if count:
        framed = side * min(taken, count) / count
        canvas.box(_MARGIN, top, _MARGIN + framed, top + framed, outline=_INK, width=2)
    framed_pages = f"the {taken} chosen" if is_first else f"the {taken} that ViSAR would choose"
    caption = f"The {count} best pages, best first. Framed: {framed_pages}."
    canvas.text(_MARGIN, top + side + 32, caption, anchor="ls")
    return canvas.finish()


def cost_picture(explanation: Explanation) -> Image:
    """Draw the cost curve J(k) with its minimum k*."""
    canvas = _Canvas(900, 520, "Cost of stopping after k pages")
    left, right, top, floor = _MARGIN + 10, 900 - _MARGIN, 90, 440
    known = [(k, cost) for k, cost in enumerate(explanation.cost, start=1) if cost is not None]
    for y in np.linspace(top, floor, 4):
        canvas.line([(left, y), (right, y)])
    canvas.text((left + right) / 2, floor + 56, "number of pages k")
    if len(known) < 2:
        message = "Too few relevant pages for a curve."
        canvas.text((left + right) / 2, (top + floor) / 2, message)
        return canvas.finish()
    chosen = explanation.k_star
    last = max(known[-1][0], chosen)
    costs = [cost for _, cost in known]
    spread = (max(costs) - min(costs)) or 1.0

    def point(k: int, cost: float) -> tuple[float, float]:
        x = left + (right - left) * (k - 1) / max(1, last - 1)
        return x, floor - (floor - top) * (cost - min(costs)) / spread

    points = [point(k, cost) for k, cost in known]
    canvas.line(points, _INK, 2.5)
    for k in {1, last}:
        canvas.text(point(k, costs[0])[0], floor + 28, str(k))
    cost = explanation.cost[chosen - 1] if chosen <= len(explanation.cost) else None
    x, y = point(chosen, cost or 0.0)
    canvas.dashes(x, top - 14, floor)
    if cost is not None:
        canvas.dot(x, y)
    is_left = x < (left + right) / 2
    canvas.text(
        x + (10 if is_left else -10), top, f"k* = {chosen}",
        color=_ACCENT, anchor="ls" if is_left else "rs",
    )  # fmt: skip
    return canvas.finish()


def pixel_heat(
    boxes: NDArray[np.float32], weights: NDArray[np.float32], width: int, height: int
) -> NDArray[np.float32]:
    """Return the weight of each pixel, from 0 to 1 for the page's heaviest patch."""
    heat = np.zeros((height, width), np.float32)
    # Vectors without a position can't be shown, so they don't count as the heaviest.
    heaviest = float(weights.max(initial=0, where=boxes.any(axis=1)))
    if heaviest <= 0:
        return heat
    for (left, top, right, bottom), weight in zip(boxes, weights / heaviest, strict=True):
        if weight > 0:
            rows = slice(int(top * height), int(np.ceil(bottom * height)))
            columns = slice(int(left * width), int(np.ceil(right * width)))
            heat[rows, columns] = np.maximum(heat[rows, columns], weight)
    return heat


def overlay_heat(image: Image, boxes: NDArray[np.float32], weights: NDArray[np.float32]) -> Image:
    """Return a copy of a page's image with the heat map on top."""
    from PIL.Image import fromarray

    pixels = np.asarray(image.convert("RGB"), np.float32)
    heat = pixel_heat(boxes, weights, image.width, image.height)[..., None]
    color = _COOL + (_HOT - _COOL) * heat
    cover = _MAX_OPACITY * heat
    # Multiplying keeps dark text dark.
    tinted = pixels * (1 - cover) + pixels * color / 255 * cover
    return fromarray(tinted.round().astype(np.uint8))


def pages_with_heat(
    library: Library, found: SearchResult, dpi: float = 144
) -> Iterator[tuple[PageHit, Image]]:
    """Yield each page of a result with its heat map."""
    for hit in found.pages:
        patches = library.patches(found, hit.document, hit.page)
        boxes = np.asarray(patches.boxes, np.float32).reshape(-1, 4)
        image = library.image(hit.document, hit.page, dpi)
        yield hit, overlay_heat(image, boxes, np.asarray(patches.weights, np.float32))
