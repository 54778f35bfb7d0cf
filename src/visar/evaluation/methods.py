"""The methods that an evaluation compares, their variants and their timing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np

from visar import plugins
from visar.core import Relevance, Selection, select
from visar.core.baselines import Choice
from visar.core.vectors import Float64, Integers
from visar.retrieval import methods as registry
from visar.retrieval.methods import APPROXIMATION, Method, ScoredPages, get_method, method_names

GROUPS = ("main", "others", "ablation", "T", "gamma", "acceleration")
DEPTH = 10
"""The length of rankings in tables."""
PAPER_INACTIVE = 0.01
"""The maximum s_p, rescaled to [0, 1], of inactive pages in the paper's sparsity tables."""
# The parameter grids of the paper.
T_SWEEP = (1, 5, 10, 25, 50, 75, 100, 150, 200, 300, 500, 750, 1000)
GAMMA_SWEEP = tuple(10.0**power for power in range(9))

Cost: TypeAlias = Literal["scores", "similarity", "clustering"]
"""The cost of a method, in increasing order: one score per page, rows of the page-to-page
similarity, or a clustering of the scores for each possible cluster size."""
COSTS: tuple[Cost, ...] = ("scores", "similarity", "clustering")
_Scores: TypeAlias = registry.Scores | Literal["normalized s_p"]
_Used: TypeAlias = _Scores | Literal["relevance", "selection"]


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The pages that a method chose. Page indices start at 0."""

    k: int
    """The number of pages the method requests, before any cap."""
    pages: Integers
    """The chosen pages, best first."""
    ranking: Integers
    """The ranking of all pages that the method chooses from."""
    sparsity: float | None
    """The share of inactive pages, for ViSAR and its variants."""
    seconds: Mapping[str, float]
    """Seconds by stage; their sum is the latency without encoding the question."""
    paper_sparsity: float | None = None
    """The share of inactive pages by the paper's definition, `PAPER_INACTIVE`."""


