"""How long the engine takes on one's own documents and machine.

Every way of choosing pages takes its turn in every round, in changing order, so that whatever else
the machine does meets all of them alike; a ratio within one run means more than a time. Loading the
vectors and encoding the question are not part of the times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from visar._version import __version__
from visar.core import PageVectors, Selection, maxsim, select
from visar.core.baselines import Choice, largest_gap, score_cluster, top_k
from visar.core.vectors import Float32
from visar.errors import InvalidOption, NotInIndex
from visar.evaluation.machine import describe_machine
from visar.evaluation.methods import METHODS
from visar.evaluation.own_questions import questions_about
from visar.evaluation.statistics import Summary, summarize
from visar.index import Index
from visar.store import StoredDocument

LATE, EXACT, APPROXIMATE = "late-interaction", "visar", "visar-approx"
COMPARED = (LATE, EXACT, APPROXIMATE, "largest-gap", "score-cluster")
SHORTCUTS = {
    key: method.options for key, method in METHODS.items() if method.group == "acceleration"
}
"""Each of the three shortcuts of the approximation alone, as arguments of ``visar.select``."""

# Score-Cluster groups the scores once for every size of cluster: 0.15 s for 50 pages, 0.7 s for
# 200, and many seconds for the longest documents.
SCORE_CLUSTER_PAGES = 200
USUAL_K = 10
ROUNDS = 5
QUESTIONS_PER_DOCUMENT = 3
SHARES = (0.25, 0.5, 0.75, 1.0)

Progress = Callable[[int, int], None]
"""Called with how many questions are measured, and how many there are."""
_Way = Callable[[], Selection | Choice]


@dataclass(frozen=True, slots=True)
class Timing:
    """What one way of choosing pages takes."""

    method: str
    """A key of ``visar.evaluation.methods``, or one of ``SHORTCUTS``."""
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

    document: StoredDocument
    pages: int
    queries: list[Float32]


@dataclass(frozen=True, slots=True)
class _Measured:
    """One question: seconds by way and round, stages likewise, and what was chosen."""

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
    rounds: int = ROUNDS,
    progress: Progress = _silently,
) -> Bench:
    """Measure documents of an index, or all that have vectors of the encoder.

    Without ``questions`` a few are made from each document's own words.
    """
    if rounds < 1:
        raise InvalidOption(f"rounds must be at least 1, not {rounds}.")
    if questions is not None and not questions:
        raise InvalidOption("There are no questions to measure with: give at least one.")
    notes: list[str] = []
    chosen = _measurable(index, documents, encoder, notes)
    desk = _Encoding(index, encoder)
    tasks = [
        _Task(document, document.pages, desk.queries(questions or _own_questions(index, document)))
        for document in chosen
    ]
    longest = max(chosen, key=lambda document: document.pages)
    # Asked about its first pages, which every shorter version of it still has.
    first = desk.queries(questions or _own_questions(index, longest, SHARES[0]))
    tasks += [_Task(longest, pages, first) for pages in _sizes(index, longest, encoder)]
    notes += _about_score_cluster(longest.pages)

    total = sum(len(task.queries) for task in tasks)
    parts, measured, done = [], [], 0
    for task in tasks:
        vectors = _load(index, task, encoder)
        of_task = []
        for query in task.queries:
            progress(done, total)
            of_task.append(_measure(query, vectors, rounds))
            done += 1
        parts.append(_part(task.document.name, vectors, of_task))
        measured.append(of_task)
    progress(done, total)
    return Bench(
        encoder=encoder,
        rounds=rounds,
        machine=_machine(),
        encoding=summarize(desk.milliseconds),
        documents=tuple(parts[: len(chosen)]),
        overall=_timings([one for each in measured[: len(chosen)] for one in each]),
        sizes=tuple(parts[len(chosen) :]),
        notes=tuple(notes),
    )


class _Encoding:
    """Encodes questions, and knows how long that took."""

    def __init__(self, index: Index, encoder: str) -> None:
        self._index = index
        self._encoder = encoder
        self.milliseconds: list[float] = []
        # A model takes longer to answer for the first time.
        index.encode_question("ready", encoder=encoder)

    def queries(self, questions: Sequence[str]) -> list[Float32]:
        return [self._query(question) for question in questions]

    def _query(self, question: str) -> Float32:
        started = time.perf_counter()
        query = self._index.encode_question(question, encoder=self._encoder)
        self.milliseconds.append((time.perf_counter() - started) * 1e3)
        return query


def _measurable(
    index: Index, documents: Sequence[str] | None, encoder: str, notes: list[str]
) -> list[StoredDocument]:
    """The documents that have vectors; those of a whole index that have none are noted."""
    wanted = index.documents() if documents is None else [index.get(d) for d in documents]
    found = []
    for document in dict.fromkeys(wanted):
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


def _about_score_cluster(pages: int) -> list[str]:
    if find_spec("sklearn") is None:
        return ["Score-Cluster needs an optional part: pip install 'visar[eval]'"]
    if pages > SCORE_CLUSTER_PAGES:
        return [
            f"Score-Cluster is measured on documents of up to {SCORE_CLUSTER_PAGES} pages: "
            "it is slow, and ever slower with more"
        ]
    return []


def _own_questions(index: Index, document: StoredDocument, share: float = 1.0) -> list[str]:
    pages = index.pages(document.id)
    return questions_about(pages[: _first_pages(len(pages), share)], QUESTIONS_PER_DOCUMENT)


def _first_pages(pages: int, share: float) -> int:
    return max(1, round(pages * share))


def _sizes(index: Index, document: StoredDocument, encoder: str) -> list[int]:
    """How many first pages of a document are measured; not so few that all are empty."""
    offsets = index.vectors(document.id, encoder=encoder).offsets
    sizes = sorted({_first_pages(document.pages, share) for share in SHARES})
    return [pages for pages in sizes if offsets[pages]]


def _load(index: Index, task: _Task, encoder: str) -> PageVectors:
    whole = index.vectors(task.document.id, encoder=encoder)
    offsets = whole.offsets[: task.pages + 1]
    return PageVectors(whole.vectors[: offsets[-1]], offsets)


def _measure(query: Float32, vectors: PageVectors, rounds: int) -> _Measured:
    ways = _ways(query, vectors)
    # Once uncounted: the first call finds nothing in the caches, and may import a package.
    chosen = {name: way() for name, way in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    stages: dict[str, list[Mapping[str, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        # Whoever follows a long calculation finds the caches cold: not always the same one.
        for name in np.random.default_rng(number).permutation(list(ways)).tolist():
            started = time.perf_counter()
            result = ways[name]()
            seconds[name].append(time.perf_counter() - started)
            if isinstance(result, Selection):
                stages[name].append(result.timings)
    same = set(chosen[EXACT].pages.tolist()) == set(chosen[APPROXIMATE].pages.tolist())
    # Nothing caps k here: it is k*.
    return _Measured(seconds, stages, chosen[EXACT].k, same)


def _ways(query: Float32, vectors: PageVectors) -> dict[str, _Way]:
    def by_visar(options: Mapping[str, Any]) -> Callable[[], Selection]:
        return lambda: select(query, vectors, **options)

    ways: dict[str, _Way] = {
        LATE: lambda: top_k(maxsim(query, vectors), USUAL_K),
        EXACT: by_visar({}),
        APPROXIMATE: by_visar(METHODS[APPROXIMATE].options),
        "largest-gap": lambda: largest_gap(maxsim(query, vectors)),
    }
    if len(vectors) <= SCORE_CLUSTER_PAGES and find_spec("sklearn") is not None:
        ways["score-cluster"] = lambda: score_cluster(maxsim(query, vectors))
    return ways | {name: by_visar(options) for name, options in SHORTCUTS.items()}


def _part(name: str, vectors: PageVectors, measured: list[_Measured]) -> Part:
    return Part(
        name=name,
        pages=len(vectors),
        vectors=vectors.rows,
        dimension=vectors.dimension,
        k_star=tuple(one.k_star for one in measured),
        same_pages=sum(one.same_pages for one in measured),
        timings=_timings(measured),
    )


def _timings(measured: list[_Measured]) -> dict[str, Timing]:
    names = [name for name in (*COMPARED, *SHORTCUTS) if any(name in m.seconds for m in measured)]
    return {name: _timing(name, [one for one in measured if name in one.seconds]) for name in names}


def _timing(name: str, measured: list[_Measured]) -> Timing:
    stages = [timings for one in measured for timings in one.stages[name]]
    # A selection that fell back to late interaction has no later stages.
    known = {stage: None for timings in stages for stage in timings}
    return Timing(
        method=name,
        milliseconds=summarize(s * 1e3 for one in measured for s in one.seconds[name]),
        ratio=median(median(one.seconds[name]) / median(one.seconds[LATE]) for one in measured),
        stages={s: median(timings.get(s, 0.0) for timings in stages) * 1e3 for s in known},
    )


def _machine() -> dict[str, Any]:
    return {"visar": __version__, "numpy": np.__version__, **describe_machine()}
