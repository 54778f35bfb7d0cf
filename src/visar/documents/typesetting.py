"""Typesetting of files without pages, whose pages are then read like those of a PDF.

PDFium draws the pages in memory. The fonts are part of this package, so that a file has the same
pages on every machine. A character that they lack keeps its code, and is drawn as a box.
"""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

from visar.documents.page import Box, Cell
from visar.documents.parts import Contents, Grid, PageBreak, Paragraph, is_number
from visar.documents.pdf import PdfSource
from visar.documents.tables import Table
from visar.documents.typefaces import (
    BOLD,
    BOXES,
    FIXED,
    LAST_CODE,
    PLAIN,
    Face,
    advances,
    characters,
    font_file,
    text_width,
)
from visar.documents.worker import PageContent, ReadError
from visar.text import clean_line

# A4, in points. Wide tables make a page wider, up to A3.
_WIDTH, _HEIGHT, _WIDEST = 595.0, 842.0, 1191.0
# The top margin exceeds the area in which running heads are found.
_SIDE, _TOP = 57.0, 78.0
_BOTTOM = _HEIGHT - _TOP
_SIZE, _FIXED_SIZE, _TABLE_SIZE = 10.0, 8.5, 9.0
_HEADING_SIZES = (18.0, 15.0, 13.0, 11.5)
# Distance between lines, and space above a paragraph, an item and a heading, in font sizes.
_LEADING, _ABOVE, _ABOVE_ITEM, _ABOVE_HEADING = 1.4, 0.8, 0.25, 1.1
_INDENT = 16.0
# Number of lines to keep on the same page as their heading.
_KEPT_LINES = 3
_TABLE_LEADING, _ROW_SPACE, _COLUMN_SPACE = 1.25, 0.75, 16.0
_NARROWEST_COLUMN = 70.0
_MOST_COLUMNS, _MOST_CELL_LINES = 30, 12
_RULE, _GRAY = 0.5, 190

_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
)
# A word, or a letter of a script without spaces, with the space before it.
_WORDS = re.compile(rf"(\s*)([{_WIDE}]|[^\s{_WIDE}]+)")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LONGEST_TITLE = 200
_SPACES = re.compile(r"[^\S ]")


@dataclass(slots=True)
class _TypesetPage:
    """The contents of a page; positions are in points from the top left corner."""

    width: float = _WIDTH
    texts: list[tuple[float, float, Face, float, str]] = field(default_factory=list)
    """Left, baseline, font, font size and text of each line."""
    rules: list[tuple[float, float, float]] = field(default_factory=list)
    """Left, top and width of each horizontal rule."""
    tables: list[_TypesetTable] = field(default_factory=list)


@dataclass(slots=True)
class _TypesetTable:
    header_rows: int
    cells: list[tuple[int, int, Box]] = field(default_factory=list)
    """Row, column, and box in points of each cell."""