class TimedPages(ScoredPages):
    """Scored pages that methods share, with the full cost of shared values added to each method."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds: dict[_Used, Mapping[str, float]] = {}
        self._used: dict[_Used, None] = {}
        self._computing = 0.0

    def run(self, method: Method) -> MethodResult:
        """Run a method and measure its time."""
        self._used.clear()
        self._computing = 0.0
        started = time.perf_counter()
        returned = method.call(self)
        if isinstance(returned, Selection):
            method.check_result(returned, self)
            return MethodResult(
                returned.k_star,
                returned.pages,
                returned.ranking,
                returned.sparsity,
                returned.timings,
                returned.sparsity_at(PAPER_INACTIVE),
            )
        ranked_by: _Used = "late-interaction"
        if isinstance(returned, Choice):
            ranked_by = next(iter(self._used), ranked_by)
        chosen = method.check_result(returned, self)
        seconds = {"choice": max(0.0, time.perf_counter() - started - self._computing)}
        for used in self._used:
            # Add the time of values that were computed for an earlier method.
            seconds |= self._seconds[used]
        if ranked_by == "relevance" or ranked_by == "selection":
            ranking = super().select().ranking
        else:
            ranking = np.argsort(-self.scores(ranked_by), kind="stable")
        return MethodResult(chosen.k, chosen.pages, ranking, None, seconds)

    @property
    def relevance(self) -> Relevance:
        """The weights and scores of the pages, shared with ViSAR."""
        return self._use_selection("relevance", _SCORING)

    def scores(self, kind: _Scores) -> Float64:
        """Return one score per page, as `ScoredPages.scores` does, or the normalized s_p.

        The normalized s_p is s_p after rescaling all of Sim to [0, 1], as in the paper's heuristics
        on s_p.
        """
        self._used[kind] = None
        if kind not in self._scores:
            started = time.perf_counter()
            self._scores[kind], self._seconds[kind] = self._measure(kind)
            self._computing += time.perf_counter() - started
        return self._scores[kind]

    def select(self, **options: Any) -> Selection:
        """Run ViSAR, as `ScoredPages.select` does."""
        if options:
            return super().select(**options)
        return self._use_selection("selection")

    def _use_selection(self, used: _Used, stages: Iterable[str] | None = None) -> Selection:
        """Run ViSAR unless it has run, and add the time of its stages (all by default)."""
        self._used[used] = None
        started = time.perf_counter()
        selection = super().select()
        self._computing += time.perf_counter() - started
        self._seconds[used] = _stage_seconds(selection, stages)
        return selection

    def _measure(self, kind: _Scores) -> tuple[Float64, Mapping[str, float]]:
        """Compute scores; return them with their seconds by stage."""
        if kind == "normalized s_p":
            full = select(self.query, self.pages.vectors, full_matrix=True)
            return normalized_scores(full), full.timings
        if kind in ("s_p", "probability"):
            stages = _stage_seconds(super().select(), _SCORING)
            return self._compute(kind), stages
        if kind == "single-vector":
            # Compute the means now: they belong to the document, not to the question's time.
            _ = self.pages.means
        started = time.perf_counter()
        scores = self._compute(kind)
        return scores, {"query to page": time.perf_counter() - started}


# Stages that methods on s_p need: only the diagonal of Sim, and no ranking.
_SCORING = ("query to page", "page to query", "self-similarity")


def _stage_seconds(selection: Selection, stages: Iterable[str] | None) -> Mapping[str, float]:
    if stages is None:
        return selection.timings
    return {stage: selection.timings[stage] for stage in stages if stage in selection.timings}


def normalized_scores(full: Selection) -> Float64:
    """Return s_p after rescaling all of Sim to [0, 1]; the largest value need not be an s_p."""
    assert full.similarity is not None  # noqa: S101 - full_matrix was set
    least, span = full.similarity.min(), np.ptp(full.similarity)
    return np.asarray((full.scores - least) / span) if span > 0 else full.scores


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMethod(Method):
    """A method with its label and group in tables and figures."""

    label: str = ""
    """The name in tables and figures; the method's name if empty."""
    group: str = "main"
    """One of `GROUPS`, which determines its tables and figures."""
    cost: Cost = "scores"


def _compared(
    method: Method, label: str, group: str = "main", cost: Cost = "scores"
) -> ComparedMethod:
    values = {each.name: getattr(method, each.name) for each in fields(Method)}
    return ComparedMethod(**values, label=label, group=group, cost=cost)


_DISPLAY: Mapping[str, tuple[str] | tuple[str, str] | tuple[str, str, Cost]] = {
    "visar": ("ViSAR", "main", "similarity"),
    "visar-approx": ("ViSAR (Approx.)", "main", "similarity"),
    "top-k": ("Late-Interaction",),
    "single-vector": ("Single-Vector",),
    "largest-gap": ("Largest-Gap",),
    "score-cluster": ("Score-Cluster", "main", "clustering"),
    "calibrated": ("Calibrated", "main", "similarity"),
    "threshold": ("Fixed threshold", "others"),
    "coverage": ("Promised recall", "others", "similarity"),
    "oracle": ("Oracle",),
    "adaptive-k": ("Adaptive-k", "others"),
    "car": ("CAR", "others", "clustering"),
    "gaussian-mixture": ("Gaussian mixture (ViDoRAG)", "others"),
    "two-means": ("2-means (AVIR)", "others"),
    "surprise": ("Surprise", "others"),
    "benjamini-hochberg": ("Benjamini–Hochberg", "others"),
    "autocut": ("Autocut (Weaviate)", "others"),
    "kneedle": ("Kneedle", "others"),
    "share-of-best": ("Share of the best score", "others"),
    "top-p": ("Top-p", "others"),
}
_REGISTERED = {
    name: _compared(registry.METHODS[name], *values) for name, values in _DISPLAY.items()
}


