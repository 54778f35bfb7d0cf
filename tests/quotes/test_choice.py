"""Tests of the choice of quotes, and of the marked cell of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.documents.placing import Text, page_at, rows_at
from visar.documents.page import Page
from visar.quotes.choice import MAX_QUOTES, Question, WeightedPage, find_quotes
from visar.quotes.passages import MAX_QUOTE_WORDS, find_passages
from visar.results import Passage

TABLE = [
    ["£ million", "2024", "2023", "Change"],
    ["Revenue", "412.6", "373.6", "10.4%"],
    ["Operating profit", "53.2", "45.2", "17.7%"],
    ["Capital expenditure", "47.5", "35.2", "34.9%"],
]
COLUMNS: list[float] = [50, 300, 380, 460]


def weighted(page: Page, document: str = "a", close: str = "") -> WeightedPage:
    """Return a page whose words have a cosine of 0 with the question, except ``close`` with 1."""
    words = np.arange(len(page.words), dtype=np.int32)
    boxes = np.array([word.box for word in page.words], np.float32).reshape(-1, 4)
    cosines = np.array([[float(word.text == close) for word in page.words]], np.float32)
    return WeightedPage(document, page, words, boxes, cosines, np.ones(1))


def quotes(question: str, *pages: Page, most: int = MAX_QUOTES) -> tuple[Passage, ...]:
    found = find_quotes(question, [weighted(page) for page in pages])
    return found.quotes(found.page_ids, most)


class Longest:
    """A reader that prefers long texts."""

    name = "longest"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def read(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        assert question
        self.texts += texts
        return np.array([10.0 * len(text) for text in texts], np.float32)


def marked(quote: Passage) -> list[str]:
    return [cell.text for cell in quote.cells if cell.answer]


def test_the_sentence_with_most_words_of_the_question_comes_first() -> None:
    page = page_at(
        (0, 50, 100, "The lantern was launched in March of last year."),
        (1, 50, 130, "We give a warranty of seven years on the lantern."),
        (2, 50, 160, "Its certificate is on another page of this book."),
    )
    first, *_ = quotes("How long is the warranty on the lantern?", page)
    assert first.text == "We give a warranty of seven years on the lantern."
    assert first.page == 1
    assert len(first.boxes) == 1


def test_a_similar_word_counts_like_a_shared_one() -> None:
    page = page_at(
        (0, 50, 100, "Cats sleep for most of the day and night."),
        (1, 50, 130, "Dogs bark at nearly all the people they meet."),
    )
    found = find_quotes("Why do felines rest?", [weighted(page, close="Cats")])
    assert found.quotes(found.page_ids)[0].text.startswith("Cats")


def test_running_heads_tables_of_contents_and_numbers_are_not_quoted() -> None:
    page = page_at(
        (0, 50, 20, "Revenue report of Harbour Light"),
        (1, 50, 100, "Revenue of Harbour Light ........ 12"),
        (2, 50, 130, "412.6"),
        (3, 50, 160, "The revenue of the year was higher than ever."),
        recurring={"revenuereportofharbourlight"},
    )
    assert [quote.text for quote in quotes("What is the revenue of Harbour Light?", page)] == [
        "The revenue of the year was higher than ever."
    ]


def test_a_passage_that_only_repeats_the_question_is_not_quoted() -> None:
    page = page_at((0, 50, 100, "Chief executive."), (1, 50, 200, "Ann Lee, chief executive."))
    assert [quote.text for quote in quotes("Who is the chief executive?", page)] == [
        "Ann Lee, chief executive."
    ]


def test_quotes_have_a_maximum_length() -> None:
    clause = "and the party of the first part shall hold the party of the second part free from "
    lines = (clause * 12).split()
    texts: list[Text] = [
        (n, 50, 100 + 12 * n, " ".join(lines[9 * n : 9 * n + 9])) for n in range(len(lines) // 9)
    ]
    for quote in quotes("Who holds the party free?", page_at(*texts)):
        assert len(quote.text.split()) <= MAX_QUOTE_WORDS


def test_quotes_do_not_repeat_each_other() -> None:
    page = page_at(*rows_at(100, TABLE, COLUMNS))
    found = quotes("What was the revenue?", page, page)
    texts = [quote.text for quote in found]
    assert len(texts) == len(set(texts))


def test_a_row_is_quoted_with_the_header_of_each_value() -> None:
    page = page_at((0, 50, 80, "Five-year summary"), *rows_at(100, TABLE, COLUMNS))
    first = quotes("What was revenue in 2024?", page, most=1)[0]
    assert first.text == "Five-year summary\nRevenue | 2024: 412.6 | 2023: 373.6 | Change: 10.4%"
    assert [(cell.row, cell.column, cell.text) for cell in first.cells] == [
        (0, 0, "£ million"),
        (0, 1, "2024"),
        (0, 2, "2023"),
        (0, 3, "Change"),
        (1, 0, "Revenue"),
        (1, 1, "412.6"),
        (1, 2, "373.6"),
        (1, 3, "10.4%"),
    ]
    assert [cell.header for cell in first.cells] == [True] * 4 + [False] * 4


def test_the_cell_of_the_named_row_and_column_is_marked() -> None:
    page = page_at(*rows_at(100, TABLE, COLUMNS))
    for year, value in (("2024", "412.6"), ("2023", "373.6")):
        assert marked(quotes(f"What was revenue in {year}?", page, most=1)[0]) == [value]


def test_no_cell_is_marked_if_the_question_names_no_column_or_something_else() -> None:
    page = page_at(*rows_at(100, TABLE, COLUMNS))
    for question in (
        "What was the revenue?",
        "What was the revenue of Port Services in Skarholm in 2024?",
        "What was revenue in 2019?",
        "How did revenue change from 2023 to 2024?",
    ):
        assert not any(marked(quote) for quote in quotes(question, page))


def test_no_cell_is_marked_in_a_row_that_lacks_a_word_of_another_row() -> None:
    rows = [
        ["Pence", "2024", "2023"],
        ["Basic earnings per share", "30.0", "25.0"],
        ["Final dividend", "8.0", "7.0"],
    ]
    title = (0, 50, 80, "Earnings and dividends per share")
    page = page_at(title, *rows_at(100, rows, COLUMNS[:3]))
    asked = "What were dividends per share in 2024?"
    assert not any(marked(quote) for quote in quotes(asked, page))
    rows.append(["Dividends per share", "12.0", "10.5"])
    total = page_at(title, *rows_at(100, rows, COLUMNS[:3]))
    assert [cell for quote in quotes(asked, total) for cell in marked(quote)] == ["12.0"]


def test_the_context_of_a_row_is_the_name_of_its_group() -> None:
    rows = [
        ["£ million", "2024", "2023"],
        ["Current liabilities", "", ""],
        ["Borrowings", "15.0", "25.0"],
        ["Non-current liabilities", "", ""],
        ["Borrowings", "125.0", "100.0"],
    ]
    page = page_at(*rows_at(100, rows, [50, 300, 380]))
    texts = [one.context_text for one in find_passages(page) if one.text.startswith("Borrowings")]
    assert texts == ["Current liabilities", "Non-current liabilities"]


def test_a_reader_reorders_passages_and_gets_their_headings() -> None:
    page = page_at(
        (0, 50, 60, "Our products", 16),
        (1, 50, 100, "We give a warranty of seven years."),
        (2, 50, 130, "All other things about the warranty stand in a booklet that comes with it."),
    )
    reader = Longest()
    found = find_quotes("How long is the warranty?", [weighted(page)], reader)
    assert found.quotes(found.page_ids)[0].text.startswith("All other things")
    assert "Our products: We give a warranty of seven years." in reader.texts
    assert found.page_relevance() == {("a", 1): max(10.0 * len(text) for text in reader.texts)}


def test_a_reader_reads_passages_of_every_page() -> None:
    wordy: list[Text] = [
        (n, 50, 60 + 15 * n, f"The warranty number {n} is long.") for n in range(45)
    ]
    pages = [page_at(*wordy), page_at((0, 50, 100, "No more is said here."), number=2)]
    reader = Longest()
    find_quotes("How long is the warranty?", [weighted(page) for page in pages], reader)
    assert "No more is said here." in reader.texts
    assert len(reader.texts) < 45


def test_questions_about_the_document_are_recognized_by_their_words() -> None:
    for text in ("Summarize this report", "What is this about?", "Who wrote it?"):
        assert Question(text).is_about_document
    for text in ("Who wrote the song?", "Summarize the risks", ""):
        assert not Question(text).is_about_document


def test_the_title_answers_a_question_for_the_title() -> None:
    page = page_at(
        (0, 50, 100, "Annual Report of the Lighthouse Board", 30),
        (1, 50, 200, "By Ann Lee and Ben Moor"),
        (2, 50, 300, "This is a report in which others are reported on."),
    )
    first = quotes("What is the title of this report?", page)[0]
    assert first.text == "Annual Report of the Lighthouse Board"


def test_passages_on_the_page_in_the_question_come_first() -> None:
    pages = [page_at((0, 50, 100, f"The total is {n} euro."), number=n) for n in range(1, 5)]
    assert quotes("What is the total on page three?", *pages)[0].page == 3


def test_german_words_are_stemmed_as_german() -> None:
    page = page_at(
        (0, 50, 100, "Die Häuser der Stadt wurden im Jahr 1900 gebaut und sind alt."),
        (1, 50, 130, "Der Hafen ist mit dem Schiff und nicht mit der Bahn zu erreichen."),
    )
    assert "Häuser" in quotes("Wann wurde das Haus gebaut?", page)[0].text


def test_words_get_the_similarity_of_the_patches_over_them() -> None:
    page = page_at((0, 50, 100, "Left words are here now."), (1, 50, 500, "Right ones are there."))
    boxes = np.array([[0.0, 0.0, 1.0, 0.5], [0.0, 0.5, 1.0, 1.0]], np.float32)
    cosines = np.array([[0.1, 0.9]], np.float32)
    seen = WeightedPage("a", page, np.full(2, -1, np.int32), boxes, cosines, np.ones(1))
    found = find_quotes("Where is the boat?", [seen])
    assert found.quotes(found.page_ids)[0].text == "Right ones are there."


def test_a_page_without_words_has_no_quotes() -> None:
    found = find_quotes("Who sings?", [weighted(page_at())])
    assert found.quotes(found.page_ids) == ()
    assert found.best(("a", 1)) is None
