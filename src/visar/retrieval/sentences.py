"""Lines of words in reading order as sentences, rows, list items and headings; words as text."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from visar.documents.page import Box, Word

# Longer runs without a full stop are cut at a line's end, so that a passage stays readable.
LONGEST_PASSAGE = 60
# A heading has no more words than this.
LONGEST_HEADING = 14
_SENTENCE_END = re.compile(r"[.!?。！？؟।]['\"”’»)\]]*$")
_FINAL = re.compile(r"[.!?…:;。！？]['\"”’»)\]]*$")
_ABBREVIATION = re.compile(
    r"^[(\[“\"‘']*(?:[A-Za-z]|(?:[A-Za-z]\.)+[A-Za-z]|[A-Z][a-z]|No|Nos|Nr|Mrs|vs|etc|approx|Inc|Ltd"
    r"|Corp|Fig|Figs|Tab|Eq|Sec|Ch|Vol|Prof|Gen|Col|Sen|Rep|Gov|Dept|Univ|al|pp|cf|ca|bzw|usw|Mio|Mrd"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|Calif|incl|excl|max|min|est)\.$"
)
_ENUMERATOR = re.compile(r"^[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)\]]$")
_BULLET = re.compile(r"^(?:[•●○◦▪■□►▶‣⁃∙·–—*>✓✔❖➢§-]|[nlo]|[\uf000-\uf0ff])$")
_NUMBER = re.compile(r"^[(\-–−+$€£¥]*\d[\d,.]*[)%]*$")
_CLOSING = re.compile(r"^[.,;:!?)\]”’»…]+$")
# Letters that reach up and none that reaches down.
_TALL = re.compile(r"^(?=.*[A-Zbdfhkl0-9])[^gjpqyQ,;()\[\]/|_$“”‘’'\"]+$")
_LINKING = (
    "a",
    "an",
    "and",
    "at",
    "by",
    "for",
    "from",
    "in",
    "of",
    "on",
    "or",
    "the",
    "to",
    "with",
)
_OPENING = ("(", "[", "“", "‘", "«")
_HYPHENS = ("-", "‐", "\u00ad")


@dataclass(frozen=True, slots=True)
class Run:
    """Words that follow each other in reading order, up to the end of a sentence or a break."""

    words: tuple[int, ...]
    kind: Literal["sentence", "heading", "row", "item"]


def join_words(words: Sequence[Word], compounds: Collection[str] = ()) -> str:
    """Join words to a text: words parted at a line's end are made whole, marks follow their word.

    Parameters
    ----------
    words
        In the order of the text.
    compounds
        Words in lower case that have a hyphen wherever they stand.

    >>> box = (0.0, 0.0, 0.1, 0.1)
    >>> join_words([Word("the", box, 0), Word("capac-", box, 0), Word("ity.", box, 1)])
    'the capacity.'
    """
    parts: list[str] = []
    before: Word | None = None
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


def ends_sentence(text: str) -> bool:
    """Whether a word has the mark of a sentence's end."""
    return bool(_SENTENCE_END.search(text))


def is_final(text: str) -> bool:
    """Whether a word has the mark of an end: of a sentence, a lead-in or a part of a list."""
    return bool(_FINAL.search(text))


def starts_item(text: str) -> bool:
    """Whether a word is the bullet or the number of a list's item."""
    return bool(_BULLET.match(text) or _ENUMERATOR.match(text))


def _is_split(parts: Sequence[str]) -> bool:
    """Whether the last word goes on in the next line."""
    last = parts[-1]
    if last in _HYPHENS:
        return len(parts) > 1 and parts[-2][-1:].isalpha()
    return last.endswith(_HYPHENS) and last[-2:-1].isalpha()


def _keeps_hyphen(first: str, second: str, compounds: Collection[str]) -> bool:
    # "two-" + "to-one" and "nine-in-" + "ten" are compounds as well.
    whole = re.sub(r"\W+$", "", (first + second).lower())
    return "-" in first[:-1] or "-" in second or whole in compounds


def _follows_closely(before: str, after: str) -> bool:
    """Whether two words are written without a space between them."""
    if before in _OPENING or (before in "£$€¥" and after[:1].isdigit()):
        return True
    if after.startswith("%"):
        return before[-1:].isdigit()
    ideographs = all("\u3040" <= c <= "\u9fff" for c in (before[-1], after[0]))
    return ideographs or bool(_CLOSING.match(after))


def find_runs(words: Sequence[Word], lines: Sequence[Sequence[int]]) -> list[Run]:
    """Cut lines into sentences, rows, items and headings; a partition of their words."""
    run: list[int] = []
    done: list[Run] = []
    # Sentences that a figure or the foot of the page interrupts.
    suspended: list[Run] = []
    for number, line in enumerate(lines):
        here = [words[index] for index in line]
        if not run and _continues(here):
            for before in reversed(suspended):
                if _goes_on(words, before, here):
                    suspended.remove(before)
                    done.remove(before)
                    run = list(before.words)
                    break
        for place, index in enumerate(line):
            run.append(index)
            following = here[place + 1].text if place + 1 < len(line) else None
            starts_with_number = len(run) == 1 or (len(run) == 2 and _is_bullet(words[run[0]].text))
            if (
                following is not None
                and _sentence_ends_between(here[place].text, following)
                and not (starts_with_number and _ENUMERATOR.match(here[place].text))
            ):
                done.append(Run(tuple(run), _kind_of(words, run)))
                run = []
        below = [words[index] for index in lines[number + 1]] if number + 1 < len(lines) else []
        if not run:
            continue
        in_list = _starts_item([words[index] for index in run[:2]])
        if not below or _breaks_between(here, below, len(run), words[run[0]], in_list):
            heading = bool(below) and not in_list and _is_heading([words[i] for i in run], below)
            kind = "heading" if heading else _kind_of(words, run)
            done.append(Run(tuple(run), kind))
            if kind != "heading" and len(run) > 5 and not is_final(here[-1].text):
                suspended.append(done[-1])
            run = []
    return done


