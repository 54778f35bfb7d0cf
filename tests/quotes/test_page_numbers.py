"""Tests of page numbers in questions."""

from __future__ import annotations

import pytest

from visar.quotes.choice import find_page_number


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("What does the chart on page 30 show?", 30),
        ("What does the chart on page thirty show?", 30),
        ("page thirty-two: who signed?", 32),
        ("PAGE TWENTY ONE", 21),
        ("What stands on page twenty nineteen?", 20),
        ("the table on page one hundred and twelve", 112),
        ("the table on page two hundred and its notes", 200),
        ("the table on page nine hundred ninety-nine please", 999),
        ("the total on p. 7", 7),
        ("the total on p.7 of the report", 7),
        ("see pg 12", 12),
        ("Is page 4 the same as on page four?", 4),
        ("page one of the report", 1),
        ("Which page is after page 3?", 3),
    ],
)
def test_page_numbers_are_found_in_digits_and_words(question: str, page: int) -> None:
    assert find_page_number(question) == page


@pytest.mark.parametrize(
    "question",
    [
        "How many pages does it have?",
        "What is the home page called?",
        "Which page has the summary?",
        "Compare page 3 with page five",
        "What is on page zero, or page 0?",
        "What is on page 4.2?",
        "homepage 3",
        "map 3",
        "page",
        "",
    ],
)
def test_other_questions_have_no_page_number(question: str) -> None:
    assert find_page_number(question) is None
