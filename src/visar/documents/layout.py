"""Reading order: words scattered over a page become lines, columns after one another.

Words next to each other form segments. The page is cut into bands where no text stands, and
runs of bands that share a gap from top to bottom are candidates for columns. Rows of a table
share gaps too, so a gap separates columns only if the text on both sides reads like text of its
own: in the order of the file, or, where that says nothing (OCR), by the length of its lines.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Box, Word
from visar.documents.segments import WIDEST_SPACE

# Share of the font size.
_NARROWEST_GUTTER = 0.7
# A line of a column has this many characters on average, surely one of prose has that many.
_SHORTEST_COLUMN_LINE = 8
_PROSE_LINE = 25
_FEWEST_PROSE_LINES = 5
# Beyond this many changes of side per line, the file writes across a gap, not along it.
_MOST_CROSSINGS = 0.5

# In points: smaller pictures are icons and rules.
_NARROWEST_FIGURE, _LOWEST_FIGURE = 72.0, 36.0
_SMALLEST_FIGURE_SHARE = 0.03
# Images closer than this are parts of one picture: many programs cut them into strips.
_SEAM = 2.0
# A picture under this many words is a background, or a scan whose words were read before.
_ENOUGH_WORDS = 20

Interval: TypeAlias = tuple[float, float]


class Piece(NamedTuple):
    """A word in points from the top left corner of the page as it is displayed."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    """Font size, or about that."""
    turn: int = 0
    """Quarter turns clockwise in which it is written; 4 for none of them."""

    def moved(self, right: float, down: float) -> Piece:
        """The same word at another place."""
        text, x0, y0, x1, y1, size, turn = self
        return Piece(text, x0 + right, y0 + down, x1 + right, y1 + down, size, turn)


@dataclass(frozen=True, slots=True, eq=False)
class WordTable:
    """Words of a page in columns: compact between processes, and quick to compare."""

    texts: list[str]
    boxes: NDArray[np.int32]
    """(n, 4) left, top, right, bottom in units of the page's width and height divided by SCALE."""
    lines: NDArray[np.int32]
    """The line of each word, in reading order from 0."""
    sizes: NDArray[np.int32]
    """Font size of each word in hundredths of a point."""
    turns: NDArray[np.int32]
    """Direction of each word: quarter turns clockwise, 4 for any other."""

    # Places finer than a hundred thousandth of the page mean nothing.
    SCALE = 100_000

    @classmethod
    def of(
        cls,
        lines: Sequence[Sequence[Piece]],
        width: float,
        height: float,
        *,
        written: Sequence[Piece] = (),
        scale: float = 1.0,
    ) -> WordTable:
        """Return the words of lines on a page of this size.

        Words come line by line, or in the order in which the file has ``written`` them. ``scale``
        is the number of points in a unit of the pieces: less than 1 for pixels.
        """
        numbers = {id(piece): number for number, line in enumerate(lines) for piece in line}
        pieces = written or [piece for line in lines for piece in line]
        if not pieces:
            return EMPTY
        corners = np.array([piece[1:5] for piece in pieces])
        shares = np.clip(corners / (width, height, width, height), 0, 1)
        return cls(
            [piece.text for piece in pieces],
            np.rint(shares * cls.SCALE).astype(np.int32),
            np.array([numbers[id(piece)] for piece in pieces], np.int32),
            np.rint(np.clip([100 * scale * piece.size for piece in pieces], 0, 1e8)).astype(
                np.int32
            ),
            np.array([piece.turn for piece in pieces], np.int32),
        )

    def __len__(self) -> int:
        return len(self.texts)

    def words(self) -> tuple[Word, ...]:
        """The words as objects."""
        boxes = map(tuple, (self.boxes / self.SCALE).tolist())
        return tuple(map(Word, self.texts, boxes, self.lines.tolist()))

    def joined(self, more: WordTable) -> WordTable:
        """These words and then more of the same page, whose lines follow these."""
        if not len(more):
            return self
        first = int(self.lines.max(initial=-1)) + 1
        _, lines = np.unique(more.lines, return_inverse=True)
        return WordTable(
            self.texts + more.texts,
            np.concatenate([self.boxes, more.boxes]),
            np.concatenate([self.lines, first + lines.astype(np.int32)]),
            np.concatenate([self.sizes, more.sizes]),
            np.concatenate([self.turns, more.turns]),
        )

    def outside(self, known: WordTable) -> WordTable:
        """The words that do not stand where one of the known words stands."""
        middles, known_middles = _middles(self.boxes), _middles(known.boxes)
        chosen = [
            index
            for index, (middle, box) in enumerate(zip(middles, self.boxes, strict=True))
            if not (_within(middle, known.boxes) | _within(known_middles, box)).any()
        ]
        return WordTable(
            [self.texts[index] for index in chosen],
            *(column[chosen] for column in (self.boxes, self.lines, self.sizes, self.turns)),
        )


