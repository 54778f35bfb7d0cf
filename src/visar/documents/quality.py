"""Whether a text layer can be trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST_RUBBISH = 0.3
# "No spaces" is only said of enough text in a script that has them.
_ENOUGH_CHARACTERS = 60
_LONGEST_WORD = 40
_MOST_UNBROKEN = 0.5
# Control characters, surrogates, private use, and what stands for the unknown.
_RUBBISH = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U000f0000-\U0010ffff]")
_SPACED_LETTERS = re.compile("[A-Za-z\u00c0-\u058f\u0600-\u06ff\u1e00-\u1fff]")


def usable(words: Sequence[str]) -> bool:
    r"""Whether words of a text layer are text, not the debris of a broken font.

    >>> usable(["An", "ordinary", "page"]), usable(["\ue001\ue04f", "\x01\x03"]), usable([])
    (True, False, False)
    """
    text = "".join(words)
    if not text:
        return False
    rubbish = len(_RUBBISH.findall(text))
    return rubbish <= _MOST_RUBBISH * len(text) and not _unbroken(words)


def readable(text: str) -> str:
    r"""Without what no reader sees: a terminal must not be commanded by a page's words.

    >>> readable("\x9b31mred\uf0b7")
    '31mred'
    """
    return _RUBBISH.sub("", text)


def _unbroken(words: Sequence[str]) -> bool:
    """Whether most letters stand in words longer than any language has."""
    letters = [len(_SPACED_LETTERS.findall(word)) for word in words]
    if sum(letters) < _ENOUGH_CHARACTERS:
        return False
    return sum(n for n in letters if n > _LONGEST_WORD) > _MOST_UNBROKEN * sum(letters)
