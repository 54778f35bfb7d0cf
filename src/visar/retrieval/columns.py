"""The lines of a page in the order of its columns.

Where a heading, a figure or a table stands between columns of text, lines that stand side by side
may have been read as one, or in a wrong order. Columns are found here by where lines begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from visar.documents.page import Page
from visar.retrieval.tables import Segment, find_segments

# A column has at least this many lines of text beside lines of another.
_FEWEST_LINES = 3
# A line of a column is indented by at most this many heights of its letters.
_INDENT = 5


def in_columns(page: Page) -> Page:
    """Return a page whose lines are those of its columns, one column after the other.

    What spans several columns parts those above it from those below it. Rows of tables stay whole.
    """
    segments = find_segments(page, page.lines())
    starts = _column_starts(segments)
    if not starts:
        return page
    pieces = [
        piece
        for _, line in groupby(segments, lambda segment: segment.line)
        for piece in _cut(list(line), starts)
    ]
    words = list(page.words)
    for number, piece in enumerate(_in_order(pieces, starts)):
        for segment in piece:
            for index in segment.words:
                words[index] = replace(words[index], line=number)
    return replace(page, words=tuple(words))


def _column_starts(segments: Sequence[Segment]) -> list[float]:
    """Where columns begin that have another one to their left, from left to right."""
    lines = [segment for segment in segments if segment.is_text]
    beside = {id(s) for s in lines if _has_left(s, lines)}
    starts: list[float] = []
    column: list[Segment] = []
    for first in sorted(lines, key=lambda s: s.left):
        # What is indented within a column is crossed by the column's other lines.
        if sum(s.right > first.left for s in column) > len(column) / 2:
            continue
        aligned = [s for s in lines if abs(s.left - first.left) < s.height / 2]
        if sum(id(s) in beside for s in aligned) < _FEWEST_LINES:
            continue
        starts.append(first.left)
        column = aligned
    return starts


def _has_left(segment: Segment, lines: Sequence[Segment]) -> bool:
    """Whether one of the lines stands to the left of a segment, at its height."""
    return any(
        s.right < segment.left and s.top < segment.bottom and segment.top < s.bottom for s in lines
    )


def _cut(line: Sequence[Segment], starts: Sequence[float]) -> list[list[Segment]]:
    """Cut a line before segments that begin a column, unless it is a row of a table."""
    begins = [
        place
        for place, (before, segment) in enumerate(pairwise(line), 1)
        if any(
            before.right < start and -1 < (segment.left - start) / segment.height < _INDENT
            for start in starts
        )
    ]
    bounds = [0, *begins, len(line)]
    parts = [list(line[a:b]) for a, b in pairwise(bounds)]
    if any(len(part) > 1 or part[0].is_value for part in parts):
        parts = [list(line)]
    return parts


def _in_order(pieces: Sequence[list[Segment]], starts: Sequence[float]) -> Iterator[list[Segment]]:
    """Order parts of lines from top to bottom, column by column between those that span several.

    A part spans a column only if a line of that column stands above it: a column may begin where
    a table has one, and lines elsewhere on the page run across that place.
    """
    band: list[tuple[int, list[Segment]]] = []
    for piece in sorted(pieces, key=lambda piece: piece[0].middle):
        left, right, tolerance = piece[0].left, piece[-1].right, piece[0].height
        column = sum(start < left + tolerance for start in starts)
        last = sum(start < right - tolerance for start in starts)
        if any(column < other <= last for other, _ in band):
            yield from (part for _, part in sorted(band, key=lambda part: part[0]))
            band = []
        band.append((column, piece))
    yield from (part for _, part in sorted(band, key=lambda part: part[0]))
