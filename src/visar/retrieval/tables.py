"""What stands together on a page by its place: the cells of a table's row, a number and its label.

The reading order of a page does not tell: a table between two columns of prose may be read cell
by cell, and three numbers beside each other with their labels below as two lines. Here the words of
a line that a wide gap parts are segments, and segments are put together by where they stand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from visar.documents.page import Page
from visar.retrieval.sentences import starts_item

# A gap between words that is wider than this many heights of the line parts segments.
_GAP = 1.3
# One that is wider than this does even if others of the line are as wide.
_WIDE_GAP = 2.5
# Heads of more words than this are text above the table.
_LONGEST_HEADS = 24
# Cells have at most this many words; longer segments are prose.
_LONGEST_CELL = 8
# A line of text has at least this many.
_FEWEST_WORDS = 4
# A table has at most this many rows between a row and the heads of its columns.
_MOST_ROWS = 60
# Lines of a block are at most so many heights apart, those of one cell less.
_BLOCK_GAP = 1.1
_LINE_GAP = 0.8
# Lines of a table or a chart are at most so many heights apart.
_FIGURE_GAP = 4.5
# Of so many lines one sees which value belongs to which label.
_FEW_LINES = 3
# A row of more words than this is no row but text in columns.
_LONGEST_ROW = 60

_DIGIT = re.compile(r"\d")
_YEAR = re.compile(r"^(?:FY\s?)?['’]?(?:19|20)\d\d[A-Z]?(?:[-–/]\d{2,4})?$")
_VALUE = re.compile(
    r"^[(\[<>~≈±+\-–−]*(?:US|S|A|C|HK)?[$€£¥]?\s?[\d][\d,.’' ]*\s?[a-z]?[)\]%‰*]*"
    r"(?:m|bn|k|M|K|B|p|x|°C|ppt|pp)?\)?$|^[–—-]$|^n/?a$",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class Segment:
    """Words of a line without a wide gap between them; its box in points."""

    words: tuple[int, ...]
    texts: tuple[str, ...]
    line: int
    left: float
    top: float
    right: float
    bottom: float

    @cached_property
    def height(self) -> float:
        return self.bottom - self.top

    @cached_property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @cached_property
    def is_value(self) -> bool:
        """Whether it is a number, a dash for none, or several of them."""
        return all(_VALUE.match(text) for text in self.texts)

    @cached_property
    def is_year(self) -> bool:
        """Whether its only numbers are years."""
        numbers = [text.strip("()*,") for text in self.texts if _DIGIT.search(text)]
        return all(_YEAR.match(number) for number in numbers) and len(self.texts) != 2

    @cached_property
    def is_head(self) -> bool:
        """Whether it can head a column: a year, or no number."""
        years = sum(bool(_YEAR.match(text)) for text in self.texts)
        letters = sum(any(c.isalpha() for c in text) for text in self.texts)
        return years > 0 or letters > 0 or self.texts == ("%",)

    @cached_property
    def is_text(self) -> bool:
        """Whether it reads as a line of text rather than as a cell."""
        return len(self.words) >= _FEWEST_WORDS and not self.is_value and is_level(self)

    @cached_property
    def is_short(self) -> bool:
        return len(self.words) <= _LONGEST_CELL

    def overlaps(self, other: Segment) -> bool:
        """Whether the two share a part of the page's width."""
        return self.left < other.right and other.left < self.right


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    heads: tuple[int, ...]
    """The words of the heads of its columns, empty if none were found."""
    cells: tuple[tuple[int, ...], ...]
    """The words of each of its cells, the label first."""
    wraps: bool = False
    """Whether a cell has several lines."""


def find_segments(page: Page, lines: Sequence[Sequence[int]]) -> list[Segment]:
    """Cut lines, given as indices of words, at wide gaps.

    The space after the number or bullet of a list's item is no gap, nor is that between the words
    of a line that is spread to the width of its column.
    """
    segments = []
    for number, line in enumerate(lines):
        boxes = [page.words[index].box for index in line]
        height = max(bottom - top for _, top, _, bottom in boxes) * page.height
        gaps = [(b[0] - a[2]) * page.width / height for a, b in pairwise(boxes)]
        usual = median(gaps) if len(gaps) > 2 else 0.0
        start = 0
        for place, gap in enumerate(gaps, 1):
            begins_item = place == start + 1 and starts_item(page.words[line[start]].text)
            if gap > _GAP and (gap > _WIDE_GAP or gap > 1.8 * usual) and not begins_item:
                segments.append(_segment(page, line[start:place], number))
                start = place
        segments.append(_segment(page, line[start:], number))
    return segments


