"""The methods that choose pages: one registry for search, evaluation and benchmarks.

A method is a function of `ScoredPages` that returns how many pages to take (an int: the
best by late interaction), a `Choice` of pages, or a
`Selection`. Other packages add methods by entry points of the group
``visar.methods``; ``module:function`` names one without a package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from visar import plugins
from visar.core import PageVectors, Selection, baselines, maxsim, select
from visar.core.baselines import Choice
from visar.core.vectors import Float32, Float64, Integers
from visar.errors import InvalidOption
from visar.retrieval.calibration import Calibration, most_useful, page_features

ENTRY_POINTS = "visar.methods"
DEFAULT_K = 5
"""Pages that fixed top-k takes unless told otherwise."""
PAPER_INACTIVE = 0.01
"""The paper's tables of sparsity count a page as inactive up to this s_p, rescaled to [0, 1]."""

Scores: TypeAlias = Literal[
    "late-interaction", "single-vector", "s_p", "normalized s_p", "probability"
]
_Shared: TypeAlias = Scores | Literal["selection"]
Cost: TypeAlias = Literal["scores", "similarity", "clustering"]
"""What a method computes beyond a question's vectors: one score per page, rows of the page-to-page
similarity, or a clustering of the scores for each possible cluster size. In growing order."""
COSTS: tuple[Cost, ...] = ("scores", "similarity", "clustering")
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
    """One question against pages: scores and selections, each computed when first asked for.

    Parameters
    ----------
    query
        (m, D) unit vectors of the question.
    pages
        The pages to choose from.
    evidence
        The pages (0-based) that hold the answer, where they are known: for the oracle alone.
    max_k
        The cap on selected pages for `select`.
    calibration
        What gives pages their probabilities, if there is one for the encoder.
    """

    def __init__(
        self,
        query: Float32,
        pages: DocumentPages | PageVectors,
        *,
        evidence: Sequence[int] = (),
        max_k: int | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.query = query
        self.pages = pages if isinstance(pages, DocumentPages) else DocumentPages(pages)
        self.evidence = tuple(evidence)
        self.max_k = max_k
        self.calibration = calibration
        self._selection: Selection | None = None
        self._scores: dict[Scores, Float64] = {}
        self._seconds: dict[_Shared, Mapping[str, float]] = {}
        self._used: dict[_Shared, None] = {}
        self._computing = 0.0

    def __len__(self) -> int:
        return len(self.pages.vectors)

    @property
    def late_interaction(self) -> Float64:
        """The MaxSim score of each page (Eq. 1)."""
        return self.scores("late-interaction")

    def scores(self, kind: Scores) -> Float64:
        """One score per page: late interaction, cosine of mean vectors, s_p, or probability.

        The normalized s_p is what it becomes when all of Sim is rescaled to [0, 1], as the paper
        does before its heuristics cut s_p. The probability is that of holding evidence if the
        pages are about the question.

        Raises
        ------
        InvalidOption
            If probabilities are asked for and there is no calibration.
        """
        self._used[kind] = None
        if kind not in self._scores:
            started = time.perf_counter()
            self._scores[kind], self._seconds[kind] = self._compute(kind)
            self._computing += time.perf_counter() - started
        return self._scores[kind]

    def select(self, **options: Any) -> Selection:
        """Run ViSAR; with no options the result is kept for the next call."""
        if options:
            return select(self.query, self.pages.vectors, max_k=self.max_k, **options)
        self._used["selection"] = None
        started = time.perf_counter()
        selection = self._select()
        self._computing += time.perf_counter() - started
        self._seconds["selection"] = selection.timings
        return selection

    def _select(self) -> Selection:
        if self._selection is None:
            self._selection = select(self.query, self.pages.vectors, max_k=self.max_k)
        return self._selection

    def _compute(self, kind: Scores) -> tuple[Float64, Mapping[str, float]]:
        """Compute the scores, and the seconds they take by stage."""
        if kind in ("s_p", "probability"):
            selection = self._select()
            # A rule on s_p needs the diagonal alone, and has a cut of its own.
            others = ("page to page", "ranking")
            stages = {name: t for name, t in selection.timings.items() if name not in others}
            return self._probabilities() if kind == "probability" else selection.scores, stages
        if kind == "normalized s_p":
            full = select(self.query, self.pages.vectors, full_matrix=True)
            return _normalized(full), full.timings
        if kind == "late-interaction":
            started = time.perf_counter()
            scores = maxsim(self.query, self.pages.vectors)
        else:
            # The means belong to the document: they are not part of the time of a question.
            means = self.pages.means
            started = time.perf_counter()
            question = self.query.mean(axis=0, dtype=np.float64)
            length = max(float(np.linalg.norm(question)), np.finfo(np.float64).tiny)
            scores = np.asarray(means @ question / length)
        return scores, {"query to page": time.perf_counter() - started}

    def _probabilities(self) -> Float64:
        if self.calibration is None:
            raise InvalidOption("Without a calibration of the encoder there are no probabilities.")
        return self.calibration.if_about(page_features(self._select()))

    def _run(self, method: Method) -> MethodResult:
        self._used.clear()
        self._computing = 0.0
        started = time.perf_counter()
        chosen = method.function(self, **method.options)
        if isinstance(chosen, Selection):
            return MethodResult(
                chosen.k_star,
                chosen.pages,
                chosen.ranking,
                chosen.sparsity,
                chosen.timings,
                chosen.sparsity_at(PAPER_INACTIVE),
            )
        ranked_by: _Shared = "late-interaction"
        if isinstance(chosen, Choice):
            ranked_by = next(iter(self._used), ranked_by)
        else:
            chosen = _first(self, chosen, method.name)
        seconds = {"choice": max(0.0, time.perf_counter() - started - self._computing)}
        for shared in self._used:
            # What an earlier method has asked for counts for every method that needs it.
            seconds |= self._seconds[shared]
        if ranked_by == "selection":
            ranking = self._select().ranking
        else:
            ranking = np.argsort(-self.scores(ranked_by), kind="stable")
        return MethodResult(chosen.k, chosen.pages, ranking, None, seconds)


def _normalized(full: Selection) -> Float64:
    """Return s_p when all of Sim, whose largest value need not be an s_p, goes from 0 to 1."""
    assert full.similarity is not None  # noqa: S101 - it was asked for
    least, span = full.similarity.min(), np.ptp(full.similarity)
    return np.asarray((full.scores - least) / span) if span > 0 else full.scores


def _first(pages: ScoredPages, k: Any, name: str) -> Choice:
    try:
        return baselines.top_k(pages.late_interaction, int(k))
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"The method {name} returned {k!r}: a method returns the number of pages (at least "
            "1), a Choice, or a Selection."
        ) from error


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The pages a method chooses; all page indices are 0-based."""

    k: int
    """Pages the method asks for, before any cap."""
    pages: Integers
    """The chosen pages, best first."""
    ranking: Integers
    """All pages in the order the method chooses from."""
    sparsity: float | None
    """Share of inactive pages, for ViSAR and its variants."""
    seconds: Mapping[str, float]
    """By stage; their sum is the latency without encoding the question."""
    paper_sparsity: float | None = None
    """As the paper counts inactive pages: those whose s_p, rescaled to [0, 1], is at most 0.01."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way of choosing pages."""

    name: str
    """What users type, and what results are stored under."""
    function: MethodFunction
    """Called with a `ScoredPages` and the options."""
    label: str = ""
    """As tables and figures show it; the name if empty."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function."""
    cost: Cost = "scores"
    group: str = "main"
    """Where an evaluation reports it."""
    adaptive: bool = True
    """Whether the method decides k by itself; one that does not takes the option ``k``."""
    needs_evidence: bool = False
    """Whether it can run only where the right pages are known."""
    needs_calibration: bool = False
    """Whether it can run only where there is a calibration of the encoder."""
    max_pages: int | None = None
    """The most pages it can be asked to choose from, if its cost needs a bound."""

    def with_options(self, **options: Any) -> Method:
        """Return this method with options added or replaced."""
        return replace(self, options={**self.options, **options})

    def choose(self, pages: ScoredPages) -> MethodResult:
        """Choose pages for a question.

        Raises
        ------
        InvalidOption
            If there are more pages than the method can handle, evidence or a calibration is
            needed and missing, or the function fails or returns something else than it should.
        """
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
            return pages._run(self)  # noqa: SLF001 - the bookkeeping of times belongs there


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


