"""Measure the latency of methods on the user's documents and machine.

Each round runs all methods in random order, so that other load on the machine affects all of them
equally. Ratios within one run are more meaningful than times. Times exclude loading the vectors and
encoding the question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from visar._version import __version__
from visar.core import PageVectors, Selection
from visar.core.vectors import Float32
from visar.documents.page import Page
from visar.encoders.terms import find_terms
from visar.errors import InvalidOption, MissingExtra, NotInIndex
from visar.evaluation.manifest import describe_machine
from visar.evaluation.methods import METHODS, ComparedMethod, find_methods
from visar.evaluation.statistics import Summary, summarize
from visar.index import Index
from visar.results import Document, EncoderRef
from visar.retrieval.calibration import Calibration, find_calibration
from visar.retrieval.methods import DocumentPages, ScoredPages

LATE, EXACT, APPROXIMATE = "top-k", "visar", "visar-approx"
COMPARED = (LATE, EXACT, APPROXIMATE, "largest-gap", "score-cluster")
SHORTCUTS = {
    name: method.options
    for name, method in METHODS.items()
    if method.group == "acceleration" and len(method.options) == 1
}
"""The three shortcuts of the approximation, as arguments of ``visar.select``."""

# Score-Cluster clusters the scores for every cluster size: 0.15 s for 50 pages, 0.7 s for 200, and
# many seconds for the longest documents.
CLUSTERED_PAGES = 200
ROUNDS = 5
QUESTIONS_PER_DOCUMENT = 3
SHARES = (0.25, 0.5, 0.75, 1.0)
WORDS_PER_QUESTION = 8
"""About as many words as people's questions have, without function words."""

WITHOUT_WORDS = (
    "What is this document about?",
    "What do the figures and tables show?",
    "Which numbers are given, and for which years?",
)
"""Questions for documents without words."""

Progress = Callable[[int, int], None]
"""A callback with the numbers of measured and of all questions."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The measured times of a method."""

    method: str
    """The method's name."""
    milliseconds: Summary
    """A summary over all questions and rounds."""
    ratio: float
    """The ratio to late interaction: the median over questions of the ratio of medians."""
    stages: Mapping[str, float]
    """The median milliseconds of each stage, for ViSAR's variants."""

    def share(self, stage: str) -> float:
        """Return the share of a stage in the total time."""
        return self.stages[stage] / sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class Part:
    """The measurements of a document or of its first pages."""

    name: str
    pages: int
    vectors: int
    dimension: int
    k_star: tuple[int, ...]
    """The k* of exact ViSAR, by question."""
    same_pages: int
    """The number of questions for which exact and approximate ViSAR chose the same pages."""
    timings: Mapping[str, Timing]


