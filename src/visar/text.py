"""Text for display: cleaning untrusted text, such as file names and replies of servers.

All filtering of control characters happens here.
"""

from __future__ import annotations

import re

# Characters that a terminal or browser interprets or can't display: C0 and C1 controls, changes of
# the writing direction, lone surrogates, private use, and the specials up to U+FFFD and U+FFFF.
_UNPRINTABLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069"
    "\ud800-\uf8ff\ufff0-\uffff\U000f0000-\U0010ffff"
)
_REMOVED = re.compile(f"[{_UNPRINTABLE}]")
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_GAP = re.compile(rf"[\s{_UNPRINTABLE}]+")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural with "s" if needed.

    >>> counted(1, "page"), counted(0, "page")
    ('1 page', '0 pages')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clean_text(text: str) -> str:
    r"""Remove characters that a terminal interprets; keep line breaks and tabs.

    Use it for text with several lines, such as an answer or the words of a page. All kinds of line
    breaks become ``\n``.

    >>> clean_text("one\r\n\ttwo \x1b[31mred\x9b2J \u202eflipped\ue000")
    'one\n\ttwo [31mred2J flipped'
    """
    if text.isascii() and text.isprintable():
        return text
    return _REMOVED.sub("", _LINE_BREAK.sub("\n", text))


def encodable(text: str) -> str:
    r"""Replace lone surrogates, which UTF-8 can't encode.

    >>> encodable("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode()


def clean_line(text: object, longest: int | None = None) -> str:
    r"""Convert anything to one line that is safe to print.

    Use it to quote untrusted text in messages, such as a file name or an error of a server. Each
    run of white space, line breaks and characters that `clean_text` removes becomes one space. A
    line of more than ``longest`` characters is truncated and ends with "…".

    >>> clean_line("busy:\n\x1b[2J  try later\u202e")
    'busy: [2J try later'
    >>> clean_line("a long story", longest=7)
    'a long…'
    """
    line = _GAP.sub(" ", str(text)).strip()
    if longest is None or len(line) <= longest:
        return line
    return line[: longest - 1].rstrip() + "…"
