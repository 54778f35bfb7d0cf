"""Pages with words at places, for tests of passages."""

from __future__ import annotations

from visar.documents.page import Page, Word

WIDTH, HEIGHT = 600.0, 800.0


def page_of(*lines: str, gap: float = 0.02, spread: float = 0.01) -> Page:
    """A page with these lines below each other, words ``spread`` apart."""
    words = []
    for number, line in enumerate(lines):
        left = 0.1
        for text in line.split():
            width = 0.01 * len(text)
            top = 0.1 + gap * number
            words.append(Word(text, (left, top, left + width, top + 0.012), number))
            left += width + spread
    return Page(1, 595, 842, 0, tuple(words), "text layer")


def placed(*cells: tuple[int, float, float, str] | tuple[int, float, float, str, float]) -> Page:
    """A page of cells: the line, left and top in points, the text, and the size (10 by default).

    Cells of the same line number are one line in reading order, whatever stands between them.
    """
    words = []
    for line, left, top, text, *given in cells:
        size = given[0] if given else 10.0
        for word in text.split():
            width = 0.5 * size * len(word)
            box = (left / WIDTH, top / HEIGHT, (left + width) / WIDTH, (top + 0.7 * size) / HEIGHT)
            words.append(Word(word, box, line))
            left += width + 0.3 * size
    return Page(1, WIDTH, HEIGHT, 0, tuple(words), "text layer")
