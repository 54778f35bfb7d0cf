"""Reading order: words scattered over a page become lines, one column after another.

Adjacent words form segments. The page is split into bands by horizontal gaps, and runs of bands
that share a vertical gap are candidates for columns. The rows of a table share gaps too. So a gap
only separates columns if the text on both sides reads like independent text: by the order of the
file, or, if that order is meaningless (OCR), by the length of the lines.
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

# Minimum width of a gap between columns, as a share of the font size.
_NARROWEST_GUTTER = 0.7
# Minimum mean number of characters per line, in any column and in prose.
_SHORTEST_COLUMN_LINE = 8
_PROSE_LINE = 25
_FEWEST_PROSE_LINES = 5
# With more changes of side per line, the file writes rows across the gap.
_MOST_CROSSINGS = 0.5

# Minimum size of figures in points; smaller pictures are icons and rules.
_NARROWEST_FIGURE, _LOWEST_FIGURE = 72.0, 36.0
_SMALLEST_FIGURE_SHARE = 0.03
# Maximum gap between parts of one picture, because many programs split pictures into strips.
_SEAM = 2.0
# A picture behind this many words is a background, or a scan that already has a text layer.
_MIN_FIGURE_WORDS = 20

Interval: TypeAlias = tuple[float, float]


class Piece(NamedTuple):
    """A word in points from the top left corner of the displayed page."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    """Font size, or an estimate."""
    turn: int = 0
    """Writing direction in quarter turns clockwise; 4 for any other direction."""

    def shifted(self, right: float, down: float) -> Piece:
        """Return the word at a shifted position."""
        text, x0, y0, x1, y1, size, turn = self
        return Piece(text, x0 + right, y0 + down, x1 + right, y1 + down, size, turn)


@dataclass(frozen=True, slots=True, eq=False)
class WordTable:
    """The words of a page in columns, which are compact to send and fast to compare."""

    texts: list[str]
    boxes: NDArray[np.int32]
    """Left, top, right and bottom as shares of the page times SCALE, of shape (n, 4)."""
    lines: NDArray[np.int32]
    """Line of each word, in reading order from 0."""
    sizes: NDArray[np.int32]
    """Font size of each word in hundredths of a point."""
    turns: NDArray[np.int32]
    """Writing direction of each word in quarter turns clockwise; 4 for any other direction."""

    # Finer positions than 1/100,000 of the page are meaningless.
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

        Words are ordered by line, or as in ``written``, their order in the file. ``scale`` is the
        number of points per unit of the pieces, which is less than 1 for pixels.
        """
        numbers = {id(piece): number for number, line in enumerate(lines) for piece in line}
        pieces = written or [piece for line in lines for piece in line]
        if not pieces:
            return EMPTY
        corners = np.array([piece[1:5] for piece in pieces])
        shares = np.clip(corners / (width, height, width, height), 0, 1)
        # At least 1, even for text without height, because sizes are compared by division.
        sizes = np.clip([100 * scale * piece.size for piece in pieces], 1, 1e8)
        return cls(
            [piece.text for piece in pieces],
            np.rint(shares * cls.SCALE).astype(np.int32),
            np.array([numbers[id(piece)] for piece in pieces], np.int32),
            np.rint(sizes).astype(np.int32),
            np.array([piece.turn for piece in pieces], np.int32),
        )

    def __len__(self) -> int:
        return len(self.texts)

    def words(self) -> tuple[Word, ...]:
        boxes = map(tuple, (self.boxes / self.SCALE).tolist())
        return tuple(map(Word, self.texts, boxes, self.lines.tolist()))

    def concat(self, more: WordTable) -> WordTable:
        """Return these words followed by more words of the same page on later lines."""
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

    def outside(self, other: WordTable) -> WordTable:
        """Return the words that don't overlap any of the other words."""
        middles, other_middles = _middles(self.boxes), _middles(other.boxes)
        chosen = [
            index
            for index, (middle, box) in enumerate(zip(middles, self.boxes, strict=True))
            if not (_within(middle, other.boxes) | _within(other_middles, box)).any()
        ]
        return WordTable(
            [self.texts[index] for index in chosen],
            *(column[chosen] for column in (self.boxes, self.lines, self.sizes, self.turns)),
        )


EMPTY = WordTable([], np.zeros((0, 4), np.int32), *[np.zeros(0, np.int32)] * 3)


def figure_regions(images: Iterable[Box], width: float, height: float) -> list[Box]:
    """Return the boxes of pictures large enough for words, as shares of the page.

    ``images`` are boxes in points; those that touch are merged.

    >>> figure_regions([(0, 0, 50, 50), (50, 0, 100, 50), (150, 150, 155, 155)], 200, 200)
    [(0.0, 0.0, 0.5, 0.25)]
    """
    regions = []
    for left, top, right, bottom in _merge_boxes(images):
        x0, y0, x1, y1 = max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)
        if x1 - x0 < _NARROWEST_FIGURE or y1 - y0 < _LOWEST_FIGURE:
            continue
        if (x1 - x0) * (y1 - y0) >= _SMALLEST_FIGURE_SHARE * width * height:
            regions.append((x0 / width, y0 / height, x1 / width, y1 / height))
    return regions


def unread_figures(figures: Iterable[Box], words: WordTable) -> list[Box]:
    """Return the figures whose words aren't in the text layer."""
    middles = _middles(words.boxes) / words.SCALE
    return [
        figure for figure in figures if _within(middles, np.array(figure)).sum() < _MIN_FIGURE_WORDS
    ]


