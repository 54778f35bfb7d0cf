"""Tables of a page as grids: which cell stands in which row and under which header.

Rows come from lines, columns from where the numbers of all rows stand. A grid is given only if it
is consistent: no row has two cells in one column, and no cell of the body covers two columns. What
looks like a table and has no such grid is not one, so that no number is read beside a wrong label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from visar.documents.page import Cell
from visar.documents.segments import PlacedWord, Segment

# Most words of a cell, and of a label in the first column.
_LONGEST_CELL = 10
_LONGEST_LABEL = 16
# Mean number of words of cells, at most: lines of text have more.
_MEAN_CELL = 4.5
_MEAN_LABEL = 3.5
# Lines of a table are at most this many font sizes apart.
_LINE_GAP = 2.6
# Lines of one cell are at most this many font sizes apart, from middle to middle.
_LINE_PITCH = 1.5
# Letters of neighboring lines differ at most by this factor.
_MOST_LARGER = 1.4
_MOST_COLUMNS = 20
# Share of the rows that must have a label: in charts numbers stand alone.
_FEWEST_LABELED = 0.7
# Entries of a table of contents, at least.
_FEWEST_ENTRIES = 4

Line: TypeAlias = list[Segment]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page."""

    cells: tuple[Cell, ...]
    header_rows: int
    is_contents: bool = False
    """Whether it is a table of contents: titles with increasing page numbers."""


def find_tables(segments: Iterable[Segment]) -> Iterator[Table]:
    """Yield the tables among the segments of a page, in reading order."""
    lines: dict[int, Line] = {}
    for segment in segments:
        lines.setdefault(segment.line, []).append(segment)
    for run in _runs(_join_parted([lines[number] for number in sorted(lines)])):
        for part in _beside(run):
            table = _grid(part)
            if table is not None:
                yield table


def _join_parted(lines: list[Line]) -> list[Line]:
    """Join the halves of rows that reading order has taken for lines of two columns of text."""
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
    """Yield runs of lines, each with the nearest line to its left at the same height."""
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
            (run if near and below else rest).append((a, b))
        yield run
        pairs = rest


def _overlap(one: Line, other: Line) -> bool:
    return one[0].left < other[-1].right and other[0].left < one[-1].right


