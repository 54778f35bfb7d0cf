"""Registry of the methods that choose pages, for search, evaluation and benchmarks.

A method is a function of `ScoredPages` that returns a number of pages (an int: the best by late
interaction), a `Choice` of pages, or a `Selection`. Other packages add methods with entry points of
the group ``visar.methods``; ``module:function`` names a function directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from visar import plugins
from visar.core import (
    PageVectors,
    Products,
    Relevance,
    Selection,
    baselines,
    maxsim,
    score_pages,
    select,
)
from visar.core.baselines import Choice
from visar.core.vectors import Float32, Float64
from visar.errors import InvalidOption
from visar.retrieval.calibration import Calibration, most_useful, page_features

ENTRY_POINTS = "visar.methods"
DEFAULT_K = 5
"""Default number of pages of ``top-k``."""

Scores: TypeAlias = Literal["late-interaction", "single-vector", "s_p", "probability"]
MethodFunction: TypeAlias = Callable[..., "int | Choice | Selection"]


@dataclass(frozen=True)
class DocumentPages:
    """Page vectors of one or more documents, with values that questions share."""

    vectors: PageVectors

    @cached_property
    def means(self) -> Float64:
        """Normalized mean vector of each page; zero for empty pages."""
        sums = np.zeros((len(self.vectors), self.vectors.dimension))
        for block in self.vectors.blocks():
            np.add.at(sums, block.pages, np.add.reduceat(block.vectors, block.starts, axis=0))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.asarray(sums / np.maximum(lengths, np.finfo(np.float64).tiny))


class ScoredPages:
    """Scores and selections of pages for one question, computed on first use.

    Parameters
    ----------
    query
        (m, D) unit vectors of the question.
    pages
        Pages to choose from.
    evidence
        Positions of the pages with the answer, if they are known; only used by the oracle.
    max_k
        Maximum number of pages for `select`.
    calibration
        Calibration of the encoder, needed for probabilities.
    products
        Products of the question with the pages, to compute everything from. Without them, each
        selection computes and times its own.
    """

    def __init__(
        self,
        query: Float32,
        pages: DocumentPages | PageVectors,
        *,
        evidence: Sequence[int] = (),
        max_k: int | None = None,
        calibration: Calibration | None = None,
        products: Products | None = None,
    ) -> None:
        self.query = query
        self.pages = pages if isinstance(pages, DocumentPages) else DocumentPages(pages)
        self.evidence = tuple(evidence)
        self.max_k = max_k
        self.calibration = calibration
        self._compared = self.pages.vectors if products is None else products
        self._relevance: Relevance | None = None
        self._scores: dict[str, Float64] = {}

    def __len__(self) -> int:
        return len(self.pages.vectors)

    @property
    def late_interaction(self) -> Float64:
        """MaxSim score of each page (Eq. 1)."""
        return self.scores("late-interaction")

    @property
    def relevance(self) -> Relevance:
        """Weights and scores of the pages; a `Selection` after a call of `select`."""
        if self._relevance is None:
            self._relevance = score_pages(self.query, self._compared)
        return self._relevance

    def scores(self, kind: Scores) -> Float64:
        """Return one score per page: late interaction, cosine of mean vectors, s_p, or probability.

        The probability is that of containing evidence, given that the pages are about the question.
        Raises InvalidOption if there is no calibration, which probabilities need.
        """
        if kind not in self._scores:
            self._scores[kind] = self._compute(kind)
        return self._scores[kind]

    def select(self, **options: Any) -> Selection:
        """Run ViSAR; without options, the result is cached."""
        if options:
            return select(self.query, self._compared, max_k=self.max_k, **options)
        if not isinstance(self._relevance, Selection):
            self._relevance = select(self.query, self._compared, max_k=self.max_k)
        return self._relevance

    def _compute(self, kind: Scores) -> Float64:
        if kind == "s_p":
            return self.relevance.scores
        if kind == "probability":
            if self.calibration is None:
                raise InvalidOption("Probabilities need a calibration of the encoder.")
            return self.calibration.if_about(page_features(self.relevance))
        if kind == "late-interaction":
            return maxsim(self.query, self._compared)
        question = self.query.mean(axis=0, dtype=np.float64)
        length = max(float(np.linalg.norm(question)), np.finfo(np.float64).tiny)
        return np.asarray(self.pages.means @ question / length)


class KnownScores(ScoredPages):
    """Pages with scores from elsewhere, and without vectors.

    The scores replace late interaction. Methods that need vectors raise InvalidOption.
    """

    def __init__(self, scores: Float64, *, evidence: Sequence[int] = ()) -> None:
        self.evidence = tuple(evidence)
        self.max_k = None
        self.calibration = None
        self._scores = {"late-interaction": scores}

    def __len__(self) -> int:
        return len(self._scores["late-interaction"])

    @property
    def relevance(self) -> Relevance:
        """Raises InvalidOption: there are no vectors."""
        raise self._no_vectors()

    def select(self, **_: Any) -> Selection:
        """Raise InvalidOption: there are no vectors."""
        raise self._no_vectors()

    def _compute(self, _: Scores) -> Float64:
        raise self._no_vectors()

    @staticmethod
    def _no_vectors() -> InvalidOption:
        return InvalidOption(
            "This method needs page vectors, but there are only scores. Use a method that works "
            "with scores, such as top-k, largest-gap or autocut."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of choosing pages."""

    name: str
    """Name on the command line and in results."""
    function: MethodFunction
    """Function of a `ScoredPages` and the options."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function."""
    adaptive: bool = True
    """Whether the method chooses k itself; otherwise it has an option ``k``."""
    needs_evidence: bool = False
    """Whether it needs to know the right pages."""
    needs_calibration: bool = False
    """Whether it needs a calibration of the encoder."""
    max_pages: int | None = None
    """Maximum number of pages to choose from; None if there is no limit."""

    def with_options(self, **options: Any) -> Method:
        """Return a copy of the method with options added or replaced."""
        return replace(self, options={**self.options, **options})

    def choose(self, pages: ScoredPages) -> Choice | Selection:
        """Choose pages for a question.

        Raises InvalidOption if there are too many pages, evidence or a calibration is missing, or
        the function fails or doesn't return pages.
        """
        return self.check_result(self.call(pages), pages)

    def call(self, pages: ScoredPages) -> int | Choice | Selection:
        """Return the function's unchecked result; raises the same errors as `choose`."""
        if self.max_pages is not None and len(pages) > self.max_pages:
            raise InvalidOption(
                f"The method {self.name} is too slow for {len(pages)} pages: its maximum is "
                f"{self.max_pages}. Choose fewer documents, or use another method."
            )
        if self.needs_evidence and not pages.evidence:
            raise InvalidOption(f"The method {self.name} needs questions with evidence pages.")
        if self.needs_calibration and pages.calibration is None:
            raise InvalidOption(
                f"The method {self.name} needs a calibration of the encoder. Create one with visar "
                "calibrate QUESTIONS.jsonl --encoder NAME, or use another method."
            )
        with plugins.failing_as(InvalidOption, f"The method {self.name} failed"):
            return self.function(pages, **self.options)

    def check_result(
        self, result: int | Choice | Selection, pages: ScoredPages
    ) -> Choice | Selection:
        """Validate a result of `call` and return its pages; raises the same errors as `choose`."""
        fault = _find_fault(result, len(pages))
        if fault is not None:
            raise InvalidOption(
                f"The method {self.name} returned {fault}. A method must return a positive number "
                "of pages, a Choice, or a Selection."
            )
        if isinstance(result, Choice | Selection):
            return result
        return baselines.top_k(pages.late_interaction, int(result))


