"""How quotes and pages look in the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from visar.cli import answers
from visar.index import Index
from visar.results import Answer, Passage, QuotedCell
from visar.retrieval.wording import nothing_found


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """The text that is printed, without colors."""
    file = StringIO()
    monkeypatch.setattr(answers, "console", Console(file=file, width=100))
    return file


def test_a_refused_question_lists_three_pages(library: Index, screen: StringIO) -> None:
    found = library.search("Who won the 1998 World Cup?", method="top-k", k=12)
    assert (found.strength, len(found.pages)) == ("none", 12)
    answers.print_pages(found)
    lines = [line for line in screen.getvalue().splitlines() if line.split()[:1]]
    numbers = [int(line.split()[0]) for line in lines if line.split()[0].isdigit()]
    assert numbers == [hit.page for hit in found.pages[:3]]
    screen.truncate(0)
    answers.print_pages(replace(found, strength="weak"))
    assert "2 more" in screen.getvalue()


def cell(
    text: str, row: int, column: int, *, span: int = 1, header: bool = False, answer: bool = False
) -> QuotedCell:
    box = (0.1 + 0.1 * column, 0.2 + 0.05 * row, 0.2 + 0.1 * column, 0.23 + 0.05 * row)
    return QuotedCell(text, row, column, span, header, answer, box)


TABLE = (
    cell("Year ended 31 March", 0, 1, span=3, header=True),
    cell("2022", 1, 1, header=True),
    cell("2023", 1, 2, header=True),
    cell("2024", 1, 3, header=True),
    cell("Revenue", 2, 0),
    cell("340.1", 2, 1),
    cell("373.6", 2, 2),
    cell("412.6", 2, 3, answer=True),
    cell("Profit before tax", 3, 0),
    cell("(9.8)", 3, 1),
    cell("12%", 3, 2),
)
TEXT = (
    "Revenue | 2022: 340.1 | 2023: 373.6 | 2024: 412.6\nProfit before tax | 2022: (9.8) | 2023: 12%"
)


def quote(library: Index, text: str, cells: tuple[QuotedCell, ...]) -> Answer:
    answer = library.ask("What was revenue in 2024?")
    passage = Passage(text, answer.pages[0].document, 3, 1.0, ((0.1, 0.2, 0.5, 0.4),), cells=cells)
    return replace(answer, passages=(passage,))


def test_a_quoted_table_is_printed_as_a_table(library: Index, screen: StringIO) -> None:
    answers.print_answer(quote(library, f"Five-year summary, £ million\n{TEXT}", TABLE))
    lines = screen.getvalue().splitlines()
    start = lines.index("  Five-year summary, £ million  page 3")
    assert [line.rstrip() for line in lines[start + 1 : start + 5]] == [
        "                       Year ended 31 March",
        "                       2022    2023     2024",
        "  Revenue             340.1   373.6   ▸412.6",
        "  Profit before tax   (9.8)     12%",
    ]


def test_a_table_without_a_title_has_its_page_above_it(library: Index, screen: StringIO) -> None:
    answers.print_answer(quote(library, TEXT, TABLE))
    lines = screen.getvalue().splitlines()
    assert lines[lines.index("  page 3") + 1].strip() == "Year ended 31 March"
    assert not any("2022: 340.1" in line for line in lines)


def test_a_table_too_wide_for_the_terminal_is_text(library: Index, screen: StringIO) -> None:
    wide = (*TABLE, *(cell("a long remark " * 3, 2, column) for column in (4, 5, 6)))
    answers.print_answer(quote(library, TEXT, wide))
    assert "2022: 340.1" in screen.getvalue()
    assert "▸" not in screen.getvalue()


def test_table_cells_cannot_control_the_terminal(library: Index, screen: StringIO) -> None:
    answers.print_answer(quote(library, "x", (cell("a\x1b[31m\nb", 0, 0), cell("日本 7", 0, 1))))
    assert "\x1b" not in screen.getvalue()
    assert "a [31m b   日本 7" in screen.getvalue()


def test_the_closest_page_is_the_most_probable(library: Index) -> None:
    """A reader may put another page first."""
    found = library.search("What do foxes eat?", method="top-k", k=3)
    chances = [0.05, 0.3, 0.1]
    pages = tuple(
        replace(hit, probability=chance) for hit, chance in zip(found.pages, chances, strict=True)
    )
    shown = nothing_found(replace(found, pages=pages))
    assert re.findall(r"\d+", shown) == [str(pages[1].page)]
