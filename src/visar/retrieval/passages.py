"""A page's words as passages: sentences, table rows, lists, captions, headings, values.

Sentences and rows as the lines run hold every word once. What stands together on the page without
standing in one line is added to them: a row with the heads of its columns, a list item with what
announces it, a heading with what stands below it, a large number with its small label, a caption
with its figure. Passages may therefore share words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, TypeAlias

from visar.documents.page import Box, Page, Word
from visar.retrieval.tables import Segment, column_blocks, find_segments, table_rows, wrapped_rows

Kind: TypeAlias = Literal["sentence", "heading", "row", "list", "block", "caption"]

# Longer runs without a full stop are cut at a line's end, so that a passage stays readable.
LONGEST_PASSAGE = 60
# A page of no more words than this is a slide: what stands on it belongs together.
LONGEST_SLIDE = 120
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
_CAPTION = re.compile(r"^(?:fig(?:ure|\.)?|table|chart|exhibit|box|abb(?:\.|ildung)|tab(?:elle|\.)"
                      r"|tableau|figura|tabla)$", re.IGNORECASE)  # fmt: skip
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
class Span:
    """Words of a page that can be quoted together."""

    words: tuple[int, ...]
    """Their indices in ``Page.words``, in the order of the text."""
    text: str
    kind: Kind
    context: tuple[int, ...] = ()
    """Words that say what it is about without being part of it: the heading above."""
    lead: int = 0
    """How many of its first words other passages have as well: heads of columns, a lead-in."""


@dataclass(frozen=True, slots=True)
class _Text:
    """The words of a page, and those of them that are written with a hyphen within a line."""

    words: Sequence[Word]
    compounds: frozenset[str]

    @classmethod
    def of(cls, page: Page) -> _Text:
        texts = (word.text.lower().strip(".,;:()“”\"'") for word in page.words)
        return cls(page.words, frozenset(text for text in texts if "-" in text[1:-1]))


@dataclass(frozen=True, slots=True)
class _Run:
    """Words that follow each other in reading order, up to the end of a sentence or a break."""

    words: tuple[int, ...]
    kind: Literal["sentence", "heading", "row", "item"]


def spans(page: Page) -> list[Span]:
    """Return the passages of a page; every word is in at least one, in reading order first."""
    text, lines = _Text.of(page), page.lines()
    runs = _runs(page.words, lines)
    headings = _headings_above(runs)
    found = [
        _span(text, [run.words], "list" if run.kind == "item" else run.kind, heading)
        for run, heading in zip(runs, headings, strict=True)
    ]
    if _is_keywords(text, runs):
        found.append(_span(text, [run.words for run in runs], "block"))
    found += _lists(text, runs)
    found += _below_headings(text, runs)
    found += _captions(text, runs)
    segments = find_segments(page, lines)
    prose = _prose(text, runs, segments)
    above = {word: words for run, words in zip(runs, headings, strict=True) for word in run.words}
    apart = [segment for segment in segments if prose.isdisjoint(segment.words)]
    rows = list(wrapped_rows(apart))
    wrapped = {word for row in rows for cell in row.cells for word in cell}
    # A line of a row that wraps is no row.
    rows += [row for row in table_rows(apart) if not wrapped.issuperset(sum(row.cells, ()))]
    headed = {
        frozenset(word for cell in row.cells for word in cell)
        for row in rows
        if row.heads or row.wraps
    }
    found = [span for span in found if frozenset(span.words) not in headed]
    # Labels below each other are no sentence: each is quoted with its row.
    row_of = {word: n for n, row in enumerate(rows) for cell in row.cells for word in cell}
    found = [span for span in found if not _is_labels(span, row_of)]
    for row in rows:
        parts = [row.heads, *row.cells] if row.wraps else [row.heads, sum(row.cells, ())]
        context = above[row.cells[0][0]]
        found.append(_span(text, parts, "row", context, lead=len(row.heads)))
    for block in column_blocks(apart):
        words = sum(block, ())
        if len(words) <= LONGEST_PASSAGE // 2:
            found.append(_span(text, [words], "block", above[words[0]]))
        else:
            inner = [run for run in _runs(page.words, block) if run.kind != "heading"]
            found += [_span(text, [run.words], "block", above[run.words[0]]) for run in inner]
    return _distinct(found)


def _is_keywords(text: _Text, runs: Sequence[_Run]) -> bool:
    """Whether a page is a slide of a few words, neither sentences nor a table."""
    ends = [text.words[run.words[-1]].text for run in runs]
    return (
        len(text.words) <= LONGEST_PASSAGE * 2 // 3
        and not any(_SENTENCE_END.search(end) for end in ends)
        and not any(run.kind == "row" for run in runs)
    )


def _is_labels(span: Span, row_of: Mapping[int, int]) -> bool:
    """Whether it is parts of several rows of a table, given the row of each word."""
    rows = {row_of.get(word) for word in span.words}
    return span.kind in ("sentence", "heading") and None not in rows and len(rows) > 1


def boxes_of(page: Page, span: Span) -> tuple[Box, ...]:
    """Return one box per line that the passage touches."""
    touched = [page.words[index] for index in span.words]
    return tuple(_around([word.box for word in line]) for _, line in groupby(touched, _line_of))


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


def _runs(words: Sequence[Word], lines: Sequence[Sequence[int]]) -> list[_Run]:
    """Cut lines into sentences, rows, items and headings; a partition of their words."""
    run: list[int] = []
    done: list[_Run] = []
    # Sentences that a figure or the foot of the page interrupts.
    suspended: list[_Run] = []
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
                and _ends_sentence(here[place].text, following)
                and not (starts_with_number and _ENUMERATOR.match(here[place].text))
            ):
                done.append(_Run(tuple(run), _kind_of(words, run)))
                run = []
        below = [words[index] for index in lines[number + 1]] if number + 1 < len(lines) else []
        if not run:
            continue
        in_list = _starts_item([words[index] for index in run[:2]])
        if not below or _breaks_between(here, below, len(run), words[run[0]], in_list):
            heading = bool(below) and not in_list and _is_heading([words[i] for i in run], below)
            kind = "heading" if heading else _kind_of(words, run)
            done.append(_Run(tuple(run), kind))
            if kind != "heading" and len(run) > 5 and not _FINAL.search(here[-1].text):
                suspended.append(done[-1])
            run = []
    return done


def _prose(text: _Text, runs: Sequence[_Run], segments: Sequence[Segment]) -> set[int]:
    """The words of sentences that run over several lines, none of which has a wide gap."""
    segment_of = {word: place for place, segment in enumerate(segments) for word in segment.words}
    prose: set[int] = set()
    for run in runs:
        texts = [text.words[word].text for word in run.words]
        starts = [
            t for _, t in {text.words[w].line: text.words[w].text for w in run.words[::-1]}.items()
        ]
        pieces = len({segment_of[word] for word in run.words})
        # The labels of a table's rows may look like a sentence, but each begins anew.
        goes_on = _FINAL.search(texts[-1]) or sum(t[0].islower() for t in starts) > len(starts) / 2
        if run.kind in ("sentence", "item") and pieces == len(starts) > 1 and goes_on:
            prose.update(run.words)
    return prose


def _kind_of(words: Sequence[Word], run: Sequence[int]) -> Literal["sentence", "row", "item"]:
    first = words[run[0]].text
    if len(run) > 1 and (_is_bullet(first) or _ENUMERATOR.match(first)):
        return "item"
    here = [words[index] for index in run]
    return "row" if _is_row(here) and here[0].line == here[-1].line else "sentence"


def _is_bullet(text: str) -> bool:
    return bool(_BULLET.match(text))


def _goes_on(words: Sequence[Word], run: _Run, line: Sequence[Word]) -> bool:
    """Whether a line can go on with an interrupted run: as large, below it or in a next column."""
    last = [words[i] for i in run.words if words[i].line == words[run.words[-1]].line]
    left, top = last[0].box[0], last[0].box[1]
    below = abs(left - line[0].box[0]) < 0.01
    beside = line[0].box[0] > last[-1].box[2] and line[0].box[1] < top
    return (below or beside) and 0.9 < _size(line) / max(_size(last), 1e-6) < 1.1


def _continues(line: Sequence[Word]) -> bool:
    """Whether a line cannot be the beginning of a sentence."""
    first, second = line[0].text, line[1].text if len(line) > 1 else ""
    return len(line) > 1 and (first[:1].islower() or (first.isdigit() and second[:1].islower()))


def _ends_sentence(text: str, following: str) -> bool:
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
        in_list or _is_bullet(below[0].text) or bool(_FINAL.search(here[-1].text))
    )
    if in_list and below[0].text[:1].isupper() and below[0].box[0] < first.box[0] + 0.005:
        # What follows an item without its indent is no part of it.
        return True
    if here[-1].text.endswith(":") and length < LONGEST_PASSAGE and not new_item:
        return False
    if _ends_sentence(here[-1].text, below[0].text) or length >= LONGEST_PASSAGE:
        return True
    if new_item or _is_row(here) or _is_row(below):
        return True
    if _is_heading(here, below, alone=length == len(here)):
        return True
    _, top, _, bottom = _around([word.box for word in here])
    _, next_top, _, next_bottom = _around([word.box for word in below])
    size_changes = not 0.8 < _size(below) / max(_size(here), 1e-6) < 1.25
    far_below = next_top - bottom > 1.2 * (bottom - top)
    next_column = next_bottom < top and not below[0].text[:1].islower()
    return size_changes or far_below or next_column


def _starts_item(line: Sequence[Word]) -> bool:
    return len(line) > 1 and bool(_is_bullet(line[0].text) or _ENUMERATOR.match(line[0].text))


def _is_heading(words: Sequence[Word], below: Sequence[Word], *, alone: bool = True) -> bool:
    """Whether words are a heading: short, above a line that begins anew and is longer or smaller.

    ``alone`` says that nothing stands before them in their passage.
    """
    last = words[-1].text
    if len(words) > LONGEST_HEADING or last.endswith((",", ";", "-", ".")) or last in _LINKING:
        return False
    if below[0].text[:1].islower() or not any(c.isalpha() for w in words for c in w.text):
        return False
    if _is_row(words):
        return False
    line = [word for word in words if word.line == words[-1].line]
    if alone and _size(line) > 1.12 * _size(below):
        return True
    # A line of prose fills its column unless the sentence ends there.
    here, there = (part[-1].box[2] - part[0].box[0] for part in (line, below))
    return here < (0.75 if alone else 0.5) * there and len(words) <= 6


def _size(words: Sequence[Word]) -> float:
    """The height of the letters of a line; boxes hold the ink alone, so like is compared."""
    alike = [w.box[3] - w.box[1] for w in words if _TALL.match(w.text)]
    # A letter that reaches down adds about a third.
    return max(alike) if alike else max(w.box[3] - w.box[1] for w in words) / 1.3


def _is_row(words: Sequence[Word]) -> bool:
    """Whether a line is a table's row: numbers at its end, or wide gaps between its words."""
    if len(words) < 2:
        return False
    trailing = sum(bool(_NUMBER.match(word.text)) for word in words[-2:])
    height = max(word.box[3] - word.box[1] for word in words)
    gaps = [after.box[0] - before.box[2] for before, after in pairwise(words)]
    return trailing == 2 or max(gaps) > 2.5 * height


