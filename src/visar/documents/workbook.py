"""Reading XLSX workbooks: the formatted values of all visible sheets.

The XML is parsed by expat of the standard library, which loads nothing and limits the expansion of
entities.
"""

from __future__ import annotations

import math
import posixpath
import re
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, iterparse

from visar.documents.parts import Contents, PageBreak, Paragraph, Part, grid_parts
from visar.documents.worker import ReadError

MAX_CELLS = 2_000_000
# The built-in number formats by their ids.
_BUILTIN = {
    **dict.fromkeys((3, 37, 38), "#,##0"),
    **dict.fromkeys((4, 39, 40), "#,##0.00"),
    **dict.fromkeys((14, 15, 16, 17), "yyyy-mm-dd"),
    **dict.fromkeys((18, 19, 20, 21, 45, 46, 47), "h:mm:ss"),
    **dict(enumerate(("0", "0.00"), 1)),
    **dict(enumerate(("0%", "0.00%", "0.00E+00"), 9)),
    22: "yyyy-mm-dd h:mm",
}
_LITERALS = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!\$|[hms]+\])[^\]]*\]')
_CURRENCY = re.compile(r'"([^"]{1,4})"|\[\$([^\]-]{1,4})[^\]]*\]|([$€£¥])')
_COLUMN = re.compile(r"[A-Z]{1,3}")
_MIN_DAYS, _MAX_DAYS = 0, 2_958_466
_EPOCHS = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}
_MAX_DECIMALS = 10
# Elements to free from memory once they are read.
_REPEATED_TAGS = frozenset({"row", "si"})


def read_workbook(path: Path) -> Contents:
    """Return the contents of a workbook; raise ReadError if it is damaged or too large."""
    try:
        with zipfile.ZipFile(path) as archive:
            return Contents(list(_Workbook(archive).parts()))
    except (
        zipfile.BadZipFile,
        ParseError,
        LookupError,
        ValueError,
        RuntimeError,
        OSError,
    ) as error:
        raise ReadError("broken", f"isn't a readable workbook: {error}") from error


class _Workbook:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = set(archive.namelist())
        self._root = self._target("_rels/.rels", "officeDocument") or "xl/workbook.xml"
        self._cells = 0
        self._strings = list(self._shared_strings())
        self._formats = list(self._cell_formats())
        self._epoch = _EPOCHS[False]

    def parts(self) -> Iterator[Part]:
        sheets = list(self._elements(self._root, "sheet", "workbookPr"))
        for element in sheets:
            if _name(element) == "workbookPr":
                self._epoch = _EPOCHS[element.get("date1904") in ("1", "true")]
        links = self._links()
        visible = [
            (element.get("name", ""), links[link])
            for element in sheets
            if _name(element) == "sheet" and element.get("state", "visible") == "visible"
            for key, link in element.items()
            if key.endswith("}id") and link in links
        ]
        for number, (name, path) in enumerate(visible):
            parts = list(grid_parts(self._rows(path)))
            if parts and number:
                yield PageBreak()
            if parts and len(visible) > 1:
                yield Paragraph(name, heading=2)
            yield from parts

    def _rows(self, path: str) -> Iterator[list[str]]:
        last = 0
        for row in self._elements(path, "row"):
            number = int(row.get("r") or last + 1)
            if number > last + 1:
                yield []
            last = number
            cells: dict[int, str] = {}
            if row.get("hidden") not in ("1", "true"):
                for cell in row:
                    if _name(cell) == "c":
                        column = _column(cell.get("r", "")) or max(cells, default=-1) + 1
                        cells[column] = " ".join(self._text(cell).split())
            self._cells += len(cells)
            if self._cells > MAX_CELLS:
                raise ReadError("limit", f"has more than {MAX_CELLS:,} cells")
            yield [cells.get(column, "") for column in range(max(cells, default=-1) + 1)]

    def _text(self, cell: Element) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return _join_text(cell)
        value = next((child.text or "" for child in cell if _name(child) == "v"), "")
        if kind == "s":
            return self._strings[int(value)] if value else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if kind != "n" or not value:
            return value
        style = int(cell.get("s", "0"))
        code = self._formats[style] if 0 <= style < len(self._formats) else ""
        return format_number(float(value), code, self._epoch)

    def _shared_strings(self) -> Iterator[str]:
        path = self._target(_links_path(self._root), "sharedStrings")
        for element in self._elements(path, "si") if path else ():
            yield _join_text(element)

    def _cell_formats(self) -> Iterator[str]:
        path = self._target(_links_path(self._root), "styles")
        codes = dict(_BUILTIN)
        for element in self._elements(path, "numFmt", "cellXfs") if path else ():
            if _name(element) == "numFmt":
                codes[int(element.get("numFmtId", "0"))] = element.get("formatCode", "")
            for form in element:
                yield codes.get(int(form.get("numFmtId", "0")), "")

    def _target(self, links: str, kind: str) -> str | None:
        """Return the path of the first linked part of a kind."""
        folder = posixpath.dirname(posixpath.dirname(links))
        for link in self._elements(links, "Relationship") if links in self._names else ():
            if link.get("Type", "").endswith(f"/{kind}"):
                return posixpath.normpath(posixpath.join("/", folder, link.get("Target", "")))[1:]
        return None

    def _links(self) -> dict[str, str]:
        """Return the paths of the sheets by their relationship ids."""
        folder = posixpath.dirname(self._root)
        return {
            link.get("Id", ""): posixpath.normpath(
                posixpath.join("/", folder, link.get("Target", ""))
            )[1:]
            for link in self._elements(_links_path(self._root), "Relationship")
            if link.get("Type", "").endswith("/worksheet")
        }

    def _elements(self, path: str, *names: str) -> Iterator[Element]:
        with self._archive.open(path) as stream:
            for _, element in iterparse(stream):  # noqa: S314 - see above
                if _name(element) in names:
                    yield element
                if _name(element) in _REPEATED_TAGS:
                    element.clear()


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _links_path(path: str) -> str:
    folder, name = posixpath.split(path)
    return posixpath.join(folder, "_rels", f"{name}.rels")