@dataclass(frozen=True, slots=True)
class Bench:
    """The results of a benchmark."""

    encoder: str
    rounds: int
    machine: Mapping[str, Any]
    encoding: Summary
    """The milliseconds for encoding a question."""
    documents: tuple[Part, ...]
    overall: Mapping[str, Timing]
    """The times over all questions of all documents."""
    sizes: tuple[Part, ...]
    """Parts of the longest document with increasing size, ending with the whole document."""
    notes: tuple[str, ...]
    """Notes on what was left out, and why."""


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The measurement of a question: seconds and stages by method and round, and the choice."""

    seconds: dict[str, list[float]]
    stages: dict[str, list[Mapping[str, float]]]
    k_star: int
    same_pages: bool


def bench(
    index: Index,
    documents: Sequence[str] | None = None,
    *,
    encoder: str = "embedded",
    questions: Sequence[str] | None = None,
    methods: Sequence[str] = (),
    rounds: int = ROUNDS,
    progress: Progress = lambda _done, _total: None,
) -> Bench:
    """Measure documents of an index by id or name, by default all with vectors of an encoder.

    ``questions`` are asked about each document; by default they are generated from its words.
    ``methods`` are measured in addition to the paper's. Each method runs ``rounds`` times per
    question.

    Raises InvalidOption if there are no rounds or questions, or a method can't be measured, and
    NotInIndex if a document or its vectors aren't in the index.
    """
    compared = _methods(methods)
    if rounds < 1:
        raise InvalidOption(f"Invalid number of rounds {rounds}: use at least 1.")
    if questions is not None and not questions:
        raise InvalidOption("No questions given: provide at least one.")
    notes: list[str] = []
    chosen = _measurable(index, documents, encoder, notes)
    milliseconds: list[float] = []

    def encode(texts: Sequence[str]) -> list[Float32]:
        queries = []
        for question in texts:
            started = time.perf_counter()
            queries.append(index.encode_question(question, encoder=encoder))
            milliseconds.append((time.perf_counter() - started) * 1e3)
        return queries

    # Warm up, because a model's first call is slower.
    index.encode_question("ready", encoder=encoder)
    calibration = find_calibration(EncoderRef.of(index.encoder(encoder)))
    # The first pages of documents, and the questions about them.
    tasks = [
        (document, document.pages, encode(questions or _own_questions(index, document)))
        for document in chosen
    ]
    longest = max(chosen, key=lambda document: document.pages)
    # Generate the questions from the first pages, which all parts include.
    first = encode(questions or _own_questions(index, longest, SHARES[0]))
    sizes = sorted({_first_pages(longest.pages, share) for share in SHARES})
    offsets = index.vectors(longest.id, encoder=encoder).offsets
    tasks += [(longest, pages, first) for pages in sizes if offsets[pages]]
    obstacles = (_obstacle(method, longest.pages) for method in compared)
    notes += [obstacle for obstacle in obstacles if obstacle is not None]

    total, done = sum(len(queries) for _, _, queries in tasks), 0
    parts, measurements = [], []
    for document, pages, queries in tasks:
        whole = index.vectors(document.id, encoder=encoder)
        offsets = whole.offsets[: pages + 1]
        vectors = PageVectors(whole.vectors[: offsets[-1]], offsets)
        measured = []
        for query in queries:
            progress(done, total)
            measured.append(_measure(query, vectors, compared, rounds, calibration))
            done += 1
        parts.append(
            Part(
                name=document.name,
                pages=len(vectors),
                vectors=vectors.rows,
                dimension=vectors.dimension,
                k_star=tuple(one.k_star for one in measured),
                same_pages=sum(one.same_pages for one in measured),
                timings=_timings(measured, compared),
            )
        )
        measurements.append(measured)
    progress(done, total)
    return Bench(
        encoder=encoder,
        rounds=rounds,
        machine={"visar": __version__, "numpy": np.__version__, **describe_machine()},
        encoding=summarize(milliseconds),
        documents=tuple(parts[: len(chosen)]),
        overall=_timings([one for each in measurements[: len(chosen)] for one in each], compared),
        sizes=tuple(parts[len(chosen) :]),
        notes=tuple(notes),
    )


def _measurable(
    index: Index, documents: Sequence[str] | None, encoder: str, notes: list[str]
) -> list[Document]:
    """Return the documents with vectors; without given documents, note those that have none."""
    candidates = index.documents() if documents is None else [index.get(d) for d in documents]
    found = []
    for document in {document.id: document for document in candidates}.values():
        try:
            rows = len(index.vectors(document.id, encoder=encoder).vectors)
        except NotInIndex as error:
            if documents is not None:
                raise
            notes.append(f"left out: {error}")
            continue
        if rows:
            found.append(document)
        else:
            notes.append(f"left out: {document.name} has no vectors because its pages are empty")
    if not found:
        raise NotInIndex(
            f"The index {index.location} has no documents with vectors of {encoder}: add a "
            "document with text first."
        )
    return found


def _methods(names: Sequence[str]) -> list[ComparedMethod]:
    order = [*COMPARED, *SHORTCUTS]
    methods = find_methods([*order, *names])
    for method in methods:
        if method.needs_evidence:
            raise InvalidOption(
                f"Can't measure the method {method.name}, because it needs evidence pages: "
                "choose another method."
            )
    return sorted(methods, key=lambda m: order.index(m.name) if m.name in order else len(order))


def _obstacle(method: ComparedMethod, pages: int) -> str | None:
    """Return why a method isn't measured on a document with this number of pages, if so."""
    name = method.label or method.name
    is_slow = method.cost == "clustering"
    if is_slow and find_spec("sklearn") is None:
        return str(MissingExtra(name, "eval"))
    most = CLUSTERED_PAGES if is_slow else method.max_pages
    if most is None or pages <= most:
        return None
    return (
        f"{name} is only measured on documents of up to {most} pages, because it is slow on longer "
        "ones"
    )


