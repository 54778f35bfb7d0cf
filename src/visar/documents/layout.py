"""Reading order: pieces of text scattered over a page become lines, columns after one another.

Pieces next to each other form segments. The page is cut into bands where no text stands, and
runs of bands that share a gap from top to bottom are candidates for columns. Rows of a table
share gaps too, so a gap separates columns only if the text on both sides reads like text of its
own: in the order of the file, or, where that says nothing (OCR), by the length of its lines.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

# Shares of the font size.
_WIDEST_SPACE = 0.9
_NARROWEST_GUTTER = 0.7
# A line of a column has this many characters on average, surely one of prose has that many.
_SHORTEST_COLUMN_LINE = 8
_PROSE_LINE = 25
_FEWEST_PROSE_LINES = 5
# Beyond this many changes of side per line, the file writes across a gap, not along it.
_MOST_CROSSINGS = 0.5

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Piece:
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
        """The same somewhere else."""
        return replace(
            self,
            left=self.left + right,
            top=self.top + down,
            right=self.right + right,
            bottom=self.bottom + down,
        )


@dataclass(slots=True)
class _Segment:
    """Pieces on one line without a wide gap between them."""

    pieces: list[Piece]
    first: int
    """Its place in the order of the file."""
    left: float
    top: float
    right: float
    bottom: float
    size: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @property
    def length(self) -> int:
        return sum(len(piece.text) for piece in self.pieces) + len(self.pieces) - 1

    def take(self, other: _Segment) -> None:
        self.pieces.extend(other.pieces)
        self.first = min(self.first, other.first)
        self.left, self.right = min(self.left, other.left), max(self.right, other.right)
        self.top, self.bottom = min(self.top, other.top), max(self.bottom, other.bottom)
        self.size = max(self.size, other.size)


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
        upright = [_turned(piece, -turn % 4) for piece in group] if turn % 4 else group
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
    for place, piece in enumerate(pieces):
        new = _Segment([piece], place, piece.left, piece.top, piece.right, piece.bottom, piece.size)
        if segments and _follows(segments[-1], new):
            segments[-1].take(new)
        else:
            segments.append(new)
    return _joined(segments)


def _follows(before: _Segment, after: _Segment) -> bool:
    size = max(before.size, after.size)
    gap = after.left - before.right
    return -size / 2 <= gap <= _WIDEST_SPACE * size and _same_line(before, after)


def _same_line(one: _Segment, other: _Segment) -> bool:
    shared = min(one.bottom, other.bottom) - max(one.top, other.top)
    return shared >= 0.4 * min(one.bottom - one.top, other.bottom - other.top)


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
    rows: list[tuple[_Segment, list[_Segment]]] = []
    for segment in sorted(segments, key=attrgetter("middle")):
        if rows and _same_line(rows[-1][0], segment):
            longest, row = rows[-1]
            row.append(segment)
            rows[-1] = (max(longest, segment, key=attrgetter("length")), row)
        else:
            rows.append((segment, [segment]))
    return [row for _, row in rows]


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
    runs: list[tuple[list[_Segment], list[Interval]]] = []
    for band in _bands(segments):
        free = _free(band, span)
        if runs:
            run, shared = runs[-1]
            both = [gap for gap in _intersection(shared, free) if gap[1] - gap[0] >= narrowest]
            inner = _inner(run, shared)
            joins = _inner([*run, *band], _intersection(inner or shared, both))
            if joins and not _stands_in(inner, band):
                run.extend(band)
                runs[-1] = (run, both)
                continue
        runs.append((list(band), [gap for gap in free if gap[1] - gap[0] >= narrowest]))
    return [
        (run, [(left + right) / 2 for left, right in _inner(run, shared)]) for run, shared in runs
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
    pairs = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(left, right) for left, right in pairs if left < right]


def _inner(run: Sequence[_Segment], gaps: Iterable[Interval]) -> list[Interval]:
    """The gaps with text on both sides."""
    first, last = min(s.left for s in run), max(s.right for s in run)
    return [gap for gap in gaps if gap[0] > first and gap[1] < last]


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
