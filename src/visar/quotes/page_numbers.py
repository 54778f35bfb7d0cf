"""The page that a question asks for by its number: "on page 30", "on page thirty"."""

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
# Figures, or as many words as "nine hundred and ninety-nine" has, which may name another page.
_PAGE = re.compile(
    r"\b(?:page|pg\.?|p\.)\s*(?:(\d{1,6})(?![\d.,]*\d)\b|(?=((?:[a-z]+[\s-]+){0,4}[a-z]+)))", re.I
)


def asked_page(question: str) -> int | None:
    """Return the number of the page that a question names; None for no page or several.

    >>> asked_page("What is the total on page thirty-two?"), asked_page("see p. 7")
    (32, 7)
    >>> asked_page("How many pages are there?")
    """
    numbers = {
        int(digits) if digits else _number(words.lower())
        for digits, words in _PAGE.findall(question)
    } - {0}
    return numbers.pop() if len(numbers) == 1 else None


def _number(text: str) -> int:
    """Return the number that a text begins with, below 1,000; 0 if it begins with none."""
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
