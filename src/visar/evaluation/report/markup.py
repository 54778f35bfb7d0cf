"""Tables and figures of a report, and their Markdown, HTML and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from visar.errors import extra_needed
from visar.files import write_whole

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
            low, high = map(self._show, self.interval)
            shown += f" ({low} to {high})" if self.interval[0] < 0 else f" ({low}–{high})"
        return shown if self.remark is None else f"{shown} ({self.remark})"

    @property
    def paper_text(self) -> str | None:
        """The paper's number; of counts, as in "841 / 842"."""
        if self.paper is None:
            return None
        return f"{'paper' if self.digits else '/'} {self._show(self.paper)}"

    def _show(self, number: float) -> str:
        return f"{number:.{self.digits}f}".replace("-", "−")

    def to_json(self) -> Any:
        """The bare value where there is nothing else to say."""
        known = _fields(self, "value", "spread", "interval", "remark", "paper", "marked")
        more = {name: one for name, one in known.items() if one is not None and one is not False}
        return more if more.keys() - {"value"} else self.value


Row: TypeAlias = "dict[str, Cell | float | str | None]"
"""Cells, or their bare values, by column."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns, with what a reader must know about them."""

    key: str
    """Tells it apart from the report's other tables: letters, digits and hyphens."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: str, title: str, rows: Sequence[Row], notes: Iterable[str] = ()) -> Table:
        """Return a table of rows, of which there is at least one, with the same columns each."""
        cells = (
            tuple(one if isinstance(one, Cell) else Cell(one) for one in row.values())
            for row in rows
        )
        return cls(key, title, tuple(rows[0]), tuple(cells), tuple(notes))

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers alone."""
        return [
            bool(self.rows) and not any(isinstance(row[place].value, str) for row in self.rows)
            for place in range(len(self.columns))
        ]


def mark_best(
    rows: Sequence[Row], columns: Iterable[str], group: str | None = None, *, least: bool = False
) -> None:
    """Show the best number of each column in bold, among all rows or those with the same ``group``.

    The highest is the best, or with ``least`` the lowest; a row alone is not marked.
    """
    for column in columns:
        values: dict[object, list[float]] = {}
        for row in rows:
            cell = row[column]
            if isinstance(cell, Cell) and isinstance(cell.value, int | float):
                values.setdefault(group and row[group], []).append(cell.value)
        best = {name: (min if least else max)(of) for name, of in values.items() if len(of) > 1}
        for row in rows:
            cell = row[column]
            if isinstance(cell, Cell) and cell.value == best.get(group and row[group], math.nan):
                row[column] = replace(cell, marked=True)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as SVG."""

    key: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report shows."""

    title: str
    introduction: tuple[str, ...]
    """What is in it and what is not, in plain sentences."""
    tables: tuple[Table, ...]
    figures: tuple[Picture, ...]
    manifest: str
    """As JSON: versions, settings, machine."""
    is_sortable: bool = False
    """Whether the page lets readers sort and filter its tables, by a script of its own."""
    downloads: tuple[str, ...] = ()
    """Names of files beside the page that it links to."""


def write_files(report: Report, folder: Path, name: str) -> Path:
    """Write NAME.html, .md with ``figures/*.svg``, .json and .csv, and return the page.

    Raises MissingExtra if Jinja is not installed.
    """
    page = folder / f"{name}.html"
    files = {folder / "figures" / f"{one.key}.svg": one.svg for one in report.figures} | {
        folder / f"{name}.md": to_markdown(report),
        folder / f"{name}.json": to_json(report),
        folder / f"{name}.csv": to_csv(report),
        page: to_html(report),
    }
    for path, text in files.items():
        write_whole(path, text.encode())
    return page