EMPTY = WordTable([], np.zeros((0, 4), np.int32), *[np.zeros(0, np.int32)] * 3)


def figure_regions(images: Iterable[Box], width: float, height: float) -> list[Box]:
    """Places of pictures large enough to hold words, as shares of the page.

    ``images`` are in points; those that touch are taken together.

    >>> figure_regions([(0, 0, 50, 50), (50, 0, 100, 50), (150, 150, 155, 155)], 200, 200)
    [(0.0, 0.0, 0.5, 0.25)]
    """
    regions = []
    for left, top, right, bottom in _merged(images):
        x0, y0, x1, y1 = max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)
        if x1 - x0 < _NARROWEST_FIGURE or y1 - y0 < _LOWEST_FIGURE:
            continue
        if (x1 - x0) * (y1 - y0) >= _SMALLEST_FIGURE_SHARE * width * height:
            regions.append((x0 / width, y0 / height, x1 / width, y1 / height))
    return regions


def unread_figures(figures: Iterable[Box], words: WordTable) -> list[Box]:
    """The figures whose words the text layer does not have yet."""
    middles = _middles(words.boxes) / words.SCALE
    return [
        figure for figure in figures if _within(middles, np.array(figure)).sum() < _ENOUGH_WORDS
    ]


def _middles(boxes: NDArray[np.int32]) -> NDArray[np.float64]:
    return (boxes[:, :2] + boxes[:, 2:]) / 2


def _within(points: NDArray[np.float64], boxes: NDArray[np.number]) -> NDArray[np.bool_]:
    """Whether points lie in boxes: one in each of many boxes, or each of many in one."""
    inside = (boxes[..., :2] <= points) & (points <= boxes[..., 2:])
    return np.logical_and(inside[..., 0], inside[..., 1])


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


@dataclass(slots=True)
class _Segment:
    """Pieces on one line without a wide gap between them."""

    pieces: list[Piece]
    first: int
    """Its place in the order of the file."""
    length: int
    """Characters, with one space between two words."""
    left: float
    top: float
    right: float
    bottom: float
    size: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    def take(self, other: _Segment) -> None:
        self.pieces.extend(other.pieces)
        self.first = min(self.first, other.first)
        self.length += other.length + 1
        self.left, self.right = min(self.left, other.left), max(self.right, other.right)
        self.top, self.bottom = min(self.top, other.top), max(self.bottom, other.bottom)
        self.size = max(self.size, other.size)


@dataclass(slots=True)
class _Run:
    """Consecutive bands of text that share gaps from top to bottom."""

    segments: list[_Segment]
    gaps: list[Interval]
    edges: Interval
    """Where the text begins on the left and ends on the right."""


