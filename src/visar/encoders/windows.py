"""Cutting a long page into windows so that no token lacks context."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

# The model was trained on 256 positions; two of them are the marks around the text.
WINDOW = 254
# Shared by neighbouring windows: half of it is the least context a token has on either side.
OVERLAP = 32


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens ``start`` to ``end`` are read together; ``first`` to ``last`` are taken from it."""

    start: int
    end: int
    first: int
    last: int


def cut_windows(n_tokens: int) -> list[Window]:
    """Cut few windows of equal length; each token is taken from the one that shows it best.

    >>> cut_windows(100)
    [Window(start=0, end=100, first=0, last=100)]
    >>> cut_windows(300)
    [Window(start=0, end=166, first=0, last=150), Window(start=134, end=300, first=150, last=300)]
    """
    if n_tokens == 0:
        return []
    if n_tokens <= WINDOW:
        return [Window(0, n_tokens, 0, n_tokens)]
    count = -(-(n_tokens - OVERLAP) // (WINDOW - OVERLAP))
    length = -(-(n_tokens + (count - 1) * OVERLAP) // count)
    starts = [i * (n_tokens - length) // (count - 1) for i in range(count)]
    seams = [(before + length + after) // 2 for before, after in pairwise(starts)]
    return [
        Window(start, start + length, first, last)
        for start, first, last in zip(starts, [0, *seams], [*seams, n_tokens], strict=True)
    ]
