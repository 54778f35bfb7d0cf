"""Finding the way in tables."""

from __future__ import annotations

from visar.evaluation.report.markup import Cell, Report, Table


def alone(table: Table) -> Report:
    """A report with nothing else in it."""
    return Report("Title", (), (table,), (), "[]")


def row(table: Table, *start: str) -> dict[str, Cell]:
    """The cells of the row that begins so, by column."""
    for cells in table.rows:
        if tuple(cell.value for cell in cells[: len(start)]) == start:
            return dict(zip(table.columns, cells, strict=True))
    raise AssertionError(f"{start} is not in {table.title}")
