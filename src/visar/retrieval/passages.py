"""A page's words as passages: sentences, table rows, lists, captions, headings, values.

Sentences and rows as the lines run hold every word once. What stands together on the page without
standing in one line is added to them: a row with the heads of its columns, a list item with what
announces it, a heading with what stands below it, a large number with its small label, a caption
with its figure, a table or chart as a whole behind its title. Passages may therefore share words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, TypeAlias

from visar.documents.page import Box, Page, Word
from visar.retrieval.sentences import (
    LONGEST_HEADING,
    LONGEST_PASSAGE,
    Run,
    around,
    ends_sentence,
    find_runs,
    is_final,
    join_words,
)
from visar.retrieval.tables import (
    Segment,
    column_blocks,
    figures,
    find_segments,
    table_rows,
    wrapped_rows,
)

Kind: TypeAlias = Literal["sentence", "heading", "row", "list", "block", "caption", "table"]
# A page of no more words than this is a slide: what stands on it belongs together.
LONGEST_SLIDE = 120
# A table, a chart or a part of one, with its title, has at most this many words.
LONGEST_TABLE = 80
# Running heads and page numbers stand within this share of the page's height from its edge.
EDGE = 0.08
_NOTES = frozenset({"note", "notes", "source", "sources", "quelle", "quellen"})
_CAPTION = re.compile(r"^(?:fig(?:ure|\.)?|table|chart|exhibit|box|abb(?:\.|ildung)|tab(?:elle|\.)"
                      r"|tableau|figura|tabla)$", re.IGNORECASE)  # fmt: skip


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
    start: int = 0
    """Where in the text the words after these begin."""


@dataclass(frozen=True, slots=True)
class _Text:
    """The words of a page, and those of them that are written with a hyphen within a line."""

    words: Sequence[Word]
    compounds: frozenset[str]
    prose: Mapping[int, Segment]
    """The segment of each word that stands in one which reads as a line of text."""

    @classmethod
    def of(cls, page: Page, segments: Sequence[Segment]) -> _Text:
        texts = (word.text.lower().strip(".,;:()“”\"'") for word in page.words)
        compounds = frozenset(text for text in texts if "-" in text[1:-1])
        lines = {word: segment for segment in segments if segment.is_text for word in segment.words}
        return cls(page.words, compounds, lines)

    def side_by_side(self, words: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Part words where two lines of text meet that stand beside each other."""
        start = 0
        for place, (before, word) in enumerate(pairwise(words), 1):
            here, there = self.prose.get(before), self.prose.get(word)
            if here and there and there.top < here.middle < there.bottom and here is not there:
                yield tuple(words[start:place])
                start = place
        yield tuple(words[start:])


def spans(page: Page) -> list[Span]:
    """Return the passages of a page; every word is in at least one, in reading order first."""
    lines = page.lines()
    segments = find_segments(page, lines)
    text = _Text.of(page, segments)
    runs = list(_without_gaps(text, find_runs(page.words, lines), segments))
    headings = _headings_above(runs)
    found = [
        _span(text, [run.words], "list" if run.kind == "item" else run.kind, heading)
        for run, heading in zip(runs, headings, strict=True)
    ]
    if _is_keywords(text, runs):
        found.append(_span(text, [run.words for run in runs], "block"))
    elif page.width > page.height and len(runs) > 1 and len(page.words) <= LONGEST_TABLE:
        found.append(_span(text, [run.words for run in runs], "table"))
    found += _lists(text, runs)
    found += _below_headings(text, runs)
    found += _captions(text, runs)
    prose = _prose(text, runs, segments)
    above = {word: words for run, words in zip(runs, headings, strict=True) for word in run.words}
    apart = [segment for segment in segments if prose.isdisjoint(segment.words)]
    run_of = {word: place for place, run in enumerate(runs) for word in run.words}
    long = {w for run in runs if len(run.words) > LONGEST_HEADING for w in run.words}
    written = [segment for segment in segments if not prose.isdisjoint(segment.words)]
    for table in figures(_within_edges(page, apart), written):
        inside = [word for line in table for segment in line for word in segment.words]
        # Its title may be long.
        below = [word for word in inside if run_of[word] != run_of[inside[0]]]
        if sum(word in long for word in below) > len(below) / 3:
            continue
        title = _title(text, runs, table, upright=page.width <= page.height)
        found += _table(text, title, table, runs, run_of)
        above.update({word: title + above[word] for word in inside})
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
            inner = [run for run in find_runs(page.words, block) if run.kind != "heading"]
            found += [_span(text, [run.words], "block", above[run.words[0]]) for run in inner]
    return _distinct(found)


