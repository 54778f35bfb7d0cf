"""Ranking of passages by how well they answer a question.

The score of a passage is the sum of two standardized features: coverage, the share of the
question's words in it with more weight for rare words, and closeness, the similarity of its
vectors to those of the question. If a reader is installed, it then reorders the best passages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Cell, Page
from visar.quotes.languages import Vocabulary, detect_language
from visar.quotes.passages import Passage, find_passages
from visar.quotes.reader import Reader, relevance
from visar.results import Passage as Quote
from visar.results import QuotedCell
from visar.trace import PageId

MAX_QUOTES = 3
# Number of pages that the language is detected from.
_LANGUAGE_PAGES = 3
_ENGLISH = Vocabulary("english")
# Number of passages that a reader orders, in addition to the best two of each page.
_MAX_READ = 40
_READ_PER_PAGE = 2
# Weight of the score relative to the relevance from a reader.
_SCORE_WEIGHT = 0.5
# Minimum share of the question's words in the labels of a marked cell.
_MIN_LABELED = 0.75
# Maximum overlap of two quotes, as a share of the shorter one.
_MAX_OVERLAP = 0.5

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

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPage:
    """A page with the similarity of its vectors to the question."""

    document: str
    page: Page
    vector_words: NDArray[np.int32]
    """Index of each vector's word; -1 if it has none."""
    vector_boxes: NDArray[np.float32]
    """(n, 4) positions of the vectors; all zero if they have none."""
    similarities: NDArray[np.float32]
    """(m, n) cosines of the question's vectors with those of the page."""
    query_weights: Floats
    """(m,) weights ŵ_i of the question's vectors."""

    def word_similarities(self) -> NDArray[np.float32]:
        """Return the best cosine of each word's vectors, or of the patches over it: (m, words)."""
        result = np.zeros((len(self.similarities), len(self.page.words)), np.float32)
        words, vectors = self._pairs()
        if len(words):
            order = np.argsort(words, kind="stable")
            named, starts = np.unique(words[order], return_index=True)
            best = np.maximum.reduceat(self.similarities[:, vectors[order]], starts, axis=1)
            result[:, named] = best
        return result

    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return pairs of words and their vectors, as two arrays of indices."""
        placed = np.flatnonzero(self.vector_words >= 0)
        if len(placed) or not self.vector_boxes.any() or not self.page.words:
            return self.vector_words[placed].astype(np.int64), placed
        boxes = np.array([word.box for word in self.page.words])
        across, down = boxes[:, [0, 2]].mean(axis=1), boxes[:, [1, 3]].mean(axis=1)
        left, top, right, bottom = (edge[:, None] for edge in self.vector_boxes.T)
        over = (left <= across) & (across < right) & (top <= down) & (down < bottom)
        vectors, words = np.nonzero(over)
        return words, vectors


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPassage:
    """A passage with its scores."""

    page: int
    """Position of its page in the list of pages."""
    passage: Passage
    coverage: float
    """Share of the question's stems in the passage, weighted by rarity."""
    closeness: float
    """Late interaction of the question with the passage."""
    score: float
    """Sum of both features, standardized over all passages."""
    relevance: float | None = None
    """Relevance from the reader; None if it didn't read the passage."""


class Question:
    """A question with its stems in the pages' language, and their rarity among the passages."""

    def __init__(self, text: str, vocabulary: Vocabulary = _ENGLISH) -> None:
        self.text = text
        self.vocabulary = vocabulary
        self.page = find_page_number(text)
        """Page number in the question, or None."""
        self.stems = tuple(dict.fromkeys(found for _, found in vocabulary.stems(text)))
        self._rarity = dict.fromkeys(self.stems, 1.0)

    @property
    def is_about_document(self) -> bool:
        """Whether the question is about the document as a whole: its title, author or summary."""
        return bool(self.text) and _DOCUMENT_STEMS.issuperset(self.stems)

    def stems_of(self, text: str) -> set[str]:
        return {found for _, found in self.vocabulary.stems(text)}

    def measure_rarity(self, passages: Sequence[frozenset[str]]) -> None:
        """Set the rarity of each stem from the stems of all passages."""
        found = Counter(stem for passage in passages for stem in self.stems if stem in passage)
        for stem in self.stems:
            self._rarity[stem] = math.log((len(passages) + 1) / (found[stem] + 0.5))

    def coverage(self, stems: frozenset[str]) -> float:
        """Return the share of the question's stems in a passage, weighted by rarity."""
        total = sum(self._rarity.values()) or 1.0
        return sum(rarity for stem, rarity in self._rarity.items() if stem in stems) / total


_DOCUMENT_WORDS = """
    report document paper article study guide guidebook book booklet manual brochure presentation
    slide slides deck thesis handbook publication brief leaflet file pdf text
    summarize summarise summary overview outline main topic subject point points idea title titled
    called name author authors wrote write written publish published publisher release released
    issue issued date year cover front first page
"""
_DOCUMENT_STEMS = frozenset(found for _, found in _ENGLISH.stems(_DOCUMENT_WORDS))


