"""Questions generated from documents."""

from __future__ import annotations

from visar.documents.page import Page, Word
from visar.evaluation.timing import WITHOUT_WORDS, questions_about


def page(number: int, *lines: str) -> Page:
    words = tuple(
        Word(text, (0.1 * column, 0.1 * line, 0.1 * column + 0.05, 0.1 * line + 0.05), line)
        for line, content in enumerate(lines)
        for column, text in enumerate(content.split())
    )
    return Page(number, 400, 500, 0, words, "text layer")


def test_a_question_has_the_words_of_the_richest_line() -> None:
    asked = questions_about(
        [page(1, "Contents 3 4 5", "The pilots of the harbour, guide 14 tankers.")], 3
    )
    assert asked == ["What does it say about pilots harbour guide tankers?"]


def test_questions_are_spread_over_the_pages_that_have_words() -> None:
    pages = [page(n, f"chapter{chr(96 + n)} tells") if n % 2 else page(n) for n in range(1, 13)]
    asked = questions_about(pages, 3)
    assert [question.split()[5][-1] for question in asked] == ["c", "g", "k"]


def test_questions_from_long_lines_have_the_usual_length() -> None:
    line = " ".join(f"word{chr(97 + n)}" for n in range(20))
    [asked] = questions_about([page(1, line)], 1)
    assert asked.split()[-1] == "wordh?"


def test_pages_without_words_get_general_questions() -> None:
    assert questions_about([page(1), page(2, "12 34")], 2) == list(WITHOUT_WORDS[:2])
