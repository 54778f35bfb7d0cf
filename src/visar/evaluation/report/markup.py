"""Tables and figures of a report, and their output as Markdown, HTML, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from visar.errors import extra_needed
from visar.evaluation.statistics import Estimate
from visar.files import write_whole

NOTHING = "—"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: a number with its details, or text."""

    value: float | str | None
    digits: int = 0
    """The number of decimals to show."""
    spread: float | None = None
    """The standard deviation."""
    interval: tuple[float, float] | None = None
    remark: str | None = None
    """A remark in parentheses after the number."""
    paper: float | None = None
    """The paper's number for the same setting."""
    marked: bool = False
    """True to show the number in bold."""

    @classmethod
    def of(cls, found: Estimate, digits: int, **more: Any) -> Cell:
        """Create a cell of an estimate with its interval; ``more`` are other fields."""
        return cls(found.value, digits, interval=(found.low, found.high), **more)

    @property
    def text(self) -> str:
        """The text of the cell, without the paper's number."""
        if isinstance(self.value, str):
            return self.value
        if self.value is None or not math.isfinite(self.value):
            return NOTHING
        shown = self._format(self.value)
        if self.spread is not None:
            shown += f" ± {self._format(self.spread)}"
        if self.interval is not None:
            low, high = map(self._format, self.interval)
            shown += f" ({low} to {high})" if self.interval[0] < 0 else f" ({low}–{high})"
        return shown if self.remark is None else f"{shown} ({self.remark})"

    @property
    def paper_text(self) -> str | None:
        """The text of the paper's number; for counts, as in "841 / 842"."""
        if self.paper is None:
            return None
        return f"{'paper' if self.digits else '/'} {self._format(self.paper)}"

    def _format(self, number: float) -> str:
        return f"{number:.{self.digits}f}".replace("-", "−")

    def to_json(self) -> Any:
        """Return the cell as JSON: the bare value if it has no details."""
        known = {name: one for name, one in asdict(self).items() if name != "digits"}
        more = {name: one for name, one in known.items() if one is not None and one is not False}
        return more if more.keys() - {"value"} else self.value


Row: TypeAlias = "dict[str, Cell | float | str | None]"
"""Cells or bare values by column."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with notes."""

    key: str
    """A unique key in the report, of letters, digits and hyphens."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[bool, ...]
    """Whether each column is aligned to the right."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        key: str,
        title: str,
        rows: Sequence[Row],
        notes: Iterable[str] = (),
        numeric: Iterable[str] = (),
    ) -> Table:
        """Create a table from at least one row. All rows must have the same columns.

        ``key`` may have any characters. Columns are numeric if they are in ``numeric`` or have no
        text.
        """
        cells = [
            tuple(one if isinstance(one, Cell) else Cell(one) for one in row.values())
            for row in rows
        ]
        aligned = (
            name in numeric or not any(isinstance(cell.value, str) for cell in of_column)
            for name, of_column in zip(rows[0], zip(*cells, strict=True), strict=True)
        )
        columns = tuple(rows[0])
        return cls(make_key(key), title, columns, tuple(cells), tuple(aligned), tuple(notes))


