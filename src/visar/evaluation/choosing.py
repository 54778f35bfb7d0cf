"""Every way of choosing pages, on one document with one question."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from visar.core import PageVectors, Selection, maxsim, select
from visar.core.baselines import Choice, largest_gap, oracle, score_cluster, top_k
from visar.core.vectors import Float32, Float64
from visar.evaluation.methods import METHODS, Method

# As far as any table looks down a ranking.
DEPTH = 10


@dataclass(frozen=True)
class Pages:
    """A document's pages, ready for many questions."""

    vectors: PageVectors

    @cached_property
    def means(self) -> Float64:
        """The mean vector of each page, of length 1; 0 for an empty page."""
        sums = np.zeros((len(self.vectors), self.vectors.dimension))
        for block in self.vectors.blocks():
            np.add.at(sums, block.pages, np.add.reduceat(block.vectors, block.starts, axis=0))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.asarray(sums / np.maximum(lengths, np.finfo(np.float64).tiny))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a method makes of a question; pages are counted from 1."""

    method: str
    k: int
    pages: tuple[int, ...]
    ranking: tuple[int, ...]
    sparsity: float | None
    seconds: dict[str, float]


def choose(
    query: Float32, pages: Pages, evidence: Sequence[int], methods: Iterable[str]
) -> Iterator[Chosen]:
    """Choose by each of the methods. The oracle needs evidence, and is passed over without."""
    desk = _Desk(query, pages, evidence)
    for key in methods:
        method = METHODS[key]
        if method.rule != "oracle" or len(evidence):
            yield desk.choose(method)


class _Desk:
    """One question with what several methods share: scores and selections are computed once."""

    def __init__(self, query: Float32, pages: Pages, evidence: Sequence[int]) -> None:
        self._query = query
        self._pages = pages
        self._evidence = [page - 1 for page in evidence]
        self._usual: Selection | None = None
        self._late: tuple[Float64, float] | None = None

    def choose(self, method: Method) -> Chosen:
        if method.rule == "visar":
            return self._by_visar(method)
        scores, seconds = self._scores(method)
        started = time.perf_counter()
        choice = self._rule(method)(scores)
        seconds["choice"] = time.perf_counter() - started
        ranking = top_k(scores, DEPTH).pages
        return Chosen(
            method.key,
            choice.k,
            _numbers(choice.pages),
            _numbers(ranking),
            None,
            seconds,
        )

    def _by_visar(self, method: Method) -> Chosen:
        selection = self._select(method)
        return Chosen(
            method.key,
            selection.k_star,
            _numbers(selection.pages),
            _numbers(selection.ranking[:DEPTH]),
            selection.sparsity,
            dict(selection.timings),
        )

    def _select(self, method: Method) -> Selection:
        if method.options:
            return select(self._query, self._pages.vectors, **method.options)
        if self._usual is None:
            self._usual = select(self._query, self._pages.vectors)
        return self._usual

    def _scores(self, method: Method) -> tuple[Float64, dict[str, float]]:
        """The scores a rule looks at, and what they cost."""
        if method.scores == "s_p":
            selection = self._select(METHODS["visar"])
            seconds = dict(selection.timings)
            # Of these the rule needs no more than the diagonal.
            seconds.pop("page to page", None)
            return selection.scores, seconds
        if method.rule == "single-vector":
            return self._by_means()
        if self._late is None:
            started = time.perf_counter()
            late = maxsim(self._query, self._pages.vectors)
            self._late = late, time.perf_counter() - started
        return self._late[0], {"query to page": self._late[1]}

    def _by_means(self) -> tuple[Float64, dict[str, float]]:
        """The cosine of the question's mean vector with that of each page."""
        means = self._pages.means
        started = time.perf_counter()
        question = self._query.mean(axis=0, dtype=np.float64)
        scores = means @ question / max(float(np.linalg.norm(question)), 1e-12)
        return scores, {"query to page": time.perf_counter() - started}

    def _rule(self, method: Method) -> Callable[[Float64], Choice]:
        if method.rule == "largest-gap":
            return largest_gap
        if method.rule == "score-cluster":
            return score_cluster
        if method.rule == "oracle":
            return lambda scores: oracle(scores, self._evidence)
        return lambda scores: top_k(scores, DEPTH)


def _numbers(pages: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(page) + 1 for page in pages)
