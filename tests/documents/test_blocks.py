"""Test the blocks of a page: each kind on synthetic pages, and invariants of all pages."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reportlab.pdfgen.canvas import Canvas

from tests.documents.placing import (
    HEIGHT,
    Text,
    block_text,
    block_texts,
    page_at,
    rows_at,
    table_blocks,
    table_cells,
    words_at,
)
from visar.documents import open_document
from visar.documents.blocks import find_blocks, lay_out, margin_texts
from visar.documents.layout import Piece
from visar.documents.repair import repair_pieces
from visar.samples import REPORT

PROSE = "We give a warranty of seven years on the lantern and"


def test_paragraph_is_split_into_sentences() -> None:
    page = page_at(
        (0, 50, 100, "The lantern was launched in March. It weighs 14"),
        (1, 50, 112, "kilograms, as Dr. Marsh asked. Its battery lasts."),
    )
    assert block_texts(page, "sentence") == [
        "The lantern was launched in March.",
        "It weighs 14 kilograms, as Dr. Marsh asked.",
        "Its battery lasts.",
    ]


def test_columns_of_prose_are_read_one_by_one() -> None:
    left = ["The first column tells of the lights and", "goes on here until it has an end."]
    right = ["The second column tells of the tugs and", "ends here as well."]
    texts: list[Text] = []
    # The reading order has merged lines that are side by side.
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        texts += [(number, 50, 100 + 12 * number, one), (number, 330, 100 + 12 * number, other)]
    page = page_at(*texts)
    assert block_texts(page, "sentence") == [" ".join(left), " ".join(right)]


def test_sentence_continues_in_the_next_column() -> None:
    page = page_at(
        (0, 50, 690, "The concession of Skarholm was won in a tender"),
        (1, 50, 702, "of five bidders and ends in December"),
        (2, 330, 100, "2026, which makes it our most important tender."),
    )
    assert block_texts(page, "sentence") == [
        "The concession of Skarholm was won in a tender of five bidders and ends in December 2026,"
        " which makes it our most important tender."
    ]


def test_blocks_have_the_heading_above_them() -> None:
    page = page_at(
        (0, 50, 100, "Our businesses", 24),
        (1, 50, 140, "Aurora 4", 14),
        (2, 50, 160, f"{PROSE} more."),
        (3, 50, 190, "Selkie", 14),
        (4, 50, 210, "The buoy is made of recycled plastic and floats."),
    )
    blocks = page.blocks or ()
    assert block_texts(page, "heading") == ["Our businesses", "Aurora 4", "Selkie"]
    under = {block_text(page, b): b.heading for b in blocks}
    assert under["Aurora 4"] == under["Selkie"] == 0
    assert blocks[under[f"{PROSE} more."] or 0].words == blocks[1].words
    assert block_text(page, blocks[-2]) == "Selkie"
    assert blocks[-1].heading == len(blocks) - 2


def test_headings_side_by_side_belong_to_the_text_below_each() -> None:
    page = page_at(
        (0, 50, 60, "Information", 24),
        (1, 50, 100, "Registrar", 14),
        (1, 330, 100, "Visiting us", 14),
        (2, 50, 120, "Questions about your holding go to the registrars."),
        (2, 330, 120, "The works are open to all on the first Saturday."),
    )
    blocks = page.blocks or ()
    heading = {
        block_text(page, b)[:9]: blocks[b.heading or 0] for b in blocks if b.kind == "sentence"
    }
    assert block_text(page, heading["Questions"]) == "Registrar"
    assert block_text(page, heading["The works"]) == "Visiting us"


def test_short_line_in_the_font_size_of_the_text_is_a_heading() -> None:
    page = page_at(
        (0, 50, 100, "Going concern"),
        (1, 50, 112, "The directors have looked at the plans of the next three years"),
        (2, 50, 124, "and see no reason for doubt."),
    )
    assert block_texts(page, "heading") == ["Going concern"]


def test_list_items_captions_and_contents() -> None:
    page = page_at(
        (0, 50, 100, "• Keep ships and people safe."),
        (1, 50, 112, "• Pay a dividend."),
        (2, 50, 140, "Figure 3: Lights by country in the year 2024"),
        (3, 50, 170, "Strategy ............ 12"),
    )
    assert block_texts(page, "item") == ["• Keep ships and people safe.", "• Pay a dividend."]
    assert block_texts(page, "caption") == ["Figure 3: Lights by country in the year 2024"]
    assert block_texts(page, "contents") == ["Strategy............ 12"]


def test_titles_with_rising_page_numbers_are_a_table_of_contents() -> None:
    rows = [["Strategy", "4"], ["Business model", "6"], ["Markets", "9"], ["People", "16"]]
    page = page_at(*rows_at(100, rows, [50, 400]))
    assert len(block_texts(page, "contents")) == 4
    assert not table_blocks(page)


def test_lines_at_the_edge_that_recur_on_other_pages_are_margins() -> None:
    head: Text = (0, 50, 20, "OVERVIEW Harbour Light plc 2024")
    foot: Text = (9, 300, 780, "17")
    body: Text = (1, 50, 100, f"{PROSE} more.")
    recurring = margin_texts(words_at((0, 50, 20, "OVERVIEW Harbour Light plc 2025")), HEIGHT)
    page = page_at(head, body, foot, recurring=recurring)
    assert block_texts(page, "margin") == ["OVERVIEW Harbour Light plc 2024", "17"]
    assert block_texts(page_at(head, body, foot), "margin") == ["17"]


def test_large_number_and_the_label_below_are_one_block() -> None:
    page = page_at(
        (0, 50, 100, "£412.6m", 24),
        (0, 250, 100, "742", 24),
        (1, 50, 124, "Revenue, up 10.4%", 9),
        (1, 250, 124, "Employees", 9),
        (2, 50, 134, "(2023: £373.6m)", 9),
    )
    assert block_texts(page, "label") == [
        "£412.6m Revenue, up 10.4% (2023: £373.6m)",
        "742 Employees",
    ]


def test_table_has_headers_and_labels() -> None:
    rows = [
        ["", "2024", "2023", "Change"],
        ["Revenue", "412.6", "373.6", "10.4%"],
        ["Operating profit", "53.2", "45.2", "17.7%"],
    ]
    (table,) = table_blocks(page := page_at(*rows_at(100, rows, [50, 300, 380, 460])))
    assert table.header_rows == 1
    assert table_cells(page, table) == {
        (0, 1): "2024",
        (0, 2): "2023",
        (0, 3): "Change",
        (1, 0): "Revenue",
        (1, 1): "412.6",
        (1, 2): "373.6",
        (1, 3): "10.4%",
        (2, 0): "Operating profit",
        (2, 1): "53.2",
        (2, 2): "45.2",
        (2, 3): "17.7%",
    }


def test_header_over_two_columns_spans_both() -> None:
    texts: list[Text] = [(9, 240, 84, "Year ended 31 December")]
    rows = [["£ million", "2024", "2023"], ["Revenue", "412.6", "373.6"], ["Costs", "1.5", "1.4"]]
    (table,) = table_blocks(page_at(*texts, *rows_at(100, rows, [50, 280, 350])))
    spanning = [cell for cell in table.cells if cell.row == 0]
    assert [(cell.column, cell.span) for cell in spanning] == [(1, 2)]
    assert table.header_rows == 2


def test_empty_cells_do_not_shift_numbers() -> None:
    rows = [
        ["£ million", "Note", "2024", "2023"],
        ["Goodwill", "", "74.5", "74.5"],
        ["Borrowings", "4", "15.0", "25.0"],
        ["Leases", "", "", "4.8"],
    ]
    (table,) = table_blocks(page := page_at(*rows_at(100, rows, [50, 200, 300, 380])))
    found = table_cells(page, table)
    assert (1, 1) not in found
    assert found[1, 2] == "74.5"
    assert (3, 2) not in found
    assert found[3, 3] == "4.8"


def test_cells_of_several_lines_are_joined() -> None:
    texts: list[Text] = [
        (0, 50, 100, "Aim"), (0, 200, 100, "Target"), (0, 400, 100, "Today"),
        (1, 50, 124, "Serve, not"), (1, 200, 124, "60% of revenue"), (1, 400, 124, "53%"),
        (2, 50, 136, "only sell"), (2, 200, 136, "from services"),
        (3, 50, 164, "Grow with"), (3, 200, 164, "Revenue of £160"), (3, 400, 164, "£101 million"),
        (4, 50, 176, "offshore"), (4, 200, 176, "million"),
    ]  # fmt: skip
    (table,) = table_blocks(page := page_at(*texts))
    found = table_cells(page, table)
    assert found[2, 0] == "Grow with offshore"
    assert found[2, 1] == "Revenue of £160 million"
    assert found[1, 2] == "53%"


def test_labels_are_joined_with_numbers_that_reading_order_separates() -> None:
    labels = ["Beacons", "Port Services", "Offshore", "Group"]
    texts: list[Text] = [(n, 50, 116 + 16 * n, label) for n, label in enumerate(labels)]
    numbers = [["2024", "2023"], ["742", "718"], ["781", "751"], ["356", "292"], ["1,964", "1,842"]]
    for number, row in enumerate(numbers):
        texts += [
            (20 + number, x, 100 + 16 * number, v) for x, v in zip((300, 400), row, strict=True)
        ]
    (table,) = table_blocks(page := page_at(*texts))
    found = table_cells(page, table)
    assert found[2, 0] == "Port Services"
    assert found[2, 1] == "781"
    assert found[0, 2] == "2023"


def test_numbers_of_a_chart_are_not_a_table() -> None:
    bars = [(0, 60, 100, "412.6"), (1, 120, 120, "373.6"), (2, 180, 140, "340.6")]
    years = [(3, 60 + 60 * n, 300, str(2024 - n)) for n in range(3)]
    page = page_at(*bars, *years)
    assert not table_blocks(page)
    assert len(block_texts(page, "label")) == 6


def test_tables_with_the_same_header_are_separated() -> None:
    rows = [
        ["£ million", "2024", "2023"],
        ["Revenue", "412.6", "373.6"],
        ["Profit", "34.8", "29.0"],
        ["Pence", "2024", "2023"],
        ["Earnings per share", "30.0", "25.0"],
        ["Dividends per share", "12.0", "10.5"],
    ]
    text: list[Text] = [
        (1, 50, 76, "Revenue of the Group rose from 373 in 2023"),
        (1, 330, 76, "to 412"),
    ]
    page = page_at(*text, *rows_at(100, rows, [50, 300, 380]))
    first, second = table_blocks(page)
    assert table_cells(page, first)[0, 0] == "£ million"
    assert table_cells(page, second)[0, 0] == "Pence"
    assert table_cells(page, second)[2, 1] == "12.0"


def test_years_below_a_chart_are_not_headers_of_the_next_table() -> None:
    axis: list[Text] = [(1, 250, 68, "2020"), (1, 330, 68, "2024")]
    title: Text = (2, 50, 84, "Movement of property")
    rows = [["£ million", "2024", "2023"], ["Additions", "47.5", "35.2"], ["Sales", "2.1", "1.8"]]
    page = page_at(*axis, title, *rows_at(100, rows, [50, 280, 350]))
    (table,) = table_blocks(page)
    assert table_cells(page, table)[0, 2] == "2023"
    assert table.header_rows == 1


def test_legend_next_to_a_table_does_not_label_its_rows() -> None:
    rows = [["", "2024", "2023"], ["Highest", "662", "541"], ["Lowest", "498", "402"]]
    legend: list[Text] = [(11, 50, 116, "Institutions 44%"), (12, 50, 132, "Families 23%")]
    page = page_at(*legend, *rows_at(100, rows, [250, 400, 480]))
    (table,) = table_blocks(page)
    assert table_cells(page, table)[1, 0] == "Highest"
    assert block_texts(page, "label") == ["Institutions 44%", "Families 23%"]


def test_two_columns_of_prose_are_not_a_table() -> None:
    texts: list[Text] = []
    for number in range(5):
        texts += [
            (number, 50, 100 + 12 * number, "the margin rose because more lights are under"),
            (number, 330, 100 + 12 * number, "contract than ever before in the long history"),
        ]
    assert not table_blocks(page_at(*texts))


def test_vertical_text_is_a_separate_label() -> None:
    level, turned = words_at((0, 50, 100, f"{PROSE} more.")), words_at((1, 20, 300, "up"))
    upwards = [replace(word, index=len(level), upright=False) for word in turned]
    blocks = find_blocks([*level, *upwards], HEIGHT)
    assert [block.kind for block in blocks] == ["sentence", "label"]


places = st.tuples(
    st.integers(0, 12),
    st.floats(0, 560),
    st.floats(0, 780),
    st.lists(st.sampled_from(["Revenue", "2024", "412.6", "–", "•", "and", "End."]), min_size=1)
    .map(lambda words: " ".join(words[:8])),
    st.sampled_from([8.0, 10.0, 14.0]),
)  # fmt: skip


@given(st.lists(places, max_size=30))
def test_every_word_is_in_one_block_and_cells_contain_the_words_of_their_table(
    texts: list[Text],
) -> None:
    words = words_at(*texts)
    blocks = find_blocks(words, HEIGHT)
    assert sorted(index for block in blocks for index in block.words) == list(range(len(words)))
    for position, block in enumerate(blocks):
        assert block.heading is None or block.heading < position
        for part in [cell.words for cell in block.cells] or [block.words]:
            # Within a line, words are ordered from left to right.
            for before, after in pairwise(words[index] for index in part):
                assert before.line != after.line or before.left <= after.left
        if block.kind == "table":
            inside = [index for cell in block.cells for index in cell.words]
            assert sorted(inside) == sorted(block.words)
            # No row has two cells in one column.
            covered = [
                (cell.row, column)
                for cell in block.cells
                for column in range(cell.column, cell.column + cell.span)
                if cell.row >= block.header_rows
            ]
            assert len(covered) == len(set(covered))
        else:
            assert not block.cells


# A number such as 2024 could be a year, which is a header rather than a cell.
amounts = st.integers(1, 9999).filter(lambda number: not 1900 <= number < 2100).map(str)


@given(
    st.integers(2, 4).flatmap(
        lambda width: st.lists(
            st.lists(amounts, min_size=width, max_size=width), min_size=2, max_size=8
        )
    )
)
def test_regular_table_keeps_every_number_in_its_cell(numbers: list[list[str]]) -> None:
    width = len(numbers[0])
    header = ["", *(f"Column{'abcd'[n]}" for n in range(width))]
    rows = [header, *([f"Row{n}x", *row] for n, row in enumerate(numbers))]
    columns = [50.0, *(200.0 + 90 * n for n in range(width))]
    page = page_at(*rows_at(100, rows, columns))
    (table,) = table_blocks(page)
    found = table_cells(page, table)
    for row, values in enumerate(rows[1:], 1):
        assert [found[row, column] for column in range(width + 1)] == values


def test_lay_out_only_needs_words() -> None:
    page = page_at(
        (0, 50, 100, "Going far", 20),
        *rows_at(150, [["", "2024"], ["Revenue", "412.6"], ["Costs", "3.1"]], [50, 300]),
    )
    again = lay_out(page)
    assert [b.kind for b in again.blocks or ()] == [b.kind for b in page.blocks or ()]


def test_running_heads_are_found_on_every_page(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    canvas = Canvas(str(path))
    for number in range(1, 4):
        canvas.drawString(72, 820, f"Harbour Light plc {number}")
        canvas.drawString(72, 600, f"{PROSE} on its battery too, says sentence {number}.")
        canvas.showPage()
    canvas.save()
    with open_document(path) as document:
        pages = list(document.pages())
    for page in pages:
        assert block_texts(page, "margin") == [f"Harbour Light plc {page.number}"]
        assert len(block_texts(page, "sentence")) == 1


@pytest.mark.parametrize(
    ("number", "row", "values"),
    [
        (30, "Dividends per share, paid and proposed", ["6", "12.0", "10.5"]),
        (16, "Group", ["1,964", "1,842"]),
        (37, "Vessel loan", ["EURIBOR + 1.45%", "August 2028", "10.0", "10.0"]),
        (12, "Skarholm", ["Pilotage, towage", "December 2026", "6,315"]),
    ],
)
def test_tables_of_the_sample_report(number: int, row: str, values: list[str]) -> None:
    with open_document(REPORT) as document:
        page = document.page(number)
    grids = [table_cells(page, table) for table in table_blocks(page)]
    found = [
        [text for (at, column), text in sorted(grid.items()) if at == label and column]
        for grid in grids
        for (label, first), text in grid.items()
        if first == 0 and text == row
    ]
    assert values in found


def test_doubled_letters_and_separate_initials_are_repaired() -> None:
    pieces = [
        Piece("NNEEBBRRAASSKKAA", 0, 0, 90, 9, 12),
        Piece("I", 100, 0, 103, 9, 12),
        Piece("nternal", 103.5, 2, 140, 9, 12),
        Piece("A", 150, 0, 156, 9, 12),
        Piece("good", 160, 2, 180, 9, 12),
        Piece("3344", 190, 0, 210, 9, 12),
    ]
    words = [piece.text for piece in repair_pieces(pieces)]
    assert words == ["NEBRASKA", "Internal", "A", "good", "3344"]