def arrange(pieces: Iterable[Piece], *, file_order: bool) -> list[list[Piece]]:
    """Lines in reading order, each from its first word to its last.

    ``file_order`` says that the pieces come in an order that means something: that of a text
    layer, not that of OCR. Text written in another direction follows what most text has.
    """
    by_turn: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_turn.setdefault(piece.turn, []).append(piece)
    groups = sorted(by_turn.items(), key=lambda group: -sum(len(piece.text) for piece in group[1]))
    lines: list[list[Piece]] = []
    for turn, group in groups:
        if turn % 4 == 0:
            lines += _columns(_segments(group), file_order)
            continue
        upright = [_turned(piece, -turn % 4) for piece in group]
        original = {id(after): before for before, after in zip(group, upright, strict=True)}
        lines += [
            [original[id(piece)] for piece in line]
            for line in _columns(_segments(upright), file_order)
        ]
    return lines


def _turned(piece: Piece, quarters: int) -> Piece:
    left, top, right, bottom = piece.left, piece.top, piece.right, piece.bottom
    for _ in range(quarters):
        left, top, right, bottom = -bottom, left, -top, right
    return Piece(piece.text, left, top, right, bottom, piece.size)


def _segments(pieces: Sequence[Piece]) -> list[_Segment]:
    segments: list[_Segment] = []
    last: _Segment | None = None
    for place, piece in enumerate(pieces):
        if last is not None and _follows(last, piece):
            last.pieces.append(piece)
            last.length += len(piece.text) + 1
            # Most words are inside the height of the line so far: min and max cost more.
            if piece.left < last.left:
                last.left = piece.left
            if piece.right > last.right:
                last.right = piece.right
            if piece.top < last.top:
                last.top = piece.top
            if piece.bottom > last.bottom:
                last.bottom = piece.bottom
            if piece.size > last.size:
                last.size = piece.size
        else:
            text, left, top, right, bottom, size, _ = piece
            last = _Segment([piece], place, len(text), left, top, right, bottom, size)
            segments.append(last)
    return _joined(segments)


def _follows(before: _Segment, after: _Segment | Piece) -> bool:
    size = before.size if before.size > after.size else after.size
    gap = after.left - before.right
    return -size / 2 <= gap <= WIDEST_SPACE * size and _same_line(before, after)


def _same_line(one: _Segment, other: _Segment | Piece) -> bool:
    top, bottom, other_top, other_bottom = one.top, one.bottom, other.top, other.bottom
    height, other_height = bottom - top, other_bottom - other_top
    shared = (bottom if bottom < other_bottom else other_bottom) - (
        top if top > other_top else other_top
    )
    return shared >= 0.4 * (height if height < other_height else other_height)


def _joined(segments: list[_Segment]) -> list[_Segment]:
    """Join neighbours on a line that the file does not write one after the other."""
    result: list[_Segment] = []
    for line in _rows(segments):
        line.sort(key=attrgetter("left"))
        current = line[0]
        for segment in line[1:]:
            if _follows(current, segment):
                current.take(segment)
            else:
                result.append(current)
                current = segment
        result.append(current)
    return sorted(result, key=attrgetter("first"))


def _rows(segments: Iterable[_Segment]) -> list[list[_Segment]]:
    """Segments at the same height, whatever stands between them; top to bottom."""
    rows: list[list[_Segment]] = []
    longest: _Segment | None = None
    for segment in sorted(segments, key=attrgetter("middle")):
        if longest is not None and _same_line(longest, segment):
            rows[-1].append(segment)
            longest = segment if segment.length > longest.length else longest
        else:
            rows.append([segment])
            longest = segment
    return rows


def _columns(segments: list[_Segment], file_order: bool) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for run, gutters in _runs(segments):
        edges = [middle for middle in gutters if _separates(run, middle, file_order)]
        if not edges:
            lines.extend(_as_line(row) for row in _rows(run))
            continue
        bounds = [float("-inf"), *edges, float("inf")]
        for left, right in pairwise(bounds):
            lines.extend(_columns([s for s in run if left <= s.left < right], file_order))
    return lines