class TypesetSource(PdfSource):
    """The typeset pages of a file without pages."""

    _is_trusted = True

    def __init__(self, contents: Contents, max_pages: int) -> None:
        self._typeset_pages = _Typesetter(max_pages).pages(contents)
        if not self._typeset_pages:
            raise ReadError("broken", "contains no text")
        super().__init__(pypdfium2.PdfDocument.new())
        self._metadata = {
            name: clean_line(value, _LONGEST_TITLE) if isinstance(value, str) else value
            for name, value in contents.metadata.items()
        }
        for page in self._typeset_pages:
            self._pdf.new_page(page.width, _HEIGHT).close()
        self._drawn: set[int] = set()
        self._fonts: dict[Face, Any] = {}

    def metadata(self) -> dict[str, str | int]:
        """Return the title, author and year, as far as the file contains them."""
        return self._metadata

    def read(self, number: int) -> PageContent:
        """Return the words of a page, and its tables from the file."""
        content = super().read(number)
        tables = [_table(table, content) for table in self._typeset_pages[number - 1].tables]
        return replace(content, tables=tuple(table for table in tables if table.cells))

    def _page(self, number: int) -> Any:
        page = super()._page(number)
        if number in self._drawn:
            return page
        # Draw pages on demand, because a long text has thousands.
        for left, baseline, face, size, text in self._typeset_pages[number - 1].texts:
            self._draw(page, left, _HEIGHT - baseline, face, size, text)
        for left, top, width in self._typeset_pages[number - 1].rules:
            rule = pdfium.FPDFPageObj_CreateNewRect(left, _HEIGHT - top, width, _RULE)
            pdfium.FPDFPageObj_SetFillColor(rule, _GRAY, _GRAY, _GRAY, 255)
            pdfium.FPDFPath_SetDrawMode(rule, pdfium.FPDF_FILLMODE_WINDING, 0)
            pdfium.FPDFPage_InsertObject(page.raw, rule)
        page.gen_content()
        page.close()
        self._drawn.add(number)
        return super()._page(number)

    def _draw(
        self, page: Any, left: float, bottom: float, face: Face, size: float, text: str
    ) -> None:
        available = characters(face)
        for drawn, run in groupby(_to_visual_order(text), available.__contains__):
            part = "".join(run)
            font = self._font(face if drawn else BOXES)
            shown = pdfium.FPDFPageObj_CreateTextObj(self._pdf.raw, font, size)
            if drawn:
                encoded = np.frombuffer(f"{part}\0".encode("utf-16-le"), np.uint16)
                pdfium.FPDFText_SetText(shown, _pointer(encoded, ctypes.c_ushort))
            else:
                codes = np.array([min(ord(c), LAST_CODE) for c in part], np.uint32)
                pdfium.FPDFText_SetCharcodes(shown, _pointer(codes, ctypes.c_uint32), len(codes))
            pdfium.FPDFPageObj_Transform(shown, 1, 0, 0, 1, left, bottom)
            pdfium.FPDFPage_InsertObject(page.raw, shown)
            left += text_width(part, face, size)

    def _font(self, face: Face) -> Any:
        if face not in self._fonts:
            data = font_file(face)
            buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
            if face == BOXES:
                # Every code is a character with the only glyph of this font.
                glyphs = (ctypes.c_uint8 * (2 * LAST_CODE + 2)).from_buffer_copy(
                    b"\0\1" * (LAST_CODE + 1)
                )
                self._fonts[face] = pdfium.FPDFText_LoadCidType2Font(
                    self._pdf.raw, buffer, len(data), _SAME_CODES, glyphs, len(glyphs)
                )
            else:
                self._fonts[face] = pdfium.FPDFText_LoadFont(
                    self._pdf.raw, buffer, len(data), pdfium.FPDF_FONT_TRUETYPE, 1
                )
        return self._fonts[face]


def _pointer(values: Any, kind: Any) -> Any:
    return values.ctypes.data_as(ctypes.POINTER(kind))


def _same_codes() -> bytes:
    """Return the character map of a font whose codes are Unicode code points."""
    rows = [f"<{high:02x}00> <{high:02x}ff> <{high:02x}00>" for high in range(256)]
    blocks = [rows[start : start + 100] for start in range(0, 256, 100)]
    ranges = "".join(
        "{} beginbfrange\n{}\nendbfrange\n".format(len(block), "\n".join(block)) for block in blocks
    )
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def\n"
        f"1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n{ranges}"
        "endcmap CMapName currentdict /CMap defineresource pop end end\n"
    ).encode()


_SAME_CODES = _same_codes()


def _to_visual_order(text: str) -> str:
    """Return a line with right-to-left text reversed, as it is displayed."""
    if not _RIGHT_TO_LEFT.search(text):
        return text
    words = re.split("( +)", text)
    runs = groupby(words, lambda word: not word.strip() or bool(_RIGHT_TO_LEFT.search(word)))
    parts = []
    for turned, run in runs:
        part = "".join(run)
        inner = part.strip(" ")
        start = part.index(inner)
        parts.append(
            part[:start] + inner[::-1] + part[start + len(inner) :] if turned and inner else part
        )
    return "".join(parts)


def _table(table: _TypesetTable, content: PageContent) -> Table:
    boxes = content.words.boxes / content.words.SCALE
    x = (boxes[:, 0] + boxes[:, 2]) / 2 * content.width
    y = (boxes[:, 1] + boxes[:, 3]) / 2 * content.height
    cells = []
    for row, column, (left, top, right, bottom) in table.cells:
        inside = np.flatnonzero((x >= left) & (x < right) & (y >= top) & (y < bottom))
        if len(inside):
            cells.append(Cell(tuple(inside.tolist()), row, column))
    return Table(tuple(cells), table.header_rows)


