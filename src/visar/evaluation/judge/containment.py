"""Whether an answer says a text: alone, with words of the question, or inside a short sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from visar.evaluation.judge.wording import (
    DENIALS,
    FILLERS,
    Token,
    find,
    is_number,
    rivals,
    squeezed,
    stem,
    stems,
    tokens,
    words,
)

# Longer answers hold too much else: a word per 12, and no answer of more than 40.
WORDS_PER_WORD = 12
LONGEST_ANSWER = 40
_BESIDE = re.compile(r"^[\s,]*(?:and|/|;|\+)(?:\s|$)|^\s*[/;+]")
_BESIDE_BEFORE = re.compile(r"(?:\b(?:and|or)\s+(?:the\s|an?\s)?|[/;+]\s*)$", re.IGNORECASE)
# Said of something else: "a pupil of X", "the red one; the other is X", "X of the north".
_CONTRAST = re.compile(r";|\b(?:while|whereas|but|although|though|however|formerly)\b", re.I)
_MODIFIES = re.compile(
    r"\b(?:of|for|from|with|like|near|after|before|versus|vs|against|over|under|about|to|into)\s+"
    r"(?:the\s|an?\s)?$",
    re.IGNORECASE,
)
_MODIFIED = re.compile(r"^\s+of\b", re.IGNORECASE)
_ACRONYM = re.compile(r"^(?P<name>[^()]+?)\s*\((?P<short>[^\W\d_]{2,})\)$")


def says(question: str, reference: str, answer: str) -> str | None:
    """The rule by which a tidied answer says a tidied text, None if none does."""
    for form in _forms(reference):
        wanted, given = words(form), tokens(answer)
        if not wanted:
            continue
        said = [token.text for token in given]
        if _same_words(wanted, said):
            return "the same words"
        place = find(wanted, said)
        if place < 0 or not _commits(question, wanted, said):
            continue
        around = given[:place] + given[place + len(wanted) :]
        if _adds_nothing(around, question):
            return "the same words and words of the question"
        if _stands_alone(question, given[place : place + len(wanted)], given, answer):
            return "contained in a short answer"
    return None


def _forms(reference: str) -> list[str]:
    """A name with its initials in parentheses may be given by either."""
    match = _ACRONYM.match(reference)
    if match:
        name = [word for word in words(match["name"]) if word not in FILLERS]
        if "".join(word[0] for word in name) == match["short"].casefold():
            return [reference, match["name"], match["short"]]
    return [reference]


def _same_words(wanted: Sequence[str], said: Sequence[str]) -> bool:
    same_length = len(wanted) == len(said)
    return (same_length and find(wanted, said) == 0) or squeezed(wanted) == squeezed(said)


def _commits(question: str, wanted: Sequence[str], said: Sequence[str]) -> bool:
    """Whether an answer neither denies, nor leaves a choice, nor names another choice."""
    doubtful = DENIALS | {"or", "either"} | rivals(question, wanted)
    return not (doubtful - set(wanted)) & set(said)


def _adds_nothing(around: Sequence[Token], question: str) -> bool:
    asked = stems(words(question))
    return all(token.text in FILLERS or stem(token.text) in asked for token in around)


def _stands_alone(
    question: str, match: Sequence[Token], given: Sequence[Token], answer: str
) -> bool:
    """Whether a match in a longer answer is a whole name, one thing, and the answer short."""
    longest = min(LONGEST_ANSWER, WORDS_PER_WORD * len(match))
    asked = words(question)
    offered = find([token.text for token in match], asked) >= 0
    return (
        len(given) <= longest
        and not (offered and "or" not in asked)
        and not _is_one_of_several(match, answer)
        and not _is_said_of_another(match, answer)
        and not _is_part_of_name(match, given, answer, stems(asked))
    )


def _is_one_of_several(match: Sequence[Token], answer: str) -> bool:
    before, after = answer[: match[0].start], answer[match[-1].end :]
    beside = _BESIDE.search(after) or _BESIDE_BEFORE.search(before[-20:])
    return bool(beside) or len(re.findall(r",\s", answer)) >= 2 or "\n" in answer


def _is_said_of_another(match: Sequence[Token], answer: str) -> bool:
    before, after = answer[: match[0].start], answer[match[-1].end :]
    return bool(
        _CONTRAST.search(answer) or _MODIFIES.search(before[-20:]) or _MODIFIED.match(after)
    )


def _is_part_of_name(
    match: Sequence[Token], given: Sequence[Token], answer: str, asked: set[str]
) -> bool:
    """Whether the word before or after belongs to the same name: Bellham in West Bellham."""
    first, last = given.index(match[0]), given.index(match[-1])

    def is_name(token: Token) -> bool:
        capital = answer[token.start].isupper() and not answer.isupper()
        return capital and token.text not in FILLERS and stem(token.text) not in asked

    before = given[first - 1] if first else None
    if before and answer[before.end : match[0].start] in (" ", "-") and is_name(before):
        return True
    after = given[last + 1] if last + 1 < len(given) else None
    adjacent = after is not None and answer[match[-1].end : after.start] in (" ", "-")
    return after is not None and adjacent and (is_number(after.text) or is_name(after))
