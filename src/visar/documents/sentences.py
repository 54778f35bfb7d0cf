"""Splitting words into sentences, and joining words to readable text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, TypeVar

# Longer sentences are split at the end of a line, so that quotes stay readable.
LONGEST_SENTENCE = 60

_SENTENCE_END = re.compile(r"[.!?。！？؟।]['\"”’»)\]]*$")
_TEXT_END = re.compile(r"[.!?…:;。！？]['\"”’»)\]]*$")
_ABBREVIATION = re.compile(
    r"^[(\[“\"‘']*(?:[A-Za-z]|(?:[A-Za-z]\.)+[A-Za-z]|[A-Z][a-z]|No|Nos|Nr|Mrs|vs|etc|approx|Inc|Ltd"
    r"|Corp|Fig|Figs|Tab|Eq|Sec|Ch|Vol|Prof|Gen|Col|Sen|Rep|Gov|Dept|Univ|al|pp|cf|ca|bzw|usw|Mio|Mrd"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|Calif|incl|excl|max|min|est)\.$"
)
_ENUMERATOR = re.compile(r"^[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)\]]$")
_CLOSING = re.compile(r"^[.,;:!?)\]”’»…]+$")
_OPENING = ("(", "[", "“", "‘", "«")
_HYPHENS = ("-", "‐", "\u00ad")


class TextWord(Protocol):
    """A word with the number of its line."""

    @property
    def text(self) -> str: ...

    @property
    def line(self) -> int: ...


W = TypeVar("W", bound=TextWord)


def ends_text(text: str) -> bool:
    """Return whether a word ends with the punctuation of a sentence or a lead-in."""
    return _TEXT_END.search(text) is not None


def find_sentences(words: Sequence[W]) -> Iterator[list[W]]:
    """Yield the sentences of words, which contain each word exactly once."""
    sentence: list[W] = []
    for position, word in enumerate(words):
        sentence.append(word)
        after = words[position + 1] if position + 1 < len(words) else None
        if after is None:
            continue
        number = len(sentence) < 3 and _ENUMERATOR.match(word.text) is not None
        ended = _ends_between(word.text, after.text) and not number
        if ended or (len(sentence) >= LONGEST_SENTENCE and word.line != after.line):
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _ends_between(text: str, following: str) -> bool:
    return (
        _SENTENCE_END.search(text) is not None
        and _ABBREVIATION.match(text) is None
        and not following[:1].islower()
        and _CLOSING.match(following) is None
    )


def join_words(words: Sequence[TextWord], compounds: Collection[str] = ()) -> str:
    """Join words to text, undoing hyphenation and without spaces before punctuation.

    ``compounds`` are words with a hyphen, in lower case, that keep it at the end of a line.

    >>> from visar.documents.page import Word
    >>> box = (0.0, 0.0, 0.1, 0.1)
    >>> join_words([Word("the", box, 0), Word("capac-", box, 0), Word("ity.", box, 1)])
    'the capacity.'
    """
    parts: list[str] = []
    before: TextWord | None = None
    for word in words:
        if before is None:
            parts.append(word.text)
        elif before.line != word.line and word.text[:1].islower() and _is_split(parts):
            if parts[-1] in _HYPHENS:
                parts.pop()
            elif not _keeps_hyphen(parts[-1], word.text, compounds):
                parts[-1] = parts[-1][:-1]
            parts[-1] += word.text
        elif _follows_closely(before.text, word.text) or (
            before.line != word.line and _is_split(parts) and parts[-1] not in _HYPHENS
        ):
            parts[-1] += word.text
        else:
            parts.append(word.text)
        before = word
    return " ".join(parts)


def _is_split(parts: Sequence[str]) -> bool:
    last = parts[-1]
    if last in _HYPHENS:
        return len(parts) > 1 and parts[-2][-1:].isalpha()
    return last.endswith(_HYPHENS) and last[-2:-1].isalpha()


def _keeps_hyphen(first: str, second: str, compounds: Collection[str]) -> bool:
    # "two-" + "to-one" and "nine-in-" + "ten" are also compounds.
    whole = re.sub(r"\W+$", "", (first + second).lower())
    return "-" in first[:-1] or "-" in second or whole in compounds


def _follows_closely(before: str, after: str) -> bool:
    """Return whether two words are written without a space between them."""
    if before in _OPENING or (before in "£$€¥" and after[:1].isdigit()):
        return True
    if after.startswith("%"):
        return before[-1:].isdigit()
    ideographs = all("\u3040" <= c <= "\u9fff" for c in (before[-1], after[0]))
    return ideographs or _CLOSING.match(after) is not None