def table_rows(segments: Iterable[Segment]) -> Iterator[Row]:
    """Find rows: a label and the cells beside it, with the heads of their columns.

    Cells of one line belong together. Those of different lines do, at the same height, if a value
    is among the two neighbours: two columns of prose stand beside each other as well.
    """
    rows = [_cells(row) for row in _side_by_side(segments)]
    bands = [[segment for cells in row for segment in cells] for row in rows]
    for place, cells in ((place, cells) for place, row in enumerate(rows) for cells in row):
        if len(cells) == 1 and not _ends_with_value(cells[0]):
            continue
        label = _wrapped_label(cells, bands, place)
        heads = [head for head in _heads(cells, bands, place) if head not in label]
        first = tuple(index for part in (*label, cells[0]) for index in part.words)
        yield Row(_words(heads), (first, *(cell.words for cell in cells[1:])))


def wrapped_rows(segments: Iterable[Segment]) -> Iterator[Row]:
    """Find rows with cells of several lines: blocks whose first lines stand at the same height."""
    blocks = {id(block[0]): block for block in _stacked(segments, _LINE_GAP)}
    bands = _side_by_side(block[0] for block in blocks.values())
    for place, firsts in enumerate(bands):
        cells = [blocks[id(first)] for first in firsts]
        count = sum(len(segment.words) for cell in cells for segment in cell)
        apart = len({first.line for first in firsts}) > 1 and len(firsts) < 3
        if len(cells) < 2 or count > _LONGEST_ROW or apart or not _wrap(cells):
            continue
        heads = _heads(firsts, bands, place)
        yield Row(_words(heads), tuple(_words(cell) for cell in cells), wraps=True)


def _wrap(cells: Sequence[Sequence[Segment]]) -> bool:
    """Whether lines below each other are one cell each: numbers do not wrap, nor do whole rows."""
    if any(sum(segment.is_value for segment in cell) > 1 for cell in cells):
        return False
    lines = {len(cell) for cell in cells}
    anew = all(segment.texts[0][:1].isupper() for cell in cells for segment in cell)
    return max(lines) > 1 and not (len(lines) == 1 and anew)


