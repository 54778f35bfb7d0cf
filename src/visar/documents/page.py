"""Pages and their words, the data types that all other packages use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from PIL.Image import Image

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom as shares (0 to 1) of the page as it is displayed."""

TextSource: TypeAlias = Literal["text layer", "ocr", "both", "none"]

BlockKind: TypeAlias = Literal[
    "sentence", "heading", "item", "caption", "table", "label", "contents", "margin"
]
"""``item`` is a list item, ``label`` a few words outside of text, as in a chart, ``contents`` a
line of a table of contents, ``margin`` a running head or foot."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its position on the page."""

    text: str
    box: Box
    line: int
    """Index of its line, in reading order from 0."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    words: tuple[int, ...]
    """Indices of its words in the page, in reading order."""
    row: int
    """Row of the table, from 0."""
    column: int
    """First column of the cell, from 0."""
    span: int = 1
    """Number of columns of the cell."""


@dataclass(frozen=True, slots=True)
class Block:
    """Words of a page that belong together: a sentence, a heading, a table."""

    kind: BlockKind
    words: tuple[int, ...]
    """Indices of its words in the page, in reading order."""
    size: float
    """Font size in points."""
    heading: int | None = None
    """Index of its heading among the page's blocks."""
    cells: tuple[Cell, ...] = ()
    """Cells of a table, row by row; together they contain its words."""
    header_rows: int = 0
    """Number of header rows of a table."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a document, as it is displayed."""

    number: int
    """Page number; 1 is the first page."""
    width: float
    """Width in points (1/72 inch), after rotation."""
    height: float
    """Height in points, after rotation."""
    rotation: int
    """Rotation for display in degrees clockwise; boxes are relative to the rotated page."""
    words: tuple[Word, ...]
    """Words in the order of the file, which keeps a paragraph next to a chart together. The line
    numbers are in reading order."""
    text_source: TextSource
    """Source of the words."""
    label: str = ""
    """Printed page number, such as "iv", if the file has one that differs from ``number``."""
    blocks: tuple[Block, ...] | None = None
    """Layout in reading order; None for a page that was stored without one."""

    def lines(self) -> list[list[int]]:
        """Return the indices of the words of each line, in reading order."""
        lines: dict[int, list[int]] = {}
        for index in sorted(range(len(self.words)), key=lambda i: self.words[i].line):
            lines.setdefault(self.words[index].line, []).append(index)
        return [self._across(line) for line in lines.values()]

    def _across(self, line: list[int]) -> list[int]:
        """Sort a line's words from left to right, unless the line is vertical."""
        lefts = [self.words[index].box[0] for index in line]
        tops = [self.words[index].box[1] for index in line]
        if (max(tops) - min(tops)) * self.height > (max(lefts) - min(lefts)) * self.width:
            return line
        return sorted(line, key=lambda index: self.words[index].box[0])


class PageSource(Protocol):
    """A source of pages, such as a library."""

    def page(self, document: str, number: int) -> Page:
        """Return a page with its words, by the document's id and the page's number from 1."""

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Return the image of a page."""
