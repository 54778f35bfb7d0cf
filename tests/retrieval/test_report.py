"""Tests of quotes from the example report."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.quotes import contains_answer, read_questions

from visar.index import Index

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "report_questions.jsonl"


def test_most_quotes_contain_the_answer(library: Index) -> None:
    asked = read_questions(QUESTIONS)
    first = in_all = found = 0
    for question in asked:
        search = library.search(question.text)
        if not set(question.pages) & {hit.page for hit in search.pages}:
            continue
        held = [question.contains_answer(passage.text) for passage in search.passages]
        found += 1
        first += held[0]
        in_all += any(held)
    assert found >= 0.8 * len(asked)
    assert first >= 0.6 * found
    assert in_all >= 0.8 * found


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who is the chief executive of Harbour Light?", "Margaret Oyelaran"),
        ("How many employees does the group have?", "1,964"),
        ("How long is the warranty on the Aurora 4 lantern?", "seven years"),
        ("What interest is paid on the vessel loan?", "EURIBOR + 1.45%"),
    ],
)
def test_answers_to_typical_questions_are_quoted(
    library: Index, question: str, answer: str
) -> None:
    found = library.search(question)
    assert any(contains_answer(answer, passage.text) for passage in found.passages)
    assert found.reader == "ms-marco-minilm"


def test_a_search_without_a_reader_has_no_reader_in_its_result(library: Index) -> None:
    with Index.open(library.location, create=False, reader="none") as plain:
        assert plain.search("How many employees does the group have?").reader is None


def test_questions_about_the_report_itself_are_answered_from_its_first_page(library: Index) -> None:
    for question in ("What is the title of this report?", "Summarize this report"):
        found = library.search(question)
        assert found.passages[0].page == 1
        assert any("Harbour Light" in passage.text for passage in found.passages)
        # The words of the question stand nowhere in the report, and yet it has an answer.
        assert found.strength != "none"


def test_the_page_that_a_question_names_comes_first(library: Index) -> None:
    for question in ("What is said about risks on page thirty?", "What is on page 30?"):
        assert library.search(question).pages[0].page == 30