def _headings_above(runs: Sequence[_Run]) -> list[tuple[int, ...]]:
    """For each run: the words of the heading it stands under."""
    result: list[tuple[int, ...]] = []
    heading: tuple[int, ...] = ()
    for before, run in pairwise([None, *runs]):
        assert run is not None  # noqa: S101 - only the first of all is
        if run.kind == "heading":
            # Headings one below the other count together.
            heading = heading if before is not None and before.kind == "heading" else ()
            result.append(heading)
            heading = (heading + run.words)[-2 * LONGEST_HEADING :]
        else:
            result.append(heading)
    return result


def _lists(text: _Text, runs: Sequence[_Run]) -> Iterator[Span]:
    """Each item of a list with what announces it, and whole lists that are short."""
    lead: tuple[int, ...] = ()
    items: list[tuple[int, ...]] = []
    for run in [*runs, None]:
        if run is not None and run.kind == "item":
            items.append(run.words)
            continue
        if lead and items:
            yield from (_span(text, [lead, item], "list", lead=len(lead)) for item in items)
            if len(items) > 1 and len(lead) + sum(map(len, items)) <= LONGEST_PASSAGE:
                yield _span(text, [lead, *items], "list")
        items = []
        if run is not None:
            announces = run.kind == "heading" or text.words[run.words[-1]].text.endswith(":")
            lead = run.words if announces and len(run.words) <= LONGEST_PASSAGE // 2 else ()


