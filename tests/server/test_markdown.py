"""Answers as Markdown, checked with a Markdown parser."""

from __future__ import annotations

from markdown_it import MarkdownIt

from visar.results import Passage, QuotedCell
from visar.server.openai_api import quote

NOWHERE = (0.0, 0.0, 0.0, 0.0)


def passage(text: str, *cells: QuotedCell) -> Passage:
    return Passage(text, "0" * 64, 1, 1.0, (), cells)


def cell(
    text: str, row: int, column: int, *, span: int = 1, header: bool = False, answer: bool = False
) -> QuotedCell:
    return QuotedCell(text, row, column, span, header, answer, NOWHERE)


def test_a_document_cannot_add_links_images_or_html() -> None:
    text = (
        "![x](http://evil.example/a.png) <b>bold</b> [link](http://evil.example)\n# 2 * 3 | `code`"
    )
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(quote(passage(text)))
    assert html.startswith("<blockquote>")
    assert not [tag for tag in ("<img", "<b>", "<a ", "<h1", "<em>", "<code>") if tag in html]
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert "# 2 * 3 | `code`" in html


def test_a_quoted_table_becomes_a_markdown_table() -> None:
    cells = [
        cell("Sales | net", 0, 1, span=2, header=True),
        cell("2023", 1, 1, header=True),
        cell("2024", 1, 2, header=True),
        cell("Beacons", 2, 0),
        cell("1.5", 2, 1),
        cell("2.5", 2, 2, answer=True),
    ]
    shown = quote(passage("By division\nBeacons 1.5 2.5", *cells))
    html = MarkdownIt("commonmark").enable("table").render(shown)
    assert html.startswith("<p>By division</p>")
    texts = [line.strip() for line in html.splitlines() if "<th>" in line or "<td>" in line]
    assert texts == [
        "<th></th>",
        "<th>Sales | net 2023</th>",
        "<th>Sales | net 2024</th>",
        "<td>Beacons</td>",
        "<td>1.5</td>",
        "<td><strong>2.5</strong></td>",
    ]
