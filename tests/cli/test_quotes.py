"""How quotes and pages look in the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from visar.cli import answers
from visar.index import Index


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
    assert "and 2 more pages" in screen.getvalue()


def test_the_answer_in_a_quote_is_bold(library: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=StringIO(), force_terminal=True, color_system="standard", width=200)
    monkeypatch.setattr(answers, "console", screen)
    answers.print_answer(library.ask("How long is the warranty on the Aurora 4 lantern?"))
    assert isinstance(screen.file, StringIO)
    shown = screen.file.getvalue()
    assert "We give a warranty of \x1b[1mseven years\x1b[0m on the lantern" in shown
