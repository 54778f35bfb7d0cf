"""A table of numbers, and how it looks as Markdown, HTML and JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

NOTHING = "—"


@dataclass(frozen=True, slots=True)
class Cell:
    """A number with what belongs to it, or a word."""

    value: float | str | None
    digits: int = 0
    """Decimals that are shown."""
    spread: float | None = None
    """The standard deviation."""
    interval: tuple[float, float] | None = None
    remark: str | None = None
    """In parentheses after the number."""
    paper: float | None = None
    """The paper's number of the same setting."""
    marked: bool = False
    """Shown in bold."""

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, str)

    @property
    def text(self) -> str:
        """All but the paper's number."""
        if isinstance(self.value, str):
            return self.value
        if self.value is None or not math.isfinite(self.value):
            return NOTHING
        shown = self._show(self.value)
        if self.spread is not None:
            shown += f" ± {self._show(self.spread)}"
        if self.interval is not None:
            shown += f" ({self._show(self.interval[0])}–{self._show(self.interval[1])})"
        return shown if self.remark is None else f"{shown} ({self.remark})"

    @property
    def paper_text(self) -> str | None:
        return None if self.paper is None else f"paper {self._show(self.paper)}"

    def _show(self, number: float) -> str:
        return f"{number:.{self.digits}f}".replace("-", "−")

    def to_json(self) -> Any:
        """The bare value where there is nothing else to say."""
        known = {
            "value": self.value,
            "spread": self.spread,
            "interval": None if self.interval is None else list(self.interval),
            "remark": self.remark,
            "paper": self.paper,
            "marked": self.marked or None,
        }
        more = {name: value for name, value in known.items() if value is not None}
        return more if more.keys() - {"value"} else self.value


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns, with what a reader must know about them."""

    key: str
    """Tells it apart from the report's other tables: letters, digits and hyphens."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def make_key(*parts: str) -> str:
    """A key for an address within the page and a file's name.

    >>> make_key("Table 1", "MMLongBench", "a/b")
    'table-1-mmlongbench-a-b'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def to_markdown(table: Table) -> str:
    """A table as GitHub's Markdown, with its title and notes."""
    numeric = _numeric_columns(table)
    lines = [
        f"### {escape_markdown(table.title)}",
        "",
        _markdown_row([escape_markdown(column) for column in table.columns]),
        _markdown_row(["---:" if right else "---" for right in numeric]),
        *(_markdown_row([_markdown_cell(cell) for cell in row]) for row in table.rows),
        "",
        *(f"- {escape_markdown(note)}" for note in table.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def to_html(table: Table) -> str:
    """A table as a figure of HTML, wide ones scrolling within it."""
    numeric = _numeric_columns(table)
    head = "".join(
        f'<th scope="col"{_side(right)}>{escape(column)}</th>'
        for column, right in zip(table.columns, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_side(right)}>{_html_cell(cell)}</td>"
            for cell, right in zip(row, numeric, strict=True)
        )
        + "</tr>\n"
        for row in table.rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<section id="{escape(table.key)}">\n<h3>{escape(table.title)}</h3>\n'
        '<div class="wide" tabindex="0">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
        + (f'<ul class="notes">{notes}</ul>\n' if notes else "")
        + "</section>\n"
    )


def to_json(table: Table) -> dict[str, Any]:
    """A table as plain values; numbers are not rounded."""
    return {
        "key": table.key,
        "title": table.title,
        "columns": list(table.columns),
        "rows": [[cell.to_json() for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def escape_markdown(text: str) -> str:
    r"""Text that means nothing to Markdown, on one line.

    >>> escape_markdown("a|b *c* <d>")
    'a\\|b \\*c\\* \\<d\\>'
    """
    return re.sub(r"([\\`*_|<>\[\]#&~$])", r"\\\1", " ".join(text.split()))


def _numeric_columns(table: Table) -> list[bool]:
    return [
        all(row[place].is_number for row in table.rows) and bool(table.rows)
        for place in range(len(table.columns))
    ]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    if cell.marked:
        text = f"**{text}**"
    return text if cell.paper_text is None else f"{text} · {cell.paper_text}"


def _side(right: bool) -> str:
    return ' class="number"' if right else ""


def _html_cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.marked:
        text = f"<strong>{text}</strong>"
    if cell.paper_text is not None:
        text += f' <span class="paper">{escape(cell.paper_text)}</span>'
    return text
