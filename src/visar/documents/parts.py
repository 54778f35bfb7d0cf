"""The parts of a file without pages, such as a text or a workbook, before typesetting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, with the line breaks of the file."""

    text: str
    heading: int = 0
    """Level of a heading from 1; 0 for other text."""
    marker: str = ""
    """Bullet or number of a list item."""
    indent: int = 0
    """Nesting depth in lists and quotations."""
    fixed: bool = False
    """True for monospaced text, such as code."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table."""

    rows: Sequence[Sequence[str]]
    header_rows: int = 0


@dataclass(frozen=True, slots=True)
class PageBreak:
    """A page break before the next part."""


Part: TypeAlias = Paragraph | Grid | PageBreak


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a file."""

    parts: Iterable[Part]
    metadata: dict[str, str | int] = field(default_factory=dict)
    """Title, author and year, as far as the file contains them."""


def grid_parts(rows: Iterable[Sequence[str]]) -> Iterator[Part]:
    """Yield the tables between empty rows, without empty columns, and the titles above them."""
    block: list[Sequence[str]] = []
    for row in (*rows, ()):
        if any(row):
            block.append(row)
        elif block:
            yield from _block_parts(block)
            block = []


def _block_parts(rows: list[Sequence[str]]) -> Iterator[Part]:
    used = sorted({column for row in rows for column, cell in enumerate(row) if cell})
    table = [[row[column] if column < len(row) else "" for column in used] for row in rows]
    while table and len(used) > 1 and sum(map(bool, table[0])) == 1:
        yield Paragraph("".join(table.pop(0)))
    if len(used) == 1:
        yield from (Paragraph(cell) for (cell,) in table)
    elif table:
        yield Grid(table, int(len(table) > 1 and not any(map(is_number, table[0]))))


def is_number(cell: str) -> bool:
    """Return whether a cell contains a number, such as -1,234.50, 12% or €3.

    >>> [is_number(cell) for cell in ("-1,234.50", "12 %", "€3", "Q3", "")]
    [True, True, True, False, False]
    """
    return any(c.isdigit() for c in cell) and not any(c.isalpha() for c in cell)