@dataclass(frozen=True, eq=False)
class Quotes:
    """Ranked passages of pages."""

    pages: Sequence[WeightedPage]
    ranked: Sequence[ScoredPassage]
    """All passages, best first."""
    question: Question

    @cached_property
    def page_ids(self) -> dict[PageId, int]:
        return {
            (one.document, one.page.number): position for position, one in enumerate(self.pages)
        }

    def page(self, page_id: PageId) -> WeightedPage:
        return self.pages[self.page_ids[page_id]]

    def best(self, page_id: PageId) -> Quote | None:
        """Return the best passage of a page, or None if it has none."""
        position = self.page_ids[page_id]
        found = next((one for one in self.ranked if one.page == position), None)
        return None if found is None else self._quote(found)

    def page_relevance(self) -> dict[PageId, float]:
        """Return the relevance of the best passage that the reader read on each page.

        Headings don't count: they name a topic but don't answer questions.
        """
        best: dict[int, float] = {}
        for one in self.ranked:
            if one.relevance is not None and one.passage.block.kind != "heading":
                best[one.page] = max(one.relevance, best.get(one.page, one.relevance))
        return {
            page_id: best[position]
            for page_id, position in self.page_ids.items()
            if position in best
        }

    def quotes(self, page_ids: Iterable[PageId], most: int = MAX_QUOTES) -> tuple[Quote, ...]:
        """Return the best passages of pages, without repetitions."""
        pages = {self.page_ids[page_id] for page_id in page_ids if page_id in self.page_ids}
        taken: list[ScoredPassage] = []
        for candidate in self.ranked:
            if len(taken) == most:
                break
            if candidate.page in pages and not any(_repeats(candidate, one) for one in taken):
                taken.append(candidate)
        return tuple(map(self._quote, taken))

    def _quote(self, candidate: ScoredPassage) -> Quote:
        weighted, passage = self.pages[candidate.page], candidate.passage
        marked = _answer_cell(passage, self.question) if passage.rows else None
        rows = {row: position for position, row in enumerate(passage.rows)}
        title = f"{passage.context_text}\n" if passage.rows and passage.context else ""
        return Quote(
            text=title + passage.text,
            document=weighted.document,
            page=weighted.page.number,
            weight=candidate.score if candidate.relevance is None else candidate.relevance,
            boxes=passage.boxes,
            cells=tuple(
                QuotedCell(
                    text=passage.cell_text(cell),
                    row=rows[cell.row],
                    column=cell.column,
                    span=cell.span,
                    header=cell.row < passage.block.header_rows,
                    answer=cell is marked,
                    box=passage.box(cell.words),
                )
                for cell in passage.cells
                if passage.rows
            ),
        )


def find_quotes(text: str, pages: Sequence[WeightedPage], reader: Reader | None = None) -> Quotes:
    """Rank the passages of pages by how well they answer a question.

    The pages have blocks. A reader reorders the best passages.
    """
    words = (word.text for weighted in pages[:_LANGUAGE_PAGES] for word in weighted.page.words)
    question = Question(text, Vocabulary(detect_language(words)))
    ranked = sorted(score_passages(question, pages), key=lambda one: -one.score)
    if reader is not None and ranked and not question.is_about_document:
        ranked = _read(reader, question, ranked)
    # Passages on the page that the question names come first.
    ranked.sort(key=lambda one: not _is_on_page(question, one.passage))
    return Quotes(pages, ranked, question)


def score_passages(question: Question, pages: Sequence[WeightedPage]) -> list[ScoredPassage]:
    """Return the passages of pages that add something to the question, with their scores."""
    found: list[tuple[int, Passage, frozenset[str]]] = []
    closeness: list[float] = []
    seen: list[frozenset[str]] = []
    for position, weighted in enumerate(pages):
        words = weighted.page.words
        page_stems = [frozenset(question.vocabulary.word_stems(word.text)) for word in words]
        margins = [block for block in weighted.page.blocks or () if block.kind == "margin"]
        # The running head applies to every passage of its page, so its words are not rare there.
        common = _union(page_stems, (index for block in margins for index in block.words))
        passages = []
        for passage in find_passages(weighted.page):
            stems = _union(page_stems, passage.quoted_words)
            if _adds_information(passage, stems - set(question.stems)):
                found.append((position, passage, stems))
                seen.append(stems | common)
                passages.append(passage)
        closeness += _closeness(weighted, passages)
    question.measure_rarity(seen)
    coverage = [question.coverage(stems) for _, _, stems in found]
    scores = standardize(coverage) + standardize(closeness)
    if question.is_about_document:
        scores = np.array([_prominence(passage) for _, passage, _ in found])
    return [
        ScoredPassage(page, passage, covered, close, float(score))
        for (page, passage, _), covered, close, score in zip(
            found, coverage, closeness, scores, strict=True
        )
    ]


def _union(stems: Sequence[frozenset[str]], words: Iterable[int]) -> frozenset[str]:
    return frozenset().union(*(stems[index] for index in words))