# Layout


class _Typesetter:
    """Layout of parts on pages, from top to bottom."""

    def __init__(self, max_pages: int) -> None:
        self._max_pages = max_pages
        self._pages: list[_TypesetPage] = []
        self._y = _BOTTOM
        self._fresh = True
        """True while the current page is empty."""
        self._was_item = False

    def pages(self, contents: Contents) -> list[_TypesetPage]:
        """Return the pages, or one more than the limit if there are too many."""
        for part in contents.parts:
            if isinstance(part, PageBreak):
                self._y = _BOTTOM
            elif isinstance(part, Grid):
                self._grid(part)
            else:
                self._paragraph(part)
            if len(self._pages) > self._max_pages:
                break
        return self._pages

    def _page_with_space(self, height: float, width: float = _WIDTH) -> _TypesetPage:
        """Return the current page, or a new one if this height doesn't fit."""
        if not self._pages or self._y + height > _BOTTOM:
            self._pages.append(_TypesetPage(width))
            self._y, self._fresh = _TOP, True
        page = self._pages[-1]
        page.width = max(page.width, width)
        return page

    def _space(self, height: float) -> None:
        self._y += 0 if self._fresh else height

    def _paragraph(self, part: Paragraph) -> None:
        text = _clean(part.text)
        if not text.strip():
            return
        face, size = (FIXED, _FIXED_SIZE) if part.fixed else (PLAIN, _SIZE)
        if part.heading:
            face, size = BOLD, _HEADING_SIZES[min(part.heading, len(_HEADING_SIZES)) - 1]
            self._space(_ABOVE_HEADING * size)
            self._page_with_space((_KEPT_LINES + 1) * _LEADING * size)
        else:
            together = part.marker and self._was_item
            self._space((_ABOVE_ITEM if together else _ABOVE) * size)
        self._was_item = bool(part.marker)
        left = _SIDE + _INDENT * part.indent
        hanging = text_width(f"{part.marker} ", face, size) if part.marker else 0.0
        mark = f"{part.marker} " if part.marker else ""
        for line in text.split("\n"):
            wrapped = _wrap(line, _WIDTH - _SIDE - left - hanging, face, size, fixed=part.fixed)
            for piece in wrapped:
                self._line(left if mark else left + hanging, face, size, mark + piece)
                mark = ""
                if len(self._pages) > self._max_pages:
                    return

    def _line(self, left: float, face: Face, size: float, text: str) -> None:
        page = self._page_with_space(_LEADING * size)
        if text.strip():
            page.texts.append((left, self._y + size, face, size, text))
        self._y += _LEADING * size
        self._fresh = False

    def _grid(self, grid: Grid) -> None:
        rows = [[_clean(cell) for cell in row] for row in grid.rows]
        columns = max(map(len, rows), default=0)
        rows = [[*row, *[""] * (columns - len(row))] for row in rows]
        layout = _Columns.of(rows, grid.header_rows) if columns <= _MOST_COLUMNS else None
        if layout is None:
            for paragraph in _as_paragraphs(rows, grid.header_rows):
                self._paragraph(paragraph)
            return
        self._was_item = False
        self._space(_ABOVE * _SIZE)
        headers = [layout.wrap(row, header=True) for row in rows[: grid.header_rows]]
        table: _TypesetTable | None = None
        for row in rows[grid.header_rows :]:
            cells = layout.wrap(row)
            height = _row_height(cells)
            if table is None or self._y + height > _BOTTOM:
                page = self._page_with_space(height + sum(map(_row_height, headers)), layout.width)
                table = _TypesetTable(len(headers))
                page.tables.append(table)
                for number, header in enumerate(headers):
                    self._row(page, table, number, header, layout)
                count = len(headers)
            self._row(page, table, count, cells, layout)
            count += 1
            if len(self._pages) > self._max_pages:
                return

    def _row(
        self,
        page: _TypesetPage,
        table: _TypesetTable,
        row: int,
        cells: list[list[str]],
        layout: _Columns,
    ) -> None:
        height = _row_height(cells)
        face = BOLD if row < table.header_rows else PLAIN
        for column, lines in enumerate(cells):
            left, width = layout.lefts[column], layout.widths[column]
            for number, line in enumerate(lines):
                indent = (
                    width - text_width(line, face, _TABLE_SIZE) if layout.numeric[column] else 0
                )
                baseline = self._y + _TABLE_SIZE * (1 + number * _TABLE_LEADING)
                page.texts.append((left + indent, baseline, face, _TABLE_SIZE, line))
            half = _COLUMN_SPACE / 2
            box = left - half, self._y - 2, left + width + half, self._y + height - 2
            table.cells.append((row, column, box))
        self._y += height
        self._fresh = False
        page.rules.append(
            (_SIDE, self._y - 0.4 * _ROW_SPACE * _TABLE_SIZE, layout.width - 2 * _SIDE)
        )