def column_blocks(segments: Sequence[Segment]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Find segments below each other that reading order does not keep together, line by line.

    A large number with its small label is such a block, and each of several texts side by side.
    """
    per_line = Counter(segment.line for segment in segments)
    for block in _stacked(segments, _BLOCK_GAP):
        sizes = [segment.height for segment in block]
        mixed = max(sizes) > 1.35 * min(sizes)
        beside = any(per_line[segment.line] > 1 for segment in block)
        values = sum(segment.is_value for segment in block)
        if len(block) > 1 and (mixed or beside) and values < 0.7 * len(block):
            yield tuple(segment.words for segment in block)


def figures(
    segments: Iterable[Segment], prose: Sequence[Segment] = ()
) -> Iterator[list[list[Segment]]]:
    """Find tables, charts and groups of labels: lines of short segments that stand close together.

    At least two of the lines, and a third of them, have numbers, and no line of prose stands
    between two of them. Yields the lines of each, from top to bottom.
    """
    lines: dict[int, list[Segment]] = {}
    for segment in filter(is_level, segments):
        lines.setdefault(segment.line, []).append(segment)
    groups: list[list[list[Segment]]] = []
    boxes: list[tuple[float, float, float]] = []
    for line in sorted(lines.values(), key=lambda line: min(s.middle for s in line)):
        left, right = min(s.left for s in line), max(s.right for s in line)
        top, bottom = min(s.top for s in line), max(s.bottom for s in line)
        slack = bottom - top
        near = [
            place
            for place, box in enumerate(boxes)
            if box[0] < right + slack
            and left < box[1] + slack
            and top - box[2] < _FIGURE_GAP * slack
            and not any(
                box[2] < text.middle < top and text.left < right and left < text.right
                for text in prose
            )
        ]
        group = sorted((part for place in near for part in groups[place]), key=_top)
        for place in reversed(near):
            box = boxes.pop(place)
            left, right, bottom = min(left, box[0]), max(right, box[1]), max(bottom, box[2])
            del groups[place]
        groups.append([*group, line])
        boxes.append((left, right, bottom))
    below = (part for group in groups for part in _below_each_other(group))
    for group in (part for lines in below for part in _beside_each_other(lines)):
        members = [segment for line in group for segment in line]
        valued = [line for line in group if any(s.is_value or _ends_with_value(s) for s in line)]
        # The values of a chart without the labels beside them say nothing when read line by line.
        labelled = sum(not all(s.is_value for s in line) for line in valued)
        is_read_by_lines = len(group) <= _FEW_LINES or 2 * labelled >= len(valued)
        words = sum(len(segment.words) for segment in members)
        if (
            len(valued) > max(1, 0.3 * len(group))
            and is_read_by_lines
            and words <= _LONGEST_CELL * len(members)
        ):
            yield group


def _below_each_other(lines: Sequence[Sequence[Segment]]) -> Iterator[list[Sequence[Segment]]]:
    """Part tables that stand below each other: a line without values, further away than others."""
    gaps = [_top(b) - max(s.bottom for s in a) for a, b in pairwise(lines)]
    usual = sorted(gaps)[len(gaps) * 3 // 4] if gaps else 0.0
    part = list(lines[:1])
    for gap, line in zip(gaps, lines[1:], strict=True):
        height = max(segment.height for segment in line)
        if gap > max(1.5 * usual, height) and not any(segment.is_value for segment in line):
            yield part
            part = []
        part.append(line)
    yield part


def _beside_each_other(lines: Sequence[Sequence[Segment]]) -> list[list[list[Segment]]]:
    """Part tables that stand side by side: where two lines or more have a label after values."""
    rows = [sorted(line, key=lambda s: s.left) for line in lines]
    labels = [
        label
        for row in rows
        for value, label, after in zip(row, row[1:], row[2:], strict=False)
        if value.is_value and after.is_value and not _has_digit(label)
    ]
    for label in labels:
        edge = label.left - label.height
        if sum(abs(other.left - label.left) < label.height for other in labels) > 1:
            left = [[s for s in row if s.left < edge] for row in rows]
            right = [[s for s in row if s.left >= edge] for row in rows]
            parts = ([row for row in part if row] for part in (left, right))
            return [done for part in parts for done in _beside_each_other(part)]
    return [rows]


def _top(line: Sequence[Segment]) -> float:
    return min(segment.top for segment in line)


def _stacked(segments: Iterable[Segment], gap: float) -> list[list[Segment]]:
    """Segments that go on below each other, at most so many heights apart."""
    level = sorted(filter(is_level, segments), key=lambda s: (s.top, s.left))
    tallest = max((segment.height for segment in level), default=0.0)
    blocks: list[list[Segment]] = []
    near: list[list[Segment]] = []
    for segment in level:
        near = [block for block in near if segment.top - block[-1].bottom < gap * tallest]
        above = [block for block in near if _stands_below(segment, block, gap)]
        if len(above) == 1:
            above[0].append(segment)
        else:
            blocks.append([segment])
            near.append(blocks[-1])
    return blocks


def is_level(segment: Segment) -> bool:
    """Whether it is written from left to right: what is written upwards is higher than wide."""
    return segment.height < 3 * (segment.right - segment.left) or len(segment.words) == 1


def _words(segments: Iterable[Segment]) -> tuple[int, ...]:
    return tuple(index for segment in segments for index in segment.words)


def _segment(page: Page, indices: Sequence[int], line: int) -> Segment:
    words = [page.words[index] for index in indices]
    left, top, right, bottom = zip(*(word.box for word in words), strict=True)
    return Segment(
        tuple(indices),
        tuple(word.text for word in words),
        line,
        min(left) * page.width,
        min(top) * page.height,
        max(right) * page.width,
        max(bottom) * page.height,
    )


def _side_by_side(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Segments at the same height, each row from left to right; top to bottom."""
    rows: list[list[Segment]] = []
    for segment in sorted(filter(is_level, segments), key=lambda s: s.middle):
        last = rows[-1][0] if rows else None
        if last is not None and abs(segment.middle - last.middle) < 0.5 * min(
            segment.height, last.height
        ):
            rows[-1].append(segment)
        else:
            rows.append([segment])
    return [sorted(row, key=lambda s: s.left) for row in rows]


def _cells(row: Sequence[Segment]) -> list[list[Segment]]:
    """Part segments at one height into rows of tables that stand beside each other."""
    parts: list[list[Segment]] = []
    for place, segment in enumerate(row):
        last = parts[-1][-1] if parts else None
        if last is not None and _same_row(last, segment, parts[-1]):
            # A label after values, with values after it, begins a row of another table.
            after = row[place + 1 : place + 2]
            begins = last.is_value and not _has_digit(segment) and any(s.is_value for s in after)
            if not (begins and not parts[-1][0].is_value):
                parts[-1].append(segment)
                continue
        parts.append([segment])
    return parts


def _same_row(before: Segment, after: Segment, cells: Sequence[Segment]) -> bool:
    if len(after.texts) > 1 and starts_item(after.texts[0]):
        # The item of another list stands beside it.
        return False
    if before.line == after.line:
        return after.is_short or before.is_value
    has_values = any(cell.is_value for cell in cells[1:])
    if not before.is_short or not after.is_short or (has_values and not _has_digit(after)):
        return False
    return _has_digit(after) and not cells[0].is_value


def _has_digit(segment: Segment) -> bool:
    return any(_DIGIT.search(text) for text in segment.texts)


def _ends_with_value(segment: Segment) -> bool:
    texts = segment.texts
    named = any(c.isalpha() for c in texts[0])
    value = bool(_VALUE.match(texts[-1]) and _DIGIT.search(texts[-1]))
    return len(texts) > 1 and segment.is_short and named and value


def _wrapped_label(
    cells: Sequence[Segment], bands: Sequence[Sequence[Segment]], place: int
) -> list[Segment]:
    """The lines above that begin the label of a row: without cells, close, not ending anything."""
    label: list[Segment] = []
    below = cells[0]
    if below.is_value or not below.texts[0][:1].islower():
        return label
    for band in reversed(bands[max(0, place - 3) : place]):
        above = [s for s in band if abs(s.left - below.left) < 1.5 * below.height]
        if len(above) != 1 or below.top - above[0].bottom > 0.8 * below.height:
            break
        beside = [s for s in band if s is not above[0] and s.overlaps(cells[-1])]
        if beside or above[0].texts[-1].endswith((".", ":", ";")):
            break
        label.insert(0, above[0])
        below = above[0]
        if not below.texts[0][:1].islower():
            break
    return label


def _heads(
    cells: Sequence[Segment], bands: Sequence[Sequence[Segment]], place: int
) -> list[Segment]:
    """The segments that head the columns of a row, from top to bottom and left to right."""
    columns = [cell for cell in cells[1:] if _has_digit(cell) or cell.is_value]
    if not columns or cells[0].is_value:
        return []
    left, right = min(c.left for c in columns), max(c.right for c in columns)
    heads: list[Segment] = []
    top = cells[0].top
    for band in reversed(bands[max(0, place - _MOST_ROWS) : place]):
        over = [s for s in band if s.left < right and s.right > left]
        far = top - max(s.bottom for s in band) > 4 * max(cell.height for cell in cells)
        if far or any(not s.is_short for s in over) or (heads and not over):
            break
        top = min(s.top for s in band)
        unit = [s for s in band if s.right <= left and s.is_short and s.overlaps(cells[0])]
        heading = [s for s in over if s.is_head and any(s.overlaps(c) for c in columns)]
        # What has a label like the row itself is a row unless it is years or words alone.
        data = [s for s in over if not s.is_head or (unit and _has_digit(s) and not s.is_year)]
        if heading and not data:
            heads = [*unit[-1:], *heading, *heads]
        elif heads:
            break
    return heads if len(_words(heads)) <= _LONGEST_HEADS else []


def _stands_below(segment: Segment, block: Sequence[Segment], most: float) -> bool:
    """Whether a segment goes on below a block: close, in its width, and alike in size."""
    last = block[-1]
    gap = segment.top - last.bottom
    shared = min(segment.right, last.right) - max(segment.left, last.left)
    ratio = segment.height / max(last.height, 1e-6)
    # A large number may stand over its label, or below it.
    alike = 0.6 < ratio < 1.65 or last.is_value or segment.is_value
    return (
        -0.3 * segment.height < gap < most * max(segment.height, last.height)
        and shared > 0.4 * min(segment.right - segment.left, last.right - last.left)
        and alike
    )
