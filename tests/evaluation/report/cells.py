"""Helpers for tables."""

from __future__ import annotations

from visar.evaluation.report.markup import Cell, Report, Table


def report_with(table: Table) -> Report:
    """Return a report that only has a table."""
    return Report("Title", (), (table,), (), [])


def row(table: Table, *start: str) -> dict[str, Cell]:
    """Return the cells of the row with the given first values, by column."""
    for cells in table.rows:
        if tuple(cell.value for cell in cells[: len(start)]) == start:
            return dict(zip(table.columns, cells, strict=True))
    raise AssertionError(f"{start} is not in {table.title}")