def _are_cells(lines: Sequence[Line], pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether lines side by side are cells of a table rather than two columns of text."""
    right = [segment for _, b in pairs for segment in lines[b]]
    fewest = 2 if all(segment.is_value for segment in right) else 3
    if len(pairs) < fewest:
        return False
    for side in ([segment for a, _ in pairs for segment in lines[a]], right):
        if sum(len(segment.words) for segment in side) > _MEAN_CELL * len(side):
            return False
    if sum(lines[a][0].has_letters for a, _ in pairs) < _FEWEST_LABELED * len(pairs):
        return False
    starts = [lines[a][0].left for a, _ in pairs]
    aligned = sum(abs(start - min(starts)) < lines[pairs[0][0]][0].size for start in starts)
    return aligned >= 0.7 * len(pairs)


def _between(lines: Sequence[Line], rows: Sequence[Line], joined: set[int]) -> set[int]:
    """Return the short lines that stand between rows, or directly above them."""
    size = rows[0][0].size
    top = min(s.top for row in rows for s in row) - _LINE_GAP * size
    bottom = max(s.bottom for row in rows for s in row)
    left = min(row[0].left for row in rows)
    right = max(row[-1].right for row in rows)
    return {
        n
        for n, line in enumerate(lines)
        if n not in joined
        and (_is_row(line) or _is_short(line))
        and top < line[0].middle < bottom
        and left - size < line[0].left
        and line[-1].right < right + size
    }


def _runs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield consecutive lines that may be the rows of a table."""
    run: list[Line] = []
    for line in lines:
        if run and not _follows(run, line):
            yield from _trimmed(run)
            run = []
        if _is_row(line) or _is_short(line):
            run.append(line)
        else:
            yield from _trimmed(run)
            run = []
    yield from _trimmed(run)


def _trimmed(run: list[Line]) -> Iterator[list[Line]]:
    """Yield the part of a run from its first row to its last, with a header line above it."""
    rows = [position for position, line in enumerate(run) if _is_row(line)]
    if len(rows) < 2:
        return
    first, last = rows[0], rows[-1] + 1
    left = min(line[0].left for line in run[first:last])
    # A line above that stands over the columns, not over the labels, heads them.
    while first and run[first - 1][0].left > left + 6 * run[first - 1][0].size:
        first -= 1
    # The end of a label that goes on below its row.
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
    # The size of a dash says little.
    sizes = [s.size for s in (*above, *line) if any(c.isalnum() for c in s.text)]
    alike = not sizes or max(sizes) < _MOST_LARGER * min(sizes)
    return -size < gap < _LINE_GAP * size and alike and not beside


def _beside(run: list[Line]) -> list[list[Line]]:
    """Part tables that stand side by side: where labels with values follow values."""
    labels = [
        label
        for line in run
        for value, label, after in zip(line, line[1:], line[2:], strict=False)
        if value.is_value and after.is_value and not any(c.isdigit() for c in label.text)
    ]
    for label in labels:
        if sum(abs(other.left - label.left) < label.size for other in labels) > 1:
            edge = label.left - label.size / 2
            left = [[s for s in line if s.left < edge] for line in run]
            right = [[s for s in line if s.left >= edge] for line in run]
            parts = [[line for line in part if line] for part in (left, right)]
            return [done for part in parts for done in _beside(part)]
    return [run]


class _Piece(tuple[PlacedWord, ...]):
    """Words that become a cell."""

    __slots__ = ()

    @property
    def left(self) -> float:
        return min(word.left for word in self)

    @property
    def right(self) -> float:
        return max(word.right for word in self)

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    @property
    def is_value(self) -> bool:
        return any(word.is_value for word in self) and all(w.is_value or w.is_sign for w in self)

    @property
    def is_period(self) -> bool:
        return all(word.is_period for word in self)

    @property
    def is_name(self) -> bool:
        """Whether it can name a row: a text or a year, not a number."""
        return self.is_period or any(word.has_letter for word in self)

    @property
    def has_number(self) -> bool:
        """Whether it has a number that is not a year."""
        return any(any(c.isdigit() for c in word.text) and not word.is_period for word in self)


def _grid(lines: list[Line]) -> Table | None:
    rows = [_pieces(line) for line in lines]
    header_rows = _count_headers(rows)
    body = [row for row in rows[header_rows:] if len(row) > 1]
    if len(body) < 2:
        return None
    columns = _columns(body)
    if header_rows == 0 and columns and all(len(r) == 2 and r[1].is_value for r in body):
        # A bar chart: the numbers stand at the ends of the bars.
        columns = [(min(left for left, _ in columns), max(right for _, right in columns))]
    if columns is None or not 1 <= len(columns) < _MOST_COLUMNS:
        return None
    has_values = any(piece.is_value for row in body for piece in row[1:])
    if not has_values and not _is_text_table(body, columns):
        return None
    placed = [_place_headers(row, columns) for row in rows[:header_rows]]
    for row in rows[header_rows:]:
        found = _place(row, columns)
        if found is None:
            return None
        placed.append(found)
    joined = _join_wrapped(placed, header_rows, lines) or _join_labels(placed, header_rows, lines)
    # A title above the table or a note below it is not part of it.
    while header_rows and _is_label(joined[0]):
        joined, header_rows = joined[1:], header_rows - 1
    while joined and _is_label(joined[-1]):
        joined.pop()
    while header_rows and _is_label(joined[header_rows - 1]):
        header_rows -= 1  # the label of a group of rows
    valued = [row for row in joined[header_rows:] if not _is_label(row)]
    labeled = sum(row[0][1] == 0 and row[0][0].is_name for row in valued)
    if len(valued) < 2 or labeled < _FEWEST_LABELED * len(valued):
        return None
    cells = tuple(
        Cell(tuple(word.index for word in piece), number, column, span)
        for number, row in enumerate(joined)
        for piece, column, span in row
    )
    return Table(cells, header_rows, _is_contents(joined, header_rows))


_Placed: TypeAlias = list[tuple[_Piece, int, int]]
"""Cells of a row: words, first column, number of columns."""


def _pieces(line: Line) -> list[_Piece]:
    """Cut a line into cells: at wide gaps, and between numbers."""
    pieces: list[_Piece] = []
    for segment in line:
        start = 0
        words = segment.words
        if segment.is_value:
            for end in range(1, len(words)):
                if words[end].is_value and any(word.is_value for word in words[start:end]):
                    pieces.append(_Piece(words[start:end]))
                    start = end
        pieces.append(_Piece(words[start:]))
    return pieces


def _count_headers(rows: Sequence[Sequence[_Piece]]) -> int:
    """Count the rows before the first one with a number that is not a year."""
    for count, row in enumerate(rows):
        if any(piece.is_value and not piece.is_period for piece in row):
            return count
    # No column of numbers alone: the first row is a header if numbers begin below it.
    numbered = sum(any(piece.has_number for piece in row[1:]) for row in rows[1:])
    headed = not any(piece.has_number for piece in rows[0]) and len(rows[0]) > 1
    return int(headed and numbered >= max(2, 0.4 * (len(rows) - 1)))


def _columns(body: Sequence[Sequence[_Piece]]) -> list[Interval] | None:
    """Return where the columns right of the labels stand; None if cells cover several."""
    values = [piece for row in body for piece in row if piece.is_value]
    labels = [row[0] for row in body if not row[0].is_value]
    # Without labels the first column takes their place.
    cells = [p for p in values if not labels or p.left > min(label.left for label in labels)]
    columns = _clusters([(piece.left, piece.right) for piece in cells])
    texts = [piece for row in body for piece in row[1:] if not piece.is_value]
    apart = [piece for piece in texts if not _touching(piece, columns)]
    columns = sorted([*columns, *_clusters([(piece.left, piece.right) for piece in apart])])
    for text in texts:
        touching = _touching(text, columns)
        if len(touching) > 1:
            return None
        if touching:
            left, right = columns[touching[0]]
            columns[touching[0]] = min(left, text.left), max(right, text.right)
    if any(right > left for (_, right), (left, _) in pairwise(columns)):
        return None
    return columns if labels else columns[1:]


def _clusters(intervals: list[Interval]) -> list[Interval]:
    clusters: list[Interval] = []
    for left, right in sorted(intervals):
        if clusters and left < clusters[-1][1]:
            clusters[-1] = clusters[-1][0], max(right, clusters[-1][1])
        else:
            clusters.append((left, right))
    return clusters


def _touching(piece: _Piece, columns: Sequence[Interval]) -> list[int]:
    return [n for n, (left, right) in enumerate(columns) if piece.left < right > left < piece.right]


def _place(row: Sequence[_Piece], columns: Sequence[Interval]) -> _Placed | None:
    """Assign the cells of a row of the body to columns, 0 for labels; None if that is ambiguous."""
    taken: dict[int, _Piece] = {}
    for piece in row:
        touching = _touching(piece, columns)
        is_label = piece.left < columns[0][0] and not piece.is_value
        if is_label and 0 not in taken:
            # A label may run below the first numbers of other rows, if it has none itself.
            if len(touching) > 0 and len(row) > 1 and row[1].left < columns[touching[-1]][1]:
                return None
            taken[0] = piece
            continue
        column = touching[0] + 1 if touching else (0 if piece.right <= columns[0][0] else -1)
        if len(touching) > 1 or column < 0 or column in taken:
            return None
        taken[column] = piece
    return [(piece, column, 1) for column, piece in sorted(taken.items())]


def _place_headers(row: Sequence[_Piece], columns: Sequence[Interval]) -> _Placed:
    """Assign the cells of a header row to the columns that they stand over."""
    found: dict[tuple[int, int], _Piece] = {}
    if len(row) == 1 and row[0].left < columns[0][0] - 2 * row[0][0].size:
        return [(row[0], 0, 1)]  # a title
    for piece in (part for whole in row for part in _split_header(whole, columns)):
        over = _over(piece, columns)
        first, last = (over[0] + 1, over[-1] + 1) if over else (0, 0)
        key = first, last - first + 1
        found[key] = _Piece((*found.get(key, ()), *piece))
    return [(piece, column, span) for (column, span), piece in sorted(found.items())]


def _over(piece: _Piece, columns: Sequence[Interval]) -> list[int]:
    """Return the columns below a header: those it touches, or else the nearest one."""
    touching = _touching(piece, columns)
    if touching or piece.right < columns[0][0] - piece[0].size:
        return touching
    away = [max(left - piece.right, piece.left - right) for left, right in columns]
    nearest = min(range(len(columns)), key=away.__getitem__)
    return [nearest] if away[nearest] < 3 * piece[0].size else []


def _split_header(piece: _Piece, columns: Sequence[Interval]) -> Iterator[_Piece]:
    """Cut headers that stand close together at the edges of columns."""
    if len(_over(piece, columns)) < 2:
        yield piece
        return
    gaps = [after.left - before.right for before, after in pairwise(piece)]
    usual = median(gaps) if gaps else 0.0
    edges = [(right + left) / 2 for (_, right), (left, _) in pairwise(columns)]
    start = 0
    for end, gap in enumerate(gaps, 1):
        before, after = piece[end - 1], piece[end]
        crosses = any((before.left + before.right) / 2 < edge < after.right for edge in edges)
        if crosses and ((before.is_period and after.is_period) or gap > 1.3 * usual):
            yield _Piece(piece[start:end])
            start = end
    yield _Piece(piece[start:])


def _join_wrapped(rows: list[_Placed], header_rows: int, lines: Sequence[Line]) -> list[_Placed]:
    """Join the lines of cells that have several; empty if the rows have one line each.

    Lines of a cell stand closer together than rows do.
    """
    pitches = [b[0].middle - a[0].middle for a, b in pairwise(lines[header_rows:])]
    size = median(line[0].size for line in lines)
    close = [pitch for pitch in pitches if pitch < _LINE_PITCH * size]
    apart = [pitch for pitch in pitches if pitch > 1.2 * median(close)] if close else []
    if len(apart) < 1 or len(close) < 1 or len(apart) + len(close) < 3:
        return []
    edge = (median(close) + min(apart)) / 2
    joined: list[_Placed] = rows[: header_rows + 1]
    wrapped = 0
    for pitch, row in zip(pitches, rows[header_rows + 1 :], strict=True):
        if pitch > edge:
            joined.append(row)
            continue
        cells = {column: piece for piece, column, _ in joined[-1]}
        known = {column for piece, column, _ in row}
        if any(p.is_value and column in cells and cells[column].is_value for p, column, _ in row):
            return []  # numbers do not wrap
        wrapped += len(known) < len(cells) or any(p[0].text[:1].islower() for p, _, _ in row)
        for piece, column, _ in row:
            cells[column] = _Piece((*cells.get(column, ()), *piece))
        joined[-1] = [(piece, column, 1) for column, piece in sorted(cells.items())]
    return joined if wrapped >= 0.5 * (len(rows) - len(joined)) > 0 else []


def _is_label(row: _Placed) -> bool:
    """Whether a row has a label and nothing else."""
    return all(column == 0 for _, column, _ in row)


def _join_labels(rows: list[_Placed], header_rows: int, lines: Sequence[Line]) -> list[_Placed]:
    """Join labels of several lines: one above a row without a label, or one that goes on below."""
    joined: list[_Placed] = []
    for number, row in enumerate(rows):
        above = joined[-1] if number > header_rows else None
        size = lines[number][0].size
        gap = lines[number][0].top - lines[number - 1][0].bottom if number else size
        if above and gap < 0.7 * size:
            goes_on = _is_label(row) and row[0][0][0].text[:1].islower()
            if goes_on or (_is_label(above) and all(column for _, column, _ in row)):
                labels = [p for p, column, _ in (*above, *row) if column == 0]
                cells = [cell for cell in (*above, *row) if cell[1] > 0]
                joined[-1] = [(_Piece(w for p in labels for w in p), 0, 1), *cells]
                continue
        joined.append(row)
    return joined


def _is_text_table(body: Sequence[Sequence[_Piece]], columns: Sequence[Interval]) -> bool:
    """Whether rows without numbers are a table: several rows whose cells begin at the same places."""
    starts = [left for left, _ in columns]
    aligned = sum(
        all(any(abs(piece.left - left) < piece[0].size for left in starts) for piece in row[1:])
        for row in body
    )
    words = sum(len(piece) for row in body for piece in row) / sum(len(row) for row in body)
    # Two columns of text beside each other are aligned too.
    short = words <= (_MEAN_CELL if len(columns) > 1 else _MEAN_LABEL)
    return len(body) > 2 and aligned > 0.8 * len(body) and len(columns) < 5 and short


def _is_contents(rows: Sequence[_Placed], header_rows: int) -> bool:
    numbers = []
    for row in rows[header_rows:]:
        values = [piece for piece, column, _ in row if column > 0]
        if len(values) > 1 or any(len(p) > 1 or not p[0].text.isdigit() for p in values):
            return False
        numbers += [int(piece[0].text) for piece in values]
    rising = all(before <= after for before, after in pairwise(numbers))
    return rising and len(numbers) >= _FEWEST_ENTRIES and numbers[0] < numbers[-1] < 2000
