"""Cleaning and repairing the words of a text layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visar.documents.layout import Piece
from visar.text import clean_text

# Shorter words may legitimately consist of doubled letters.
_SHORTEST_DOUBLED = 6
# Minimum width of a space, as a share of the font size.
_NARROWEST_SPACE = 0.08


def clean_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Remove invisible and control characters, which could affect a terminal."""
    result = []
    for piece in pieces:
        text = clean_text(piece.text)
        if text:
            result.append(piece if text == piece.text else piece._replace(text=text))
    return result


def repair_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """Repair words with letters doubled for a shadow, and with separate initials.

    >>> [piece.text for piece in repair_pieces([Piece("NNEEBBRRAASSKKAA", 0, 0, 90, 9, 12)])]
    ['NEBRASKA']
    >>> parts = [Piece("I", 0, 0, 3, 9, 12), Piece("nternal", 3.5, 2, 40, 9, 12)]
    >>> [piece.text for piece in repair_pieces(parts)]
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
    """Return whether a capital letter is the first letter of the next word, not a word itself."""
    if len(first.text) > 1 or not first.text.isupper() or not rest.text[:2].islower():
        return False
    if first.turn or rest.turn or len(rest.text) < 2:
        return False
    shared = min(first.bottom, rest.bottom) - max(first.top, rest.top)
    gap = (rest.left - first.right) / max(rest.size, 1.0)
    alike = 0.9 < first.size / max(rest.size, 1.0) < 1.1
    return alike and -0.5 < gap < _NARROWEST_SPACE and shared > 0.5 * (rest.bottom - rest.top)
