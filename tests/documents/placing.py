"""Pages with words at given positions, for tests of layout and quotes."""

from __future__ import annotations

from visar.documents.blocks import find_blocks
from visar.documents.page import Block, Page, Word
from visar.documents.segments import PlacedWord
from visar.documents.sentences import join_words

WIDTH, HEIGHT = 600.0, 800.0

Text = tuple[int, float, float, str] | tuple[int, float, float, str, float]
"""Line, left and top in points, words, and their font size (10 by default)."""


def words_at(*texts: Text) -> list[PlacedWord]:
    """Return the words of texts; letters are 0.5 font sizes wide, spaces 0.3."""
    words: list[PlacedWord] = []
    for line, left, top, text, *sizes in texts:
        size = sizes[0] if sizes else 10.0
        for word in text.split():
            right = left + 0.5 * size * len(word)
            bottom = top + 0.7 * size
            words.append(
                PlacedWord(len(words), word, left, top, right, bottom, size, line, upright=True)
            )
            left = right + 0.3 * size
    return words


def page_at(*texts: Text, number: int = 1, recurring: set[str] | None = None) -> Page:
    """Return a page with these texts and its blocks."""
    words = words_at(*texts)
    placed = tuple(
        Word(w.text, (w.left / WIDTH, w.top / HEIGHT, w.right / WIDTH, w.bottom / HEIGHT), w.line)
        for w in words
    )
    blocks = find_blocks(words, HEIGHT, recurring or set())
    return Page(number, WIDTH, HEIGHT, 0, placed, "text layer", blocks=blocks)


def rows_at(
    top: float, rows: list[list[str]], columns: list[float], pitch: float = 16, line: int = 10
) -> list[Text]:
    """Return the cells of a table; the first column is left-aligned, the others right-aligned."""
    texts: list[Text] = []
    for number, row in enumerate(rows):
        for column, (edge, cell) in enumerate(zip(columns, row, strict=True)):
            width = 5.0 * len(cell) - 2.0 * cell.count(" ")
            left = edge if column == 0 else edge - width
            if cell:
                texts.append((line + number, left, top + pitch * number, cell))
    return texts


def block_text(page: Page, block: Block) -> str:
    return join_words([page.words[index] for index in block.words])


def table_cells(page: Page, block: Block) -> dict[tuple[int, int], str]:
    """Return the texts of a table's cells by row and column."""
    return {
        (cell.row, cell.column): join_words([page.words[index] for index in cell.words])
        for cell in block.cells
    }


def table_blocks(page: Page) -> list[Block]:
    return [block for block in page.blocks or () if block.kind == "table"]


def block_texts(page: Page, kind: str) -> list[str]:
    return [block_text(page, block) for block in page.blocks or () if block.kind == kind]
