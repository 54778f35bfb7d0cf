"""A page's words as passages: whole sentences, table rows, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from visar.documents.page import Box, Page, Word

_SENTENCE_END = re.compile(r"[.!?]['\"”’)]*$")
_ABBREVIATION = re.compile(
    r"^(?:[A-Za-z]|[A-Z][a-z]|No|Mr|Mrs|Ms|Dr|St|vs|etc|approx|Inc|Ltd|Co|Fig|e\.g|i\.e)\.$"
)
_NUMBER = re.compile(r"^[(\-–−+$€£]*\d[\d,.]*[)%]*$")
# Longer runs without a full stop are cut at a line's end, so that a passage stays readable.
LONGEST_PASSAGE = 60


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive words of a page that belong together."""

    first: int
    end: int
    text: str


def spans(page: Page) -> Iterator[Span]:
    """The passages of a page in reading order; every word is in exactly one."""
    first = 0
    words = page.words
    lines = _lines(words)
    for number, (start, end) in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else None
        for index in range(start, end):
            if index + 1 < end and _ends_sentence(words[index].text, words[index + 1].text):
                yield _span(words, first, index + 1)
                first = index + 1
        if following is None or _breaks_after(words, (start, end), following, end - first):
            yield _span(words, first, end)
            first = end


def boxes_of(page: Page, span: Span) -> tuple[Box, ...]:
    """One box per line that the passage touches."""
    touched = page.words[span.first : span.end]
    return tuple(_around([word.box for word in line]) for _, line in groupby(touched, _line_of))


def _line_of(word: Word) -> int:
    return word.line


def _lines(words: Sequence[Word]) -> list[tuple[int, int]]:
    starts = [i for i, word in enumerate(words) if i == 0 or word.line != words[i - 1].line]
    return list(pairwise([*starts, len(words)]))


def _ends_sentence(text: str, following: str) -> bool:
    return (
        bool(_SENTENCE_END.search(text))
        and not _ABBREVIATION.match(text)
        and not following[:1].islower()
    )


def _breaks_after(
    words: Sequence[Word], line: tuple[int, int], following: tuple[int, int], length: int
) -> bool:
    """Whether a passage ends with this line."""
    here, below = words[slice(*line)], words[slice(*following)]
    if _ends_sentence(here[-1].text, below[0].text) or length >= LONGEST_PASSAGE:
        return True
    if _is_row(here) or _is_row(below) or _is_heading(here, below):
        return True
    _, top, _, bottom = _around([word.box for word in here])
    _, next_top, _, next_bottom = _around([word.box for word in below])
    # Boxes hold the ink alone: a line of small letters is lower than one of capitals.
    size_changes = not 0.6 < (next_bottom - next_top) / max(bottom - top, 1e-6) < 1.6
    far_below = next_top - bottom > 1.2 * (bottom - top)
    next_column = next_bottom < top and not below[0].text[:1].islower()
    return size_changes or far_below or next_column


def _is_heading(words: Sequence[Word], below: Sequence[Word]) -> bool:
    """Whether a line is a heading: short, above a longer line that begins anew."""
    here, there = (line[-1].box[2] - line[0].box[0] for line in (words, below))
    return here < 0.5 * there and len(words) <= 6 and not below[0].text[:1].islower()


def _is_row(words: Sequence[Word]) -> bool:
    """Whether a line is a table's row: numbers at its end, or wide gaps between its words."""
    if len(words) < 2:
        return False
    trailing = sum(bool(_NUMBER.match(word.text)) for word in words[-2:])
    height = max(word.box[3] - word.box[1] for word in words)
    gaps = [after.box[0] - before.box[2] for before, after in pairwise(words)]
    return trailing == 2 or max(gaps) > 2.5 * height


def _span(words: Sequence[Word], first: int, end: int) -> Span:
    return Span(first, end, " ".join(word.text for word in words[first:end]))


def _around(boxes: Sequence[Box]) -> Box:
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)
