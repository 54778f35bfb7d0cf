"""Finding the tables of a page, as grids of cells.

Rows come from lines, columns from the positions of the numbers in all rows. A grid must be
consistent: no row has two cells in one column, and no cell of the body spans two columns. Anything
else isn't treated as a table, so that no number gets a wrong label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from visar.documents.page import Cell
from visar.documents.rows import FEWEST_LABELED, MEAN_CELL, Line, find_rows
from visar.documents.segments import PlacedWord, Segment

# Maximum mean number of words of the cells of a table with two columns and without numbers.
_MEAN_LABEL = 3.5
# Maximum distance between the middles of two lines of a cell, in font sizes.
_LINE_PITCH = 1.5
_MAX_COLUMNS = 20
_MAX_HEADERS = 5
# Minimum share of cells that aren't empty.
_MIN_FILLED = 0.4
_LONGEST_HEADER = 8
# A gap that exceeds the median by this many font sizes may separate two tables.
_EXTRA_GAP = 0.3
# Minimum number of entries of a table of contents.
_MIN_ENTRIES = 4

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page."""

    cells: tuple[Cell, ...]
    header_rows: int
    is_contents: bool = False
    """True for a table of contents: titles with increasing page numbers."""


def find_tables(segments: Iterable[Segment]) -> Iterator[Table]:
    """Yield the tables among the segments of a page, in reading order."""
    for rows in find_rows(segments):
        for part in _split_at_headers(rows):
            yield from _grids(part)


def _split_at_headers(lines: list[Line]) -> Iterator[list[Line]]:
    """Split lines into tables where the years of the first header are repeated."""
    part: list[Line] = []
    first: list[str] = []
    for line in lines:
        pieces = _pieces(line)
        periods = [word.text for piece in pieces if piece.is_period for word in piece.words]
        numbers = any(piece.is_value and not piece.is_period for piece in pieces)
        if periods and not numbers and len(pieces) > 1:
            if periods == first:
                yield part
                part = []
            first = first or periods
        part.append(line)
    yield part


def _grids(lines: list[Line]) -> Iterator[Table]:
    """Yield the grid of lines; if there is none, split the lines at the largest gap and retry."""
    table = _grid(lines)
    if table is not None:
        yield table
        return
    gaps = [b[0].top - a[0].bottom for a, b in pairwise(lines)]
    if len(gaps) < 2 or max(gaps) < median(gaps) + _EXTRA_GAP * lines[0][0].size:
        return
    cut = gaps.index(max(gaps)) + 1
    yield from _grids(lines[:cut])
    yield from _grids(lines[cut:])


def _grid(lines: list[Line]) -> Table | None:
    rows = [_pieces(line) for line in lines]
    header_rows = _count_headers(rows)
    body = [row for row in rows[header_rows:] if len(row) > 1]
    if len(body) < 2 or header_rows > _MAX_HEADERS:
        return None
    columns = _columns(body)
    if header_rows == 0 and columns and all(len(r) == 2 and r[1].is_value for r in body):
        # In a bar chart, the numbers are at the ends of the bars.
        columns = [(min(left for left, _ in columns), max(right for _, right in columns))]
    if columns is None or not 1 <= len(columns) < _MAX_COLUMNS:
        return None
    has_values = any(piece.is_value for row in body for piece in row[1:])
    if not has_values and not _is_text_table(body, columns):
        return None
    placed_rows = [_place_headers(row, columns) for row in rows[:header_rows]]
    for row in rows[header_rows:]:
        cells_of_row = _place(row, columns)
        if cells_of_row is None:
            return None
        placed_rows.append(cells_of_row)
    grid_rows = _join_wrapped(placed_rows, header_rows, lines) or _join_labels(
        placed_rows, header_rows, lines
    )
    grid_rows, header_rows = _drop_titles(grid_rows, header_rows)
    if any(_reaches_beyond(row, columns) for row in grid_rows[:header_rows]):
        return None
    valued = [row for row in grid_rows[header_rows:] if not _is_label(row)]
    if sum(map(len, valued)) < _MIN_FILLED * len(valued) * (len(columns) + 1):
        return None
    labeled = sum(row[0][1] == 0 and row[0][0].is_name for row in valued)
    if len(valued) < 2 or labeled < FEWEST_LABELED * len(valued):
        return None
    cells = tuple(
        Cell(tuple(word.index for word in piece.words), number, column, span)
        for number, row in enumerate(grid_rows)
        for piece, column, span in row
    )
    return Table(cells, header_rows, _is_contents(grid_rows, header_rows))


_Row: TypeAlias = list[tuple[Segment, int, int]]
"""The cells of a row: words, first column, number of columns."""


