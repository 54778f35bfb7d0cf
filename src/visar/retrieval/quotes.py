"""Which passages of the found pages answer a question, and where in them the answer stands.

Each passage gets a score: a weighted sum of a few features. The weights were fitted on questions
about documents (``benchmarks/quotes.py`` fits and measures them; docs/benchmarks.md has the
results on documents that took no part in it).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.terms import STOP_WORDS, find_terms, stem
from visar.results import Passage
from visar.retrieval.columns import in_columns
from visar.retrieval.front_page import about_document, front_matter
from visar.retrieval.passages import EDGE, Span, boxes_of, spans
from visar.retrieval.wanted import (
    MARKED,
    NUMERIC,
    Answer,
    AnswerSpan,
    answer_spans,
    asks_for_extreme,
    value_of_year,
    wanted,
    without_instructions,
)

# More than this is no answer but a page.
MOST_QUOTES = 3
# Of two passages that share more than this part of the shorter one, one is quoted.
MOST_SHARED = 0.5
# A running head is no longer than this.
LONGEST_RUNNING_HEAD = 12
# Dots between an entry of a table of contents and its page, which tells nothing more.
_LEADERS = "....."
# Words around a possible answer count for it less the further away they stand.
NEAR = 6.0

# Fitted to 126 questions about 14 documents whose pages were found, "front" to 12 more about the
# documents themselves; "table", "margin", "extreme" and "page" were set by hand later, and fitting
# all of them to 111 other questions gave no better ones. What each feature is says `candidates`.
# How long a passage is, and the rank of its page, made no difference.
WEIGHTS: dict[str, float] = {
    "coverage": 2.65,
    "precision": 0.91,
    "names": 0.40,
    "heading": 1.54,
    "nearby": 0.75,
    "weight": 1.83,
    "closeness": 0.69,
    "answer": 0.71,
    "nearness": 7.35,
    "row": -0.17,
    "table": -1.2,
    "title": -0.34,
    "fragment": -0.98,
    "form": 1.22,
    "numbers": -0.79,
    "margin": -2.0,
    "extreme": 1.2,
    "page": 1.0,
    "front": 10.0,
}
FEATURES = tuple(WEIGHTS)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPage:
    """A selected page with what the method found in it."""

    document: str
    page: Page
    vector_words: NDArray[np.int32]
    """The word that each vector of the page belongs to, -1 for none."""
    vector_weights: NDArray[np.float32]
    """ŵ_pj."""
    vector_boxes: NDArray[np.float32]
    """(n, 4): where each vector stands; all zero for nowhere."""
    similarities: NDArray[np.float32] | None = None
    """(m, n): the cosines of the question's vectors with those of the page, if known."""
    query_weights: NDArray[np.float64] | None = None
    """(m,): ŵ_i."""

    def word_weights(self) -> NDArray[np.float64]:
        """Return the weight of each word: of its heaviest vector, or of the patches over it."""
        weights = self._over_words(self.vector_weights[None, :].astype(np.float64))
        return weights.reshape(-1)

    def word_similarities(self) -> NDArray[np.float64] | None:
        """Return (m, words): how close each word comes to each vector of the question."""
        if self.similarities is None or not self.similarities.size:
            return None
        return self._over_words(self.similarities.astype(np.float64))

    def _over_words(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each word the largest value, row by row, among its vectors; 0 if it has none."""
        result = np.zeros((len(values), len(self.page.words)))
        placed = self.vector_words >= 0
        for word, column in zip(self.vector_words[placed], values[:, placed].T, strict=True):
            np.maximum(result[:, word], column, out=result[:, word])
        patches = np.flatnonzero(~placed & (self.vector_boxes.any(axis=1)))
        if len(patches) and len(self.page.words):
            boxes = np.array([word.box for word in self.page.words])
            across, down = boxes[:, [0, 2]].mean(axis=1), boxes[:, [1, 3]].mean(axis=1)
            for patch in patches:
                left, top, right, bottom = self.vector_boxes[patch]
                under = (left <= across) & (across < right) & (top <= down) & (down < bottom)
                result[:, under] = np.maximum(result[:, under], values[:, [patch]])
        return result


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that may be quoted, with its features and the answer its form suggests."""

    page: int
    """Which of the pages it stands on."""
    span: Span
    features: NDArray[np.float64]
    answer: AnswerSpan | None
    """Only if it has exactly the form asked for."""

    @property
    def score(self) -> float:
        """How well it answers, compared with the other passages of the same question."""
        return float(self.features @ np.array(list(WEIGHTS.values())))

    @property
    def matches(self) -> bool:
        """Whether it has anything of what was asked."""
        return any(self.features[FEATURES.index(n)] for n in ("coverage", "weight", "front"))


class _Question:
    """The stems of a question with how rare they are, and what it wants."""

    def __init__(self, text: str) -> None:
        self.text, self.page = without_instructions(text)
        self.wants: Answer = wanted(self.text)
        self.compares = self.wants == "list" or asks_for_extreme(self.text)
        words = self.text.split()
        terms = find_terms(words)
        informative = [term for term in terms if not term.is_stop_word]
        self.stems = list(dict.fromkeys(stem(term.key) for term in informative or terms))
        self.names = {
            stem(term.key)
            for term in informative
            if any(c.isdigit() for c in term.key)
            or (term.word > 0 and words[term.word][term.start].isupper())
        }
        self._rarity: dict[str, float] = dict.fromkeys(self.stems, 1.0)

    def count(self, passages: Sequence[set[str]]) -> None:
        """Measure the rarity of each stem by the passages that have it."""
        found = Counter(s for stems in passages for s in self.stems if s in stems)
        for asked in self.stems:
            rarity = math.log((len(passages) + 1) / (found[asked] + 0.5))
            self._rarity[asked] = max(rarity, 0.1) * (0.3 if asked in _ASKING else 1.0)

    def coverage(self, stems: set[str]) -> float:
        """The share of the question's stems among these, each as rare as it is."""
        return self._share([s for s in self.stems if s in stems])

    def precision(self, stems: set[str]) -> float:
        """The share of a passage's stems, without numbers and stop words, that were asked for."""
        told = [s for s in stems if s not in _STOPS and not s[0].isdigit()]
        return sum(s in self._rarity for s in told) / max(len(told), 1)

    def name_coverage(self, stems: set[str]) -> float:
        """The share of the question's names and numbers among these; 0 if it has none."""
        return len(self.names & stems) / len(self.names) if self.names else 0.0

    def nearness(self, span: AnswerSpan, terms: Sequence[tuple[int, str]]) -> float:
        """How much of the question stands near a span of a text, given its terms with places."""
        at = sum(start < span.start for start, _ in terms)
        after = sum(start < span.end for start, _ in terms)
        best: dict[str, float] = {}
        for place, (_, key) in enumerate(terms):
            if key in self._rarity:
                distance = max(at - place, place - after + 1, 0)
                near = math.exp(-distance / NEAR) * self._rarity[key]
                best[key] = max(best.get(key, 0.0), near)
        return span.fit * sum(best.values()) / self._whole

    def _share(self, stems: Sequence[str]) -> float:
        return sum(self._rarity[s] for s in stems) / self._whole

    @property
    def _whole(self) -> float:
        # A question of signs alone, or an image, asks for no word.
        return sum(self._rarity.values()) or 1.0


_STOPS = frozenset(stem(word) for word in STOP_WORDS)
# Words that tell what is wanted rather than what it is about.
_ASKING_WORDS = """
    many much percentage percent share proportion number amount year date long old high name kind
    type person people called average total value rate according report document paper page
"""
_ASKING = frozenset(map(stem, _ASKING_WORDS.split()))


def choose_quotes(
    question: str, pages: Sequence[WeightedPage], most: int = MOST_QUOTES
) -> tuple[tuple[Passage, ...], list[Passage | None]]:
    """Choose the passages that answer a question.

    Parameters
    ----------
    question
        As it was asked.
    pages
        The pages found, best first.
    most
        The number of quotes, at most.

    Returns
    -------
    The quotes, best first, and the best passage of each page, None for a page without any. A
    passage that has nothing of what was asked is not quoted.
    """
    found = candidates(question, pages)
    ranked = sorted(found, key=lambda candidate: -candidate.score)
    best_of: dict[int, Candidate] = {}
    for candidate in ranked:
        best_of.setdefault(candidate.page, candidate)
    quotes = distinct(ranked, most)
    return (
        tuple(_passage(pages, quote) for quote in quotes),
        [_passage(pages, best_of[i]) if i in best_of else None for i in range(len(pages))],
    )


def distinct(ranked: Sequence[Candidate], most: int) -> list[Candidate]:
    """Take the first passages that neither share words with one before nor say the same."""
    taken: list[tuple[Candidate, set[int]]] = []
    texts: set[str] = set()
    for candidate in ranked:
        if len(taken) == most:
            break
        own = set(candidate.span.words[candidate.span.lead :])
        text = "".join(c for c in candidate.span.text.casefold() if c.isalnum())
        if text in texts or not candidate.matches:
            continue
        if any(
            candidate.page == other.page
            and len(own & words) > MOST_SHARED * min(len(own), len(words))
            for other, words in taken
        ):
            continue
        taken.append((candidate, own))
        texts.add(text)
    return [candidate for candidate, _ in taken]


def candidates(question: str, pages: Sequence[WeightedPage]) -> list[Candidate]:
    """Return every passage of the pages that could be quoted, with its features."""
    asked = _Question(question)
    pages = [replace(weighted, page=in_columns(weighted.page)) for weighted in pages]
    found: list[tuple[int, Span]] = []
    terms: list[list[tuple[int, str]]] = []
    stems: list[set[str]] = []
    cut = [spans(weighted.page) for weighted in pages]
    running = _running_heads(pages, cut)
    for number, of_page in enumerate(cut):
        for span in of_page:
            placed = _terms(span.text)
            told = {key for _, key in placed}
            # What only repeats the question answers nothing, nor do the labels of a chart's axis.
            if any(c.isalpha() for c in span.text) and not told - _STOPS <= set(asked.stems):
                found.append((number, span))
                terms.append(placed)
                stems.append(told)
    if not found:
        return []
    asked.count(stems)
    lines = [_line_stems(weighted.page) for weighted in pages]
    weights = [weighted.word_weights() for weighted in pages]
    similarities = [weighted.word_similarities() for weighted in pages]
    heavy = np.array([_weight(weights[page], span) for page, span in found])
    close = np.array([_closeness(pages[page], similarities[page], span) for page, span in found])
    heavy /= max(heavy.max(), 1e-9)
    close = (close - close.mean()) / max(close.std(), 1e-9)
    front = _front_matter(question, pages, found)
    result = []
    for place, (page, span) in enumerate(found):
        options = list(answer_spans(asked.wants, span.text, question))
        nearness = [asked.nearness(option, terms[place]) for option in options]
        best = int(np.argmax(nearness)) if options else -1
        inside = stems[place]
        heading = inside | _stems_of(pages[page].page, span.context)
        nearby = heading | _nearby(pages[page].page, lines[page], span)
        coverage = asked.coverage(inside)
        with_heading = asked.coverage(heading)
        features = {
            "coverage": coverage,
            "precision": asked.precision(inside),
            "names": asked.name_coverage(inside),
            "heading": with_heading - coverage,
            "nearby": asked.coverage(nearby) - with_heading,
            "weight": heavy[place],
            "closeness": close[place],
            "answer": options[best].fit if options else 0.0,
            "nearness": nearness[best] if options else 0.0,
            "row": span.kind in ("row", "block"),
            "table": span.kind == "table",
            "title": span.kind == "heading",
            "fragment": span.text[0].islower() or span.text.endswith(":"),
            "form": _has_form(asked, terms[place], span, len(options)),
            "numbers": asked.wants not in NUMERIC and _mostly_numbers(span.text),
            "margin": (page, span.words) in running or _LEADERS in span.text,
            "extreme": asked.compares and span.kind == "table",
            "page": asked.page is not None and asked.page in _numbers(pages[page].page),
            "front": front[place],
        }
        values = np.array([float(features[name]) for name in FEATURES])
        # In a whole table the number nearest to the words of the question is mostly another's.
        tells = asked.wants in MARKED and span.kind != "table"
        marked = options[best] if options and tells else None
        if asked.wants in NUMERIC and span.kind == "row" and span.lead:
            heads = span.text[: span.start]
            marked = value_of_year(span.text, heads, question) or marked
        result.append(Candidate(page, span, values, marked if marked and marked.fit == 1 else None))
    return result


def _front_matter(
    question: str, pages: Sequence[WeightedPage], found: Sequence[tuple[int, Span]]
) -> list[float]:
    """How well each passage answers a question about the document itself; 0 for other questions."""
    about = about_document(question)
    result = [0.0] * len(found)
    for number, weighted in enumerate(pages):
        if about and weighted.page.number == 1:
            places = [place for place, (page, _) in enumerate(found) if page == number]
            spans_of = [found[place][1] for place in places]
            values = front_matter(about, question, weighted.page, spans_of)
            for place, value in zip(places, values, strict=True):
                result[place] = value
    return result


def _running_heads(
    pages: Sequence[WeightedPage], cut: Sequence[Sequence[Span]]
) -> set[tuple[int, tuple[int, ...]]]:
    """What is printed at the edge of every page: with the page's number, or on several pages."""
    at_edge: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    result = set()
    for number, (weighted, of_page) in enumerate(zip(pages, cut, strict=True)):
        page = weighted.page
        for span in of_page:
            boxes = [page.words[word].box for word in span.words]
            if not 0 < len(boxes) <= LONGEST_RUNNING_HEAD or not (
                max(box[3] for box in boxes) < EDGE or min(box[1] for box in boxes) > 1 - EDGE
            ):
                continue
            words = span.text.split()
            at_edge.setdefault("".join(c for c in span.text if c.isalpha()), []).append(
                (number, span.words)
            )
            if page.number > 1 and not _numbers(page).isdisjoint({words[0], words[-1]}):
                result.add((number, span.words))
    for same in at_edge.values():
        if len({number for number, _ in same}) > 1:
            result.update(same)
    return result


def _numbers(page: Page) -> set[str]:
    """How a page may be called: its number, and what is printed on it."""
    return {str(page.number)} | ({page.label} if page.label else set())


def _passage(pages: Sequence[WeightedPage], candidate: Candidate) -> Passage:
    weighted = pages[candidate.page]
    answer = candidate.answer
    return Passage(
        text=candidate.span.text,
        document=weighted.document,
        page=weighted.page.number,
        weight=candidate.score,
        boxes=boxes_of(weighted.page, candidate.span),
        answer=(answer.start, answer.end) if answer else None,
    )


def _terms(text: str) -> list[tuple[int, str]]:
    """The stems of a text, each with the place of its first character."""
    words = text.split(" ")
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    return [(starts[term.word] + term.start, stem(term.key)) for term in find_terms(words)]


def _stems_of(page: Page, words: Sequence[int]) -> set[str]:
    return {stem(term.key) for term in find_terms([page.words[word].text for word in words])}


def _line_stems(page: Page) -> dict[int, set[str]]:
    lines: dict[int, set[str]] = {}
    for term in find_terms([word.text for word in page.words]):
        lines.setdefault(page.words[term.word].line, set()).add(stem(term.key))
    return lines


def _nearby(page: Page, lines: dict[int, set[str]], span: Span) -> set[str]:
    """The stems of the two lines before and after a passage."""
    touched = {page.words[word].line for word in span.words}
    first, last = min(touched), max(touched)
    around = [n for n in (first - 2, first - 1, last + 1, last + 2) if n in lines]
    return set().union(*(lines[number] for number in around))


def _weight(weights: NDArray[np.float64], span: Span) -> float:
    """The sum over a passage's words, damped by its length."""
    return float(weights[list(span.words)].sum() / math.sqrt(len(span.words) + 4))


def _closeness(
    weighted: WeightedPage, similarities: NDArray[np.float64] | None, span: Span
) -> float:
    """Late interaction of the question with a passage's own vectors, per weight of the question."""
    if similarities is None:
        return 0.0
    best = similarities[:, list(span.words)].max(axis=1)
    weights = weighted.query_weights
    if weights is None or not weights.any():
        return float(best.mean())
    return float(best @ weights / weights.sum())


def _has_form(asked: _Question, terms: Sequence[tuple[int, str]], span: Span, answers: int) -> bool:
    """Whether a passage is built as the answer wanted: a list, a definition, several numbers."""
    if asked.wants == "list":
        return span.kind == "list" or span.text.count(",") > 1
    if asked.wants == "comparison":
        return answers > 1
    return asked.wants == "definition" and _defines(asked, terms, span.text)


def _defines(asked: _Question, terms: Sequence[tuple[int, str]], text: str) -> bool:
    """Whether a text begins with what was asked about and says what it is."""
    start = {key for _, key in terms[:6]}
    says = any(f" {word} " in text for word in ("is", "are", "means", "refers", "–", "—", "as"))
    return says and any(key in start for key in asked.stems)


def _mostly_numbers(text: str) -> bool:
    words = text.split()
    return sum(any(c.isdigit() for c in word) for word in words) > len(words) / 2
