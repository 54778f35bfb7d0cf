"""Pages and their words, as all other packages see them."""

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
"""``item`` is an item of a list, ``label`` a few words outside of any text, as in a chart,
``contents`` a line of a table of contents, ``margin`` a running head or foot."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its place on the page."""

    text: str
    box: Box
    line: int
    """Which line of the page it belongs to, in reading order from 0."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    words: tuple[int, ...]
    """Indices of its words in the page, in reading order."""
    row: int
    """Row of the table, from 0."""
    column: int
    """First column that it covers, from 0."""
    span: int = 1
    """Number of columns that it covers."""


@dataclass(frozen=True, slots=True)
class Block:
    """Words of a page that belong together: a sentence, a heading, a table."""

    kind: BlockKind
    words: tuple[int, ...]
    """Indices of its words in the page, in reading order."""
    size: float
    """Font size in points."""
    heading: int | None = None
    """Position among the page's blocks of the heading that it stands under."""
    cells: tuple[Cell, ...] = ()
    """Cells of a table, row by row; together they hold its words."""
    header_rows: int = 0
    """Number of rows of a table that name its columns."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a document, as it is displayed."""

    number: int
    """1 for the first page."""
    width: float
    """In points (1/72 inch), after rotation."""
    height: float
    rotation: int
    """Degrees clockwise by which the file turns the page for display; boxes are after it."""
    words: tuple[Word, ...]
    """In the order in which the file has written them, which keeps a paragraph together that a
    chart stands beside; their lines are in reading order."""
    text_source: TextSource
    label: str = ""
    """The number printed on it if the file says so and it is another: "iv", "287"."""
    blocks: tuple[Block, ...] | None = None
    """The layout, in reading order; None for a page that was stored without one."""

    def lines(self) -> list[list[int]]:
        """The indices of the words of each line, in reading order."""
        lines: dict[int, list[int]] = {}
        for index in sorted(range(len(self.words)), key=lambda i: self.words[i].line):
            lines.setdefault(self.words[index].line, []).append(index)
        return [self._across(line) for line in lines.values()]

    def _across(self, line: list[int]) -> list[int]:
        """A line's words from left to right; as the file has them if it runs up or down."""
        lefts = [self.words[index].box[0] for index in line]
        tops = [self.words[index].box[1] for index in line]
        if (max(tops) - min(tops)) * self.height > (max(lefts) - min(lefts)) * self.width:
            return line
        return sorted(line, key=lambda index: self.words[index].box[0])


class PageSource(Protocol):
    """A place to read pages from; a library is one."""

    def page(self, document: str, number: int) -> Page:
        """Return a page with its words, by the document's id and the page's number from 1."""
        ...

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Return the picture of a page."""
        ...