def _pieces(line: Line) -> list[Segment]:
    """Split a line into cells at wide gaps and between numbers."""
    pieces: list[Segment] = []
    for segment in line:
        start = 0
        words = segment.words
        if segment.is_value:
            for end in range(1, len(words)):
                if words[end].is_value and any(word.is_value for word in words[start:end]):
                    pieces.append(Segment(words[start:end]))
                    start = end
        pieces.append(Segment(words[start:]))
    return pieces


def _count_headers(rows: Sequence[Sequence[Segment]]) -> int:
    """Return the number of rows before the first one with a number other than a year."""
    for count, row in enumerate(rows):
        if any(piece.is_number for piece in row):
            return count
    # Without a column of pure numbers, the first row is a header if the rows below have numbers.
    numbered = sum(any(piece.has_number for piece in row[1:]) for row in rows[1:])
    headed = not any(piece.has_number for piece in rows[0]) and len(rows[0]) > 1
    return int(headed and numbered >= max(2, 0.4 * (len(rows) - 1)))


def _columns(body: Sequence[Sequence[Segment]]) -> list[Interval] | None:
    """Return the columns to the right of the labels, or None if cells span several."""
    labels = [row[0] for row in body if not row[0].is_value]
    # Without labels, the first column serves as labels.
    cells = [p for row in body for p in (row[1:] if labels else row) if p.is_value]
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


def _touching(piece: Segment, columns: Sequence[Interval]) -> list[int]:
    return [n for n, (left, right) in enumerate(columns) if piece.left < right > left < piece.right]


def _place(row: Sequence[Segment], columns: Sequence[Interval]) -> _Row | None:
    """Assign the cells of a body row to columns, 0 for labels; return None if it is ambiguous."""
    by_column: dict[int, Segment] = {}
    for piece in row:
        touching = _touching(piece, columns)
        is_label = piece.left < columns[0][0] and not piece.is_value
        if is_label and 0 not in by_column:
            # A label may extend below the first numbers of other rows, if its row has none there.
            if len(touching) > 0 and len(row) > 1 and row[1].left < columns[touching[-1]][1]:
                return None
            by_column[0] = piece
            continue
        column = touching[0] + 1 if touching else (0 if piece.right <= columns[0][0] else -1)
        if len(touching) > 1 or column < 0 or column in by_column:
            return None
        by_column[column] = piece
    return [(piece, column, 1) for column, piece in sorted(by_column.items())]


def _place_headers(row: Sequence[Segment], columns: Sequence[Interval]) -> _Row:
    """Assign the cells of a header row to the columns below them."""
    by_columns: dict[tuple[int, int], tuple[PlacedWord, ...]] = {}
    if len(row) == 1 and row[0].left < columns[0][0] - 2 * row[0].words[0].size:
        return [(row[0], 0, 1)]  # a title
    for piece in (part for whole in row for part in _split_header(whole, columns)):
        over = _over(piece, columns)
        first, last = (over[0] + 1, over[-1] + 1) if over else (0, 0)
        key = first, last - first + 1
        by_columns[key] = (*by_columns.get(key, ()), *piece.words)
    return [(Segment(by_columns[key]), *key) for key in sorted(by_columns)]


def _over(piece: Segment, columns: Sequence[Interval]) -> list[int]:
    """Return the columns below a header: those that overlap it, or the nearest one."""
    touching = _touching(piece, columns)
    if touching or piece.right < columns[0][0] - piece.words[0].size:
        return touching
    away = [max(left - piece.right, piece.left - right) for left, right in columns]
    nearest = min(range(len(columns)), key=away.__getitem__)
    return [nearest] if away[nearest] < 3 * piece.words[0].size else []


def _split_header(piece: Segment, columns: Sequence[Interval]) -> Iterator[Segment]:
    """Split headers that are close together at the edges of columns."""
    if len(_over(piece, columns)) < 2:
        yield piece
        return
    words = piece.words
    gaps = [after.left - before.right for before, after in pairwise(words)]
    usual = median(gaps) if gaps else 0.0
    edges = [(right + left) / 2 for (_, right), (left, _) in pairwise(columns)]
    start = 0
    for end, gap in enumerate(gaps, 1):
        before, after = words[end - 1], words[end]
        crosses = any((before.left + before.right) / 2 < edge < after.right for edge in edges)
        if crosses and ((before.is_period and after.is_period) or gap > 1.3 * usual):
            yield Segment(words[start:end])
            start = end
    yield Segment(words[start:])


