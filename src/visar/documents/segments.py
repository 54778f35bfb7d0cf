"""Segments: words of a line without a wide gap between them, the units of layout analysis."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TypeVar

# Maximum space between words, in font sizes. Justified lines may have wider spaces of about equal
# width, up to the second number.
WIDEST_SPACE = 0.9
_WIDEST_JUSTIFIED = 1.8

_VALUE = re.compile(
    r"[(\[<>~≈±+\-–−]*(?:US|S|A|C|HK)?[$€£¥]?\d[\d,.’']*"
    r"(?:%|‰|m|bn|tn|k|p|x|pp|ppt|pt|pts|c|bps|°C|st|nd|rd|th)?[)\]*%†‡]*[¹²³]?|[–—-]|n/?a|nil",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:FY|CY)?[’']?(?:19|20)\d\d[A-Za-z*]?(?:[-–/](?:\d\d)?\d\d)?|FY[’']?\d\d")
_PERIOD = re.compile(r"(?:[QH][1-4]|[1-4][QH])[’']?(?:\d\d|\d{4})?", re.IGNORECASE)
_SIGNS = frozenset("$€£¥%()")
_BULLET = re.compile(r"[•●○◦▪■□►▶‣⁃∙·–—*>✓✔❖➢§-]|[\uf000-\uf0ff]")
_ENUMERATOR = re.compile(r"[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)\]]")


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word in points from the top left corner of its page."""

    index: int
    """Index in the page."""
    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    line: int
    upright: bool

    @property
    def is_value(self) -> bool:
        """True for a number, an amount, or a dash or "n/a" instead of one."""
        return _VALUE.fullmatch(self.text) is not None

    @property
    def is_year(self) -> bool:
        return _YEAR.fullmatch(self.text.strip("(),;:*")) is not None

    @property
    def is_period(self) -> bool:
        """True for a year, a quarter or a half-year."""
        return self.is_year or _PERIOD.fullmatch(self.text.strip("(),;:*")) is not None

    @property
    def is_sign(self) -> bool:
        """True for a currency or percent sign, which belongs to the number next to it."""
        return set(self.text) <= _SIGNS

    @property
    def has_letter(self) -> bool:
        return any(c.isalpha() for c in self.text)


@dataclass(frozen=True, eq=False)
class Segment:
    """Words of a line without a wide gap between them."""

    words: tuple[PlacedWord, ...]

    @cached_property
    def left(self) -> float:
        return min(word.left for word in self.words)

    @cached_property
    def right(self) -> float:
        return max(word.right for word in self.words)

    @cached_property
    def top(self) -> float:
        return min(word.top for word in self.words)

    @cached_property
    def bottom(self) -> float:
        return max(word.bottom for word in self.words)

    @cached_property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @cached_property
    def size(self) -> float:
        """Median font size of the words, which ignores superscripts and initials."""
        return sorted(word.size for word in self.words)[len(self.words) // 2]

    @cached_property
    def line(self) -> int:
        return self.words[0].line

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @cached_property
    def is_value(self) -> bool:
        """True if the segment only contains numbers."""
        return any(word.is_value for word in self.words) and all(
            word.is_value or word.is_sign for word in self.words
        )

    @cached_property
    def has_letters(self) -> bool:
        return any(word.has_letter for word in self.words)

    @cached_property
    def is_period(self) -> bool:
        """True if the segment only contains years, quarters and half-years."""
        return all(word.is_period for word in self.words)

    @property
    def is_name(self) -> bool:
        """True if it can be the label of a row: text, a range or a year, but not a number."""
        return self.is_period or not self.is_value

    @property
    def is_number(self) -> bool:
        """True for a number other than a year: an amount, a share, a score such as 8/8."""
        plain = any(c.isdigit() for c in self.text) and not self.has_letters
        return (self.is_value or plain) and not self.is_period

    @property
    def has_number(self) -> bool:
        """True if it contains a number other than a year."""
        return any(
            any(c.isdigit() for c in word.text) and not word.is_period for word in self.words
        )

    def overlap(self, other: Segment) -> float:
        """Return the width in points that both segments cover."""
        return min(self.right, other.right) - max(self.left, other.left)


_Lined = TypeVar("_Lined", PlacedWord, Segment)


def find_segments(words: Iterable[PlacedWord]) -> list[Segment]:
    """Split the lines of upright words at wide gaps; return the segments in reading order."""
    lines = by_line(word for word in words if word.upright)
    return [segment for line in lines for segment in _split(line)]


def by_line(parts: Iterable[_Lined]) -> list[list[_Lined]]:
    """Group words or segments by their line."""
    lines: dict[int, list[_Lined]] = {}
    for part in parts:
        lines.setdefault(part.line, []).append(part)
    return [lines[number] for number in sorted(lines)]


def _split(line: list[PlacedWord]) -> list[Segment]:
    line.sort(key=lambda word: word.left)
    gaps = [
        (after.left - before.right) / max(before.size, after.size, 1.0)
        for before, after in pairwise(line)
    ]
    usual = median(gaps) if len(gaps) > 2 else 0.0
    segments, start = [], 0
    for end, gap in enumerate(gaps, 1):
        wide = gap > _WIDEST_JUSTIFIED or (gap > WIDEST_SPACE and gap > 1.8 * usual)
        # The space after the bullet or number of a list item isn't a gap.
        item = end == 1 and is_item_mark(line[0].text) and line[1].has_letter
        if wide and not item:
            segments.append(Segment(tuple(line[start:end])))
            start = end
    segments.append(Segment(tuple(line[start:])))
    return segments


def is_bullet(text: str) -> bool:
    """Return whether a word is the bullet of a list item."""
    return _BULLET.fullmatch(text) is not None


def is_item_mark(text: str) -> bool:
    """Return whether a word is the bullet or the number of a list item."""
    return is_bullet(text) or _ENUMERATOR.fullmatch(text) is not None
