"""Questions about a document itself are known, and the first page answers them."""

from __future__ import annotations

import pytest

from tests.retrieval.layout import placed
from visar.retrieval.front_page import about_document, front_matter
from visar.retrieval.passages import spans

PAGE = placed(
    (0, 100, 60, "Lanterns of the Northern Sea", 24),
    (1, 150, 110, "Ada Solheim Bert Vance", 11),
    (2, 150, 126, "University of Skerry", 11),
    (3, 50, 200, "Lanterns have been lit since 1821 on every rock that a ship could strike,"),
    (4, 50, 214, "and few of those who keep them have ever been asked how they do it."),
    (5, 50, 700, "© 2024 Skerry Press"),
    (6, 400, 740, "12 May 2024"),
)


@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("Who wrote this paper?", "author"),
        ("Who are the authors of the report?", "author"),
        ("What is the title of the policy brief?", "title"),
        ("When was it released?", "date"),
        ("When was the report first published?", "date"),
        ("Who published this guide?", "publisher"),
        ("What is the name of the company that created this presentation?", "publisher"),
        ("What does the cover page show?", "page"),
        ("Who wrote the song?", None),
        ("When was the quay built?", None),
        ("How many authors were asked?", None),
        ("What is the title of Ms Solheim?", None),
    ],
)
def test_questions_about_the_document_are_known(question: str, about: str | None) -> None:
    assert about_document(question) == about


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who wrote this paper?", "Ada Solheim"),
        ("What is the title of this paper?", "Lanterns of the Northern Sea"),
        ("When was this paper published?", "12 May 2024"),
        ("Who published this paper?", "Skerry Press"),
    ],
)
def test_the_passage_with_the_answer_suits_best(question: str, answer: str) -> None:
    about = about_document(question)
    assert about is not None
    passages = spans(PAGE)
    values = front_matter(about, question, PAGE, passages)
    best = max(zip(values, passages, strict=True), key=lambda pair: pair[0])
    assert answer in best[1].text
    assert all(0 <= value <= 1 for value in values)


def test_a_byline_names_the_authors_wherever_it_stands() -> None:
    page = placed((0, 50, 60, "BY Ada Solheim and Bert Vance", 9), (1, 50, 400, "Lanterns", 24))
    values = front_matter("author", "Who wrote this?", page, spans(page))
    assert max(values) == values[[span.text[:2] for span in spans(page)].index("BY")] == 1
