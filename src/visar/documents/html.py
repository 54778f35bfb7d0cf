"""Reading HTML: text, headings, lists and tables. Scripts are dropped and nothing is loaded."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from visar.documents.parts import Contents, Grid, Paragraph, Part

_DROPPED_TAGS = frozenset(
    {"script", "style", "template", "noscript", "svg", "iframe", "object", "select"}
)
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source"}
    | {"track", "wbr"}
)
# These tags may have no end tag, so the end of hidden content in them is unknown.
_UNCLOSED_TAGS = frozenset({"li", "td", "th", "tr", "dt", "dd", "option", "body", "html"})
_BLOCK_TAGS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details"}
    | {"dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header"}
    | {"hr", "html", "legend", "li", "main", "nav", "p", "pre", "section", "summary"}
)
_LIST_TAGS = frozenset({"ul", "ol", "menu"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_PARAGRAPH_ENDS = _BLOCK_TAGS | _LIST_TAGS | _HEADINGS.keys() | {"table", "td", "th", "tr"}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f\u00a0]+")
_MAX_DEPTH = 8
_MAX_COLUMNS = 1_000


def read_html(text: str) -> Contents:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return Contents(reader.finish(), {"title": reader.title} if reader.title else {})


class _Table:
    """A table whose end tag wasn't read yet: the parts of each cell, row by row."""

    def __init__(self) -> None:
        self.rows: list[list[list[Part]]] = []
        self.header_rows = 0
        self.in_cell = False

    def parts(self) -> list[Part]:
        """Return a grid, or the parts of all cells if the table is only used for layout."""
        cells = [cell for row in self.rows for cell in row]
        columns = max((sum(map(bool, row)) for row in self.rows), default=0)
        simple = all(isinstance(part, Paragraph) for cell in cells for part in cell)
        long = sum(len(cell) > 3 for cell in cells) > 0.2 * len(cells)
        if not simple or columns < 2 or long:
            return [part for cell in cells for part in cell]
        rows = [
            [" ".join(p.text.replace("\n", " ") for p in cell if isinstance(p, Paragraph))
             for cell in row]
            for row in self.rows
            if any(row)
        ]  # fmt: skip
        return [Grid(rows, min(self.header_rows, len(rows) - 1))]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._out: list[list[Part]] = [[]]
        self._text: list[str] = []
        self._heading = 0
        self._marker = ""
        self._lists: list[int | None] = []
        """The last number of each open list; None for a list with bullets."""
        self._quotes = 0
        self._fixed = 0
        self._tables: list[_Table] = []
        self._dropped_tag = ""
        self._depth = 0
        self._in_title = False

    def finish(self) -> list[Part]:
        self._flush()
        while self._tables:
            self._end_table()
        return self._out[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropped_tag:
            if self._dropped_tag != "p" or tag not in _PARAGRAPH_ENDS:
                self._depth += tag == self._dropped_tag
                return
            self._dropped_tag = ""
        attributes = dict(attrs)
        if tag not in _VOID_TAGS and (
            tag in _DROPPED_TAGS or (tag not in _UNCLOSED_TAGS and _is_hidden(attributes))
        ):
            self._dropped_tag, self._depth = tag, 1
            return
        if tag == "br":
            self._text.append("\n" if self._fixed else "\x00")
        elif tag == "img":
            self._text.append(attributes.get("alt") or "")
        elif tag == "title":
            self._in_title = not self.title
        elif tag in ("table", "tr", "td", "th"):
            self._start_table_tag(tag, attributes)
        elif tag in _PARAGRAPH_ENDS:
            self._flush()
            self._start_block(tag, attributes)

    def _start_block(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag in _LIST_TAGS:
            self._lists.append(_start(attributes) if tag == "ol" else None)
        elif tag == "li":
            self._marker = self._next_marker()
        self._fixed += tag == "pre"
        self._quotes += tag == "blockquote"

    def handle_endtag(self, tag: str) -> None:
        if self._dropped_tag:
            self._depth -= tag == self._dropped_tag
            if not self._depth:
                self._dropped_tag = ""
            return
        if tag == "title":
            self._in_title = False
        elif tag in ("td", "th", "tr", "thead", "table"):
            self._end_table_tag(tag)
        elif tag in _PARAGRAPH_ENDS:
            self._flush()
            self._end_block(tag)

    def _end_block(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._heading = 0
        elif tag in _LIST_TAGS and self._lists:
            self._lists.pop()
        self._fixed = max(0, self._fixed - (tag == "pre"))
        self._quotes = max(0, self._quotes - (tag == "blockquote"))

    def _end_table_tag(self, tag: str) -> None:
        self._end_cell()
        if tag == "thead" and self._tables:
            self._tables[-1].header_rows = len(self._tables[-1].rows)
        elif tag == "table" and self._tables:
            self._end_table()

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = (self.title + data).strip()
        elif not self._dropped_tag:
            self._text.append(data)

    def _next_marker(self) -> str:
        if not self._lists or self._lists[-1] is None:
            return "•"
        self._lists[-1] += 1
        return f"{self._lists[-1]}."

    def _start_table_tag(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag == "table":
            self._flush()
            self._tables.append(_Table())
            return
        if not self._tables:
            self._flush()
            return
        self._end_cell()
        table = self._tables[-1]
        if tag == "tr" or not table.rows:
            table.rows.append([])
        if tag == "tr":
            return
        row = table.rows[-1]
        if tag == "th" and not row and len(table.rows) == 1:
            table.header_rows = 1
        elif tag == "td" and len(table.rows) == 1:
            table.header_rows = 0
        span = attributes.get("colspan") or "1"
        more = min(int(span), _MAX_COLUMNS) - 1 if span.isdecimal() and len(span) < 5 else 0
        cell: list[Part] = []
        if len(row) + more < _MAX_COLUMNS:
            # A cell that spans several columns belongs to the first one.
            row += [cell, *([] for _ in range(more))]
        self._out.append(cell)
        table.in_cell = True

    def _end_cell(self) -> None:
        self._flush()
        if self._tables and self._tables[-1].in_cell:
            self._tables[-1].in_cell = False
            self._out.pop()

    def _end_table(self) -> None:
        self._end_cell()
        self._out[-1] += self._tables.pop().parts()

    def _flush(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if self._fixed:
            text = text.strip("\n").rstrip()
        else:
            text = "\n".join(line.strip() for line in _SPACE.sub(" ", text).split("\x00")).strip()
        text = text.replace("\x00", "\n")
        if not text.strip():
            return
        depth = len(self._lists) + self._quotes - bool(self._marker or self._lists)
        self._out[-1].append(
            Paragraph(
                text,
                heading=self._heading,
                marker=self._marker,
                indent=min(max(0, depth), _MAX_DEPTH),
                fixed=bool(self._fixed),
            )
        )
        self._marker = ""


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    style = attributes.get("style") or ""
    return "hidden" in attributes or _HIDDEN.search(style) is not None


def _start(attributes: dict[str, str | None]) -> int:
    start = attributes.get("start") or ""
    return int(start) - 1 if start.isdecimal() and len(start) < 7 else 0
