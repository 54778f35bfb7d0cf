"""How quotes look in the terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from visar.cli import answers
from visar.index import Index


def test_the_answer_in_a_quote_is_bold(library: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=StringIO(), force_terminal=True, color_system="standard", width=200)
    monkeypatch.setattr(answers, "console", screen)
    answers.print_answer(library.ask("How long is the warranty on the Aurora 4 lantern?"))
    assert isinstance(screen.file, StringIO)
    shown = screen.file.getvalue()
    assert "We give a warranty of \x1b[1mseven years\x1b[0m on the lantern" in shown
