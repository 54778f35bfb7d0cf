"""Lines that stand side by side are read column by column; rows of tables stay whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.retrieval.layout import placed
from visar.documents.page import Page
from visar.retrieval.columns import in_columns
from visar.retrieval.passages import spans

LEFT = (
    "The harbour paid for a new quay",
    "and for two tugs, more than in",
    "any year before it was built.",
)
RIGHT = (
    "The rise is due to the quays",
    "which grew from a small jetty",
    "to the longest of the coast.",
)


def read(page: Page) -> list[str]:
    return [" ".join(page.words[index].text for index in line) for line in page.lines()]


def side_by_side(top: float = 100) -> list[tuple[int, float, float, str]]:
    """Two columns whose lines were taken for one line each."""
    return [
        (number, left, top + 14 * number, text)
        for number, pair in enumerate(zip(LEFT, RIGHT, strict=True))
        for left, text in zip((50, 320), pair, strict=True)
    ]


def test_columns_read_as_one_line_are_parted() -> None:
    page = in_columns(placed(*side_by_side()))
    assert read(page) == [*LEFT, *RIGHT]
    texts = [span.text for span in spans(page)]
    assert " ".join(LEFT) in texts
    assert " ".join(RIGHT) in texts


def test_what_spans_the_columns_parts_those_above_from_those_below() -> None:
    title = "A heading as wide as both of the columns that stand above and below it"
    below = [(number + 4, left, top, text) for number, left, top, text in side_by_side(160)]
    page = in_columns(placed(*side_by_side(), (3, 50, 146, title), *below))
    assert read(page) == [*LEFT, *RIGHT, title, *LEFT, *RIGHT]


def test_rows_of_a_table_below_columns_stay_whole() -> None:
    rows = [
        (3 + number, left, 160 + 14 * number, text)
        for number, row in enumerate([("Tugs", "8.2", "9.1"), ("Quays", "7.9", "9.3")])
        for left, text in zip((50, 250, 320), row, strict=True)
    ]
    page = in_columns(placed(*side_by_side(), *rows))
    assert read(page)[-2:] == ["Tugs 8.2 9.1", "Quays 7.9 9.3"]


def test_columns_of_a_table_do_not_part_the_text_below_it() -> None:
    """The lines of the left column run across the place where the table's second one begins."""
    table = [
        (number, left, 100 + 14 * number, text)
        for number in range(3)
        for left, text in ((50, "Why it was built"), (150, "Who paid for it"))
    ]
    below = [
        (3 + number + 3 * column, left, 200 + 14 * number, text)
        for column, (left, lines) in enumerate(((50, LEFT), (320, RIGHT)))
        for number, text in enumerate(lines)
    ]
    assert read(in_columns(placed(*table, *below)))[-6:] == [*LEFT, *RIGHT]


def test_indented_lines_begin_no_column() -> None:
    lines = [
        (number, left + (30 if left > 300 and number % 2 else 0), 100 + 14 * number, text)
        for number, pair in enumerate(zip(LEFT * 2, RIGHT * 2, strict=True))
        for left, text in zip((50, 320), pair, strict=True)
    ]
    assert read(in_columns(placed(*lines))) == [*LEFT, *LEFT, *RIGHT, *RIGHT]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 700)), max_size=30))
def test_no_word_is_lost_or_moved(places: list[tuple[int, int]]) -> None:
    page = placed(*((n, x, y, "four words stand here") for n, (x, y) in enumerate(places)))
    ordered = in_columns(page)
    assert [(word.text, word.box) for word in ordered.words] == [
        (word.text, word.box) for word in page.words
    ]