def _middles(boxes: NDArray[np.int32]) -> NDArray[np.float64]:
    return (boxes[:, :2] + boxes[:, 2:]) / 2


def _within(points: NDArray[np.float64], boxes: NDArray[np.number]) -> NDArray[np.bool_]:
    """Return whether points are in boxes; broadcasts one point or one box."""
    inside = (boxes[..., :2] <= points) & (points <= boxes[..., 2:])
    return np.logical_and(inside[..., 0], inside[..., 1])


def _merge_boxes(images: Iterable[Box]) -> list[Box]:
    """Merge touching boxes until none touch."""
    boxes = sorted(set(images), key=lambda box: (box[1], box[0]))
    result = _unite_once(boxes)
    while len(result) < len(boxes):
        boxes, result = result, _unite_once(result)
    return result


def _unite_once(boxes: Iterable[Box]) -> list[Box]:
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
    """Position of the first piece in the order of the file."""
    length: int
    """Number of characters, with one space between words."""
    left: float
    top: float
    right: float
    bottom: float
    size: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    def absorb(self, other: _Segment) -> None:
        self.pieces.extend(other.pieces)
        self.first = min(self.first, other.first)
        self.length += other.length + 1
        self.left, self.right = min(self.left, other.left), max(self.right, other.right)
        self.top, self.bottom = min(self.top, other.top), max(self.bottom, other.bottom)
        self.size = max(self.size, other.size)


@dataclass(slots=True)
class _Run:
    """Consecutive bands of text that share vertical gaps."""

    segments: list[_Segment]
    gaps: list[Interval]
    edges: Interval
    """Left and right edge of the text."""


def arrange(pieces: Iterable[Piece], *, file_order: bool) -> list[list[Piece]]:
    """Return the lines in reading order, each from its first word to its last.

    ``file_order`` is true if the order of the pieces is meaningful, as in a text layer, but not in
    OCR results. The most common writing direction comes first, then text in other directions.
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
        upright = [_rotate(piece, -turn % 4) for piece in group]
        original = {id(after): before for before, after in zip(group, upright, strict=True)}
        lines += [
            [original[id(piece)] for piece in line]
            for line in _columns(_segments(upright), file_order)
        ]
    return lines


def _rotate(piece: Piece, quarters: int) -> Piece:
    left, top, right, bottom = piece.left, piece.top, piece.right, piece.bottom
    for _ in range(quarters):
        left, top, right, bottom = -bottom, left, -top, right
    return Piece(piece.text, left, top, right, bottom, piece.size)


def _segments(pieces: Sequence[Piece]) -> list[_Segment]:
    segments: list[_Segment] = []
    last: _Segment | None = None
    for index, piece in enumerate(pieces):
        if last is not None and _follows(last, piece):
            last.pieces.append(piece)
            last.length += len(piece.text) + 1
            # Comparisons are faster than min and max, and most words are inside the line's height.
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
            last = _Segment([piece], index, len(text), left, top, right, bottom, size)
            segments.append(last)
    return _join_neighbors(segments)


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


def _join_neighbors(segments: list[_Segment]) -> list[_Segment]:
    """Join adjacent segments on a line that aren't consecutive in the file."""
    result: list[_Segment] = []
    for line in _rows(segments):
        line.sort(key=attrgetter("left"))
        current = line[0]
        for segment in line[1:]:
            if _follows(current, segment):
                current.absorb(segment)
            else:
                result.append(current)
                current = segment
        result.append(current)
    return sorted(result, key=attrgetter("first"))


def _rows(segments: Iterable[_Segment]) -> list[list[_Segment]]:
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
            for row in _rows(run):
                row.sort(key=attrgetter("left"))
                lines.append([piece for segment in row for piece in segment.pieces])
            continue
        bounds = [float("-inf"), *edges, float("inf")]
        for left, right in pairwise(bounds):
            lines.extend(_columns([s for s in run if left <= s.left < right], file_order))
    return lines


def _runs(segments: list[_Segment]) -> list[tuple[list[_Segment], list[float]]]:
    """Return runs of bands that share gaps, with the middles of the gaps from left to right."""
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
            if joins and not _interrupts(inner, band):
                run.segments.extend(band)
                run.gaps, run.edges = both, wider
                continue
        runs.append(_Run(band, [gap for gap in free if gap[1] - gap[0] >= narrowest], edges))
    return [
        (run.segments, [(left + right) / 2 for left, right in _inner(run.gaps, run.edges)])
        for run in runs
    ]


def _bands(segments: Iterable[_Segment]) -> list[list[_Segment]]:
    """Group segments that aren't separated by a horizontal gap."""
    bands: list[list[_Segment]] = []
    end = float("-inf")
    for segment in sorted(segments, key=attrgetter("top")):
        # Descenders may overlap the ascenders of the next line.
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
    """Return the gaps with text on both sides, given the edges of the text."""
    return [gap for gap in gaps if gap[0] > edges[0] and gap[1] < edges[1]]


def _interrupts(gaps: Iterable[Interval], band: Iterable[_Segment]) -> bool:
    """Return whether a segment, such as a page number, is in the middle of a gap."""
    return any(gap[0] < s.left and s.right < gap[1] for gap in gaps for s in band)


def _separates(run: Sequence[_Segment], middle: float, file_order: bool) -> bool:
    """Return whether a gap separates columns of text, rather than cells of a row."""
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
