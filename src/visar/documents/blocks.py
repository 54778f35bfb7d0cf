"""The layout of a page: its words as sentences, headings, list items, tables and captions.

The layout is found once, when a page is read. Every word is in exactly one block.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from visar.documents.page import Block, BlockKind, Page, Word
from visar.documents.segments import (
    PlacedWord,
    Segment,
    by_line,
    find_segments,
    is_bullet,
    is_item_mark,
)
from visar.documents.sentences import ends_text, find_sentences
from visar.documents.tables import Table, find_tables

# Maximum distance of running heads and feet from the edge, as a share of the page's height.
EDGE = 0.09
# Maximum numbers of words.
LONGEST_MARGIN = 16
LONGEST_HEADING = 14
LONGEST_LABEL = 12
# Maximum gap between lines of a paragraph, in font sizes.
_LINE_GAP = 0.9
_LEADERS = re.compile(r"\.{4,}|…{2,}|(?:\. ){4,}")
_CAPTION = re.compile(
    r"(?:fig(?:ure|\.)?|table|chart|exhibit|box|abb(?:\.|ildung)|tab(?:elle|\.)|tableau|figura"
    r"|tabla|graph|source|sources|quelle|quellen|note|notes)\b",
    re.IGNORECASE,
)
_PAGE_NUMBER = re.compile(r"(?:page|seite|p\.)?\s*[-–—|]?\s*(?:\d{1,4}|[ivxlc]+)\s*[-–—|]?", re.I)


@dataclass(frozen=True, eq=False)
class _Paragraph:
    """Consecutive lines of text."""

    lines: list[Segment]

    @property
    def words(self) -> list[PlacedWord]:
        return [word for line in self.lines for word in line.words]

    @property
    def size(self) -> float:
        return self.lines[0].size

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)

    @property
    def left(self) -> float:
        return min(line.left for line in self.lines)

    @property
    def top(self) -> float:
        return self.lines[0].top

    @property
    def bottom(self) -> float:
        return self.lines[-1].bottom

    @property
    def is_final(self) -> bool:
        return ends_text(self.lines[-1].words[-1].text)


@dataclass(frozen=True, eq=False)
class _Part:
    """The words of a future block."""

    kind: BlockKind
    words: Sequence[PlacedWord]
    table: Table | None = None

    @property
    def block(self) -> Block:
        size = sorted(word.size for word in self.words)[len(self.words) // 2]
        indices = tuple(word.index for word in self.words)
        if self.table is None:
            return Block(self.kind, indices, round(size, 2))
        table = self.table
        return Block(
            self.kind, indices, round(size, 2), cells=table.cells, header_rows=table.header_rows
        )


def find_blocks(
    words: Sequence[PlacedWord],
    height: float,
    recurring: Collection[str] = (),
    tables: Iterable[Table] = (),
) -> tuple[Block, ...]:
    """Find the blocks of a page of this height in points, in reading order.

    ``recurring`` are the `margin_texts` of pages nearby, ``tables`` known tables; others are found.
    """
    table_parts = [
        _Part("table", [words[index] for cell in table.cells for index in cell.words], table)
        for table in tables
    ]
    table_words = {word.index for part in table_parts for word in part.words}
    words = [word for word in words if word.index not in table_words]
    margins, rest = _margins(find_segments(words), height, recurring)
    tiles, rest = _tiles(rest)
    more_tables, rest = _tables(rest)
    turned = [_Part("label", line) for line in by_line(w for w in words if not w.upright)]
    parts = [*margins, *table_parts, *tiles, *more_tables, *_texts(rest), *turned]
    parts.sort(key=lambda part: (part.words[0].line, part.words[0].left))
    return _under_headings(parts)


def lay_out(page: Page) -> Page:
    """Return a page with blocks, found from its words only; font sizes come from their boxes."""
    return replace(
        page, blocks=find_blocks(place_words(page.words, page.width, page.height), page.height)
    )


def place_words(
    words: Sequence[Word],
    width: float,
    height: float,
    sizes: Sequence[float] | None = None,
    turns: Sequence[int] | None = None,
) -> list[PlacedWord]:
    """Return words in points, with known or estimated font sizes and directions."""
    if sizes is None:
        sizes = _sizes_of_lines(words, height)
    placed = []
    for index, word in enumerate(words):
        left, top, right, bottom = word.box
        x0, y0, x1, y1 = left * width, top * height, right * width, bottom * height
        wide = x1 - x0 >= y1 - y0 or len(word.text) < 4
        upright = wide if turns is None else turns[index] == 0
        placed.append(
            PlacedWord(index, word.text, x0, y0, x1, y1, sizes[index], word.line, upright)
        )
    return placed


def _sizes_of_lines(words: Sequence[Word], height: float) -> list[float]:
    tallest: dict[int, list[float]] = {}
    for word in words:
        tallest.setdefault(word.line, []).append((word.box[3] - word.box[1]) * height)
    # The height of a line without descenders is about three quarters of its font size.
    return [
        max(1.0, 1.2 * sorted(tallest[word.line])[len(tallest[word.line]) // 2]) for word in words
    ]


def margin_texts(words: Sequence[PlacedWord], height: float) -> set[str]:
    """Return the letters of the lines at the edges of a page, for recognizing running heads."""
    lines = by_line(find_segments(words))
    return {_letters(line) for line in lines if _at_edge(line, height)} - {""}


def _margins(
    segments: Sequence[Segment], height: float, recurring: Collection[str]
) -> tuple[list[_Part], list[Segment]]:
    """Return running heads and lines of a table of contents, and the other segments."""
    parts, rest = [], []
    for line in by_line(segments):
        text = " ".join(segment.text for segment in line)
        words = [word for segment in line for word in segment.words]
        if _at_edge(line, height) and (
            _letters(line) in recurring or _PAGE_NUMBER.fullmatch(text) is not None
        ):
            parts.append(_Part("margin", words))
        elif _LEADERS.search(text):
            parts.append(_Part("contents", words))
        else:
            rest += line
    return parts, rest


def _at_edge(line: Sequence[Segment], height: float) -> bool:
    top, bottom = min(s.top for s in line), max(s.bottom for s in line)
    few = sum(len(segment.words) for segment in line) <= LONGEST_MARGIN
    return few and (bottom < EDGE * height or top > (1 - EDGE) * height)


def _letters(line: Sequence[Segment]) -> str:
    return "".join(c for segment in line for c in segment.text.casefold() if c.isalpha())


def _tiles(segments: list[Segment]) -> tuple[list[_Part], list[Segment]]:
    """Return large numbers with a small label below, and the other segments."""
    parts = []
    for number in list(segments):
        tile = _tile(number, segments)
        if len(tile) > 1:
            parts.append(_Part("label", [word for segment in tile for word in segment.words]))
            segments = [segment for segment in segments if segment not in tile]
    return parts, segments


def _tile(number: Segment, segments: Sequence[Segment]) -> list[Segment]:
    """Return a large number and the lines of its label, or only the number without a label."""
    tile = [number]
    if (
        number not in segments
        or len(number.words) > 4
        or not any(c.isdigit() for c in number.words[0].text)
    ):
        return tile
    below = [
        other
        for other in segments
        if number.size > 1.25 * other.size
        and number.overlap(other) > 0
        and -0.3 * number.size < other.top - number.bottom < 0.9 * number.size
    ]
    label = min(below, key=lambda other: other.top, default=None)
    if label is None or not label.has_letters or len(label.words) > LONGEST_LABEL:
        return tile
    while label is not None:
        tile.append(label)
        more = [s for s in segments if s not in tile and _stands_below(s, tile[-1])]
        label = more[0] if len(more) == 1 else None
    # More lines are a separate text.
    return tile if len(tile) < 5 else tile[:1]


def _tables(segments: Sequence[Segment]) -> tuple[list[_Part], list[Segment]]:
    """Return tables, the lines of a table of contents, and the other segments."""
    by_index = {word.index: word for segment in segments for word in segment.words}
    parts = []
    for table in find_tables(segments):
        rows: dict[int, list[PlacedWord]] = {}
        for cell in table.cells:
            rows.setdefault(cell.row, []).extend(by_index.pop(index) for index in cell.words)
        if table.is_contents:
            parts += [_Part("contents", row) for row in rows.values()]
        else:
            parts.append(_Part("table", [w for row in rows.values() for w in row], table))
    return parts, [segment for segment in segments if segment.words[0].index in by_index]


def _texts(segments: Sequence[Segment]) -> Iterator[_Part]:
    if not segments:
        return
    body = _body_size(segments)
    paragraphs = [part for stack in _stacks(segments) for part in _paragraphs(stack)]
    unfinished: list[PlacedWord] = []
    for paragraph, after in zip(paragraphs, [*paragraphs[1:], None], strict=True):
        words, kind = paragraph.words, _kind(paragraph, after, body)
        if kind in ("sentence", "item"):
            first = words[0].text[:1]
            continues = bool(unfinished) and (
                first.islower() or (first.isdigit() and words[0].size == unfinished[-1].size)
            )
            if unfinished and not continues:
                yield _Part("sentence", unfinished)
            if continues:
                words = [*unfinished, *words]
            unfinished = []
            sentences = list(find_sentences(words))
            for sentence in sentences[:-1]:
                yield _Part(kind, sentence)
            if paragraph.is_final or kind == "item":
                yield _Part(kind, sentences[-1])
            else:
                # The sentence may continue in the next column.
                unfinished = sentences[-1]
        else:
            yield _Part(kind, words)
    if unfinished:
        yield _Part("sentence", unfinished)


def _body_size(segments: Iterable[Segment]) -> float:
    """Return the most common font size, by characters."""
    lengths: dict[float, int] = {}
    for segment in segments:
        size = round(segment.size, 1)
        lengths[size] = lengths.get(size, 0) + len(segment.text)
    return max(lengths, key=lambda size: (lengths[size], -size))


def _stacks(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Group lines directly below each other, in reading order."""
    stacks: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda s: (s.middle, s.left)):
        above = [stack for stack in stacks if _stands_below(segment, stack[-1])]
        if len(above) > 1:
            aligned = [s for s in above if abs(s[-1].left - segment.left) < segment.size]
            above = aligned if len(aligned) == 1 else []
        if above:
            above[0].append(segment)
        else:
            stacks.append([segment])
    return sorted(stacks, key=lambda stack: (stack[0].line, stack[0].left))


