"""Passages are whole sentences and rows, and no word is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visar.documents.page import Page, Word
from visar.results import Passage
from visar.retrieval.passages import WeightedPage, best_passages, boxes_of, spans, weight_passages


def page_of(*lines: str, gap: float = 0.02, spread: float = 0.01) -> Page:
    """A page with these lines below each other, words ``spread`` apart."""
    words = []
    for number, line in enumerate(lines):
        left = 0.1
        for text in line.split():
            width = 0.01 * len(text)
            top = 0.1 + gap * number
            words.append(Word(text, (left, top, left + width, top + 0.012), number))
            left += width + spread
    return Page(1, 595, 842, 0, tuple(words), "text layer")


def texts(page: Page) -> list[str]:
    return [span.text for span in spans(page)]


def test_sentences_run_across_lines() -> None:
    page = page_of("The lantern is bright. It weighs", "14 kg and has a warranty. Good.")
    assert texts(page) == [
        "The lantern is bright.",
        "It weighs 14 kg and has a warranty.",
        "Good.",
    ]


def test_abbreviations_and_decimals_end_nothing() -> None:
    page = page_of("Dr. Solheim paid approx. 3.5 million to Harbour Inc. in 2024.")
    assert len(texts(page)) == 1


def test_rows_of_numbers_stand_alone() -> None:
    page = page_of("Revenue 168.4 159.7", "Profit (2.1) 29.8", "All figures are in millions.")
    assert texts(page) == [
        "Revenue 168.4 159.7",
        "Profit (2.1) 29.8",
        "All figures are in millions.",
    ]


def test_a_heading_is_not_part_of_the_sentence_below() -> None:
    page = page_of("Outlook", "We expect the coming year to be better than the last one.")
    assert texts(page)[0] == "Outlook"


def test_a_colon_announces_what_follows() -> None:
    page = page_of("Produced by:", "The Department of Health", gap=0.03)
    assert texts(page) == ["Produced by: The Department of Health"]


def test_a_box_per_line() -> None:
    page = page_of("One sentence that goes", "on over two lines.")
    (span,) = spans(page)
    first, second = boxes_of(page, span)
    assert first[1] < second[1]
    assert first[0] == second[0] == 0.1


@given(st.lists(st.text("ab.3 A", max_size=30), max_size=8))
def test_every_word_is_in_exactly_one_passage(lines: list[str]) -> None:
    page = page_of(*lines)
    covered = [index for span in spans(page) for index in span.words]
    assert covered == list(range(len(page.words)))


def weighted(number: int, weight: float, *lines: str) -> WeightedPage:
    words = page_of(*lines).words
    indices = np.arange(len(words), dtype=np.int32)
    page = Page(number, 595, 842, 0, words, "text layer")
    boxes = np.array([word.box for word in words], np.float32)
    return WeightedPage("a", page, indices, np.full(len(words), weight, np.float32), boxes)


def passages(*pages: WeightedPage) -> list[Passage]:
    return [passage for page in pages for passage in weight_passages(page)]


def test_passages_come_rather_from_different_pages() -> None:
    """A page's second sentence gives way to the somewhat lighter one of another page."""
    pages = [
        weighted(1, 1.0, "Tax is due in April.", "Tax rates are high now."),
        weighted(2, 0.8, "Duties are due in May."),
    ]
    assert [passage.page for passage in best_passages(passages(*pages), most=2)] == [1, 2]


def test_the_same_words_are_quoted_once() -> None:
    pages = [weighted(1, 1.0, "Tax is due in April."), weighted(2, 1.0, "Tax is due, in April!")]
    assert len(best_passages(passages(*pages))) == 1


def test_nothing_is_quoted_where_nothing_weighs() -> None:
    page = page_of("Tax is due in April.")
    boxes = np.zeros((5, 4), np.float32)
    silent = WeightedPage("a", page, np.arange(5, dtype=np.int32), np.zeros(5, np.float32), boxes)
    assert best_passages(passages(silent)) == ()


def test_words_under_a_heavy_patch_are_heavy() -> None:
    """A visual encoder's vectors stand for places, not for words."""
    page = page_of("Tax is due.", "Cats sleep.")
    first, last = page.words[0].box, page.words[-1].box
    boxes = np.array([[0, 0, 0, 0], first, last], np.float32)
    weighed = WeightedPage(
        "a", page, np.full(3, -1, np.int32), np.array([0.9, 0.5, 0.0], np.float32), boxes
    )
    weights = weighed.word_weights()
    assert weights[0] == 0.5
    assert not weights[1:].any()
