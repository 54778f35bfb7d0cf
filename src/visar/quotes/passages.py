"""Passages: the parts of a page that can be quoted, built from its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from visar.documents.page import Block, Box, Cell, Page
from visar.documents.sentences import join_words

MAX_QUOTE_WORDS = 60
"""Maximum number of words in a quote."""
# Maximum distance of a title above its table, as a share of the page's height.
_TITLE_GAP = 0.05


@dataclass(frozen=True)
class Passage:
    """A part of a page that can be quoted."""

    page: Page
    block: Block
    words: tuple[int, ...]
    """Indices of its words in the page."""
    context: tuple[int, ...] = ()
    """Indices of the words of its heading; for table rows, of the table's title and row group."""
    rows: tuple[int, ...] = ()
    """Rows of a table, including headers; empty for other blocks."""

    @cached_property
    def text(self) -> str:
        """Text of the passage; in tables, each value follows the header of its column."""
        if not self.rows:
            return self._join(self.words)
        body = [row for row in self.rows if row >= self.block.header_rows]
        return "\n".join(self._row_text(row) for row in body)

    @cached_property
    def context_text(self) -> str:
        return self._join(self.context)

    @cached_property
    def running_head(self) -> str:
        blocks = self.page.blocks or ()
        return self._join(i for block in blocks if block.kind == "margin" for i in block.words)

    @cached_property
    def quoted_words(self) -> tuple[int, ...]:
        """Indices of all words in a quote; for tables, including title and headers."""
        if not self.rows:
            return self.words
        return (*self.context, *(index for cell in self.cells for index in cell.words))

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """Position on the page: a box for each line, or for each row of a table."""
        lines: dict[int, list[int]] = {}
        for cell in self.cells if self.rows else ():
            lines.setdefault(cell.row, []).extend(cell.words)
        for index in () if self.rows else self.words:
            lines.setdefault(self.page.words[index].line, []).append(index)
        return tuple(self.box(line) for line in lines.values())

    @property
    def cells(self) -> list[Cell]:
        """Cells of the quoted rows, row by row."""
        return [cell for cell in self.block.cells if cell.row in self.rows]

    def cell_text(self, cell: Cell) -> str:
        return self._join(cell.words)

    def box(self, words: Iterable[int]) -> Box:
        boxes = [self.page.words[index].box for index in words]
        left, top, right, bottom = zip(*boxes, strict=True)
        return min(left), min(top), max(right), max(bottom)

    def header_of(self, cell: Cell) -> str:
        over = [
            header
            for header in self.block.cells
            if header.row < self.block.header_rows
            and header.column <= cell.column < header.column + header.span
        ]
        return " ".join(self.cell_text(header) for header in over)

    def _row_text(self, row: int) -> str:
        parts = []
        for cell in self.block.cells:
            if cell.row == row:
                header = self.header_of(cell) if cell.column else ""
                text = self.cell_text(cell)
                parts.append(f"{header}: {text}" if header else text)
        return " | ".join(parts)

    def _join(self, words: Iterable[int]) -> str:
        return join_words([self.page.words[index] for index in words], _compounds(self.page))


def _compounds(page: Page) -> frozenset[str]:
    """Return the words with hyphens of a page, to recognize their hyphens at line breaks."""
    return frozenset(
        text
        for word in page.words
        if "-" in word.text[1:-1] and "-" in (text := word.text.lower().strip(".,;:()“”\"'"))[1:-1]
    )