def _as_line(row: list[_Segment]) -> list[Piece]:
    return [piece for s in sorted(row, key=attrgetter("left")) for piece in s.pieces]


def _runs(segments: list[_Segment]) -> list[tuple[list[_Segment], list[float]]]:
    """Consecutive bands that share gaps, and the middles of these gaps, from left to right."""
    if not segments:
        return []
    narrowest = _NARROWEST_GUTTER * statistics.median(s.size for s in segments)
    span = (min(s.left for s in segments), max(s.right for s in segments))
    runs: list[_Run] = []
    for band in _bands(segments):
        free = _free(band, span)
        edges = min(s.left for s in band), max(s.right for s in band)
        if runs:
            run = runs[-1]
            both = [gap for gap in _intersection(run.gaps, free) if gap[1] - gap[0] >= narrowest]
            inner = _inner(run.gaps, run.edges)
            wider = min(edges[0], run.edges[0]), max(edges[1], run.edges[1])
            joins = _inner(_intersection(inner or run.gaps, both), wider)
            if joins and not _stands_in(inner, band):
                run.segments.extend(band)
                run.gaps, run.edges = both, wider
                continue
        runs.append(_Run(band, [gap for gap in free if gap[1] - gap[0] >= narrowest], edges))
    return [
        (run.segments, [(left + right) / 2 for left, right in _inner(run.gaps, run.edges)])
        for run in runs
    ]


def _bands(segments: Iterable[_Segment]) -> list[list[_Segment]]:
    """Groups of segments with free space from the left to the right edge between them."""
    bands: list[list[_Segment]] = []
    end = float("-inf")
    for segment in sorted(segments, key=attrgetter("top")):
        # Descenders may reach into the next line's ascenders.
        slack = 0.15 * (segment.bottom - segment.top)
        if segment.top + slack >= end:
            bands.append([])
        bands[-1].append(segment)
        end = max(end, segment.bottom - slack)
    return bands


def _free(band: Iterable[_Segment], span: Interval) -> list[Interval]:
    gaps = []
    end = span[0]
    for segment in sorted(band, key=attrgetter("left")):
        if segment.left > end:
            gaps.append((end, segment.left))
        end = max(end, segment.right)
    if end < span[1]:
        gaps.append((end, span[1]))
    return gaps


def _intersection(some: Iterable[Interval], others: Sequence[Interval]) -> list[Interval]:
    return [
        (a if a > c else c, b if b < d else d)
        for a, b in some
        for c, d in others
        if a < d and c < b
    ]


def _inner(gaps: Iterable[Interval], edges: Interval) -> list[Interval]:
    """The gaps with text on both sides, given where the text begins and ends."""
    return [gap for gap in gaps if gap[0] > edges[0] and gap[1] < edges[1]]


def _stands_in(gaps: Iterable[Interval], band: Iterable[_Segment]) -> bool:
    """Whether something, like a page number, stands in the middle of a gap."""
    return any(gap[0] < s.left and s.right < gap[1] for gap in gaps for s in band)


def _separates(run: Sequence[_Segment], middle: float, file_order: bool) -> bool:
    """Whether a gap parts columns, to be read one after the other, or cells of a row."""
    left = [s for s in run if s.left < middle]
    right = [s for s in run if s.left >= middle]
    counts, lengths = [], []
    for side in (left, right):
        rows = _rows(side)
        counts.append(len(rows))
        lengths.append(sum(s.length for s in side) / len(rows))
    if min(lengths) >= _PROSE_LINE and min(counts) >= _FEWEST_PROSE_LINES:
        return True
    if min(lengths) < _SHORTEST_COLUMN_LINE or min(counts) < 2:
        return False
    if not file_order:
        return min(lengths) >= _PROSE_LINE / 2 and min(counts) > 2
    sides = [s.left < middle for s in sorted(run, key=attrgetter("first"))]
    crossings = sum(one != other for one, other in pairwise(sides))
    return crossings <= max(1, _MOST_CROSSINGS * min(counts))
