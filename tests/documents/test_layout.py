from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documents.conftest import lines_at, lines_of, write_pdf
from visar.documents.layout import Piece, arrange

LEFT = [f"left column line {number} of some prose" for number in range(8)]
RIGHT = [f"right column line {number} of some prose" for number in range(8)]


def two_columns(canvas: Any, *, top: float = 480, right_first: bool = False) -> None:
    columns = [lines_at(40, top, LEFT), lines_at(225, top - 5, RIGHT)]
    for draw in reversed(columns) if right_first else columns:
        draw(canvas)


def test_columns_are_read_one_by_one(tmp_path: Path, opened: Any) -> None:
    assert lines_of(opened(write_pdf(tmp_path / "a.pdf", two_columns)).page(1)) == LEFT + RIGHT


def test_left_column_comes_first_whatever_the_file_order(tmp_path: Path, opened: Any) -> None:
    path = write_pdf(tmp_path / "a.pdf", lambda canvas: two_columns(canvas, right_first=True))
    assert lines_of(opened(path).page(1)) == LEFT + RIGHT


def test_prose_columns_written_row_by_row(tmp_path: Path, opened: Any) -> None:
    def draw(canvas: Any) -> None:
        for number, (left, right) in enumerate(zip(LEFT, RIGHT, strict=True)):
            canvas.drawString(40, 480 - 12 * number, left)
            canvas.drawString(225, 480 - 12 * number, right)

    assert lines_of(opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)) == LEFT + RIGHT


def test_headings_across_columns_keep_their_position(tmp_path: Path, opened: Any) -> None:
    middle = "A heading in the middle that spans the whole width of both of the columns"

    def draw(canvas: Any) -> None:
        canvas.drawCentredString(210, 560, "A title over both columns")
        two_columns(canvas, top=530)
        canvas.drawCentredString(210, 400, middle)
        two_columns(canvas, top=370)
        canvas.drawCentredString(210, 30, "17")

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == [
        "A title over both columns",
        *LEFT,
        *RIGHT,
        middle,
        *LEFT,
        *RIGHT,
        "17",
    ]


@pytest.mark.parametrize("by_column", [False, True])
def test_rows_of_a_table_stay_together(tmp_path: Path, opened: Any, by_column: bool) -> None:
    rows = [
        ("Region", "2022", "2023", "2024"),
        ("North and East", "1,204", "1,310", "1,402"),
        ("South", "88", "97", "105"),
        ("West", "431", "428", "460"),
    ]
    cells = [
        (50 + 90 * column, 480 - 14 * row, text)
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
    ]

    def draw(canvas: Any) -> None:
        for x, y, text in sorted(cells) if by_column else cells:
            canvas.drawString(x, y, text)

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == [" ".join(texts) for texts in rows]


def test_terms_stay_next_to_their_explanations(tmp_path: Path, opened: Any) -> None:
    """There is a vertical gap, but the file writes row by row."""
    rows = [(f"A longer term {n}", f"explained in one short sentence {n}") for n in range(6)]

    def draw(canvas: Any) -> None:
        for number, (term, meaning) in enumerate(rows):
            canvas.drawString(40, 500 - 14 * number, term)
            canvas.drawString(180, 500 - 14 * number, meaning)

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == [" ".join(row) for row in rows]


def test_vertical_text_in_the_margin(tmp_path: Path, opened: Any) -> None:
    """Preprint servers print a vertical stamp in the left margin."""

    def draw(canvas: Any) -> None:
        canvas.saveState()
        canvas.translate(20, 150)
        canvas.rotate(90)
        canvas.drawString(0, 0, "printed up the margin")
        canvas.restoreState()
        two_columns(canvas)

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == [*LEFT, *RIGHT, "printed up the margin"]


def words(text: str, x: float, y: float) -> list[Piece]:
    """Return words in a monospaced font of 10 points."""
    pieces = []
    for word in text.split():
        pieces.append(Piece(word, x, y, x + 6 * len(word), y + 8, 10))
        x += 6 * (len(word) + 1)
    return pieces


def test_columns_without_a_file_order() -> None:
    """OCR lists words from top to bottom, across columns."""
    rows = [(f"left text line {n} goes on", f"right text line {n} goes on") for n in range(5)]
    pieces = [
        piece
        for number, (left, right) in enumerate(rows)
        for piece in words(left, 0, 14 * number) + words(right, 200, 14 * number)
    ]
    lines = [" ".join(piece.text for piece in line) for line in arrange(pieces, file_order=False)]
    assert lines == [left for left, _ in rows] + [right for _, right in rows]


def scattered(rng: np.random.Generator) -> list[Piece]:
    """Return overlapping words of any size and direction at random positions."""
    pieces = []
    for _ in range(rng.integers(0, 60)):
        left, top = rng.uniform(0, 600), rng.uniform(0, 800)
        width, height, size = rng.choice([0.0, 5.0, 60.0, 300.0], 3)
        turn = int(rng.choice([0, 0, 0, 1, 2, 3, 4]))
        pieces.append(Piece("word", left, top, left + width, top + height, size, turn))
    return pieces


@pytest.mark.parametrize("file_order", [True, False])
def test_every_piece_is_in_one_line(file_order: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        pieces = scattered(rng)
        lines = arrange(pieces, file_order=file_order)
        assert all(lines)
        assert sorted(map(id, chain.from_iterable(lines))) == sorted(map(id, pieces))