def _kind_of(words: Sequence[Word], run: Sequence[int]) -> Literal["sentence", "row", "item"]:
    first = words[run[0]].text
    if len(run) > 1 and starts_item(first):
        return "item"
    here = [words[index] for index in run]
    return "row" if _is_row(here) and here[0].line == here[-1].line else "sentence"


def _is_bullet(text: str) -> bool:
    return bool(_BULLET.match(text))


def _goes_on(words: Sequence[Word], run: Run, line: Sequence[Word]) -> bool:
    """Whether a line can go on with an interrupted run: as large, below it or in a next column."""
    last = [words[i] for i in run.words if words[i].line == words[run.words[-1]].line]
    left, top = last[0].box[0], last[0].box[1]
    below = abs(left - line[0].box[0]) < 0.01
    beside = line[0].box[0] > last[-1].box[2] and line[0].box[1] < top
    return (below or beside) and 0.9 < _size(line) / max(_size(last), 1e-6) < 1.1


def _continues(line: Sequence[Word]) -> bool:
    """Whether a line cannot be the beginning of a sentence."""
    first, second = line[0].text, line[1].text if len(line) > 1 else ""
    if len(line) < 2 or starts_item(first):
        return False
    return first[:1].islower() or (first.isdigit() and second[:1].islower())


def _sentence_ends_between(text: str, following: str) -> bool:
    return (
        bool(_SENTENCE_END.search(text))
        and not _ABBREVIATION.match(text)
        and not following[:1].islower()
        and not _CLOSING.match(following)
    )


def _breaks_between(
    here: Sequence[Word], below: Sequence[Word], length: int, first: Word, in_list: bool
) -> bool:
    """Whether a passage ends between two lines, given its length and its first word."""
    # A number at the beginning of a line may be the end of a sentence: "were granted / 12. At".
    new_item = _starts_item(below) and (
        in_list or _is_bullet(below[0].text) or is_final(here[-1].text)
    )
    if in_list and below[0].text[:1].isupper() and below[0].box[0] < first.box[0] + 0.005:
        # What follows an item without its indent is no part of it.
        return True
    if here[-1].text.endswith(":") and length < LONGEST_PASSAGE and not new_item:
        return False
    if _sentence_ends_between(here[-1].text, below[0].text) or length >= LONGEST_PASSAGE:
        return True
    if new_item or _is_row(here) or _is_row(below):
        return True
    if not in_list and _is_heading(here, below, alone=length == len(here)):
        return True
    left, top, right, bottom = around([word.box for word in here])
    next_left, next_top, next_right, next_bottom = around([word.box for word in below])
    goes_on = below[0].text[:1].islower() or here[-1].text.endswith(_HYPHENS)
    size_changes = not goes_on and not 0.8 < _size(below) / max(_size(here), 1e-6) < 1.25
    far_below = next_top - bottom > 1.2 * (bottom - top)
    next_column = next_bottom < top and not below[0].text[:1].islower()
    level = next_top < (top + bottom) / 2 < next_bottom
    beside = level and (right < next_left or next_right < left)
    return size_changes or far_below or next_column or beside


def _starts_item(line: Sequence[Word]) -> bool:
    return len(line) > 1 and starts_item(line[0].text)


def _is_heading(words: Sequence[Word], below: Sequence[Word], *, alone: bool = True) -> bool:
    """Whether words are a heading: short, above a line that begins anew and is longer or smaller.

    ``alone`` says that nothing stands before them in their passage.
    """
    last = words[-1].text
    if len(words) > LONGEST_HEADING or last.endswith((",", ";", "-", ".")) or last in _LINKING:
        return False
    if below[0].text.startswith("(") or below[0].text[:1].islower():
        return False
    if not any(c.isalpha() for w in words for c in w.text):
        return False
    if _is_row(words):
        return False
    line = [word for word in words if word.line == words[-1].line]
    if alone and _plain_size(line) > 1.12 * _plain_size(below):
        return True
    # A line of prose fills its column unless the sentence ends there.
    here, there = (part[-1].box[2] - part[0].box[0] for part in (line, below))
    return here < (0.75 if alone else 0.5) * there and len(words) <= 6


def _size(words: Sequence[Word]) -> float:
    """The height of the letters of a line; boxes hold the ink alone, so like is compared."""
    alike = [w.box[3] - w.box[1] for w in words if _TALL.match(w.text)]
    # A letter that reaches down adds about a third.
    return max(alike) if alike else max(w.box[3] - w.box[1] for w in words) / 1.3


def _plain_size(words: Sequence[Word]) -> float:
    """The height of the letters of most words: raised marks, as after names, make some higher."""
    return sorted(_size([word]) for word in words)[len(words) // 4]


def _is_row(words: Sequence[Word]) -> bool:
    """Whether a line is a table's row: numbers at its end, or wide gaps between its words."""
    if len(words) < 2:
        return False
    trailing = sum(bool(_NUMBER.match(word.text)) for word in words[-2:])
    height = max(word.box[3] - word.box[1] for word in words)
    gaps = [after.box[0] - before.box[2] for before, after in pairwise(words)]
    return trailing == 2 or max(gaps) > 2.5 * height


def around(boxes: Sequence[Box]) -> Box:
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)
