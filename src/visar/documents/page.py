"""What a page is to the rest of the program: its size, its words, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom as shares (0 to 1) of the page as a reader sees it."""

TextSource: TypeAlias = Literal["text layer", "ocr", "both", "none"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word as printed, with its place."""

    text: str
    box: Box
    line: int
    """Which line of the page it belongs to, in reading order from 0."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a document, in reading order, as a reader sees it."""

    number: int
    """1 for the first page."""
    width: float
    """In points (1/72 inch), after rotation."""
    height: float
    rotation: int
    """Degrees clockwise by which the file turns the page for display; boxes are after it."""
    words: tuple[Word, ...]
    text_source: TextSource
