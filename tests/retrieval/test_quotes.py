"""The passage that answers a question is quoted first, with the answer marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.retrieval.layout import page_of, placed
from visar.documents.page import Page
from visar.retrieval.quotes import WeightedPage, choose_quotes


def weighted(page: Page, weight: float = 1.0) -> WeightedPage:
    """A page with a vector of this weight for each word."""
    count = len(page.words)
    boxes = np.array([word.box for word in page.words], np.float32).reshape(-1, 4)
    indices = np.arange(count, dtype=np.int32)
    return WeightedPage("a", page, indices, np.full(count, weight, np.float32), boxes)


def first(question: str, *pages: Page) -> tuple[str, str | None]:
    """The text of the first quote and its marked answer."""
    quotes, _ = choose_quotes(question, [weighted(page) for page in pages])
    best = quotes[0]
    return best.text, best.text[slice(*best.answer)] if best.answer else None


def test_a_number_is_quoted_where_one_is_asked_for() -> None:
    page = page_of(
        "Requests for a berth in the marina are answered within thirty days.",
        "Rules on such requests are found at the office.",
        "A total of 641 requests were received in the year.",
    )
    quoted = first("How many requests for a berth in the marina were received?", page)
    assert quoted == ("A total of 641 requests were received in the year.", "641")


def test_the_row_of_a_table_is_quoted_with_its_year() -> None:
    page = placed(
        (0, 50, 100, "£ million"),
        (0, 300, 100, "2021"),
        (0, 400, 100, "2020"),
        (1, 50, 120, "Total assets"),
        (1, 300, 120, "52,004"),
        (1, 400, 120, "47,310"),
        (2, 50, 140, "Total liabilities"),
        (2, 300, 140, "41,190"),
        (2, 400, 140, "36,851"),
    )
    row = "£ million 2021 2020 | Total liabilities 41,190 36,851"
    assert first("What were total liabilities in 2021?", page) == (row, "41,190")
    assert first("What were total liabilities in 2020?", page) == (row, "36,851")
    assert first("What are total liabilities?", page) == (row, None)


def test_a_table_of_shares_comes_before_the_share_of_another() -> None:
    page = placed(
        (0, 50, 100, "Nearly half (47%) of crews like the northern berths in winter."),
        (1, 50, 200, "Most crews like the northern berths in winter, %"),
        *((2, left, 220, text) for left, text in ((170, "North"), (300, "South"))),
        *((3, left, 240, text) for left, text in ((50, "Tugs"), (170, "61"), (300, "35"))),
        *((4, left, 260, text) for left, text in ((50, "Ferries"), (170, "58"), (300, "41"))),
        *((5, left, 280, text) for left, text in ((50, "Trawlers"), (170, "47"), (300, "44"))),
    )
    quoted, marked = first("What percentage of ferries like the northern berths in winter?", page)
    assert "Ferries 58 41" in quoted
    # Which of the table's numbers it is the form does not tell.
    assert marked is None


def test_what_only_announces_an_answer_scores_less() -> None:
    question = "What is the default value of the timer?"
    pages = [page_of(f"The default value of the small timer{end}") for end in (":", ".")]
    announced, told = (choose_quotes(question, [weighted(page)])[0][0] for page in pages)
    assert announced.weight < told.weight


def test_of_two_things_the_one_asked_for_is_quoted() -> None:
    page = page_of(
        "The Heron-6 ferry was launched on August 7, 2011 with a band.",
        "The Petrel-9 ferry was launched on March 3, 2019 with seven speeches.",
    )
    assert first("When was the Petrel-9 ferry launched?", page)[1] == "March 3, 2019"


def test_a_person_is_marked() -> None:
    page = page_of(
        "The Chief Financial Officer must hold shares.",
        "Tomas Lindqvist, Chief Financial Officer, joined in 2021.",
    )
    assert first("Who is the Chief Financial Officer?", page)[1] == "Tomas Lindqvist"


def test_nothing_is_marked_where_no_form_is_asked_for() -> None:
    page = page_of("The motor runs long because the coils are dirty.")
    assert first("Why does the motor run long?", page)[1] is None


def test_only_an_exact_form_is_marked() -> None:
    page = page_of("The Chief Executive can earn much in 2025.")
    assert first("Which person can earn much in 2025?", page)[1] is None


def test_quotes_do_not_overlap() -> None:
    page = placed(
        (0, 50, 100, "Warranty", 16),
        (1, 50, 130, "We give a warranty of seven years on the lantern."),
        (2, 50, 142, "The warranty on its battery is five years."),
    )
    quotes, _ = choose_quotes("How long is the warranty?", [weighted(page)])
    texts = [quote.text for quote in quotes]
    assert sum("seven years" in text for text in texts) == 1


def test_the_same_words_are_quoted_once() -> None:
    pages = [weighted(page_of(text)) for text in ("Tax is due in April.", "Tax is due, in April!")]
    quotes, _ = choose_quotes("When is the tax due?", pages)
    assert len(quotes) == 1


def test_each_page_has_its_best_passage() -> None:
    pages = [page_of("Cats sleep.", "Tax is due in April."), page_of("12 13 14")]
    _, best = choose_quotes("When is tax due?", [weighted(page) for page in pages])
    assert best[0] is not None
    assert best[0].text == "Tax is due in April."
    assert best[1] is None


def test_nothing_is_quoted_where_nothing_matches() -> None:
    quotes, _ = choose_quotes("Who sings?", [weighted(page_of("Tax is due."), weight=0.0)])
    assert quotes == ()


def test_pages_without_words_are_no_error() -> None:
    quotes, best = choose_quotes("Who sings?", [weighted(page_of())])
    assert quotes == ()
    assert best == [None]


def test_words_under_a_heavy_patch_are_heavy() -> None:
    """A visual encoder's vectors stand for places, not for words."""
    page = page_of("Tax is due.", "Cats sleep.")
    boxes = np.array([[0, 0, 0, 0], page.words[0].box, page.words[-1].box], np.float32)
    weights = np.array([0.9, 0.5, 0.0], np.float32)
    seen = WeightedPage("a", page, np.full(3, -1, np.int32), weights, boxes)
    assert seen.word_weights().tolist() == [0.5, 0.0, 0.0, 0.0, 0.0]


