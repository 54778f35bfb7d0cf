"""Words of a text layer, cleaned and mended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visar.documents.layout import Piece
from visar.text import clean_text

# A shorter word of doubled letters may be one.
_SHORTEST_DOUBLED = 6
# Share of the font size.
_NARROWEST_SPACE = 0.08


def cleaned(pieces: Iterable[Piece]) -> list[Piece]:
    """Remove what no reader sees from words: a terminal must not be commanded by a page."""
    result = []
    for piece in pieces:
        text = clean_text(piece.text)
        if text:
            result.append(piece if text == piece.text else piece._replace(text=text))
    return result


def mended(pieces: Sequence[Piece]) -> list[Piece]:
    """Mend words as some programs write them: letters doubled for a shadow, initials set apart.

    >>> [piece.text for piece in mended([Piece("NNEEBBRRAASSKKAA", 0, 0, 90, 9, 12)])]
    ['NEBRASKA']
    >>> parts = [Piece("I", 0, 0, 3, 9, 12), Piece("nternal", 3.5, 2, 40, 9, 12)]
    >>> [piece.text for piece in mended(parts)]
    ['Internal']
    """
    result: list[Piece] = []
    for piece in pieces:
        text = piece.text
        if len(text) >= _SHORTEST_DOUBLED and text.isalpha() and text[::2] == text[1::2]:
            piece = piece._replace(text=text[::2])
        if result and _is_initial(result[-1], piece):
            first = result.pop()
            left, top = min(first.left, piece.left), min(first.top, piece.top)
            right, bottom = max(first.right, piece.right), max(first.bottom, piece.bottom)
            piece = Piece(first.text + text, left, top, right, bottom, piece.size, piece.turn)
        result.append(piece)
    return result


def _is_initial(first: Piece, rest: Piece) -> bool:
    """Whether a capital letter belongs to the word after it, without the space of an article."""
    if len(first.text) > 1 or not first.text.isupper() or not rest.text[:2].islower():
        return False
    if first.turn or rest.turn or len(rest.text) < 2:
        return False
    shared = min(first.bottom, rest.bottom) - max(first.top, rest.top)
    gap = (rest.left - first.right) / max(rest.size, 1.0)
    alike = 0.9 < first.size / max(rest.size, 1.0) < 1.1
    return alike and -0.5 < gap < _NARROWEST_SPACE and shared > 0.5 * (rest.bottom - rest.top)
