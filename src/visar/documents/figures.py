"""Which parts of a page with text are pictures that may hold more words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visar.documents.page import Box, Word

# In points: smaller pictures are icons and rules.
_NARROWEST, _LOWEST = 72.0, 36.0
_SMALLEST_SHARE = 0.03
# Images closer than this are parts of one picture: many programs cut them into strips.
_SEAM = 2.0
# A picture under this many words is a background, or a scan whose words were read before.
_ENOUGH_WORDS = 20


def figure_regions(images: Iterable[Box], width: float, height: float) -> list[Box]:
    """Places of pictures large enough to hold words, as shares of the page.

    ``images`` are in points; those that touch are taken together.

    >>> figure_regions([(0, 0, 50, 50), (50, 0, 100, 50), (150, 150, 155, 155)], 200, 200)
    [(0.0, 0.0, 0.5, 0.25)]
    """
    regions = []
    for left, top, right, bottom in _merged(images):
        x0, y0, x1, y1 = max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)
        if x1 - x0 < _NARROWEST or y1 - y0 < _LOWEST:
            continue
        if (x1 - x0) * (y1 - y0) >= _SMALLEST_SHARE * width * height:
            regions.append((x0 / width, y0 / height, x1 / width, y1 / height))
    return regions


def unread(figures: Iterable[Box], words: Sequence[Word]) -> list[Box]:
    """The figures whose words the text layer does not have yet."""
    middles = [_middle(word.box) for word in words]
    return [
        figure for figure in figures if sum(_within(m, figure) for m in middles) < _ENOUGH_WORDS
    ]


def uncovered(candidates: Iterable[Word], words: Sequence[Word]) -> list[Word]:
    """The candidates that do not stand where a word stands already."""
    return [
        candidate
        for candidate in candidates
        if not any(
            _within(_middle(candidate.box), word.box) or _within(_middle(word.box), candidate.box)
            for word in words
        )
    ]


def _merged(images: Iterable[Box]) -> list[Box]:
    """Unite touching boxes until none touch."""
    boxes = sorted(set(images), key=lambda box: (box[1], box[0]))
    united = _united(boxes)
    while len(united) < len(boxes):
        boxes, united = united, _united(united)
    return united


def _united(boxes: Iterable[Box]) -> list[Box]:
    result: list[Box] = []
    for left, top, right, bottom in boxes:
        for index, (l0, t0, r0, b0) in enumerate(result):
            if (
                left <= r0 + _SEAM
                and l0 <= right + _SEAM
                and top <= b0 + _SEAM
                and t0 <= bottom + _SEAM
            ):
                result[index] = (min(left, l0), min(top, t0), max(right, r0), max(bottom, b0))
                break
        else:
            result.append((left, top, right, bottom))
    return result


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _within(point: tuple[float, float], box: Box) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]