def test_closeness_decides_between_passages_without_the_words_of_the_question() -> None:
    page = page_of("Dogs bark at night.", "Cats sleep all day.")
    count = len(page.words)
    near = np.zeros((1, count), np.float32)
    near[0, 4:] = 0.9
    boxes = np.array([word.box for word in page.words], np.float32)
    words = np.arange(count, dtype=np.int32)
    seen = WeightedPage("a", page, words, np.ones(count, np.float32), boxes, near, np.ones(1))
    quotes, _ = choose_quotes("Why do felines rest?", [seen])
    assert quotes[0].text == "Cats sleep all day."


def test_running_heads_are_not_quoted_first() -> None:
    pages = [
        replace(
            placed(
                (0, 50, 400, f"The {name} is repaired."), (1, 50, 820, "Harbour report, Ellery")
            ),
            number=number,
        )
        for number, name in ((4, "crane"), (5, "quay"))
    ]
    assert (
        first("What is repaired, says the harbour report?", *pages)[0] == "The crane is repaired."
    )


def test_the_page_that_a_question_names_is_preferred() -> None:
    pages = [
        replace(page_of(f"The fax number is {number}55-0100."), number=number) for number in (3, 4)
    ]
    quotes, _ = choose_quotes("What is the fax number on page four?", [weighted(p) for p in pages])
    assert quotes[0].page == 4


def test_how_to_answer_is_not_what_is_asked() -> None:
    page = page_of(
        "The answer format of the list is described in the annex.",
        "A total of 641 requests were received in the year.",
    )
    question = "How many requests came? Please write the answer in the list format."
    assert first(question, page)[1] == "641"
