"""Lines of a page that may be rows of a table.

If the reading order has split rows into two columns of text, their halves are joined again. Tables
that are side by side are separated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from visar.documents.segments import Segment, by_line

# Maximum number of words of a cell, and of a label in the first column.
_LONGEST_CELL = 10
_LONGEST_LABEL = 16
MEAN_CELL = 4.5
"""Maximum mean number of words of cells; lines of text have more."""
FEWEST_LABELED = 0.7
"""Minimum share of rows with a label; charts have numbers without labels."""
# Maximum gap between lines of a table, and between lines with several cells, in font sizes.
_LINE_GAP = 2.6
_ROW_GAP = 4.0
# Maximum ratio of the font sizes of adjacent lines.
_MAX_SIZE_RATIO = 1.4

Line: TypeAlias = list[Segment]


def find_rows(segments: Iterable[Segment]) -> Iterator[list[Line]]:
    """Yield groups of lines that may be tables, from top to bottom."""
    for run in _runs(_join_halves(by_line(segments))):
        yield from _split_beside(run)


def _join_halves(lines: list[Line]) -> list[Line]:
    """Join the halves of rows that reading order has split into two columns of text."""
    while True:
        for pairs in _side_by_side(lines):
            left = {a for a, _ in pairs}
            right = {b for _, b in pairs}
            if left & right or not _are_cells(lines, pairs):
                continue
            rows = [[*lines[a], *lines[b]] for a, b in pairs]
            inside = left | right | _between(lines, rows, left | right)
            rows += [lines[n] for n in inside - left - right]
            rows.sort(key=lambda row: row[-1].middle)
            first = min(inside)
            before = [line for n, line in enumerate(lines) if n < first]
            lines = [
                *before,
                *rows,
                *(s for n, s in enumerate(lines) if n > first and n not in inside),
            ]
            break
        else:
            return lines


def _side_by_side(lines: Sequence[Line]) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of pairs: each line with the nearest line on its left at the same height."""
    pairs: list[tuple[int, int]] = []
    for b in sorted(range(len(lines)), key=lambda n: lines[n][0].middle):
        first = lines[b][0]
        beside = [
            n
            for n, line in enumerate(lines)
            if line[-1].right < first.left
            and abs(line[-1].middle - first.middle) < 0.4 * first.size
        ]
        if beside:
            pairs.append((max(beside, key=lambda n: lines[n][-1].right), b))
    while pairs:
        run, rest = pairs[:1], pairs[:0]
        for a, b in pairs[1:]:
            above = lines[run[-1][1]]
            near = lines[b][0].top - above[0].bottom < 4 * above[0].size
            below = _overlap(lines[b], above) and _overlap(lines[a], lines[run[-1][0]])
            new = a not in (left for left, _ in run)
            (run if near and below and new else rest).append((a, b))
        yield run
        pairs = rest


def _overlap(one: Line, other: Line) -> bool:
    return one[0].left < other[-1].right and other[0].left < one[-1].right


def _are_cells(lines: Sequence[Line], pairs: Sequence[tuple[int, int]]) -> bool:
    """Return whether pairs of lines are rows of a table, rather than two columns of text."""
    right = [segment for _, b in pairs for segment in lines[b]]
    fewest = 2 if all(segment.is_value for segment in right) else 3
    if len(pairs) < fewest:
        return False
    for side in ([segment for a, _ in pairs for segment in lines[a]], right):
        if sum(len(segment.words) for segment in side) > MEAN_CELL * len(side):
            return False
    if sum(lines[a][0].has_letters for a, _ in pairs) < FEWEST_LABELED * len(pairs):
        return False
    # If the rows have their own labels, the left lines belong to something else, such as a chart.
    own = sum(len(lines[b]) > 1 and lines[b][0].has_letters for _, b in pairs)
    if all(len(lines[a]) == 1 for a, _ in pairs) and 2 * own > len(pairs):
        return False
    starts = [lines[a][0].left for a, _ in pairs]
    aligned = sum(abs(start - min(starts)) < lines[pairs[0][0]][0].size for start in starts)
    return aligned >= 0.7 * len(pairs)


def _between(lines: Sequence[Line], rows: Sequence[Line], exclude: set[int]) -> set[int]:
    """Return the short lines between rows or directly above them."""
    size = rows[0][0].size
    top = min(s.top for row in rows for s in row) - _LINE_GAP * size
    bottom = max(s.bottom for row in rows for s in row)
    left = min(row[0].left for row in rows)
    right = max(row[-1].right for row in rows)
    return {
        n
        for n, line in enumerate(lines)
        if n not in exclude
        and (_is_row(line) or _is_short(line))
        and top < line[0].middle < bottom
        and left - size < line[0].left
        and line[-1].right < right + size
    }


def _runs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield runs of consecutive lines that may be rows of a table."""
    run: list[Line] = []
    for line in lines:
        if run and not _follows(run, line):
            yield from _trim(run)
            run = []
        if _is_row(line) or _is_short(line):
            run.append(line)
        else:
            yield from _trim(run)
            run = []
    yield from _trim(run)


def _trim(run: list[Line]) -> Iterator[list[Line]]:
    """Yield the part of a run from its first row to its last, with a header line above it."""
    rows = [position for position, line in enumerate(run) if _is_row(line)]
    if len(rows) < 2:
        return
    first, last = rows[0], rows[-1] + 1
    left = min(line[0].left for line in run[first:last])
    # A line above the columns, but not above the labels, is a header.
    while first and run[first - 1][0].left > left + 6 * run[first - 1][0].size:
        first -= 1
    # The continuation of a label in lower case belongs to the last row.
    while last < len(run) and run[last][0].text[:1].islower():
        last += 1
    yield run[first:last]


def _is_row(line: Line) -> bool:
    longest = max(len(segment.words) for segment in line[1:]) if len(line) > 1 else 0
    return len(line) > 1 and longest <= _LONGEST_CELL and len(line[0].words) <= _LONGEST_LABEL


def _is_short(line: Line) -> bool:
    return len(line) == 1 and len(line[0].words) <= _LONGEST_CELL


def _follows(run: Sequence[Line], line: Line) -> bool:
    above = run[-1]
    size = max(segment.size for segment in (*above, *line))
    gap = min(s.top for s in line) - max(s.bottom for s in above)
    left, right = min(one[0].left for one in run), max(one[-1].right for one in run)
    beside = line[0].left > right or line[-1].right < left
    # The size of a dash isn't the font size.
    sizes = [s.size for s in (*above, *line) if any(c.isalnum() for c in s.text)]
    alike = not sizes or max(sizes) < _MAX_SIZE_RATIO * min(sizes)
    max_gap = _ROW_GAP if _is_row(above) and _is_row(line) else _LINE_GAP
    return -size < gap < max_gap * size and alike and not beside


def _split_beside(run: list[Line]) -> list[list[Line]]:
    """Separate tables that are side by side, where labels with values follow values."""
    labels = [
        label
        for line in run
        for value, label, after in zip(line, line[1:], line[2:], strict=False)
        if value.words[-1].is_value and after.is_value and not any(c.isdigit() for c in label.text)
    ]
    for label in labels:
        if sum(abs(other.left - label.left) < label.size for other in labels) > 1:
            edge = label.left - label.size / 2
            left = [[s for s in line if s.left < edge] for line in run]
            right = [[s for s in line if s.left >= edge] for line in run]
            parts = [[line for line in part if line] for part in (left, right)]
            return [table for part in parts for table in _split_beside(part)]
    return [run]
