"""Passages read as quotations, whatever the layout, and no word is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.retrieval.layout import page_of, placed
from visar.documents.page import Page
from visar.retrieval.columns import in_columns
from visar.retrieval.passages import boxes_of, spans

Cell: TypeAlias = tuple[int, float, float, str]


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
    page = page_of("Dr. Solheim of the U.S. Navy paid approx. 3.5 million to Harbour Inc. in 2024.")
    assert len(texts(page)) == 1


def test_words_parted_at_a_line_end_are_made_whole() -> None:
    page = page_of(
        "We report the capac-", "ity of a two-", "to-one well-known", "and well-", "known rule."
    )
    assert texts(page) == ["We report the capacity of a two-to-one well-known and well-known rule."]


def test_a_sentence_goes_on_in_the_next_column() -> None:
    page = placed(
        (0, 50, 100, "The concession of the port ends in December"),
        (1, 320, 80, "2026 and its renewal is important for us."),
        (2, 320, 92, "Another sentence stands below it here."),
    )
    assert (
        "The concession of the port ends in December 2026 and its renewal is important for us."
        in (texts(page))
    )


def test_a_sentence_goes_on_below_a_chart() -> None:
    page = placed(
        (0, 50, 100, "The harbour board decided to lengthen the northern quay and"),
        (1, 300, 130, "88"),
        (2, 300, 150, "74 72"),
        (3, 50, 200, "two smaller ones before the winter storms."),
    )
    assert (
        "The harbour board decided to lengthen the northern quay and two smaller ones before the "
        "winter storms."
    ) in texts(page)


def test_a_number_at_a_line_start_may_end_a_sentence() -> None:
    page = page_of(
        "We applied for 17 patents in the year and were granted", "12. Nobody contested any."
    )
    assert "We applied for 17 patents in the year and were granted 12." in texts(page)


def test_a_row_has_the_heads_of_its_columns() -> None:
    page = placed(
        (0, 50, 100, "£ million"),
        (0, 300, 100, "2024"),
        (0, 400, 100, "2023"),
        (1, 50, 120, "Revenue"),
        (1, 300, 120, "412.6"),
        (1, 400, 120, "373.6"),
        (2, 50, 140, "Total liabilities"),
        (2, 300, 140, "41,190"),
        (2, 400, 140, "36,851"),
    )
    assert "£ million 2024 2023 | Total liabilities 41,190 36,851" in texts(page)
    assert "Total liabilities 41,190 36,851" not in texts(page)


def test_a_row_is_found_where_its_cells_are_read_apart() -> None:
    """Reading order may take the labels first and the numbers after other columns."""
    page = placed(
        (0, 50, 100, "Port Ellery"),
        (1, 50, 120, "Skarholm"),
        (2, 50, 300, "Something else is said on this page."),
        (3, 300, 100, "8,420"),
        (4, 300, 120, "6,315"),
    )
    assert "Skarholm 6,315" in texts(page)


def test_a_label_that_wraps_belongs_to_its_row() -> None:
    page = placed(
        (0, 50, 100, "Income from"),
        (1, 50, 110, "operating activities"),
        (1, 300, 110, "65.7"),
        (1, 400, 110, "57.1"),
    )
    assert "Income from operating activities 65.7 57.1" in texts(page)


def test_cells_of_several_lines_stay_together() -> None:
    page = placed(
        (0, 50, 100, "Grow with"),
        (0, 200, 100, "Turbines stand further"),
        (0, 400, 100, "Revenue of £160"),
        (1, 50, 111, "wind"),
        (1, 200, 111, "out every year."),
        (1, 400, 111, "million"),
    )
    assert "Grow with wind | Turbines stand further out every year. Revenue of £160 million" in (
        texts(page)
    )


def test_columns_of_prose_are_no_rows() -> None:
    left = [
        "The first column speaks of ships",
        "and of the harbours which they",
        "reach in winter.",
    ]
    right = [
        "The second one speaks of 40 lamps",
        "and of those who light them every",
        "day at dusk.",
    ]
    page = placed(
        *((n, 50, 100 + 12 * n, text) for n, text in enumerate(left)),
        *((n + 3, 320, 100 + 12 * n, text) for n, text in enumerate(right)),
    )
    assert texts(page) == [" ".join(left), " ".join(right)]


QUAY = ("The quay at Skarholm was lengthened last", "May by forty metres and lit anew.")
TUGS = ("Two tugs were ordered from a yard in", "Gdansk and will arrive in October.")


@pytest.mark.parametrize("left", [QUAY, QUAY[1:]])
@pytest.mark.parametrize("right", [TUGS, TUGS[:1]])
def test_short_columns_side_by_side_are_not_read_as_one(
    left: tuple[str, ...], right: tuple[str, ...]
) -> None:
    cells = [
        (number, place, 100 + 14 * number, line)
        for place, column in ((50, left), (320, right))
        for number, line in enumerate(column)
    ]
    found = texts(in_columns(placed(*cells)))
    assert {" ".join(column) for column in (left, right) if len(column) > 1} <= set(found)
    joined = {f"{a.split()[-1]} {b.split()[0]}" for a in left for b in right}
    assert not [text for text in found if any(words in text for words in joined)]


def test_lines_read_after_each_other_may_stand_side_by_side() -> None:
    page = placed((0, 50, 100, "The tug pulls"), (1, 300, 100, "The pilot steers"))
    assert not [text for text in texts(page) if "pulls The" in text]


def test_an_item_has_what_announces_it() -> None:
    page = page_of(
        "The grant pays for:", "• new buoys", "• pilots and tugs", "Nothing else is paid."
    )
    found = texts(page)
    assert "The grant pays for: • new buoys" in found
    assert "The grant pays for: • new buoys | • pilots and tugs" in found


def test_a_slide_title_has_what_stands_below_it() -> None:
    page = placed(
        (0, 50, 100, "Plan for the quay", 24),
        (1, 50, 160, "Built within two years", 12),
        (2, 50, 190, "Paid by the port", 12),
    )
    assert "Plan for the quay | Built within two years | Paid by the port" in (texts(page))


def test_a_large_number_has_its_label() -> None:
    page = placed(
        (0, 50, 100, "£412.6m", 24),
        (0, 300, 100, "30.0p", 24),
        (1, 50, 125, "Revenue, up 10%"),
        (1, 300, 125, "Earnings per share"),
    )
    assert {"£412.6m Revenue, up 10%", "30.0p Earnings per share"} <= set(texts(page))


def test_a_caption_has_its_figure() -> None:
    page = placed(
        (0, 100, 100, "Nordic countries"),
        (1, 100, 200, "British Isles"),
        (2, 50, 300, "Figure 3: Employees by region."),
    )
    captions = [span.text for span in spans(page) if span.kind == "caption"]
    assert captions == ["Figure 3: Employees by region. Nordic countries | British Isles"]


def test_a_heading_is_the_context_of_what_stands_below() -> None:
    page = page_of("Outlook", "We expect the coming year to be better than the last one.")
    heading, sentence, *_ = spans(page)
    assert heading.kind == "heading"
    assert sentence.context == heading.words


def test_a_colon_announces_what_follows() -> None:
    page = page_of("Produced by:", "The Department of Health", gap=0.03)
    assert texts(page) == ["Produced by: The Department of Health"]


def test_a_box_per_line() -> None:
    page = page_of("One sentence that goes", "on over two lines.")
    (span,) = spans(page)
    first, second = boxes_of(page, span)
    assert first[1] < second[1]
    assert first[0] == second[0] == 0.1


lines = st.lists(st.text("ab.3:•- A", max_size=30), max_size=8)


@given(lines)
def test_every_word_is_in_a_passage(lines: list[str]) -> None:
    page = page_of(*lines)
    covered = {index for span in spans(page) for index in span.words}
    assert covered == set(range(len(page.words)))


cells = st.tuples(
    st.integers(0, 6),
    st.integers(0, 500),
    st.integers(0, 780),
    st.text("aB.3 %", min_size=1, max_size=12),
    st.sampled_from([8.0, 10.0, 24.0]),
)


@given(st.lists(cells, max_size=12))
def test_every_word_is_in_a_passage_wherever_it_stands(
    cells: list[tuple[int, int, int, str, float]],
) -> None:
    page = placed(*cells)
    found = spans(page)
    assert {index for span in found for index in span.words} == set(range(len(page.words)))
    for span in found:
        assert span.text.strip() == span.text
        assert len(set(span.words)) == len(span.words)
        assert all(box[0] <= box[2] and box[1] <= box[3] for box in boxes_of(page, span))


def test_items_of_lists_side_by_side_are_rows_of_their_own() -> None:
    page = placed(
        (0, 50, 100, "1."),
        (0, 70, 100, "Northern Rock"),
        (0, 180, 100, "NR01"),
        (1, 300, 100, "7."),
        (1, 320, 100, "Southern Rock"),
        (1, 430, 100, "SR07"),
    )
    assert "1. Northern Rock NR01" in texts(page)
    rows = [span.text for span in spans(page) if span.kind == "row"]
    assert not any("NR01" in row and "SR07" in row for row in rows)


TITLE = "Most crews prefer the northern berths in winter"
ROWS = (("Tugs", "61", "35"), ("Ferries", "47", "44"), ("Trawlers", "58", "29"))


def table(left: float = 50, line: int = 0, rows: tuple[tuple[str, ...], ...] = ROWS) -> list[Cell]:
    """A title, heads and rows below each other, from this line and place."""
    columns = (left, left + 120, left + 170)
    heads = [(line + 1, columns[1], 120, "North"), (line + 1, columns[2], 120, "South")]
    body = [
        (line + 2 + number, place, 140 + 20 * number, text)
        for number, row in enumerate(rows)
        for place, text in zip(columns, row, strict=True)
    ]
    return [(line, left, 100, TITLE), *heads, *body]


def test_a_short_table_is_a_passage_with_its_title() -> None:
    whole = f"{TITLE} | North South | Tugs 61 35 | Ferries 47 44 | Trawlers 58 29"
    assert whole in texts(placed(*table()))


def test_the_source_of_a_table_is_no_part_of_it() -> None:
    page = placed(*table(), (9, 50, 205, "Source: harbour survey"))
    assert f"{TITLE} | North South | Tugs 61 35 | Ferries 47 44 | Trawlers 58 29" in texts(page)


def test_each_part_of_a_long_table_has_its_title_and_heads() -> None:
    rows = tuple((f"Ship {chr(65 + n)}", str(100 + n), str(200 + n)) for n in range(26))
    parts = [span for span in spans(placed(*table(rows=rows))) if span.kind == "table"]
    assert len(parts) > 1
    assert all(part.text.startswith(f"{TITLE} | North South | Ship ") for part in parts)
    assert all(any(f"Ship {chr(65 + n)} {100 + n}" in p.text for p in parts) for n in range(26))


def test_tables_side_by_side_are_two() -> None:
    """The lines of both may have been read as one."""
    other = (("Crane", "7", "8"), ("Dock", "5", "3"), ("Lock", "4", "2"))
    cells = [*table(), *table(left=330, rows=other)]
    found = [span.text for span in spans(placed(*sorted(cells, key=lambda cell: cell[:2])))]
    assert any(text.endswith("Tugs 61 35 | Ferries 47 44 | Trawlers 58 29") for text in found)
    assert any(text.endswith("Crane 7 8 | Dock 5 3 | Lock 4 2") for text in found)


def test_the_labels_of_a_small_slide_are_one_passage() -> None:
    page = placed((0, 100, 100, "Taste"), (0, 400, 100, "1 MB/s"), (1, 100, 300, "Touch is best."))
    slide = replace(page, width=page.height, height=page.width)
    assert any("Taste" in text and "Touch" in text for text in texts(slide))


def test_what_stands_in_brackets_goes_on_with_the_line_above() -> None:
    page = page_of(
        "Only a third of the younger crews", "(32%) follow the news of the port closely."
    )
    assert texts(page) == [
        "Only a third of the younger crews (32%) follow the news of the port closely."
    ]


def test_an_item_goes_on_with_a_capital() -> None:
    page = placed(
        (0, 50, 100, "f) The port has been among the Top"),
        (1, 66, 114, "Employers of the coast since 2008."),
        (2, 50, 140, "g) It ranked third in the year."),
    )
    assert "f) The port has been among the Top Employers of the coast since 2008." in texts(page)