def _adds_information(passage: Passage, new: frozenset[str]) -> bool:
    """Return whether a passage has words besides the question's; a heading needs two of them."""
    if passage.block.kind == "heading" and passage.page.number > 1:
        return sum(not text[0].isdigit() for text in new) > 1
    return bool(new)


def _prominence(passage: Passage) -> float:
    """Return the font size of a passage relative to its page's largest; less after page 1."""
    page = passage.page
    largest = max(block.size for block in page.blocks or ())
    return passage.block.size / largest - (page.number > 1)


def _is_on_page(question: Question, passage: Passage) -> bool:
    """Return whether a passage is on the page that the question names."""
    return str(question.page) in (passage.page.label, str(passage.page.number))


def _closeness(weighted: WeightedPage, passages: Sequence[Passage]) -> list[float]:
    """Return the late interaction of the question with each passage, averaged with weights ŵ_i."""
    if not passages or not weighted.similarities.size:
        return [0.0] * len(passages)
    similarities = weighted.word_similarities()
    starts = np.cumsum([0, *(len(passage.words) for passage in passages[:-1])])
    words = np.concatenate([passage.words for passage in passages])
    best = np.maximum.reduceat(similarities[:, words], starts, axis=1)
    weights = weighted.query_weights
    if not weights.any():
        weights = np.ones(len(weights))
    result: list[float] = (weights @ best / weights.sum()).tolist()
    return result


def standardize(values: Sequence[float]) -> Floats:
    """Return values with mean 0 and standard deviation 1, or all 0 if they are the same."""
    array = np.asarray(values, np.float64)
    if not len(array):
        return array
    return np.asarray((array - array.mean()) / max(float(array.std()), 1e-9))


def _read(
    reader: Reader, question: Question, ranked: Sequence[ScoredPassage]
) -> list[ScoredPassage]:
    """Return passages with the best ones reordered by a reader, and the rest after them."""
    per_page: Counter[int] = Counter()
    chosen: list[ScoredPassage] = []
    others: list[ScoredPassage] = []
    for position, candidate in enumerate(ranked):
        per_page[candidate.page] += 1
        near = position < _MAX_READ or per_page[candidate.page] <= _READ_PER_PAGE
        (chosen if near else others).append(candidate)
    found = relevance(reader, question.text, [_text_to_read(question, one) for one in chosen])
    reordered = [replace(one, relevance=float(r)) for one, r in zip(chosen, found, strict=True)]
    reordered.sort(key=lambda one: -((one.relevance or 0.0) + _SCORE_WEIGHT * one.score))
    return [*reordered, *others]


def _text_to_read(question: Question, candidate: ScoredPassage) -> str:
    """Return a passage with its headings, as the text for a reader.

    The running head is included if it shares a word with the question, such as the name of the
    company that the document is about.
    """
    passage = candidate.passage
    head = passage.running_head
    parts = [head] if question.stems_of(head) & set(question.stems) else []
    return ": ".join([*parts, *filter(None, [passage.context_text]), passage.text])


def _repeats(candidate: ScoredPassage, other: ScoredPassage) -> bool:
    """Return whether a passage has most of its words, or its text, in common with another."""
    if candidate.passage.text.casefold() == other.passage.text.casefold():
        return True
    words, other_words = set(candidate.passage.words), set(other.passage.words)
    overlap = len(words & other_words)
    overlaps = overlap > _MAX_OVERLAP * min(len(words), len(other_words))
    return candidate.page == other.page and overlaps


def _answer_cell(passage: Passage, question: Question) -> Cell | None:
    """Return the cell whose row and column the question names, if there is exactly one.

    Its row has all words that the question shares with any row, because the missing ones may ask
    for another row. Label, headers and title have most words of the question, because the missing
    ones may ask for another table.
    """
    stems = set(question.stems)
    stems_of = question.stems_of
    cells = [cell for cell in passage.block.cells if cell.row >= passage.block.header_rows]
    values = [cell for cell in cells if cell.column]
    with_values = {cell.row for cell in values}
    labels = {
        cell.row: stems & stems_of(passage.cell_text(cell))
        for cell in cells
        if not cell.column and cell.row in with_values
    }
    in_labels = set().union(*labels.values())
    if not in_labels:
        return None
    values = [
        cell for cell in values if cell.row in passage.rows and labels.get(cell.row) == in_labels
    ]
    several = len({cell.column for cell in values}) > 1
    headers = {id(cell): stems_of(passage.header_of(cell)) for cell in values}
    most = max((len(stems & header) for header in headers.values()), default=0)
    named = [cell for cell in values if len(stems & headers[id(cell)]) == most]
    if len(named) != 1 or (several and not most):
        return None
    around = stems_of(passage.context_text) | stems_of(passage.running_head)
    labeled = stems & (in_labels | headers[id(named[0])] | around)
    return named[0] if len(labeled) >= _MIN_LABELED * len(stems) else None


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
