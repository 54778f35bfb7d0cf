"""How long methods take on one's own documents and machine.

Every method takes its turn in every round, in changing order, so that whatever else the machine
does meets all of them alike; a ratio within one run means more than a time. Loading the vectors and
encoding the question are not part of the times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Each of the three shortcuts of the approximation alone, as arguments of ``visar.select``."""

# Score-Cluster groups the scores once for every size of cluster: 0.15 s for 50 pages, 0.7 s for
# 200, and many seconds for the longest documents.
CLUSTERED_PAGES = 200
ROUNDS = 5
QUESTIONS_PER_DOCUMENT = 3
SHARES = (0.25, 0.5, 0.75, 1.0)
WORDS_PER_QUESTION = 8
"""About as many as people's questions have, without function words."""

WITHOUT_WORDS = (
    "What is this document about?",
    "What do the figures and tables show?",
    "Which numbers are given, and for which years?",
)
"""The questions about documents without words."""

Progress = Callable[[int, int], None]
"""Called with how many questions are measured, and how many there are."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one method takes."""

    method: str
    """Its name."""
    milliseconds: Summary
    """Over all questions and rounds."""
    ratio: float
    """To late interaction: the median over questions of the ratio of their medians."""
    stages: Mapping[str, float]
    """The median milliseconds of each stage, for ViSAR's variants."""

    def share(self, stage: str) -> float:
        """The part that a stage has in all stages."""
        return self.stages[stage] / sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class Part:
    """A document, or its first pages, as measured."""

    name: str
    pages: int
    vectors: int
    dimension: int
    k_star: tuple[int, ...]
    """By question, of exact ViSAR."""
    same_pages: int
    """For how many of these questions exact and approximate ViSAR chose the same pages."""
    timings: Mapping[str, Timing]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that was measured."""

    encoder: str
    rounds: int
    machine: Mapping[str, Any]
    encoding: Summary
    """Milliseconds that encoding a question took."""
    documents: tuple[Part, ...]
    overall: Mapping[str, Timing]
    """Over all questions of all documents."""
    sizes: tuple[Part, ...]
    """The first pages of the longest document, then all of it."""
    notes: tuple[str, ...]
    """What was left out, and why."""


@dataclass(frozen=True, slots=True)
class _Task:
    """The first pages of a document, with the questions to ask about them."""

    document: Document
    pages: int
    queries: list[Float32]


@dataclass(frozen=True, slots=True)
class _Measured:
    """One question: seconds by method and round, stages likewise, and what was chosen."""

    seconds: dict[str, list[float]]
    stages: dict[str, list[Mapping[str, float]]]
    k_star: int
    same_pages: bool


def _silently(done: int, total: int) -> None:
    """Report no progress."""


def bench(
    index: Index,
    documents: Sequence[str] | None = None,
    *,
    encoder: str = "embedded",
    questions: Sequence[str] | None = None,
    methods: Sequence[str] = (),
    rounds: int = ROUNDS,
    progress: Progress = _silently,
) -> Bench:
    """Measure documents of an index.

    Parameters
    ----------
    index
        Holds the documents and their vectors.
    documents
        Ids or names; by default all that have vectors of the encoder.
    encoder
        Whose vectors are used.
    questions
        By default a few are made from each document's own words.
    methods
        Methods to measure beside the paper's, as ``--method`` takes them.
    rounds
        How often each method is measured with each question.
    progress
        Called after each question.

    Raises
    ------
    InvalidOption
        If there are no rounds or questions, or a method cannot be measured.
    NotInIndex
        If a document, or its vectors, are not in the index.
    """
    compared = _methods(methods)
    if rounds < 1:
        raise InvalidOption(f"rounds must be at least 1, not {rounds}.")
    if questions is not None and not questions:
        raise InvalidOption("There are no questions to measure with: give at least one.")
    notes: list[str] = []
    chosen = _measurable(index, documents, encoder, notes)
    milliseconds: list[float] = []

    def encoded(asked: Sequence[str]) -> list[Float32]:
        queries = []
        for question in asked:
            started = time.perf_counter()
            queries.append(index.encode_question(question, encoder=encoder))
            milliseconds.append((time.perf_counter() - started) * 1e3)
        return queries

    # A model takes longer to answer for the first time.
    index.encode_question("ready", encoder=encoder)
    calibration = find_calibration(EncoderRef.of(index.encoder(encoder)))
    tasks = [
        _Task(document, document.pages, encoded(questions or _own_questions(index, document)))
        for document in chosen
    ]
    longest = max(chosen, key=lambda document: document.pages)
    # Asked about its first pages, which every shorter version of it still has.
    first = encoded(questions or _own_questions(index, longest, SHARES[0]))
    tasks += [_Task(longest, pages, first) for pages in _sizes(index, longest, encoder)]
    notes += _left_out(compared, longest.pages)

    total = sum(len(task.queries) for task in tasks)
    parts, measured, done = [], [], 0
    for task in tasks:
        vectors = _load(index, task, encoder)
        of_task = []
        for query in task.queries:
            progress(done, total)
            of_task.append(_measure(query, vectors, compared, rounds, calibration))
            done += 1
        parts.append(_part(task.document.name, vectors, of_task, compared))
        measured.append(of_task)
    progress(done, total)
    return Bench(
        encoder=encoder,
        rounds=rounds,
        machine=_machine(),
        encoding=summarize(milliseconds),
        documents=tuple(parts[: len(chosen)]),
        overall=_timings([one for each in measured[: len(chosen)] for one in each], compared),
        sizes=tuple(parts[len(chosen) :]),
        notes=tuple(notes),
    )


def _measurable(
    index: Index, documents: Sequence[str] | None, encoder: str, notes: list[str]
) -> list[Document]:
    """The documents that have vectors; those of a whole index that have none are noted."""
    wanted = index.documents() if documents is None else [index.get(d) for d in documents]
    found = []
    for document in {document.id: document for document in wanted}.values():
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
            notes.append(f"left out: {document.name} has no vectors, its pages are empty")
    if not found:
        raise NotInIndex(
            f"The index {index.location} has nothing to measure with {encoder}: add a document "
            "with text first."
        )
    return found


def _methods(names: Sequence[str]) -> list[ComparedMethod]:
    order = [*COMPARED, *SHORTCUTS]
    methods = find_methods([*order, *names])
    for method in methods:
        if method.needs_evidence:
            raise InvalidOption(
                f"The method {method.name} needs questions with evidence pages, which a "
                "measurement does not have."
            )
    return sorted(methods, key=lambda m: order.index(m.name) if m.name in order else len(order))


def _most_pages(method: ComparedMethod) -> int | None:
    return CLUSTERED_PAGES if method.cost == "clustering" else method.max_pages


def _lacks_package(method: ComparedMethod) -> bool:
    return method.cost == "clustering" and find_spec("sklearn") is None


def _can_measure(method: ComparedMethod, pages: int) -> bool:
    most = _most_pages(method)
    return (most is None or pages <= most) and not _lacks_package(method)


def _left_out(methods: Sequence[ComparedMethod], pages: int) -> Iterator[str]:
    """Say which methods are not measured on a document of so many pages."""
    for method in methods:
        name = method.label or method.name
        if _lacks_package(method):
            yield str(MissingExtra(name, "eval"))
        elif not _can_measure(method, pages):
            yield (
                f"{name} is measured on documents of up to {_most_pages(method)} pages: it is "
                "slow, and ever slower with more"
            )


def _own_questions(index: Index, document: Document, share: float = 1.0) -> list[str]:
    pages = index.pages(document.id)
    return questions_about(pages[: _first_pages(len(pages), share)], QUESTIONS_PER_DOCUMENT)


def _first_pages(pages: int, share: float) -> int:
    return max(1, round(pages * share))


def _sizes(index: Index, document: Document, encoder: str) -> list[int]:
    """How many first pages of a document are measured; not so few that all are empty."""
    offsets = index.vectors(document.id, encoder=encoder).offsets
    sizes = sorted({_first_pages(document.pages, share) for share in SHARES})
    return [pages for pages in sizes if offsets[pages]]


def _load(index: Index, task: _Task, encoder: str) -> PageVectors:
    whole = index.vectors(task.document.id, encoder=encoder)
    offsets = whole.offsets[: task.pages + 1]
    return PageVectors(whole.vectors[: offsets[-1]], offsets)


def _measure(
    query: Float32,
    vectors: PageVectors,
    methods: Sequence[ComparedMethod],
    rounds: int,
    calibration: Calibration | None,
) -> _Measured:
    pages = DocumentPages(vectors)
    score = partial(ScoredPages, query, pages, calibration=calibration)
    by_name = {method.name: method for method in methods if _can_measure(method, len(vectors))}
    # Once uncounted: the first call finds nothing in the caches, and may import a package.
    chosen = {name: method.choose(score()) for name, method in by_name.items()}
    seconds: dict[str, list[float]] = {name: [] for name in by_name}
    stages: dict[str, list[Mapping[str, float]]] = {name: [] for name in by_name}
    for number in range(rounds):
        # Whoever follows a long calculation finds the caches cold: not always the same one.
        for name in np.random.default_rng(number).permutation(list(by_name)).tolist():
            scored = score()
            started = time.perf_counter()
            result = by_name[name].choose(scored)
            seconds[name].append(time.perf_counter() - started)
            if isinstance(result, Selection):
                stages[name].append(result.timings)
    same = set(chosen[EXACT].pages.tolist()) == set(chosen[APPROXIMATE].pages.tolist())
    return _Measured(seconds, stages, chosen[EXACT].k, same)


def _part(
    name: str, vectors: PageVectors, measured: list[_Measured], methods: Sequence[ComparedMethod]
) -> Part:
    return Part(
        name=name,
        pages=len(vectors),
        vectors=vectors.rows,
        dimension=vectors.dimension,
        k_star=tuple(one.k_star for one in measured),
        same_pages=sum(one.same_pages for one in measured),
        timings=_timings(measured, methods),
    )


def _timings(measured: list[_Measured], methods: Sequence[ComparedMethod]) -> dict[str, Timing]:
    by_name = {
        method.name: [one for one in measured if method.name in one.seconds] for method in methods
    }
    return {name: _timing(name, of_method) for name, of_method in by_name.items() if of_method}


def _timing(name: str, measured: list[_Measured]) -> Timing:
    stages = [timings for one in measured for timings in one.stages[name]]
    # A selection that fell back to late interaction has no later stages.
    known = {stage: None for timings in stages for stage in timings}
    return Timing(
        method=name,
        milliseconds=summarize([s * 1e3 for one in measured for s in one.seconds[name]]),
        ratio=median(median(one.seconds[name]) / median(one.seconds[LATE]) for one in measured),
        stages={s: median(timings.get(s, 0.0) for timings in stages) * 1e3 for s in known},
    )


def _machine() -> dict[str, Any]:
    return {"visar": __version__, "numpy": np.__version__, **describe_machine()}


def questions_about(pages: Sequence[Page], count: int) -> list[str]:
    """Ask about up to ``count`` pages, evenly spread over those that have words.

    Each question names up to ``WORDS_PER_QUESTION`` words of one line of a page: the line with the
    most different ones, function words and numbers left out. Deterministic.
    """
    with_words = [words for page in pages if (words := _richest_line(page))]
    if not with_words:
        return list(WITHOUT_WORDS[:count])
    asked = min(count, len(with_words))
    spread = [with_words[(2 * i + 1) * len(with_words) // (2 * asked)] for i in range(asked)]
    return [f"What does it say about {' '.join(words)}?" for words in spread]


def _richest_line(page: Page) -> list[str]:
    lines = [
        _content_words([page.words[index].text for index in indices]) for indices in page.lines()
    ]
    return max(lines, key=len, default=[])[:WORDS_PER_QUESTION]


def _content_words(words: Sequence[str]) -> list[str]:
    """The different words of a line that are neither function words nor numbers."""
    terms = [term for term in find_terms(words) if not term.is_stop_word and term.key.isalpha()]
    return list({term.key: words[term.word][term.start : term.end] for term in terms}.values())
