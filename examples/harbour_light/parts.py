"""What pages are made of: paragraphs, tables, boxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reportlab.platypus import Paragraph, Table, TableStyle

from harbour_light import theme
from harbour_light.figures import Line, money

Part = Any
"""A reportlab flowable: a paragraph, a table, a drawing."""


def paragraphs(text: str, style: Any = theme.BODY) -> list[Part]:
    """Turn plain text into paragraphs: blank lines part them, ``# `` heads, ``- `` lists."""
    return [_paragraph(" ".join(block.split()), style) for block in text.strip().split("\n\n")]


def _paragraph(text: str, style: Any) -> Any:
    if text.startswith("# "):
        return Paragraph(text[2:], theme.HEADING)
    if text.startswith("- "):
        return Paragraph(text[2:], theme.BULLET, bulletText="•")
    return Paragraph(text, style)


def caption(text: str) -> Part:
    return Paragraph(text, theme.CAPTION)


def small(text: str) -> Part:
    return Paragraph(text, theme.SMALL)


def number_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: Sequence[float],
    *,
    totals: Iterable[int] = (),
    headings: Iterable[int] = (),
    leading: float = 15.0,
) -> Part:
    """Make a table of numbers: first column left, the rest right.

    ``totals`` and ``headings`` are rows (from 0) to set as sums and as captions of a group.
    """
    table = Table([head, *rows], colWidths=list(widths), rowHeights=leading)
    commands: list[tuple[Any, ...]] = [
        ("FONT", (0, 0), (-1, -1), theme.SANS, 8.8),
        ("TEXTCOLOR", (0, 0), (-1, -1), theme.INK),
        ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
        ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
        ("LEFTPADDING", (0, 0), (-1, -1), 4),
        ("RIGHTPADDING", (0, 0), (-1, -1), 4),
        ("LINEBELOW", (0, 1), (-1, -1), 0.4, theme.MIST),
        ("FONT", (0, 0), (-1, 0), theme.SANS_BOLD, 8.8),
        ("TEXTCOLOR", (0, 0), (-1, 0), theme.WHITE),
        ("BACKGROUND", (0, 0), (-1, 0), theme.NIGHT),
    ]
    for row in totals:
        commands += [
            ("FONT", (0, row + 1), (-1, row + 1), theme.SANS_BOLD, 8.8),
            ("LINEABOVE", (0, row + 1), (-1, row + 1), 0.7, theme.NIGHT),
            ("BACKGROUND", (0, row + 1), (-1, row + 1), theme.MIST),
        ]
    for row in headings:
        commands += [
            ("FONT", (0, row + 1), (-1, row + 1), theme.SANS_BOLD, 8.8),
            ("TEXTCOLOR", (0, row + 1), (-1, row + 1), theme.SEA),
        ]
    table.setStyle(TableStyle(commands))
    return table


def text_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[float], padding: float = 4
) -> Part:
    """Make a table of words whose cells wrap."""
    cells = [[Paragraph(cell, theme.CELL_HEAD) for cell in head]]
    cells += [[Paragraph(cell, theme.CELL) for cell in row] for row in rows]
    table = Table(cells, colWidths=list(widths))
    table.setStyle(
        TableStyle(
            [
                ("BACKGROUND", (0, 0), (-1, 0), theme.NIGHT),
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("ROWBACKGROUNDS", (0, 1), (-1, -1), [theme.WHITE, theme.MIST]),
                ("LEFTPADDING", (0, 0), (-1, -1), 5),
                ("RIGHTPADDING", (0, 0), (-1, -1), 5),
                ("TOPPADDING", (0, 0), (-1, -1), padding),
                ("BOTTOMPADDING", (0, 0), (-1, -1), padding),
            ]
        )
    )
    return table


def amounts(line: Line, note: str = "") -> tuple[str, str, str, str]:
    """Set a line of a statement as a row: caption, note, this year, last year."""
    return line[0], note, money(line[1]), money(line[2])


def callout(parts: Sequence[Part], width: float, colour: Any = theme.MIST) -> Part:
    """Set parts on a tinted panel with an amber edge."""
    table = Table([[list(parts)]], colWidths=[width])
    table.setStyle(
        TableStyle(
            [
                ("BACKGROUND", (0, 0), (-1, -1), colour),
                ("LINEBEFORE", (0, 0), (0, -1), 3, theme.AMBER),
                ("LEFTPADDING", (0, 0), (-1, -1), 14),
                ("RIGHTPADDING", (0, 0), (-1, -1), 12),
                ("TOPPADDING", (0, 0), (-1, -1), 10),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 8),
            ]
        )
    )
    return table


def quote(text: str, who: str, width: float) -> Part:
    return callout([Paragraph(f"“{text}”", theme.QUOTE), small(who)], width)


def tiles(facts: Sequence[tuple[str, str]], width: float) -> Part:
    """Set facts in a row of panels: a large figure above a caption."""
    large = theme.TITLE.clone("tile", fontSize=21, leading=25, textColor=theme.NIGHT)
    row = [[Paragraph(figure, large), small(text)] for figure, text in facts]
    table = Table([row], colWidths=[width / len(facts)] * len(facts))
    table.setStyle(
        TableStyle(
            [
                ("BACKGROUND", (0, 0), (-1, -1), theme.MIST),
                ("LINEABOVE", (0, 0), (-1, 0), 2, theme.AMBER),
                ("LINEAFTER", (0, 0), (-2, -1), 6, theme.WHITE),
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LEFTPADDING", (0, 0), (-1, -1), 10),
                ("TOPPADDING", (0, 0), (-1, -1), 8),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 4),
            ]
        )
    )
    return table