def boxes_of(page: Page, span: Span) -> tuple[Box, ...]:
    """Return one box per line that the passage touches."""
    touched = [page.words[index] for index in span.words]
    return tuple(around([word.box for word in line]) for _, line in groupby(touched, _line_of))


def _is_keywords(text: _Text, runs: Sequence[Run]) -> bool:
    """Whether a page is a slide of a few words, neither sentences nor a table."""
    ends = [text.words[run.words[-1]].text for run in runs]
    return (
        len(text.words) <= LONGEST_PASSAGE * 2 // 3
        and not any(ends_sentence(end) for end in ends)
        and not any(run.kind == "row" for run in runs)
    )


def _is_labels(span: Span, row_of: Mapping[int, int]) -> bool:
    """Whether it is parts of several rows of a table, given the row of each word."""
    rows = {row_of.get(word) for word in span.words}
    return span.kind in ("sentence", "heading") and None not in rows and len(rows) > 1


def _without_gaps(text: _Text, runs: Iterable[Run], segments: Sequence[Segment]) -> Iterator[Run]:
    """Cut runs of several lines, one of which has a wide gap: parts that stand side by side."""
    segment_of = {word: place for place, segment in enumerate(segments) for word in segment.words}
    for run in runs:
        lines = len({text.words[word].line for word in run.words})
        parts = [tuple(part) for _, part in groupby(run.words, segment_of.__getitem__)]
        if 1 < lines < len(parts):
            yield from (Run(part, "sentence") for part in parts)
        else:
            yield run


def _prose(text: _Text, runs: Sequence[Run], segments: Sequence[Segment]) -> set[int]:
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
        goes_on = is_final(texts[-1]) or sum(t[0].islower() for t in starts) > len(starts) / 2
        if run.kind in ("sentence", "item") and pieces == len(starts) > 1 and goes_on:
            prose.update(run.words)
    return prose


def _headings_above(runs: Sequence[Run]) -> list[tuple[int, ...]]:
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


def _lists(text: _Text, runs: Sequence[Run]) -> Iterator[Span]:
    """Each item of a list with what announces it, and whole lists that are short."""
    lead: tuple[int, ...] = ()
    items: list[tuple[int, ...]] = []
    for run in [*runs, None]:
        if run is not None and run.kind == "item":
            if not lead or _stands_under(text, run.words, lead):
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


def _stands_under(text: _Text, item: Sequence[int], lead: Sequence[int]) -> bool:
    """Whether an item begins below its lead-in, not in another column beside it."""
    left, top, right, _ = around([text.words[word].box for word in lead])
    first = text.words[item[0]].box
    return first[1] > top and first[0] < right and text.words[item[-1]].box[2] > left


def _below_headings(text: _Text, runs: Sequence[Run]) -> Iterator[Span]:
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
                or not _stands_under(text, following.words, run.words)
                or length > LONGEST_PASSAGE * 2 // 3
                or (not slide and (len(below) == 2 or following.kind == "row"))
            ):
                break
            below.append(following.words)
        if below:
            yield _span(text, [run.words, *below], "block")


def _captions(text: _Text, runs: Sequence[Run]) -> Iterator[Span]:
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
            if len(before.words) > 8 or ends_sentence(last):
                break
            labels.insert(0, before.words)
        if labels and len(run.words) + sum(map(len, labels)) <= LONGEST_PASSAGE:
            yield _span(text, [run.words, *labels], "caption")


def _within_edges(page: Page, segments: Sequence[Segment]) -> list[Segment]:
    """Without what stands at the top and bottom of an upright page: its number, running heads."""
    if page.width > page.height:
        return list(segments)
    top, bottom = EDGE * page.height, (1 - EDGE) * page.height
    return [segment for segment in segments if segment.bottom > top and segment.top < bottom]