def _stands_below(segment: Segment, above: Segment) -> bool:
    size = max(segment.size, above.size)
    gap = segment.top - above.bottom
    if not -0.7 * size < gap < _LINE_GAP * size or segment.middle <= above.bottom - 0.2 * size:
        return False
    if not 0.86 < segment.size / above.size < 1.16:
        return False
    return segment.overlap(above) > 0.2 * min(
        segment.right - segment.left, above.right - above.left
    )


def _paragraphs(stack: list[Segment]) -> Iterator[_Paragraph]:
    """Split a stack of lines where a list item, a heading or a new paragraph begins."""
    gaps = sorted(after.top - before.bottom for before, after in pairwise(stack))
    usual = gaps[len(gaps) // 3] if gaps else 0.0
    part = [stack[0]]
    for before, after in pairwise(stack):
        apart = after.top - before.bottom > usual + 0.35 * after.size
        item = _starts_item(after) and (
            is_bullet(after.words[0].text)
            or ends_text(before.words[-1].text)
            or _starts_item(part[0])
        )
        outdented = _starts_item(part[0]) and after.left < part[0].left + 0.3 * after.size
        capital = not after.text[:1].islower()
        if item or (capital and (apart or outdented or _is_short_heading(part, after))):
            yield _Paragraph(part)
            part = []
        part.append(after)
    yield _Paragraph(part)


def _starts_item(line: Segment) -> bool:
    return len(line.words) > 1 and is_item_mark(line.words[0].text)


def _is_short_heading(part: Sequence[Segment], below: Segment) -> bool:
    """Return whether the first line of a stack is a heading in the font size of its text."""
    line = part[0]
    if len(part) > 1 or len(line.words) > 8 or line.words[-1].text[-1:] in ",;-–:.":
        return False
    if not line.has_letters or not line.text[:1].isupper():
        return False
    wide = below.right - below.left
    return line.right - line.left < 0.6 * wide and len(below.words) > len(line.words)


def _kind(paragraph: _Paragraph, after: _Paragraph | None, body: float) -> BlockKind:
    words = paragraph.words
    if _starts_item(paragraph.lines[0]):
        return "item"
    small = paragraph.size < 1.3 * body and not words[0].text[:1].islower()
    numbered = len(words) > 1 and words[1].text[:1].isdigit()
    marked = numbered or words[0].text.endswith((":", "."))
    if small and marked and _CAPTION.match(paragraph.text):
        return "caption"
    if len(words) > LONGEST_HEADING or paragraph.is_final:
        return "sentence" if len(words) > 3 else "label"
    has_letters = sum(c.isalpha() for c in paragraph.text) > 3
    begins = not words[0].text[:1].islower() and words[-1].text[-1:] not in ",;-–"
    if has_letters and begins and len(paragraph.lines) < 4:
        if paragraph.size > 1.12 * body:
            return "heading"
        if after is not None and _heads(paragraph, after):
            return "heading"
    return "sentence" if len(words) > LONGEST_LABEL else "label"


def _heads(paragraph: _Paragraph, after: _Paragraph) -> bool:
    """Return whether a short paragraph is the heading of the text below it."""
    gap = after.top - paragraph.bottom
    aligned = abs(after.left - paragraph.left) < 2.5 * paragraph.size
    below = -0.5 * paragraph.size < gap < 2.5 * paragraph.size
    return below and aligned and len(paragraph.words) <= 8 and len(after.words) > LONGEST_LABEL


def _under_headings(parts: Sequence[_Part]) -> tuple[Block, ...]:
    blocks = [part.block for part in parts]
    open_headings: list[int] = []
    for position, (part, block) in enumerate(zip(parts, blocks, strict=True)):
        if block.kind == "heading":
            while open_headings and _closes(parts[position], parts[open_headings[-1]]):
                open_headings.pop()
        above = [n for n in open_headings if not _is_beside(part, parts[n])]
        if block.kind != "margin" and above:
            # If headings are side by side, each belongs to the text below it.
            beside = [n for n in above if _is_beside(parts[n], parts[above[-1]])]
            nearest = min(beside, key=lambda n: abs(parts[n].words[0].left - part.words[0].left))
            blocks[position] = replace(block, heading=nearest)
        if block.kind == "heading":
            open_headings.append(position)
    return tuple(blocks)


def _closes(heading: _Part, open_heading: _Part) -> bool:
    """Return whether a heading ends the section of an earlier one.

    It does if it is at least as large, and not beside it.
    """
    larger = heading.block.size < open_heading.block.size
    return not larger and not _is_beside(heading, open_heading)


def _is_beside(one: _Part, other: _Part) -> bool:
    return one.words[0].line == other.words[0].line
