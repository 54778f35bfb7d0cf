"""Finds a phrase on the pages of a document, for the page viewer."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice

from visar.documents.page import Box, Page, Word
from visar.serialization import Result

MAX_PLACED = 2_000
"""Maximum number of matches whose boxes are returned; the others are only counted."""


@dataclass(frozen=True, slots=True)
class PageMatches(Result):
    """The matches of a phrase on one page."""

    page: int
    """Page number, from 1."""
    count: int
    """Number of matches."""
    boxes: tuple[tuple[Box, ...], ...]
    """The boxes of each match, one for each line that it is on. In a document with more than
    2,000 matches, those of the first 2,000."""


def find_phrase(pages: Iterable[Page], phrase: str) -> list[PageMatches]:
    """Return the pages that contain a phrase, in their order."""
    folded = " ".join(_fold(phrase).split())
    found: list[PageMatches] = []
    left = MAX_PLACED
    for page in pages if folded else ():
        # Folding the page is the same as folding each word, since nothing combines with a space.
        starts = [*_positions(_fold(" ".join(word.text for word in page.words)), folded)]
        if not starts:
            continue
        # Start of each word in the text of the page.
        begins = [0, *accumulate(len(_fold(word.text)) + 1 for word in page.words if left)]
        boxes = []
        for start in islice(starts, left):
            first, last = (bisect_right(begins, at) for at in (start, start + len(folded) - 1))
            boxes.append(_boxes(page.words[first - 1 : last]))
        left -= len(boxes)
        found.append(PageMatches(page.number, len(starts), tuple(boxes)))
    return found


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _positions(text: str, phrase: str) -> Iterator[int]:
    start = text.find(phrase)
    while start >= 0:
        yield start
        start = text.find(phrase, start + len(phrase))


def _boxes(words: Sequence[Word]) -> tuple[Box, ...]:
    """Return one box around the words of each line."""
    lines = [[word.box for word in line] for _, line in groupby(words, key=lambda word: word.line)]
    return tuple(
        (
            min(box[0] for box in line),
            min(box[1] for box in line),
            max(box[2] for box in line),
            max(box[3] for box in line),
        )
        for line in lines
    )