def _below_headings(text: _Text, runs: Sequence[_Run]) -> Iterator[Span]:
    """Headings with what stands below them: two sentences, or all of a short slide."""
    slide = len(text.words) <= LONGEST_SLIDE
    for place, run in enumerate(runs):
        if run.kind != "heading":
            continue
        below: list[tuple[int, ...]] = []
        for following in runs[place + 1 :]:
            length = len(run.words) + sum(map(len, below)) + len(following.words)
            if (
                following.kind == "heading"
                or length > LONGEST_PASSAGE * 2 // 3
                or (not slide and (len(below) == 2 or following.kind == "row"))
            ):
                break
            below.append(following.words)
        if below:
            yield _span(text, [run.words, *below], "block")


def _captions(text: _Text, runs: Sequence[_Run]) -> Iterator[Span]:
    """Captions as a whole, with the labels of a figure that stands beside them in reading order."""
    for place, run in enumerate(runs):
        first = text.words[run.words[0]].text
        if len(run.words) < 2 or not _CAPTION.match(first) or run.kind == "row":
            continue
        whole = list(run.words)
        for following in runs[place + 1 : place + 4]:
            if following.kind != "sentence" or len(whole) + len(following.words) > LONGEST_PASSAGE:
                break
            whole += following.words
        if len(whole) > len(run.words):
            yield _span(text, [tuple(whole)], "caption")
        labels: list[tuple[int, ...]] = []
        for before in reversed(runs[:place]):
            last = text.words[before.words[-1]].text
            if len(before.words) > 8 or _SENTENCE_END.search(last):
                break
            labels.insert(0, before.words)
        if labels and len(run.words) + sum(map(len, labels)) <= LONGEST_PASSAGE:
            yield _span(text, [run.words, *labels], "caption")


def _span(
    source: _Text,
    parts: Iterable[Sequence[int]],
    kind: Kind,
    context: tuple[int, ...] = (),
    lead: int = 0,
) -> Span:
    """Make a passage of parts that stand apart on the page: a bar parts them in the text."""
    given = [tuple(part) for part in parts if part]
    texts = [
        join_words([source.words[index] for index in part], source.compounds) for part in given
    ]
    text = texts[0] if texts else ""
    for following in texts[1:]:
        text += (" " if text.endswith((":", ".", ";")) else " | ") + following
    return Span(tuple(index for part in given for index in part), text, kind, context, lead)


def _distinct(found: Iterable[Span]) -> list[Span]:
    """Without passages of the same words as an earlier one."""
    return list({frozenset(span.words): span for span in reversed(list(found))}.values())[::-1]


def _line_of(word: Word) -> int:
    return word.line


def _around(boxes: Sequence[Box]) -> Box:
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)