def find_passages(page: Page) -> list[Passage]:
    """Return the passages of a page in reading order; they can overlap.

    Running heads, tables of contents, and labels without words are left out.
    """
    blocks = page.blocks or ()
    titles = {_title(page, blocks, n) for n, one in enumerate(blocks) if one.kind == "table"}
    passages: list[Passage] = []
    for position, block in enumerate(blocks):
        if block.kind in ("margin", "contents") or block.words in titles:
            continue
        if block.kind == "label" and _heads_chart(page, blocks, position):
            continue
        context = _context(blocks, position)
        if block.kind == "table":
            passages += _table_passages(page, block, _title(page, blocks, position) or context)
        elif _has_word(page, block.words):
            passages += _split(Passage(page, block, block.words, context))
        if block.kind == "item" and (not position or blocks[position - 1].kind != "item"):
            passages += _list_passages(page, blocks, position, context)
    return passages


def _heads_chart(page: Page, blocks: Sequence[Block], position: int) -> bool:
    """Return whether a label is the title of a chart: most labels after it are only numbers."""
    following = [block for block in blocks[position + 1 : position + 7] if block.kind == "label"]
    bare = sum(not _has_word(page, block.words) for block in following)
    return _has_word(page, blocks[position].words) and bare > 2


def _has_word(page: Page, words: Iterable[int]) -> bool:
    return any(sum(c.isalpha() for c in page.words[index].text) > 1 for index in words)


def _context(blocks: Sequence[Block], position: int) -> tuple[int, ...]:
    heading = blocks[position].heading
    return () if heading is None else blocks[heading].words


def _split(passage: Passage) -> Iterator[Passage]:
    """Yield a passage, split into parts if it is too long for a quote."""
    words = passage.words
    parts = -(-len(words) // MAX_QUOTE_WORDS)
    length = -(-len(words) // parts)
    for start in range(0, len(words), length):
        yield Passage(passage.page, passage.block, words[start : start + length], passage.context)


def _list_passages(
    page: Page, blocks: Sequence[Block], position: int, context: tuple[int, ...]
) -> Iterator[Passage]:
    """Yield a short list as a whole, with the line that introduces it."""
    end = position
    while end < len(blocks) and blocks[end].kind == "item":
        end += 1
    first = position
    if position and blocks[position - 1].kind in ("sentence", "label"):
        first -= page.words[blocks[position - 1].words[-1]].text.endswith(":")
    words = tuple(index for block in blocks[first:end] for index in block.words)
    if end - first > 1 and len(words) <= MAX_QUOTE_WORDS:
        yield Passage(page, blocks[position], words, context)


def _table_passages(page: Page, table: Block, context: tuple[int, ...]) -> Iterator[Passage]:
    """Yield the rows of a table with their headers, and a short table as a whole."""
    rows: dict[int, list[Cell]] = {}
    for cell in table.cells:
        rows.setdefault(cell.row, []).append(cell)
    headers = tuple(row for row in rows if row < table.header_rows)
    group: tuple[int, ...] = ()
    for row, cells in rows.items():
        if row < table.header_rows:
            continue
        if len(cells) == 1 and cells[0].column == 0:
            group = cells[0].words
        elif cells[0].column == 0:
            words = tuple(index for cell in cells for index in cell.words)
            yield Passage(page, table, words, (*context, *group), (*headers, row))
    if len(table.words) <= MAX_QUOTE_WORDS and len(rows) > len(headers) + 1:
        yield Passage(page, table, table.words, context, tuple(rows))


def _title(page: Page, blocks: Sequence[Block], position: int) -> tuple[int, ...]:
    """Return the words of a table's title: the nearest heading, label or caption above it."""
    table = _edges(page, blocks[position].words)
    found: tuple[float, tuple[int, ...]] | None = None
    for block in blocks:
        if block.kind not in ("heading", "label", "caption"):
            continue
        left, _, right, bottom = _edges(page, block.words)
        gap = table[1] - bottom
        if -0.005 < gap < _TITLE_GAP and left < table[2] and table[0] < right:
            found = min(found or (gap, block.words), (gap, block.words))
    return found[1] if found else ()


def _edges(page: Page, words: Iterable[int]) -> Box:
    left, top, right, bottom = zip(*(page.words[index].box for index in words), strict=True)
    return min(left), min(top), max(right), max(bottom)