def mark_best(
    rows: Sequence[Row], columns: Iterable[str], group: str | None = None, *, least: bool = False
) -> None:
    """Mark the best number in each column, among all rows or rows with the same ``group`` value.

    The best number is the highest or, with ``least``, the lowest. Single rows aren't marked.
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
    """The content of a report."""

    title: str
    introduction: tuple[str, ...]
    """Sentences on what the report contains and what is missing."""
    tables: tuple[Table, ...]
    figures: tuple[Picture, ...]
    manifests: Any
    """The manifests of the calls, with versions, settings and machine."""
    downloads: tuple[str, ...] = ()
    """Names of files to link to. A page with links also has a script that sorts and filters."""

    @property
    def manifest(self) -> str:
        """The manifests as JSON, sorted by name."""
        return json.dumps(self.manifests, indent=2, sort_keys=True, ensure_ascii=False)


_Item = TypeVar("_Item", Table, Picture)


def with_unique_keys(items: Iterable[_Item]) -> tuple[_Item, ...]:
    """Number duplicate keys, which similar names such as "A b" and "A-b" may have."""
    counts: Counter[str] = Counter()
    found = []
    for one in items:
        counts[one.key] += 1
        number = counts[one.key]
        found.append(one if number == 1 else replace(one, key=f"{one.key}--{number}"))
    return tuple(found)


def write_files(report: Report, folder: Path, name: str) -> Path:
    """Write NAME.html, .md with ``figures/*.svg``, .json and .csv; return the HTML page.

    Raises MissingExtra if Jinja isn't installed.
    """
    tables, figures = with_unique_keys(report.tables), with_unique_keys(report.figures)
    report = replace(report, tables=tables, figures=figures)
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
    """Return a key that is valid as an HTML anchor and a file name.

    >>> make_key("Table 1", "MMLongBench", "a/b")
    'table-1-mmlongbench-a-b'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def escape_markdown(text: str) -> str:
    r"""Escape text for Markdown, on one line.

    >>> escape_markdown("a|b *c* <d>")
    'a\\|b \\*c\\* \\<d\\>'
    """
    return re.sub(r"([\\`*_|<>\[\]#&~$])", r"\\\1", " ".join(text.split()))


def markdown_table(table: Table) -> str:
    r"""Return the columns and rows of a table as GitHub Markdown.

    >>> print(markdown_table(Table.of("key", "Title", [{"k*": Cell(1, marked=True), "a": "b"}])))
    | k\* | a |
    | ---: | --- |
    | **1** | b |
    """
    head = [escape_markdown(column) for column in table.columns]
    rule = ["---:" if right else "---" for right in table.numeric]
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def to_markdown(report: Report) -> str:
    """Return a report as GitHub Markdown, with figures in ``figures/KEY.svg``."""
    parts = [
        f"# {escape_markdown(report.title)}\n",
        *(f"{escape_markdown(sentence)}\n" for sentence in report.introduction),
        "## Tables\n",
    ]
    for table in report.tables:
        notes = "\n".join(f"- {escape_markdown(note)}" for note in table.notes)
        shown = f"### {escape_markdown(table.title)}\n\n{markdown_table(table)}\n\n{notes}"
        parts.append(shown.rstrip() + "\n")
    if report.figures:
        parts.append("## Figures\n")
    for picture in report.figures:
        title = escape_markdown(picture.title)
        parts.append(
            f"### {title}\n\n![{title}](figures/{picture.key}.svg)\n\n"
            f"{escape_markdown(picture.caption)}\n"
        )
    # Use indented code, because its content can't end it.
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
    """Return a report as JSON, with unrounded numbers."""
    content: dict[str, Any] = {
        "title": report.title,
        "introduction": report.introduction,
        "tables": [
            {
                "key": table.key,
                "title": table.title,
                "columns": table.columns,
                "rows": [[cell.to_json() for cell in row] for row in table.rows],
                "notes": table.notes,
            }
            for table in report.tables
        ],
        "figures": [
            {
                "key": picture.key,
                "title": picture.title,
                "caption": picture.caption,
                "file": f"figures/{picture.key}.svg",
            }
            for picture in report.figures
        ],
        "manifests": json.loads(report.manifest),
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(report: Report) -> str:
    """Return all tables as CSV, with a line for each number and the text cells of its row."""
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


def to_html(report: Report) -> str:
    """Return a report as a self-contained HTML page.

    Raises MissingExtra if Jinja isn't installed.
    """
    with extra_needed("A report", "eval"):
        from jinja2 import Environment, StrictUndefined
    # Escape everything, because names of data sets, models and methods are untrusted.
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
    """Return a picture's SVG without prologue, with ids that are unique on the page."""
    from markupsafe import Markup, escape

    svg = picture.svg[picture.svg.index("<svg") :].strip()
    svg = re.sub(r'\bid="|href="#|url\(#', lambda start: f"{start[0]}{picture.key}-", svg)
    # matplotlib has already escaped the text.
    tag = f'<svg role="img" aria-label="{escape(picture.title)}" '
    return Markup(svg.replace("<svg ", tag, 1))  # noqa: S704
