"""Citations in a written answer: numbers their markers, and checks claims on the cited pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from visar.documents.page import Page
from visar.errors import StoreError
from visar.quotes.languages import Vocabulary, detect_language
from visar.quotes.passages import Passage, find_passages
from visar.results import Citation

# [12], [page 12], [2:12], [12, 14]
_LABEL = r"\d+(?::\d+)?"
_MARKER = re.compile(
    rf"\[(?:pages?\s+|pp?\.\s*)?({_LABEL}(?:\s*[,;]\s*{_LABEL})*)\]", re.IGNORECASE
)
_UNFINISHED = re.compile(r"\s*(?:\[[^\]\n]{0,60})?\Z")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_END_MARKS = " \t\n.!?:;,"
# Share of a claim's words that a passage, with its heading, must have for the claim to be verified.
# Only 3% of sentences from other pages of the same document reach it, in reports and papers.
_MIN_SHARED = 0.6


class CitedText:
    """A text whose cited pages are numbered while it is written, in order of first citation."""

    def __init__(self) -> None:
        self.text = ""
        """Text with numbered markers, without an unfinished marker at its end."""
        self._raw = ""

    def add(self, piece: str) -> str:
        """Add a piece of the text and return what can be shown now."""
        self._raw += piece
        unfinished = _UNFINISHED.search(self._raw)
        certain = self._raw if unfinished is None else self._raw[: unfinished.start()]
        return self._show(certain)

    def end(self) -> str:
        return self._show(self._raw)

    def _show(self, certain: str) -> str:
        text, _ = _numbered(certain)
        new = text[len(self.text) :]
        self.text = text
        return new


def _numbered(text: str) -> tuple[str, list[tuple[str, int, int]]]:
    """Return a text with numbered markers, and the label, number and start of each marker."""
    numbers: dict[str, int] = {}
    markers: list[tuple[str, int, int]] = []
    parts: list[str] = []
    length = end = 0
    for found in _MARKER.finditer(text):
        parts.append(text[end : found.start()])
        length += len(parts[-1])
        for label in re.findall(_LABEL, found[1]):
            number = numbers.setdefault(label, len(numbers) + 1)
            markers.append((label, number, length))
            parts.append(f"[{number}]")
            length += len(parts[-1])
        end = found.end()
    return "".join((*parts, text[end:])), markers


def cite(
    text: str, given: Mapping[str, tuple[str, int]], read: Callable[[str, int], Page]
) -> tuple[str, tuple[Citation, ...]]:
    """Number the citations of an answer, and check each claim on the page it cites.

    Markers in the text name pages by labels; ``given`` has the document id and page number of each
    label, and ``read`` returns a page.
    """
    numbered, markers = _numbered(text)
    pages: dict[str, _CitedPage | None] = {}
    citations: list[Citation] = []
    for label, number, start in markers:
        claim = _claim(numbered, start) or (citations[-1].claim if citations else "")
        if label not in given:
            citations.append(Citation(label, None, None, number, claim))
            continue
        if label not in pages:
            pages[label] = None
            with suppress(StoreError):  # removed while the answer was written
                pages[label] = _CitedPage(read(*given[label]))
        page = pages[label]
        passage, verified = (None, False) if page is None else page.find(claim)
        quote, boxes = ("", ()) if passage is None else (passage.text, passage.boxes)
        citations.append(Citation(label, *given[label], number, claim, quote, boxes, verified))
    return numbered, tuple(citations)


def _claim(text: str, end: int) -> str:
    """Return the claim of a marker: the text since the previous marker or sentence end."""
    start = max((found.end() for found in _MARKER.finditer(text, 0, end)), default=0)
    before = text[start:end]
    return _SENTENCE_END.split(before.rstrip(_END_MARKS))[-1].strip(" \t*_#|-•")


class _CitedPage:
    """The passages of a page with their word stems."""

    def __init__(self, page: Page) -> None:
        words = [word.text for word in page.words]
        self._vocabulary = Vocabulary(detect_language(words))
        self._passages = [
            (one, self._stems(f"{one.context_text} {one.text}")) for one in find_passages(page)
        ]
        self._all = self._stems(" ".join(words))

    def find(self, claim: str) -> tuple[Passage | None, bool]:
        """Return the passage closest to a claim, and whether the page supports the claim."""
        claimed = self._stems(claim)
        if not claimed or not self._passages:
            return None, False

        def shared(one: tuple[Passage, set[str]]) -> tuple[int, int]:
            return len(claimed & one[1]), -len(one[1])

        passage, stems = max(self._passages, key=shared)
        numbers = {stem for stem in claimed if any(c.isdigit() for c in stem)}
        share = len(claimed & stems) / len(claimed)
        return (passage if share else None), share >= _MIN_SHARED and numbers <= self._all

    def _stems(self, text: str) -> set[str]:
        return {stem for _, stem in self._vocabulary.stems(text)}
