"""Quotes from the example report hold the answers to questions about it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.quotes import read_questions, stands_in
from visar.retrieval.columns import in_columns
from visar.retrieval.passages import spans

from visar.documents import open_document
from visar.index import Index

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "report_questions.jsonl"


def test_most_answers_stand_in_the_quotes(library: Index) -> None:
    asked = read_questions(QUESTIONS)
    first = in_all = found = 0
    for question in asked:
        search = library.search(question.text)
        if not set(question.pages) & {hit.page for hit in search.pages}:
            continue
        held = [question.stands_in(passage.text) for passage in search.passages]
        found += 1
        first += held[0]
        in_all += any(held)
        for passage in search.passages:
            start, end = passage.answer or (0, 1)
            assert 0 <= start < end <= len(passage.text)
    assert found >= 0.8 * len(asked)
    assert first >= 0.6 * found
    assert in_all >= 0.8 * found


def test_columns_below_a_table_are_not_mixed(report: Path) -> None:
    with open_document(report) as document:
        page = document.page(7)
    found = [span.text for span in spans(in_columns(page))]
    assert "Three hybrid tugs joined the fleet in 2024." in found
    assert (
        "We shall not enter defence work, we shall not own wind farms, and we shall not bid for"
        " ports in which we could not employ our own pilots."
    ) in found


def test_headings_between_paragraphs_belong_to_no_figure_above_them(report: Path) -> None:
    with open_document(report) as document:
        page = document.page(10)
    found = [span.text for span in spans(in_columns(page))]
    assert any("£168.4m" in text and "Revenue, up 5.4%" in text for text in found)
    assert not any("£168.4m" in text and "What comes next" in text for text in found)


def test_questions_about_the_report_itself_quote_its_first_page(library: Index) -> None:
    found = library.search("What is the title of this report?")
    assert found.passages[0].page == 1
    assert "Harbour Light" in found.passages[0].text
    # The words of the question stand nowhere in the report, and yet it has an answer.
    assert found.strength != "none"


def test_an_answer_is_not_part_of_another_number() -> None:
    assert stands_in("25.0", "Pence 30.0 25.0")
    assert not stands_in("25", "Pence 30.0 25.0")
    assert not stands_in("12", "In 2012 or 1,12.")