def make_key(*parts: str) -> str:
    """Return a key that can be an anchor of a page and the name of a file.

    >>> make_key("Table 1", "MMLongBench", "a/b")
    'table-1-mmlongbench-a-b'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def escape_markdown(text: str) -> str:
    r"""Return text on one line in which nothing has a meaning to Markdown.

    >>> escape_markdown("a|b *c* <d>")
    'a\\|b \\*c\\* \\<d\\>'
    """
    return re.sub(r"([\\`*_|<>\[\]#&~$])", r"\\\1", " ".join(text.split()))


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[bool]
) -> str:
    r"""Return a table of GitHub's Markdown; the cells are Markdown, the columns text.

    >>> print(markdown_table(["k*", "n"], [["**1**", "2"]], [False, True]))
    | k\* | n |
    | --- | ---: |
    | **1** | 2 |
    """
    head = [escape_markdown(column) for column in columns]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def to_markdown(report: Report) -> str:
    """Return a report as GitHub's Markdown, which shows the figures in ``figures/KEY.svg``."""
    parts = [
        f"# {escape_markdown(report.title)}\n",
        *(f"{escape_markdown(sentence)}\n" for sentence in report.introduction),
        "## Tables\n",
    ]
    for table in report.tables:
        rows = ([_markdown_cell(cell) for cell in row] for row in table.rows)
        notes = "\n".join(f"- {escape_markdown(note)}" for note in table.notes)
        shown = markdown_table(table.columns, rows, table.numeric)
        parts.append(f"### {escape_markdown(table.title)}\n\n{shown}\n\n{notes}".rstrip() + "\n")
    if report.figures:
        parts.append("## Figures\n")
    for picture in report.figures:
        title = escape_markdown(picture.title)
        parts.append(
            f"### {title}\n\n![{title}](figures/{picture.key}.svg)\n\n"
            f"{escape_markdown(picture.caption)}\n"
        )
    # Indented code cannot be closed by anything within it.
    manifest = "\n".join(f"    {line}" for line in report.manifest.splitlines())
    parts.append(f"## Manifest\n\n{manifest}\n")
    return "\n".join(parts)


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    if cell.marked:
        text = f"**{text}**"
    if cell.paper_text is None:
        return text
    return f"{text} · {cell.paper_text}" if cell.digits else f"{text} {cell.paper_text}"


def to_json(report: Report) -> str:
    """Return a report as JSON, with numbers that are not rounded."""
    content: dict[str, Any] = {
        "title": report.title,
        "introduction": report.introduction,
        "tables": [
            _fields(table, "key", "title", "columns")
            | {"rows": [[cell.to_json() for cell in row] for row in table.rows]}
            | _fields(table, "notes")
            for table in report.tables
        ],
        "figures": [
            _fields(picture, "key", "title", "caption") | {"file": f"figures/{picture.key}.svg"}
            for picture in report.figures
        ],
        "manifests": json.loads(report.manifest),
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(report: Report) -> str:
    """Return all tables as CSV: a line for each number, with the words that name its row."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["table", "row", "column", "value", "low", "high", "std", "paper"])
    for table in report.tables:
        for cells in table.rows:
            row = " · ".join(cell.value for cell in cells if isinstance(cell.value, str))
            for column, cell in zip(table.columns, cells, strict=True):
                if cell.value is not None and not isinstance(cell.value, str):
                    low, high = cell.interval or (None, None)
                    spread = (low, high, cell.spread, cell.paper)
                    writer.writerow([table.key, row, column, cell.value, *spread])
    return file.getvalue()


def _fields(shown: Cell | Table | Picture, *names: str) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in names}


def to_html(report: Report) -> str:
    """Return a report as one HTML page that loads nothing.

    Raises MissingExtra if Jinja is not installed.
    """
    with extra_needed("A report", "eval"):
        from jinja2 import Environment, StrictUndefined
    # Names of data sets, models and methods come from anywhere: everything is escaped.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline_svg"] = _inline_svg
    template = resources.files("visar.evaluation") / "data" / "report.html.jinja"
    return environment.from_string(template.read_text(encoding="utf-8")).render(report=report)


def _inline_svg(picture: Picture) -> str:
    """The SVG without its prologue, with ids that no other figure of the page has."""
    from markupsafe import Markup, escape

    svg = picture.svg[picture.svg.index("<svg") :].strip()
    svg = re.sub(r'\bid="|href="#|url\(#', lambda start: f"{start[0]}{picture.key}-", svg)
    # matplotlib has escaped the texts within.
    named = f'<svg role="img" aria-label="{escape(picture.title)}" '
    return Markup(svg.replace("<svg ", named, 1))  # noqa: S704