def _title(
    text: _Text, runs: Sequence[Run], table: Sequence[Sequence[Segment]], *, upright: bool
) -> tuple[int, ...]:
    """The words of the run close above a table; none if they are many, or end as a sentence."""
    own = {word for line in table for segment in line for word in segment.words}
    left, top, right, _ = around([text.words[word].box for word in own])
    first = [text.words[word].box for segment in table[0] for word in segment.words]
    height = max(box[3] - box[1] for box in first)
    nearest: tuple[int, ...] = ()
    best = 3 * height
    for run in runs:
        if (
            len(run.words) > LONGEST_PASSAGE // 2
            or run.kind == "row"
            or text.words[run.words[-1]].text.endswith(".")
            or not own.isdisjoint(run.words)
            or not any(c.isalpha() for word in run.words for c in text.words[word].text)
        ):
            continue
        box = around([text.words[word].box for word in run.words])
        if box[3] < EDGE and upright:
            # A running head.
            continue
        if box[0] < right and left < box[2] and -height / 2 < top - box[3] < best:
            nearest, best = run.words, top - box[3]
    return nearest


def _table(
    text: _Text,
    title: tuple[int, ...],
    table: Sequence[Sequence[Segment]],
    runs: Sequence[Run],
    run_of: Mapping[int, int],
) -> Iterator[Span]:
    """A table or chart as a whole behind its title; a long one in parts behind title and heads."""
    lines: list[tuple[int, ...]] = []
    is_head: list[bool] = []
    for line in table:
        words = tuple(word for segment in line for word in segment.words)
        head = not any(segment.is_value and not segment.is_year for segment in line)
        if not all(is_head) and _is_note(text, runs[run_of[words[0]]]):
            continue
        if lines and run_of[lines[-1][-1]] == run_of[words[0]]:
            # A sentence within it, or a title of several lines.
            lines[-1] += words
        else:
            lines.append(words)
            is_head.append(head)
    if len(title) + sum(map(len, lines)) <= LONGEST_TABLE:
        yield _span(text, [title, *lines], "table", lead=len(title))
        return
    first = next((place for place, head in enumerate(is_head) if not head), len(lines))
    lead = [title, *lines[: min(first, 3)]]
    rest = lines[len(lead) - 1 :]
    while sum(map(len, lead)) > LONGEST_TABLE // 2:
        lead = lead[1:]
    count = sum(map(len, lead))
    part: list[tuple[int, ...]] = []
    for words in rest:
        if part and count + sum(map(len, part)) + len(words) > LONGEST_TABLE:
            yield _span(text, [*lead, *part], "table", lead=count)
            part = []
        part.append(words)
    if part:
        yield _span(text, [*lead, *part], "table", lead=count)


def _is_note(text: _Text, run: Run) -> bool:
    """Whether a run below a table's values says where they are from, or is prose."""
    starts = text.words[run.words[0]].text.rstrip(":").lower()
    return len(run.words) > LONGEST_HEADING or starts in _NOTES


def _span(
    source: _Text,
    parts: Iterable[Sequence[int]],
    kind: Kind,
    context: tuple[int, ...] = (),
    lead: int = 0,
) -> Span:
    """Make a passage of parts that stand apart on the page: a bar parts them in the text."""
    text = ""
    start = 0
    words: tuple[int, ...] = ()
    for part in filter(None, parts):
        if words:
            text += " " if text.endswith((":", ".", ";")) else " | "
        if len(words) == lead:
            start = len(text)
        text += " | ".join(
            join_words([source.words[index] for index in piece], source.compounds)
            for piece in source.side_by_side(part)
        )
        words += tuple(part)
    return Span(words, text, kind, context, lead, start)


def _distinct(found: Iterable[Span]) -> list[Span]:
    """Without passages of the same words as an earlier one."""
    return list({frozenset(span.words): span for span in reversed(list(found))}.values())[::-1]


def _line_of(word: Word) -> int:
    return word.line