def _join_text(element: Element) -> str:
    texts = []
    for child in element:
        if _name(child) == "t":
            texts.append(child.text or "")
        elif _name(child) in ("r", "is"):
            texts.append(_join_text(child))
    return "".join(texts)


def _column(reference: str) -> int | None:
    """Return the column of a cell reference, from 0.

    >>> _column("A1"), _column("AB12")
    (0, 27)
    """
    letters = _COLUMN.match(reference)
    number = 0
    for letter in letters[0] if letters else "":
        number = 26 * number + ord(letter) - 64
    return number - 1 if letters else None


def format_number(value: float, code: str, epoch: datetime = _EPOCHS[False]) -> str:
    """Format a number by its format code, as far as that concerns dates, digits and units.

    >>> [format_number(0.125, code) for code in ("", "0%", "0.0%", "0.00", '#,##0.00 "€"')]
    ['0.125', '12%', '12.5%', '0.12', '0.12 €']
    >>> format_number(45000.5, "dd.mm.yyyy hh:mm"), format_number(-1234567, "$#,##0;($#,##0)")
    ('2023-03-15 12:00', '-$1,234,567')
    """
    if not math.isfinite(value):
        return str(value)
    section = code.partition(";")[0]
    plain = _LITERALS.sub("", section)
    letters = re.sub(r"\[\$[^\]]*\]|General|E[+-]", "", plain).lower()
    if set(letters) & set("ymdhs") and _MIN_DAYS <= value < _MAX_DAYS:
        return _date(value, letters, epoch)
    if "0" not in plain and "#" not in plain:
        return repr(int(value)) if value == int(value) else f"{value:.12g}"
    decimals = min(len(re.match(r"[0#?]*", plain.partition(".")[2])[0]), _MAX_DECIMALS)  # type: ignore[index]
    if "E" in plain:
        return f"{value:.{decimals}E}"
    percent = "%" in plain
    comma = "," if "," in plain else ""
    digits = f"{abs(value) * (100 if percent else 1):{comma}.{decimals}f}"
    sign = "-" if value < 0 else ""
    unit = _CURRENCY.search(section)
    if percent or unit is None:
        return f"{sign}{digits}{'%' if percent else ''}"
    text = next(group for group in unit.groups() if group)
    before = unit.start() < min(p for c in "0#" if (p := section.find(c)) >= 0)
    return f"{sign}{text.strip()}{digits}" if before else f"{sign}{digits} {text.strip()}"


def _date(value: float, letters: str, epoch: datetime) -> str:
    moment = epoch + timedelta(days=value) + timedelta(milliseconds=1)
    has_time = "h" in letters or "s" in letters
    if has_time and not set(letters) & set("yd"):
        hours = int(value * 24 + 1e-6)
        return f"{hours}:{moment:%M:%S}" if "s" in letters else f"{hours}:{moment:%M}"
    return f"{moment:%Y-%m-%d %H:%M}" if has_time else f"{moment:%Y-%m-%d}"
