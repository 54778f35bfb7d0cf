"""The methods that choose pages: one registry for search, evaluation and benchmarks.

A method is a function of `ScoredPages` that returns a number of pages (an int: the best by late
interaction), a `Choice` of pages, or a `Selection`. Other packages add methods by entry points of
the group ``visar.methods``; ``module:function`` names one without a package.
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
"""Number of pages that fixed top-k takes by default."""

Scores: TypeAlias = Literal["late-interaction", "single-vector", "s_p", "probability"]
MethodFunction: TypeAlias = Callable[..., "int | Choice | Selection"]


@dataclass(frozen=True)
class DocumentPages:
    """The page vectors of one or more documents, with what many questions share."""

    vectors: PageVectors

    @cached_property
    def means(self) -> Float64:
        """The mean vector of each page, of length 1; 0 for an empty page."""
        sums = np.zeros((len(self.vectors), self.vectors.dimension))
        for block in self.vectors.blocks():
            np.add.at(sums, block.pages, np.add.reduceat(block.vectors, block.starts, axis=0))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.asarray(sums / np.maximum(lengths, np.finfo(np.float64).tiny))


class ScoredPages:
    """Scores and selections of pages for one question, each computed when first asked for.

    Parameters
    ----------
    query
        (m, D) unit vectors of the question.
    pages
        The pages to choose from.
    evidence
        Pages (0-based) that hold the answer, where they are known: only the oracle looks at them.
    max_k
        Maximum number of pages for `select`.
    calibration
        Calibration of the encoder, which gives pages their probabilities.
    products
        Products of the question with the pages, which everything is then computed from. Without
        them each selection compares the question with the pages anew, and is timed with it.
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
        """Weights and scores of the pages; a `Selection` once ViSAR has run."""
        if self._relevance is None:
            self._relevance = score_pages(self.query, self._compared)
        return self._relevance

    def scores(self, kind: Scores) -> Float64:
        """Return one score per page: late interaction, cosine of mean vectors, s_p, or probability.

        The probability is that of holding evidence if the pages are about the question.

        Raises
        ------
        InvalidOption
            If probabilities are asked for and there is no calibration.
        """
        if kind not in self._scores:
            self._scores[kind] = self._compute(kind)
        return self._scores[kind]

    def select(self, **options: Any) -> Selection:
        """Run ViSAR; with no options the result is kept for the next call."""
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
    """Pages of which only scores are known, such as those of another program.

    They stand for late interaction. Methods that need vectors raise InvalidOption.
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
        raise self._refusal()

    def select(self, **_: Any) -> Selection:
        """Raise InvalidOption: there are no vectors."""
        raise self._refusal()

    def _compute(self, _: Scores) -> Float64:
        raise self._refusal()

    @staticmethod
    def _refusal() -> InvalidOption:
        return InvalidOption(
            "This method needs the vectors of pages, and only scores are known here: take one "
            "that goes by scores, such as top-k, largest-gap or autocut."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way of choosing pages."""

    name: str
    """Name that users type, and that results are stored under."""
    function: MethodFunction
    """Called with a `ScoredPages` and the options."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function."""
    adaptive: bool = True
    """Whether the method decides k by itself; one that does not takes the option ``k``."""
    needs_evidence: bool = False
    """Whether it can run only where the right pages are known."""
    needs_calibration: bool = False
    """Whether it can run only where there is a calibration of the encoder."""
    max_pages: int | None = None
    """Maximum number of pages it can choose from, if it is slow."""

    def with_options(self, **options: Any) -> Method:
        """Return this method with options added or replaced."""
        return replace(self, options={**self.options, **options})

    def choose(self, pages: ScoredPages) -> Choice | Selection:
        """Choose pages for a question.

        Raises
        ------
        InvalidOption
            If there are more pages than the method can handle, evidence or a calibration is
            needed and missing, or the function fails or returns something else than pages.
        """
        return self.check_result(self.call(pages), pages)

    def call(self, pages: ScoredPages) -> int | Choice | Selection:
        """Return what the function returns, whatever it is; raises as `choose` does."""
        if self.max_pages is not None and len(pages) > self.max_pages:
            raise InvalidOption(
                f"The method {self.name} takes too long on {len(pages)} pages: it can choose from "
                f"{self.max_pages} at most. Name fewer documents, or take another method."
            )
        if self.needs_evidence and not pages.evidence:
            raise InvalidOption(f"The method {self.name} needs questions with evidence pages.")
        if self.needs_calibration and pages.calibration is None:
            raise InvalidOption(
                f"The method {self.name} needs a calibration of the encoder: make one with "
                "visar calibrate QUESTIONS.jsonl --encoder NAME, or take another method."
            )
        with plugins.failing_as(InvalidOption, f"The method {self.name} failed"):
            return self.function(pages, **self.options)

    def check_result(
        self, result: int | Choice | Selection, pages: ScoredPages
    ) -> Choice | Selection:
        """Return the pages that a result of `call` stands for; raises as `choose` does."""
        fault = _fault(result, len(pages))
        if fault is not None:
            raise InvalidOption(
                f"The method {self.name} returned {fault}: a method returns the number of pages "
                "(at least 1), a Choice, or a Selection."
            )
        if isinstance(result, Choice | Selection):
            return result
        return baselines.top_k(pages.late_interaction, int(result))


