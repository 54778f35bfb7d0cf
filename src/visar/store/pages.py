"""Conversion of pages to the values that both stores save, with a checksum."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, get_args
from zlib import crc32

from visar._version import DISTRIBUTION
from visar.documents.page import Block, BlockKind, Cell, Page, Word
from visar.errors import StoreError

PAGE_COLUMNS = "number, width, height, rotation, text_source, label, words, boxes, lines, blocks"
# Separates the words of a page; the full-text index treats it as a space.
_SEPARATOR = "\x1f"
_KINDS = frozenset(get_args(BlockKind))


def page_to_row_values(page: Page) -> tuple[Any, ...]:
    """Return the columns of a page after its number, then its checksum.

    Boxes are rounded to float32.
    """
    texts = [word.text for word in page.words]
    try:
        encoded = _SEPARATOR.join(texts).encode()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"Can't store page {page.number}: it contains invalid Unicode: {error.object!r}."
        ) from error
    if encoded.count(_SEPARATOR.encode()) != max(len(texts) - 1, 0):
        raise StoreError(
            f"Can't store page {page.number}: a word contains the control character U+001F."
        )
    import numpy as np

    boxes = np.array([word.box for word in page.words], "<f4").tobytes()
    lines = np.array([word.line for word in page.words], "<i4").tobytes()
    values = (
        # SQLite has no −0.0; adding 0.0 turns it to 0.0.
        *(float(page.width) + 0.0, float(page.height) + 0.0, page.rotation, page.text_source),
        *(page.label, encoded.decode(), boxes, lines),
    )
    return *values, _blocks_to_text(page), page_checksum(page.number, *values)


def page_checksum(number: int, *values: Any) -> int:
    """Return a checksum of a page without its blocks, which have their own."""
    *plain, boxes, lines = values
    text = json.dumps([number, *plain], ensure_ascii=False).encode()
    return crc32(lines, crc32(boxes, crc32(text)))


def row_to_page(row: tuple[Any, ...]) -> Page:
    """Return the page of a row of `PAGE_COLUMNS`.

    Raises ValueError or TypeError if the row is damaged, and StoreError if a newer version of ViSAR
    wrote a block of an unknown kind.
    """
    import numpy as np

    number, width, height, rotation, text_source, label, words, boxes, lines, blocks = row[:10]
    corners = np.frombuffer(boxes, "<f4").reshape(-1, 4).tolist()
    numbers = np.frombuffer(lines, "<i4").tolist()
    texts = words.split(_SEPARATOR) if corners else []
    placed = zip(texts, corners, numbers, strict=True)
    return Page(
        number=number,
        width=width,
        height=height,
        rotation=rotation,
        words=tuple(Word(text, tuple(box), line) for text, box, line in placed),
        text_source=text_source,
        label=label,
        blocks=None if blocks is None else _text_to_blocks(blocks, number, len(texts)),
    )


def _blocks_to_text(page: Page) -> str | None:
    """Return the blocks of a page as JSON ``[checksum,blocks]``, or None without layout."""
    if page.blocks is None:
        return None
    try:
        _check_blocks(page.blocks, page.number, len(page.words))
    except (ValueError, TypeError) as error:
        raise StoreError(f"Can't store page {page.number}: invalid blocks: {error}.") from error
    rows = [
        (
            *(block.kind, block.words, float(block.size), block.heading),
            [(cell.words, cell.row, cell.column, cell.span) for cell in block.cells],
            block.header_rows,
        )
        for block in page.blocks
    ]
    text = json.dumps(rows, separators=(",", ":"))
    return f"[{crc32(text.encode())},{text}]"


def _text_to_blocks(text: str, number: int, words: int) -> tuple[Block, ...]:
    """Parse the output of `_blocks_to_text`, given the number and word count of the page."""
    checksum, rows = json.loads(text)
    if crc32(text.partition(",")[2][:-1].encode()) != checksum:
        raise ValueError(f"the blocks of page {number} have a wrong checksum")
    blocks = tuple(
        Block(
            *(kind, tuple(indices), size, heading),
            tuple(Cell(tuple(cell_words), *position) for cell_words, *position in cells),
            header_rows,
        )
        for kind, indices, size, heading, cells, header_rows in rows
    )
    _check_blocks(blocks, number, words)
    return blocks


def _check_blocks(blocks: Sequence[Block], number: int, words: int) -> None:
    """Raise an error for blocks with words, headings or cells that the page doesn't have."""
    for position, block in enumerate(blocks):
        if block.kind not in _KINDS:
            raise StoreError(
                f"Page {number} has a block of the unknown kind {block.kind!r}. "
                f"Run pip install --upgrade {DISTRIBUTION}."
            )
        _check_numbers(block.words, words, f"words of block {position}")
        if not math.isfinite(block.size):
            raise ValueError(f"the size of block {position} is {block.size!r}")
        if block.heading is not None:
            _check_numbers([block.heading], len(blocks), f"the heading of block {position}")
        cells = [block.header_rows, *(n for cell in block.cells for n in (cell.row, cell.column))]
        spans = [cell.span - 1 for cell in block.cells]
        _check_numbers([*cells, *spans], None, f"rows or columns of block {position}")
        block_words = set(block.words)
        if not all(block_words.issuperset(cell.words) for cell in block.cells):
            raise ValueError(f"a cell of block {position} has words that the block doesn't have")


def _check_numbers(numbers: Iterable[object], end: int | None, name: str) -> None:
    for number in numbers:
        if type(number) is not int or number < 0 or (end is not None and number >= end):
            raise ValueError(f"{name} out of range: {number!r}")
