"""Quoted tables, printed in the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from visar.results import QuotedCell
from visar.text import clean_line

ANSWER_MARK = "▸"
_GAP = 3
_NUMBER = re.compile(r"[^\w]*\d[^a-z]*[a-z%]{0,3}[^\w]*", re.IGNORECASE)


def table_rows(cells: Sequence[QuotedCell]) -> list[Text]:
    """Return the rows of a quoted table as lines, with numbers aligned to the right."""
    texts = [_marked(cell) for cell in cells]
    widths = [0] * max(cell.column + cell.span for cell in cells)
    # Cells that span columns come last: they only widen columns that are too narrow.
    for cell, text in sorted(zip(cells, texts, strict=True), key=lambda pair: pair[0].span):
        last = cell.column + cell.span - 1
        widths[last] += max(0, cell_len(text) - _width(widths, cell))
    numeric = _numeric_columns(cells)
    lines = [Text() for _ in range(1 + max(cell.row for cell in cells))]
    for cell, text in sorted(zip(cells, texts, strict=True), key=lambda pair: pair[0].column):
        free = _width(widths, cell) - cell_len(text)
        before = free // 2 if cell.span > 1 else free if cell.column in numeric else 0
        line = lines[cell.row]
        line.append(" " * (_start(widths, cell.column) + before - line.cell_len))
        line.append(text, "bold" if cell.answer else "")
    return lines


def _marked(cell: QuotedCell) -> str:
    return f"{ANSWER_MARK if cell.answer else ''}{clean_line(cell.text)}"


def _start(widths: Sequence[int], column: int) -> int:
    return sum(widths[:column]) + _GAP * column


def _width(widths: Sequence[int], cell: QuotedCell) -> int:
    return sum(widths[cell.column : cell.column + cell.span]) + _GAP * (cell.span - 1)


def _numeric_columns(cells: Sequence[QuotedCell]) -> set[int]:
    """Return the columns most of whose cells below the headers are numbers."""
    columns: dict[int, list[bool]] = {}
    for cell in cells:
        if not cell.header and cell.span == 1 and cell.column:
            columns.setdefault(cell.column, []).append(bool(_NUMBER.fullmatch(cell.text)))
    return {column for column, numbers in columns.items() if 2 * sum(numbers) > len(numbers)}