def _own_questions(index: Index, document: Document, share: float = 1.0) -> list[str]:
    pages = index.pages(document.id)
    return questions_about(pages[: _first_pages(len(pages), share)], QUESTIONS_PER_DOCUMENT)


def _first_pages(pages: int, share: float) -> int:
    return max(1, round(pages * share))


def _measure(
    query: Float32,
    vectors: PageVectors,
    methods: Sequence[ComparedMethod],
    rounds: int,
    calibration: Calibration | None,
) -> _Measurement:
    pages = DocumentPages(vectors)
    score = partial(ScoredPages, query, pages, calibration=calibration)
    by_name = {one.name: one for one in methods if _obstacle(one, len(vectors)) is None}
    # Warm up: the first call fills caches and may import packages.
    chosen = {name: method.choose(score()) for name, method in by_name.items()}
    seconds: dict[str, list[float]] = {name: [] for name in by_name}
    stages: dict[str, list[Mapping[str, float]]] = {name: [] for name in by_name}
    for number in range(rounds):
        # Shuffle, because the method after a long computation finds cold caches.
        for name in np.random.default_rng(number).permutation(list(by_name)).tolist():
            scored = score()
            started = time.perf_counter()
            result = by_name[name].choose(scored)
            seconds[name].append(time.perf_counter() - started)
            if isinstance(result, Selection):
                stages[name].append(result.timings)
    same = set(chosen[EXACT].pages.tolist()) == set(chosen[APPROXIMATE].pages.tolist())
    return _Measurement(seconds, stages, chosen[EXACT].k, same)


def _timings(measured: list[_Measurement], methods: Sequence[ComparedMethod]) -> dict[str, Timing]:
    timings = {}
    for name in [method.name for method in methods]:
        known = [one for one in measured if name in one.seconds]
        if not known:
            continue
        by_round = [each for one in known for each in one.stages[name]]
        # A selection that fell back to late interaction has fewer stages.
        stages = dict.fromkeys(stage for each in by_round for stage in each)
        timings[name] = Timing(
            method=name,
            milliseconds=summarize([s * 1e3 for one in known for s in one.seconds[name]]),
            ratio=median(median(one.seconds[name]) / median(one.seconds[LATE]) for one in known),
            stages={s: median(each.get(s, 0.0) for each in by_round) * 1e3 for s in stages},
        )
    return timings


def questions_about(pages: Sequence[Page], count: int) -> list[str]:
    """Generate questions about up to ``count`` pages, evenly spread over pages with words.

    Each question has up to ``WORDS_PER_QUESTION`` words from the line of a page with the most
    distinct words, excluding function words and numbers. The result is deterministic.
    """
    with_words = [words for page in pages if (words := _richest_line(page))]
    if not with_words:
        return list(WITHOUT_WORDS[:count])
    count = min(count, len(with_words))
    spread = [with_words[(2 * i + 1) * len(with_words) // (2 * count)] for i in range(count)]
    return [f"What does it say about {' '.join(words)}?" for words in spread]


def _richest_line(page: Page) -> list[str]:
    lines = [
        _content_words([page.words[index].text for index in indices]) for indices in page.lines()
    ]
    return max(lines, key=len, default=[])[:WORDS_PER_QUESTION]


def _content_words(words: Sequence[str]) -> list[str]:
    """Return the distinct words of a line, excluding function words and numbers."""
    terms = [term for term in find_terms(words) if not term.is_stop_word and term.key.isalpha()]
    return list({term.key: words[term.word][term.start : term.end] for term in terms}.values())