def _find_fault(result: int | Choice | Selection, n_pages: int) -> str | None:
    """Return what is wrong with the result of a method; None if nothing is."""
    if not isinstance(result, Choice | Selection):
        try:
            return repr(result) if int(result) < 1 else None
        except (TypeError, ValueError, OverflowError):
            return repr(result)
    chosen = np.asarray(result.pages)
    if not chosen.size:
        return "no pages"
    is_list = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
    if not is_list or chosen.min() < 0 or chosen.max() >= n_pages:
        return f"the pages {chosen.tolist()}, but there are {n_pages}, counted from 0"
    if len(np.unique(chosen)) < len(chosen):
        return f"a page twice: {chosen.tolist()}"
    return None


def _visar(pages: ScoredPages, **options: Any) -> Selection:
    return pages.select(**options)


def _top_k(pages: ScoredPages, k: int = DEFAULT_K, scores: Scores = "late-interaction") -> Choice:
    return baselines.top_k(pages.scores(scores), k)


def _by_scores(rule: Callable[..., Choice], **options: Any) -> MethodFunction:
    """Return a method that applies a rule to scores."""

    def choose(pages: ScoredPages, scores: Scores = "late-interaction") -> Choice:
        return rule(pages.scores(scores), **options)

    return choose


def _calibrated(pages: ScoredPages) -> Choice:
    chosen = most_useful(pages.scores("probability"))
    return Choice(len(chosen), chosen)