def _join_wrapped(rows: list[_Row], header_rows: int, lines: Sequence[Line]) -> list[_Row]:
    """Join the lines of wrapped cells; return an empty list if every row has one line.

    Lines of a cell are closer together than rows.
    """
    pitches = [b[0].middle - a[0].middle for a, b in pairwise(lines[header_rows:])]
    size = median(line[0].size for line in lines)
    close = [pitch for pitch in pitches if pitch < _LINE_PITCH * size]
    apart = [pitch for pitch in pitches if pitch > 1.2 * median(close)] if close else []
    if len(apart) < 1 or len(close) < 1 or len(apart) + len(close) < 3:
        return []
    edge = (median(close) + min(apart)) / 2
    result: list[_Row] = rows[: header_rows + 1]
    wrapped = 0
    for pitch, row in zip(pitches, rows[header_rows + 1 :], strict=True):
        if pitch > edge:
            result.append(row)
            continue
        cells = {column: piece for piece, column, _ in result[-1]}
        if any(p.is_value and column in cells and cells[column].is_value for p, column, _ in row):
            return []  # numbers don't wrap
        wrapped += len(row) < len(cells) or any(p.text[:1].islower() for p, _, _ in row)
        for piece, column, _ in row:
            cells[column] = _joined(cells[column], piece) if column in cells else piece
        result[-1] = [(piece, column, 1) for column, piece in sorted(cells.items())]
    return result if wrapped >= 0.5 * (len(rows) - len(result)) > 0 else []


def _drop_titles(rows: list[_Row], header_rows: int) -> tuple[list[_Row], int]:
    """Drop titles and text above a table, and notes below it; return the rest and its headers."""
    # Rows above a line of text, or above a title with headers below it, aren't part of the table.
    above = [n for n in range(header_rows) if _is_text(rows[n])]
    above += [
        n for n in range(header_rows - 1) if _is_label(rows[n]) and not _is_label(rows[n + 1])
    ]
    first, last = max(above, default=-1) + 1, len(rows)
    while first < header_rows and _is_label(rows[first]):
        first += 1
    while last > first and _is_label(rows[last - 1]):
        last -= 1
    while header_rows > first and _is_label(rows[header_rows - 1]):
        header_rows -= 1  # the label of a group of rows
    return rows[first:last], header_rows - first


def _reaches_beyond(row: _Row, columns: Sequence[Interval]) -> bool:
    """Return whether headers extend so far beyond the last column that a column is missing."""
    return any(
        len(piece.words) > 1 and piece.right > columns[-1][1] + 3 * piece.words[0].size
        for piece, column, span in row
        if column + span > len(columns)
    )


def _is_text(row: _Row) -> bool:
    """Return whether a row is text, or the years below a chart, rather than headers."""
    cells = [(piece, len(piece.words), column) for piece, column, _ in row]
    years = any(column == 0 and count > 1 and piece.is_period for piece, count, column in cells)
    return years or any(
        count > _LONGEST_HEADER or (count > 3 and piece.text.endswith("."))
        for piece, count, _ in cells
    )


def _is_label(row: _Row) -> bool:
    return all(column == 0 for _, column, _ in row)


def _join_labels(rows: list[_Row], header_rows: int, lines: Sequence[Line]) -> list[_Row]:
    """Join wrapped labels: above a row without a label, or continued below a row."""
    result: list[_Row] = []
    for number, row in enumerate(rows):
        above = result[-1] if number > header_rows else None
        size = lines[number][0].size
        gap = lines[number][0].top - lines[number - 1][0].bottom if number else size
        if above and gap < 0.7 * size:
            continues = _is_label(row) and row[0][0].text[:1].islower()
            if continues or (_is_label(above) and all(column for _, column, _ in row)):
                labels = [p for p, column, _ in (*above, *row) if column == 0]
                cells = [cell for cell in (*above, *row) if cell[1] > 0]
                result[-1] = [(_joined(*labels), 0, 1), *cells]
                continue
        result.append(row)
    return result


def _joined(*pieces: Segment) -> Segment:
    return Segment(tuple(word for piece in pieces for word in piece.words))


def _is_text_table(body: Sequence[Sequence[Segment]], columns: Sequence[Interval]) -> bool:
    """Return whether rows without numbers are a table: short cells that are left-aligned."""
    starts = [left for left, _ in columns]
    aligned = sum(
        all(
            any(abs(piece.left - left) < piece.words[0].size for left in starts)
            for piece in row[1:]
        )
        for row in body
    )
    words = sum(len(piece.words) for row in body for piece in row) / sum(map(len, body))
    # Two columns of text are aligned too, but have more words.
    short = words <= (MEAN_CELL if len(columns) > 1 else _MEAN_LABEL)
    return len(body) > 2 and aligned > 0.8 * len(body) and len(columns) < 5 and short


def _is_contents(rows: Sequence[_Row], header_rows: int) -> bool:
    numbers = []
    for row in rows[header_rows:]:
        values = [piece for piece, column, _ in row if column > 0]
        if len(values) > 1 or any(len(p.words) > 1 or not p.text.isdigit() for p in values):
            return False
        numbers += [int(piece.text) for piece in values]
    rising = all(before <= after for before, after in pairwise(numbers))
    return rising and len(numbers) >= _MIN_ENTRIES and numbers[0] < numbers[-1] < 2000
