"""How the report looks: paper, colours, type."""

from __future__ import annotations

from typing import Any

from reportlab.lib.colors import HexColor
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle

COMPANY = "Harbour Light plc"
REPORT = "Annual Report 2024"

PAGE_WIDTH, PAGE_HEIGHT = A4
MARGIN = 48.0
GUTTER = 22.0
TEXT_WIDTH = PAGE_WIDTH - 2 * MARGIN
COLUMN_WIDTH = (TEXT_WIDTH - GUTTER) / 2
TEXT_BOTTOM = 58.0

NIGHT = HexColor("#0B2A45")
SEA = HexColor("#1F7A8C")
FOAM = HexColor("#8FC1CC")
AMBER = HexColor("#F0A030")
CORAL = HexColor("#D1495B")
STONE = HexColor("#6B7A88")
MIST = HexColor("#E9EFF3")
INK = HexColor("#22303C")
WHITE = HexColor("#FFFFFF")
SERIES = (NIGHT, SEA, AMBER, FOAM, CORAL)

SANS, SANS_BOLD, SANS_ITALIC = "Helvetica", "Helvetica-Bold", "Helvetica-Oblique"
SERIF, SERIF_ITALIC = "Times-Roman", "Times-Italic"


def _style(name: str, size: float, leading: float, **more: Any) -> Any:
    settings = {"fontName": SANS, "textColor": INK, "allowWidows": 0, "allowOrphans": 0, **more}
    return ParagraphStyle(name, fontSize=size, leading=leading, **settings)


BODY = _style("body", 9.8, 14, spaceAfter=7)
BULLET = _style("bullet", 9.8, 14, spaceAfter=4, leftIndent=11, bulletIndent=1)
HEADING = _style(
    "heading", 11.5, 15, fontName=SANS_BOLD, textColor=SEA, spaceBefore=4, spaceAfter=4
)
HEADING.keepWithNext = 1
TITLE = _style("title", 27, 31, fontName=SERIF, textColor=NIGHT)
LEAD = _style("lead", 13, 18, fontName=SERIF, textColor=SEA)
QUOTE = _style("quote", 14, 18.5, fontName=SERIF_ITALIC, textColor=NIGHT)
CAPTION = _style("caption", 9.5, 12, fontName=SANS_BOLD, textColor=NIGHT, spaceAfter=5)
SMALL = _style("small", 7.6, 10, textColor=STONE, spaceAfter=4)
CELL = _style("cell", 8.6, 11.2)
CELL_HEAD = _style("cell head", 8.6, 11.2, fontName=SANS_BOLD, textColor=WHITE)
