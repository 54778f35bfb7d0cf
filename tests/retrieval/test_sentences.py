"""Words of a page become text, and its lines sentences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.retrieval.layout import page_of
from visar.documents.page import Word
from visar.retrieval.sentences import find_runs, join_words


def test_closing_marks_follow_their_word() -> None:
    box = (0.0, 0.0, 0.1, 0.1)
    words = [
        Word(text, box, 0) for text in ["“", "it", "is", "so", ",", "”", "he", "paid", "£", "5"]
    ]
    assert join_words(words) == "“it is so,” he paid £5"


@given(st.lists(st.text("ab.3:•- A", max_size=30), max_size=8))
def test_runs_are_a_partition_of_the_words(lines: list[str]) -> None:
    page = page_of(*lines)
    words = [index for run in find_runs(page.words, page.lines()) for index in run.words]
    assert sorted(words) == list(range(len(page.words)))