def _threshold(pages: ScoredPages) -> Choice:
    """Choose the pages whose mean cosine with the question reaches the calibration's threshold."""
    calibration = pages.calibration
    if calibration is None or calibration.threshold is None:
        raise InvalidOption(
            "The calibration of the encoder has no threshold. Create one with visar calibrate."
        )
    return baselines.threshold(pages.late_interaction / len(pages.query), calibration.threshold)


def _coverage(pages: ScoredPages) -> Choice:
    """Choose pages that contain all evidence, with the calibration's guarantee."""
    calibration = pages.calibration
    if calibration is None or calibration.coverage is None:
        raise InvalidOption(
            "The calibration of the encoder has no coverage guarantee. Create one with visar "
            "calibrate QUESTIONS.jsonl --coverage 0.9."
        )
    chosen = calibration.coverage.choose(page_features(pages.relevance))
    return Choice(len(chosen), chosen)


def _oracle(pages: ScoredPages) -> Choice:
    return baselines.oracle(pages.late_interaction, pages.evidence)


# The paper's approximation combines three shortcuts.
APPROXIMATION = {"top_j": 450, "top_p": 75, "top_s": 10}
# With more pages, Score-Cluster takes hours: it clusters N pages N times.
_MAX_CLUSTERED = 1_000

_METHODS = (
    Method(name="visar", function=_visar),
    Method(name="visar-approx", function=_visar, options=APPROXIMATION),
    Method(name="top-k", function=_top_k, adaptive=False),
    Method(
        name="single-vector", function=_top_k, options={"scores": "single-vector"}, adaptive=False
    ),
    Method(name="largest-gap", function=_by_scores(baselines.largest_gap)),
    Method(
        name="score-cluster", function=_by_scores(baselines.score_cluster), max_pages=_MAX_CLUSTERED
    ),
    Method(name="calibrated", function=_calibrated, needs_calibration=True),
    Method(name="threshold", function=_threshold, needs_calibration=True),
    Method(name="coverage", function=_coverage, needs_calibration=True),
    Method(name="oracle", function=_oracle, needs_evidence=True),
    Method(name="adaptive-k", function=_by_scores(baselines.largest_gap, original=True)),
    Method(
        name="car",
        function=_by_scores(baselines.score_cluster, original=True),
        max_pages=_MAX_CLUSTERED,
    ),
    Method(name="gaussian-mixture", function=_by_scores(baselines.gaussian_mixture)),
    Method(name="two-means", function=_by_scores(baselines.two_means)),
    Method(name="surprise", function=_by_scores(baselines.surprise)),
    Method(name="benjamini-hochberg", function=_by_scores(baselines.benjamini_hochberg)),
    Method(name="autocut", function=_by_scores(baselines.autocut)),
    Method(name="kneedle", function=_by_scores(baselines.kneedle)),
    Method(name="share-of-best", function=_by_scores(baselines.share_of_best)),
    Method(name="top-p", function=_by_scores(baselines.top_p)),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}
"""Built-in methods by name."""


def method_names() -> list[str]:
    """Return the names of all methods, built-in first, then those of other packages."""
    return list({**METHODS, **plugins.entry_points(ENTRY_POINTS)})


def get_method(method: str | Method | MethodFunction) -> Method:
    """Return a method by name or ``module:function``, or make one from a function.

    Raises InvalidOption if there is no such method.
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        name = getattr(method, "__name__", type(method).__name__)
        return Method(name=name, function=method)
    if method in METHODS:
        return METHODS[method]
    found = plugins.entry_points(ENTRY_POINTS).get(method)
    if found is None and not plugins.is_object_name(method):
        raise plugins.unknown_name("method", method, method_names())
    loaded = plugins.load(method if found is None else found)
    if isinstance(loaded, Method):
        return replace(loaded, name=method)
    if not callable(loaded):
        raise InvalidOption(
            f"{method} is {loaded!r}, which isn't a method. Use a function or a Method."
        )
    return Method(name=method, function=loaded)