def _oracle(pages: ScoredPages) -> Choice:
    return baselines.oracle(pages.late_interaction, pages.evidence)


# The paper's approximation takes three shortcuts at once.
APPROXIMATION = {"top_j": 450, "top_p": 75, "top_s": 10}
# Beyond this many pages Score-Cluster, which clusters them N times, takes hours.
_CLUSTERED_PAGES = 1_000

# A new method is one function and one entry here, or an entry point of another package.
_METHODS = (
    Method(
        name="visar",
        function=_visar,
        label="ViSAR",
        cost="similarity",
    ),
    Method(
        name="visar-approx",
        function=_visar,
        label="ViSAR (Approx.)",
        options=APPROXIMATION,
        cost="similarity",
    ),
    Method(name="top-k", function=_top_k, label="Late-Interaction", adaptive=False),
    Method(
        name="single-vector",
        function=_top_k,
        label="Single-Vector",
        options={"scores": "single-vector"},
        adaptive=False,
    ),
    Method(name="largest-gap", function=_cut(baselines.largest_gap), label="Largest-Gap"),
    Method(
        name="score-cluster",
        function=_cut(baselines.score_cluster),
        label="Score-Cluster",
        cost="clustering",
        max_pages=_CLUSTERED_PAGES,
    ),
    Method(
        name="calibrated",
        function=_calibrated,
        label="Calibrated",
        cost="similarity",
        needs_calibration=True,
    ),
    Method(name="oracle", function=_oracle, label="Oracle", needs_evidence=True),
    Method(
        name="adaptive-k",
        function=_cut(baselines.largest_gap, original=True),
        label="Adaptive-k",
        group="others",
    ),
    Method(
        name="car",
        function=_cut(baselines.score_cluster, original=True),
        label="CAR",
        cost="clustering",
        group="others",
        max_pages=_CLUSTERED_PAGES,
    ),
    Method(
        name="gaussian-mixture",
        function=_cut(baselines.gaussian_mixture),
        label="Gaussian mixture (ViDoRAG)",
        group="others",
    ),
    Method(
        name="two-means",
        function=_cut(baselines.two_means),
        label="2-means (AVIR)",
        group="others",
    ),
    Method(name="surprise", function=_cut(baselines.surprise), label="Surprise", group="others"),
    Method(
        name="benjamini-hochberg",
        function=_cut(baselines.benjamini_hochberg),
        label="Benjamini–Hochberg",
        group="others",
    ),
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
        return replace(loaded, name=method, label=loaded.label or loaded.name)
    if not callable(loaded):
        raise InvalidOption(f"{method} is no method: it is {loaded!r}, not a function.")
    return Method(name=method, function=loaded)
