"""A page's words as passages: sentences, table rows, lists, captions, headings, values.

Sentences and rows as the lines run hold every word once. What stands together on the page without
standing in one line is added to them: a row with the heads of its columns, a list item with what
announces it, a heading with what stands below it, a large number with its small label, a caption
with its figure. Passages may therefore share words.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, TypeAlias

from visar.documents.page import Box, Page, Word
from visar.retrieval.tables import Segment, column_blocks, find_segments, table_rows

Kind: TypeAlias = Literal["sentence", "heading", "row", "list", "block", "caption"]

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
_CAPTION = re.compile(r"^(?:fig(?:ure|\.)?|table|chart|exhibit|box|abb(?:\.|ildung)|tab(?:elle|\.)"
                      r"|tableau|figura|tabla)$", re.IGNORECASE)  # fmt: skip
_NUMBER = re.compile(r"^[(\-–−+$€£¥]*\d[\d,.]*[)%]*$")
_CLOSING = re.compile(r"^[.,;:!?)\]”’»…]+$")
_LINKING = frozenset("a an and at by for from in of on or that the to with".split())
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


@dataclass(frozen=True, slots=True)
class _Run:
    """Words that follow each other in reading order, up to the end of a sentence or a break."""

    words: tuple[int, ...]
    kind: Literal["sentence", "heading", "row", "item"]


def spans(page: Page) -> list[Span]:
    """Return the passages of a page; every word is in at least one, in reading order first."""
    runs = list(_runs(page))
    headings = _headings_above(runs)
    found = [
        _span(page, [run.words], "list" if run.kind == "item" else run.kind, heading)
        for run, heading in zip(runs, headings, strict=True)
    ]
    found += _lists(page, runs)
    found += _below_headings(page, runs)
    found += _captions(page, runs)
    segments = find_segments(page, page.lines())
    prose = _prose(page, runs, segments)
    above = {word: words for run, words in zip(runs, headings, strict=True) for word in run.words}
    rows = list(table_rows([s for s in segments if prose.isdisjoint(s.words)]))
    headed = {frozenset(row.words) for row in rows if row.heads}
    found = [span for span in found if frozenset(span.words) not in headed]
    for row in rows:
        found.append(_span(page, [row.heads, row.words], "row", above[row.words[0]]))
    for block in column_blocks([s for s in segments if prose.isdisjoint(s.words)]):
        found.append(_span(page, [block], "block", above[block[0]]))
    return _distinct(found)


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
        elif _follows_closely(before.text, word.text):
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


def _runs(page: Page) -> Iterator[_Run]:
    """Cut the lines of a page into sentences, rows, items and headings; a partition of its words."""
    lines = page.lines()
    words = page.words
    run: list[int] = []
    done: list[_Run] = []
    # Sentences that a figure or the foot of the page interrupts.
    suspended: list[_Run] = []
    for number, line in enumerate(lines):
        here = [words[index] for index in line]
        if not run and len(here) > 1 and here[0].text[:1].islower():
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
        if not below or _breaks_between(here, below, len(run)):
            heading = bool(below) and _is_heading([words[i] for i in run], below)
            kind = "heading" if heading else _kind_of(words, run)
            done.append(_Run(tuple(run), kind))
            if kind != "heading" and len(run) > 5 and not _FINAL.search(here[-1].text):
                suspended.append(done[-1])
            run = []
    yield from done


def _prose(page: Page, runs: Sequence[_Run], segments: Sequence[Segment]) -> set[int]:
    """The words of sentences that run over several lines, none of which has a wide gap."""
    segment_of = {word: place for place, segment in enumerate(segments) for word in segment.words}
    prose: set[int] = set()
    for run in runs:
        texts = [page.words[word].text for word in run.words]
        starts = [t for _, t in {page.words[w].line: page.words[w].text for w in run.words[::-1]}.items()]
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
    """Whether a line can go on with an interrupted run: as large, and at the same left edge."""
    last = [words[i] for i in run.words if words[i].line == words[run.words[-1]].line]
    here, there = (max(w.box[3] - w.box[1] for w in part) for part in (last, line))
    aligned = abs(last[0].box[0] - line[0].box[0]) < 0.01
    # Boxes hold the ink alone: a line of small letters is lower than one of capitals.
    return aligned and 0.7 < there / max(here, 1e-6) < 1.4


def _ends_sentence(text: str, following: str) -> bool:
    return (
        bool(_SENTENCE_END.search(text))
        and not _ABBREVIATION.match(text)
        and not following[:1].islower()
        and not _CLOSING.match(following)
    )


def _breaks_between(here: Sequence[Word], below: Sequence[Word], length: int) -> bool:
    """Whether a passage of this length ends between two lines."""
    if here[-1].text.endswith(":") and length < LONGEST_PASSAGE and not _starts_item(below):
        return False
    if _ends_sentence(here[-1].text, below[0].text) or length >= LONGEST_PASSAGE:
        return True
    if _starts_item(below) or _is_row(here) or _is_row(below):
        return True
    if _is_heading(here, below, alone=length == len(here)):
        return True
    _, top, _, bottom = _around([word.box for word in here])
    _, next_top, _, next_bottom = _around([word.box for word in below])
    # Boxes hold the ink alone: a line of small letters is lower than one of capitals.
    size_changes = not 0.6 < (next_bottom - next_top) / max(bottom - top, 1e-6) < 1.6
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
    line = [word for word in words if word.line == words[-1].line]
    here, there = (part[-1].box[2] - part[0].box[0] for part in (line, below))
    heights = [max(word.box[3] - word.box[1] for word in part) for part in (words, below)]
    if alone and heights[0] > 1.15 * heights[1]:
        return True
    # A line of prose fills its column unless the sentence ends there.
    return here < (0.75 if alone else 0.5) * there and len(words) <= 6


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


def _lists(page: Page, runs: Sequence[_Run]) -> Iterator[Span]:
    """Each item of a list with what announces it, and whole lists that are short."""
    lead: tuple[int, ...] = ()
    items: list[tuple[int, ...]] = []
    for run in [*runs, None]:
        if run is not None and run.kind == "item":
            items.append(run.words)
            continue
        if lead and items:
            yield from (_span(page, [lead, item], "list") for item in items)
            if len(items) > 1 and len(lead) + sum(map(len, items)) <= LONGEST_PASSAGE:
                yield _span(page, [lead, *items], "list")
        items = []
        if run is not None:
            announces = run.kind == "heading" or page.words[run.words[-1]].text.endswith(":")
            lead = run.words if announces and len(run.words) <= LONGEST_PASSAGE // 2 else ()


def _below_headings(page: Page, runs: Sequence[_Run]) -> Iterator[Span]:
    """Headings with what stands below them, as far as it is short."""
    for place, run in enumerate(runs):
        if run.kind != "heading":
            continue
        below: list[tuple[int, ...]] = []
        for following in runs[place + 1 :]:
            if below and following.kind == "heading":
                break
            if len(run.words) + sum(map(len, below)) + len(following.words) > LONGEST_PASSAGE * 2 // 3:
                break
            below.append(following.words)
        if below:
            yield _span(page, [run.words, *below], "block")


def _captions(page: Page, runs: Sequence[_Run]) -> Iterator[Span]:
    """Captions as a whole, with the labels of a figure that stands beside them in reading order."""
    for place, run in enumerate(runs):
        first = page.words[run.words[0]].text
        if len(run.words) < 2 or not _CAPTION.match(first) or run.kind == "row":
            continue
        whole = list(run.words)
        for following in runs[place + 1 : place + 4]:
            if following.kind != "sentence" or len(whole) + len(following.words) > LONGEST_PASSAGE:
                break
            whole += following.words
        if len(whole) > len(run.words):
            yield _span(page, [tuple(whole)], "caption")
        labels: list[tuple[int, ...]] = []
        for before in reversed(runs[:place]):
            text = page.words[before.words[-1]].text
            if len(before.words) > 8 or _SENTENCE_END.search(text):
                break
            labels.insert(0, before.words)
        if labels and len(run.words) + sum(map(len, labels)) <= LONGEST_PASSAGE:
            yield _span(page, [run.words, *labels], "caption")


def _span(
    page: Page,
    parts: Iterable[Sequence[int]],
    kind: Kind,
    context: tuple[int, ...] = (),
) -> Span:
    """Make a passage of parts that stand apart on the page: a bar parts them in the text."""
    given = [tuple(part) for part in parts if part]
    compounds = _compounds(page)
    texts = [join_words([page.words[index] for index in part], compounds) for part in given]
    text = texts[0] if texts else ""
    for following in texts[1:]:
        text += (" " if text.endswith((":", ".", ";")) else " | ") + following
    return Span(tuple(index for part in given for index in part), text, kind, context)


@functools.lru_cache(maxsize=8)
def _compounds(page: Page) -> frozenset[str]:
    """The words of a page that are written with a hyphen within a line."""
    texts = (word.text.lower().strip(".,;:()“”\"'") for word in page.words)
    return frozenset(text for text in texts if "-" in text[1:-1])


def _distinct(found: Iterable[Span]) -> list[Span]:
    """Without passages of the same words as an earlier one."""
    return list({frozenset(span.words): span for span in reversed(list(found))}.values())[::-1]


def _line_of(word: Word) -> int:
    return word.line


def _around(boxes: Sequence[Box]) -> Box:
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


__all__ = ["LONGEST_PASSAGE", "Segment", "Span", "boxes_of", "join_words", "spans"]