def _row_height(cells: list[list[str]]) -> float:
    lines = max(map(len, cells), default=1) or 1
    return _TABLE_SIZE * (lines * _TABLE_LEADING + _ROW_SPACE)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a table."""

    lefts: list[float]
    widths: list[float]
    numeric: list[bool]
    width: float
    """Width of the page."""

    @classmethod
    def of(cls, rows: list[list[str]], header_rows: int) -> _Columns | None:
        """Fit columns to their cells; return None if the table doesn't fit on a page."""
        natural, numeric = [], []
        for column in zip(*rows, strict=True):
            head, body = column[:header_rows], [cell for cell in column[header_rows:] if cell]
            widths = [text_width(cell, PLAIN, _TABLE_SIZE) for cell in body]
            widths += [text_width(cell, BOLD, _TABLE_SIZE) for cell in head]
            natural.append(max(widths, default=0.0) + 1)
            numeric.append(bool(body) and all(map(is_number, body)))
        spaces = _COLUMN_SPACE * (len(natural) - 1)
        room = _WIDEST - 2 * _SIDE - spaces
        cap = _cap(natural, room)
        if cap < _NARROWEST_COLUMN and max(natural) > cap:
            return None
        widths = [min(width, cap) for width in natural]
        used = 2 * _SIDE + sum(widths) + spaces
        lefts = [
            _SIDE + sum(widths[:column]) + _COLUMN_SPACE * column for column in range(len(widths))
        ]
        columns = cls(lefts, widths, numeric, max(_WIDTH, used))
        tall = any(len(lines) > _MOST_CELL_LINES for row in rows for lines in columns.wrap(row))
        return None if tall else columns

    def wrap(self, row: Sequence[str], *, header: bool = False) -> list[list[str]]:
        face = BOLD if header else PLAIN
        return [
            list(_wrap(cell, width, face, _TABLE_SIZE)) if cell else []
            for cell, width in zip(row, self.widths, strict=True)
        ]


def _cap(natural: list[float], room: float) -> float:
    """Return the maximum column width at which all columns fit."""
    left = room
    for position, width in enumerate(sorted(natural)):
        share = left / (len(natural) - position)
        if width > share:
            return share
        left -= width
    return max(natural, default=0.0)


def _as_paragraphs(rows: list[list[str]], header_rows: int) -> Iterator[Paragraph]:
    """Yield each row as a list item with the names of its columns."""
    names = [
        " ".join(filter(None, column)) for column in zip(*rows[:header_rows], strict=True)
    ] or [""] * len(rows[0])
    for row in rows[header_rows:]:
        cells = (
            f"{name}: {cell}" if name else cell
            for name, cell in zip(names, row, strict=True)
            if cell
        )
        yield Paragraph("; ".join(cells), marker="•")


def _clean(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return _SPACES.sub(lambda space: "\n" if space[0] == "\n" else " ", composed)


def _wrap(
    line: str, width: float, face: Face, size: float, *, fixed: bool = False
) -> Iterator[str]:
    advance: Callable[[str], float] = advances(face).__getitem__
    room = width / size
    if sum(map(advance, line)) <= room:
        yield line
        return
    pieces: Iterable[tuple[str, str]] = ((" " * len(m[1]), m[2]) for m in _WORDS.finditer(line))
    current, used = "", 0.0
    for space, word in pieces:
        prefix = space if current or fixed else ""
        needed = sum(map(advance, prefix)) + sum(map(advance, word))
        if used + needed <= room:
            current += prefix + word
            used += needed
            continue
        if current.strip():
            yield current
        current, used = "", 0.0
        for character in word:
            if current and used + advance(character) > room:
                yield current
                current, used = "", 0.0
            current += character
            used += advance(character)
    if current:
        yield current
