"""Detection of page numbers in questions: "on page 30", "on page thirty"."""

from __future__ import annotations

import re

_SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_UNITS = {word: value for value, word in enumerate(_SMALL.split(), start=1)}
_TENS = {
    word: value
    for value, word in zip(
        range(20, 100, 10),
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"],
        strict=True,
    )
}
# Digits, or up to five words ("nine hundred and ninety-nine"). The lookahead doesn't consume the
# words, so that they can contain the next page number.
_PAGE = re.compile(
    r"\b(?:page|pg\.?|p\.)\s*(?:(\d{1,6})(?![\d.,]*\d)\b|(?=((?:[a-z]+[\s-]+){0,4}[a-z]+)))", re.I
)


def find_page_number(question: str) -> int | None:
    """Return the page number in a question; None if there is none, or several.

    >>> find_page_number("What is the total on page thirty-two?"), find_page_number("see p. 7")
    (32, 7)
    >>> find_page_number("How many pages are there?")
    """
    numbers = {
        int(digits) if digits else _number(words.lower())
        for digits, words in _PAGE.findall(question)
    } - {0}
    return numbers.pop() if len(numbers) == 1 else None


def _number(text: str) -> int:
    """Return the number below 1,000 at the beginning of a text; 0 if there is none."""
    words = re.split(r"[\s-]+", text)
    number = 0
    if words[1:2] == ["hundred"] and _UNITS.get(words[0], 10) < 10:
        number, words = 100 * _UNITS[words[0]], words[2:]
        if words[:1] == ["and"]:
            words = words[1:]
    first, second = [*words, "", ""][:2]
    if first in _TENS:
        unit = _UNITS.get(second, 0)
        return number + _TENS[first] + (unit if unit < 10 else 0)
    return number + _UNITS.get(first, 0)
