"""Lists: a reference of several items, and whether an answer names them all and no other."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence

from visar.evaluation.judge.moments import with_plain_dates
from visar.evaluation.judge.quantities import UNIT_WORDS
from visar.evaluation.judge.wording import (
    DENIALS,
    FILLERS,
    find,
    is_number,
    rivals,
    stem,
    stems,
    tidy,
    with_digits,
    without_parentheses,
    words,
)

# A longer text in brackets is not a list of answers, and is not parsed.
LONGEST_LITERAL = 20_000
# Items of a list without brackets; longer ones are clauses of a sentence.
MOST_WORDS_OF_ITEM = 4
_ORDER = re.compile(
    r"\b(?:in|by|the) (?:\w+ )?(?:order|sequence)\b|\brespectively\b|\brank(?:ed|ing)?\b|"
    r"\bsort(?:ed)?\b|\bchronological|\b(?:ascending|descending|alphabetical)",
    re.IGNORECASE,
)
_COUNTS = re.compile(r"\bhow (?:many|much)\b|\bwhat (?:are the )?(?:percentages?|numbers?)\b", re.I)
_SEPARATOR = re.compile(r"\s*[;\n]\s*|\s*,\s+(?:and\s+)?|\s+and\s+")


def listed(reference: str) -> list[str] | None:
    """The items of a reference in brackets, as JSON or Python writes lists; None if it is none.

    >>> listed("['Oban', 12]"), listed("Oban")
    (['Oban', '12'], None)
    """
    text = reference.strip()
    if not (text.startswith("[") and text.endswith("]")) or len(text) > LONGEST_LITERAL:
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            items = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        plain = isinstance(items, list) and all(isinstance(i, str | int | float) for i in items)
        return [str(item) for item in items if str(item).strip()] or None if plain else None
    return None


def enumerated(reference: str) -> list[str] | None:
    """The short items of a tidied text such as "A, B and C"; None if it is none."""
    items = [item for item in _SEPARATOR.split(reference.rstrip(".")) if item.strip()]
    if len(items) < 2 or any(not 1 <= len(words(item)) <= MOST_WORDS_OF_ITEM for item in items):
        return None
    return items


def names_all(question: str, items: Sequence[str], answer: str) -> bool:
    """Whether a tidied answer names every item and nothing else but words of the question."""
    wanted = [_words(tidy(item)) for item in items]
    if not all(wanted):
        return False
    named = {word for item in wanted for word in item}
    doubtful = (DENIALS | {"or"} | rivals(question, list(named))) - named
    if doubtful & set(_words(answer)):
        return False
    in_order = _order_matters(question, wanted)
    return any(
        _covers(question, wanted, _words(form), in_order=in_order)
        for form in (answer, without_parentheses(answer))
    )


def _words(text: str) -> list[str]:
    """Words with numbers and dates in one form; a percentage may lack its sign."""
    return [word for word in words(with_digits(with_plain_dates(text))) if word != "%"]


def _order_matters(question: str, wanted: Sequence[Sequence[str]]) -> bool:
    """Where the question asks for an order, or for one number after the other."""
    counts = all(len(item) == 1 and is_number(item[0]) for item in wanted)
    return bool(_ORDER.search(question) or (counts and _COUNTS.search(question)))


def _covers(
    question: str, wanted: Sequence[Sequence[str]], given: list[str], *, in_order: bool
) -> bool:
    left = list(given)
    # The longest first: "West Bellham" must not be taken for "Bellham".
    items = wanted if in_order else sorted(wanted, key=len, reverse=True)
    start = 0
    for item in items:
        place = find(item, left, start)
        if place < 0:
            return False
        left[place : place + len(item)] = [""] * len(item)
        start = place + len(item) if in_order else 0
    asked = stems(words(tidy(question))) | {str(len(wanted))}
    spare = FILLERS | UNIT_WORDS | {"", "$", "€", "£", "¥", "₹"}
    rest = [word for word in left if not _is_item_number(word, len(wanted), left)]
    return all(word in spare or stem(word) in asked for word in rest)


def _is_item_number(word: str, items: int, left: Sequence[str]) -> bool:
    """Whether a number only counts the items, as in "1. A 2. B"."""
    numbers = [other for other in left if is_number(other)]
    return is_number(word) and numbers == [str(count + 1) for count in range(items)]
