"""One page being drawn from the top down, refusing what does not fit."""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Frame, Paragraph

from harbour_light import theme
from harbour_light.parts import Part

MOST_SLACK = 14.0
"""More room than this between the parts of a page would look like a hole."""


class DoesNotFitError(Exception):
    """A page has more content than room."""


@dataclass(frozen=True, slots=True)
class PagePlan:
    """One page of the report before it is drawn."""

    key: str
    section: str
    title: str
    draw: Callable[[Sheet], None]
    dressed: bool = True
    """Whether the page carries the running header, the title and the footer."""
    continues: bool = False
    """Whether it goes on with the page before, and so is not in the contents."""


class Sheet:
    """A page with a cursor: each call takes the room it needs below the one before."""

    def __init__(
        self,
        canvas: Any,
        plan: PagePlan,
        number: int,
        plans: Sequence[PagePlan],
        slack: float = 0.0,
    ) -> None:
        self.canvas = canvas
        self.plan = plan
        self.number = number
        self.plans = plans
        self.y: float = theme.PAGE_HEIGHT - 44.0
        self.slack = slack
        self.gaps = 0
        self._numbers: Mapping[str, int] = {p.key: i for i, p in enumerate(plans, start=1)}

    def page_of(self, key: str) -> int:
        """Give the printed number of another page, for references such as "see page 37"."""
        return self._numbers[key]

    @property
    def room(self) -> float:
        """The height left between the cursor and the foot of the page."""
        return self.y - theme.TEXT_BOTTOM

    def dress(self) -> None:
        """Draw the running header, the title and the footer."""
        canvas, right = self.canvas, theme.PAGE_WIDTH - theme.MARGIN
        canvas.setFillColor(theme.STONE)
        canvas.setFont(theme.SANS_BOLD, 7.5)
        canvas.drawString(theme.MARGIN, self.y + 8, self.plan.section.upper())
        canvas.setFont(theme.SANS, 7.5)
        canvas.drawRightString(right, self.y + 8, f"{theme.COMPANY}  |  {theme.REPORT}")
        canvas.setStrokeColor(theme.AMBER)
        canvas.setLineWidth(2)
        canvas.line(theme.MARGIN, self.y, theme.MARGIN + 34, self.y)
        canvas.setStrokeColor(theme.MIST)
        canvas.setLineWidth(0.8)
        canvas.line(theme.MARGIN + 34, self.y, right, self.y)
        canvas.setFillColor(theme.NIGHT)
        canvas.setFont(theme.SANS_BOLD, 8.5)
        canvas.drawRightString(right, 30, str(self.number))
        self.y -= 16
        self.full(Paragraph(self.plan.title, theme.TITLE))
        self.y -= 12

    def gap(self, points: float) -> None:
        """Leave room, and a little more between parts where the page has room to spare."""
        parts_belong_together = points < 8
        if not parts_belong_together:
            self.gaps += 1
            points += self.slack
        self.y -= points

    def full(self, part: Part) -> None:
        """Place a part over the whole width of the text."""
        self.stack([part], theme.MARGIN, theme.TEXT_WIDTH)

    def lead(self, text: str) -> None:
        self.full(Paragraph(text, theme.LEAD))
        self.y -= 12

    def columns(self, parts: Sequence[Part]) -> None:
        """Let parts flow through two columns that end at about the same height."""
        heights = range(40, int(self.room), 4)
        enough = bisect_left(heights, True, key=lambda height: self._would_fit(parts, height))
        height = heights[enough] if enough < len(heights) else self.room
        if not self._flow(self.canvas, list(parts), height):
            raise self._too_much("its two columns")
        self.y -= height

    def beside(self, left: Sequence[Part], right: Sequence[Part], share: float = 0.5) -> None:
        """Place two stacks next to each other; ``share`` of the width goes to the left one."""
        top = self.y
        width = theme.TEXT_WIDTH - theme.GUTTER
        self.stack(left, theme.MARGIN, width * share)
        left_end, self.y = self.y, top
        self.stack(right, theme.MARGIN + width * share + theme.GUTTER, width * (1 - share))
        self.y = min(left_end, self.y)

    def stack(self, parts: Sequence[Part], x: float, width: float) -> None:
        for part in parts:
            self.y -= part.getSpaceBefore()
            _, height = part.wrap(width, self.room)
            if height > self.room + 0.01:
                raise self._too_much(f"a {type(part).__name__} of {height:.0f} points")
            part.drawOn(self.canvas, x, self.y - height)
            self.y -= height + part.getSpaceAfter()

    def _would_fit(self, parts: Sequence[Part], height: float) -> bool:
        return self._flow(_scratch_canvas(), deepcopy(list(parts)), height)

    def _flow(self, canvas: Any, parts: list[Part], height: float) -> bool:
        for column in range(2):
            x = theme.MARGIN + column * (theme.COLUMN_WIDTH + theme.GUTTER)
            frame = Frame(x, self.y - height, theme.COLUMN_WIDTH, height, 0, 0, 0, 0)
            _fill(frame, parts, canvas)
        return not parts

    def _too_much(self, what: str) -> DoesNotFitError:
        return DoesNotFitError(
            f"page {self.number} ({self.plan.title}): {what} will not fit in {self.room:.0f} points"
        )


def draw_page(canvas: Any, plan: PagePlan, number: int, plans: Sequence[PagePlan]) -> None:
    """Draw a page twice: once to see how much room it leaves, then with that room spread out."""
    if not plan.dressed:
        plan.draw(Sheet(canvas, plan, number, plans))
        return
    trial = _dressed(Sheet(_scratch_canvas(), plan, number, plans))
    slack = min(trial.room / trial.gaps, MOST_SLACK) if trial.gaps else 0.0
    _dressed(Sheet(canvas, plan, number, plans, slack))


def _dressed(sheet: Sheet) -> Sheet:
    sheet.dress()
    sheet.plan.draw(sheet)
    return sheet


def _scratch_canvas() -> Any:
    return Canvas(io.BytesIO())


def _fill(frame: Any, parts: list[Part], canvas: Any) -> None:
    """Move parts into the frame until it is full, splitting the one that straddles its end."""
    while parts:
        heading_alone = parts[0].getKeepWithNext() and not _two_fit(frame, parts, canvas)
        if heading_alone:
            return
        if frame.add(parts[0], canvas):
            parts.pop(0)
            continue
        pieces = frame.split(parts[0], canvas)
        if len(pieces) > 1:
            frame.add(pieces[0], canvas)
            parts[0:1] = pieces[1:]
        return


def _two_fit(frame: Any, parts: list[Part], canvas: Any) -> bool:
    """Whether a heading and three lines of what follows fit in what is left of the frame."""
    _, heading = parts[0].wrapOn(canvas, theme.COLUMN_WIDTH, theme.PAGE_HEIGHT)
    needed = heading + 3 * theme.BODY.leading + theme.HEADING.spaceBefore + theme.HEADING.spaceAfter
    return bool(frame._y - frame._y1p >= needed)  # noqa: SLF001 - Frame has no public measure