def _variant(
    base: str, name: str, label: str, group: str, options: Mapping[str, Any]
) -> ComparedMethod:
    method = _REGISTERED[base]
    # Every variant needs ViSAR's similarities, at least for s_p.
    cost = max(method.cost, "similarity", key=COSTS.index)
    return replace(method, name=name, label=label, group=group, options=options, cost=cost)


def _accelerations() -> list[ComparedMethod]:
    """Return variants with each shortcut of the approximation alone, and with each pair."""
    chosen = [names for count in (1, 2) for names in combinations(APPROXIMATION, count)]
    return [
        _variant(
            "visar",
            " ".join(["visar", *(f"{name}={APPROXIMATION[name]}" for name in names)]),
            ", ".join(f"{name.replace('_', '-')} = {APPROXIMATION[name]}" for name in names),
            "acceleration",
            {name: APPROXIMATION[name] for name in names},
        )
        for names in chosen
    ]


_UNWEIGHTED = {"w_i": "tokens", "w_p": "pages"}
_METHODS = (
    # Fixed k comes first, as in the paper's tables. Methods that need a calibration aren't in a
    # group, because most encoders have none.
    *sorted(
        (method for method in _REGISTERED.values() if not method.needs_calibration),
        key=lambda method: method.adaptive,
    ),
    *(
        _variant(
            "visar",
            f"visar {'='.join(names)}=1",
            f"{' = '.join(names)} = 1",
            "ablation",
            {"unweighted": tuple(_UNWEIGHTED[name] for name in names)},
        )
        for names in (("w_i",), ("w_p",), ("w_i", "w_p"))
    ),
    *(
        _variant(base, f"visar {base}", f"{label} on s_p", "ablation", {"scores": scores})
        for base, label, scores in (
            ("top-k", "Fixed top-k", "s_p"),
            ("largest-gap", "Largest-Gap", "normalized s_p"),
            ("score-cluster", "Score-Cluster", "normalized s_p"),
        )
    ),
    *(_variant("visar", f"visar T={t}", f"T = {t}", "T", {"top_t": t}) for t in T_SWEEP),
    *(
        _variant("visar", f"visar gamma={g:g}", f"γ = {g:g}", "gamma", {"gamma": g})
        for g in GAMMA_SWEEP
    ),
    *_accelerations(),
)
METHODS: dict[str, ComparedMethod] = {method.name: method for method in _METHODS}
"""The known methods, by the name that results are stored under."""
LABELS = {name: method.label or name for name, method in (_REGISTERED | METHODS).items()}
"""The labels of methods in tables and figures."""


def find_methods(names: Iterable[str], depth: int = DEPTH) -> list[ComparedMethod]:
    """Return methods by name, each once, slow ones last.

    Names can be keys of `METHODS`, groups, methods of installed packages, or ``module:function``.
    ``depth`` is the number of pages for methods with a fixed k. Raises InvalidOption if a name is
    unknown.
    """
    found: dict[str, ComparedMethod] = {}
    for name in names:
        for method in _methods_by_name(name):
            if not method.adaptive:
                method = replace(method, options={**method.options, "k": depth})
            found[method.name] = method
    return sorted(found.values(), key=lambda method: COSTS.index(method.cost))


def _methods_by_name(name: str) -> list[ComparedMethod]:
    if name in GROUPS:
        return [method for method in METHODS.values() if method.group == name]
    if name in METHODS:
        return [METHODS[name]]
    if name not in method_names() and not plugins.is_object_name(name):
        raise plugins.unknown_name(
            "method", name, dict.fromkeys((*GROUPS, *METHODS, *method_names()))
        )
    if name in _REGISTERED:
        return [_REGISTERED[name]]
    return [_compared(get_method(name), "")]


def is_answered(method: ComparedMethod) -> bool:
    """Return whether generators answer from the pages of a method.

    This excludes the oracle, which knows the evidence, the approximation, which chooses the same
    pages as ViSAR, and sweeps and weight ablations, which are about the ranking.
    """
    if method.group == "ablation":
        return "scores" in method.options
    is_main = method.group == "main" and not method.needs_evidence
    return is_main and method.name != "visar-approx"