def _fault(result: int | Choice | Selection, n_pages: int) -> str | None:
    """Return what is wrong with the result of a method, which may be anything, or None."""
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
        return f"the pages {chosen.tolist()}, of {n_pages} that are counted from 0"
    if len(np.unique(chosen)) < len(chosen):
        return f"a page twice, in {chosen.tolist()}"
    return None


def _visar(pages: ScoredPages, **options: Any) -> Selection:
    return pages.select(**options)


def _top_k(pages: ScoredPages, k: int = DEFAULT_K, scores: Scores = "late-interaction") -> Choice:
    return baselines.top_k(pages.scores(scores), k)


def _cut(rule: Callable[..., Choice], **options: Any) -> MethodFunction:
    """Return a method that applies a rule on scores."""

    def choose(pages: ScoredPages, scores: Scores = "late-interaction") -> Choice:
        return rule(pages.scores(scores), **options)

    return choose


def _calibrated(pages: ScoredPages) -> Choice:
    chosen = most_useful(pages.scores("probability"))
    return Choice(len(chosen), chosen)


def _threshold(pages: ScoredPages) -> Choice:
    """Take the pages whose mean cosine with the question reaches the calibration's threshold."""
    calibration = pages.calibration
    if calibration is None or calibration.threshold is None:
        raise InvalidOption(
            "The calibration of the encoder has no threshold: make it again with visar calibrate."
        )
    return baselines.threshold(pages.late_interaction / len(pages.query), calibration.threshold)


def _coverage(pages: ScoredPages) -> Choice:
    """Take the pages that the calibration promises to hold all evidence."""
    calibration = pages.calibration
    if calibration is None or calibration.coverage is None:
        raise InvalidOption(
            "The calibration of the encoder promises no recall: make one that does with visar "
            "calibrate QUESTIONS.jsonl --coverage 0.9."
        )
    chosen = calibration.coverage.choose(page_features(pages.relevance))
    return Choice(len(chosen), chosen)


def _oracle(pages: ScoredPages) -> Choice:
    return baselines.oracle(pages.late_interaction, pages.evidence)


# The paper's approximation takes three shortcuts at once.
APPROXIMATION = {"top_j": 450, "top_p": 75, "top_s": 10}
# Beyond this many pages Score-Cluster, which clusters them N times, takes hours.
_CLUSTERED_PAGES = 1_000

# A new method is one function and one entry here, or an entry point of another package.
_METHODS = (
    Method(name="visar", function=_visar),
    Method(name="visar-approx", function=_visar, options=APPROXIMATION),
    Method(name="top-k", function=_top_k, adaptive=False),
    Method(
        name="single-vector", function=_top_k, options={"scores": "single-vector"}, adaptive=False
    ),
    Method(name="largest-gap", function=_cut(baselines.largest_gap)),
    Method(
        name="score-cluster", function=_cut(baselines.score_cluster), max_pages=_CLUSTERED_PAGES
    ),
    Method(name="calibrated", function=_calibrated, needs_calibration=True),
    Method(name="threshold", function=_threshold, needs_calibration=True),
    Method(name="coverage", function=_coverage, needs_calibration=True),
    Method(name="oracle", function=_oracle, needs_evidence=True),
    Method(name="adaptive-k", function=_cut(baselines.largest_gap, original=True)),
    Method(
        name="car",
        function=_cut(baselines.score_cluster, original=True),
        max_pages=_CLUSTERED_PAGES,
    ),
    Method(name="gaussian-mixture", function=_cut(baselines.gaussian_mixture)),
    Method(name="two-means", function=_cut(baselines.two_means)),
    Method(name="surprise", function=_cut(baselines.surprise)),
    Method(name="benjamini-hochberg", function=_cut(baselines.benjamini_hochberg)),
    Method(name="autocut", function=_cut(baselines.autocut)),
    Method(name="kneedle", function=_cut(baselines.kneedle)),
    Method(name="share-of-best", function=_cut(baselines.share_of_best)),
    Method(name="top-p", function=_cut(baselines.top_p)),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}
"""The methods that come with ViSAR."""


def method_names() -> list[str]:
    """Return the names of all methods, ours first, then those of installed packages."""
    return list({**METHODS, **plugins.entry_points(ENTRY_POINTS)})


def get_method(method: str | Method | MethodFunction) -> Method:
    """Return a method by name, by ``module:function``, or from a function.

    Raises
    ------
    InvalidOption
        If there is no such method.
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
        raise InvalidOption(f"{method} is {loaded!r}, not a method: give a function or a Method.")
    return Method(name=method, function=loaded)
