"""A quoted table, built by hand from the words of the example report."""

from __future__ import annotations

from visar.index import Index
from visar.results import Passage, QuotedCell

PAGE = 30
ROWS = ("Pence Note 2024 2023", "Dividends per share, paid and proposed 6 12.0 10.5")
TEXT = "Dividends per share, paid and proposed | Note: 6 | 2024: 12.0 | 2023: 10.5"


def quoted_table(library: Index) -> Passage:
    """Return the dividends per share on page 30, with 2024 as the answer."""
    document = library.documents()[0].id
    page = library.page(document, PAGE)
    lines = {" ".join(page.words[index].text for index in line): line for line in page.lines()}
    cells = []
    for row, text in enumerate(ROWS):
        *label, note, first, second = lines[text]
        for column, words in enumerate((label, [note], [first], [second])):
            left, top, right, bottom = zip(*(page.words[i].box for i in words), strict=True)
            cells.append(
                QuotedCell(
                    text=" ".join(page.words[index].text for index in words),
                    row=row,
                    column=column,
                    span=1,
                    header=row == 0,
                    answer=(row, column) == (1, 2),
                    box=(min(left), min(top), max(right), max(bottom)),
                )
            )
    boxes = tuple(cell.box for cell in cells)
    return Passage(
        f"Earnings and dividends\n{TEXT}", document, PAGE, 1.0, boxes, cells=tuple(cells)
    )
