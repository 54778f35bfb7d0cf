"""The HTML of searches and answers in notebooks, in which text from documents is escaped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from visar.index import Index
from visar.results import Answer

MARKUP = "<img src=x onerror=alert(1)> & <b>"
ESCAPED = "&lt;img src=x onerror=alert(1)&gt; &amp; &lt;b&gt;"


@pytest.fixture
def answer(make_pdf: Callable[..., Path], tmp_path: Path) -> Answer:
    path = make_pdf(
        "a&b.pdf", f"The warranty is seven years {MARKUP}", "The glass is clean.", "Write to us."
    )
    with Index.open(tmp_path / "index") as index:
        index.add(path)
        return index.ask(f"How long is the warranty {MARKUP}?")


def test_an_answer_shows_its_quotes_and_pages(answer: Answer) -> None:
    shown = answer._repr_html_()
    assert "The warranty is seven years" in shown
    assert "<td>a&amp;b.pdf</td><td>1</td>" in shown
    assert f"{answer.search.k} of 3 pages" in shown
    assert shown.count(ESCAPED) >= 3  # in the question, the quote and the match
    assert "<img" not in shown


def test_a_search_shows_its_pages(answer: Answer) -> None:
    shown = answer.search._repr_html_()
    assert ESCAPED in shown
    assert "<img" not in shown
    assert "<svg" in shown


def test_a_missing_answer_is_shown_as_such(answer: Answer) -> None:
    shown = replace(answer, text="")._repr_html_()
    assert shown != answer._repr_html_()
