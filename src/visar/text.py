"""Text for people; that of unknown origin made safe to print, such as file names and replies.

This is the only filter of control characters in the project.
"""

from __future__ import annotations

import re

# What a terminal or a browser acts upon, or cannot show: C0 and C1 controls, signs that change the
# direction of writing, lone surrogates, private use, and the specials up to U+FFFD and U+FFFF.
_UNPRINTABLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069"
    "\ud800-\uf8ff\ufff0-\uffff\U000f0000-\U0010ffff"
)
_REMOVED = re.compile(f"[{_UNPRINTABLE}]")
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_GAP = re.compile(rf"[\s{_UNPRINTABLE}]+")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, whose plural ends in "s".

    >>> counted(1, "page"), counted(0, "page")
    ('1 page', '0 pages')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clean_text(text: str) -> str:
    r"""Remove the characters a terminal would act upon; keep line breaks and tabs.

    For text that is shown as it is: an answer, the words of a page. Every kind of line break
    becomes ``\n``.

    >>> clean_text("one\r\n\ttwo \x1b[31mred\x9b2J \u202eflipped\ue000")
    'one\n\ttwo [31mred2J flipped'
    """
    if text.isascii() and text.isprintable():
        return text
    return _REMOVED.sub("", _LINE_BREAK.sub("\n", text))


def encodable(text: str) -> str:
    r"""Replace halves of characters, which damaged files and servers send and UTF-8 cannot hold.

    >>> encodable("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode()


def clean_line(text: object, longest: int | None = None) -> str:
    r"""Turn anything into one line that is safe in a message.

    For what others wrote and a message quotes: a file name, an error of a server. Each run of
    white space, line breaks and characters that `clean_text` removes becomes one space.

    Parameters
    ----------
    text
        A string, or anything with one (``str(text)``).
    longest
        The most characters to return; longer lines are cut and end with "…".

    >>> clean_line("busy:\n\x1b[2J  try later\u202e")
    'busy: [2J try later'
    >>> clean_line("a long story", longest=7)
    'a long…'
    """
    line = _GAP.sub(" ", str(text)).strip()
    if longest is None or len(line) <= longest:
        return line
    return line[: longest - 1].rstrip() + "…"
