"""The method as one call: takes a query and pages, returns the pages to read."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from visar.core.cutoff import find_cutoff, in_batches
from visar.core.similarity import PageSimilarity
from visar.core.vectors import Float32, Float64, Integers, PageVectors, as_pages
from visar.core.weights import EPSILON, PatchWeights, Products, weigh
from visar.errors import InvalidOption

Weighting = Literal["tokens", "pages"]


@dataclass(frozen=True, eq=False)
class Relevance:
    """Weights and scores of pages for a question, before deciding how many it needs."""

    ranking: Integers
    """All pages, best first."""
    scores: Float64
    """Self-similarity of each page, s_p."""
    late_interaction: Float64
    """MaxSim score of each page (Eq. 1)."""
    token_weights: Float64
    """Weight of each query vector, ŵ_i."""
    page_weights: Float64
    """Weight of each page, ŵ_p."""
    patch_weights: tuple[Float32, ...]
    """Weights of the patches, ŵ_pj: one array per page."""
    active: Integers
    """Pages with a patch weight above zero."""
    fallback: str | None
    """Reason why late interaction ranks the pages instead of scores, or None."""
    timings: Mapping[str, float]
    """Seconds per stage."""

    @property
    def sparsity(self) -> float:
        """Share of inactive pages: how localized the question is."""
        return 1 - len(self.active) / len(self.ranking)

    def sparsity_at(self, threshold: float) -> float:
        """Return the share of pages whose s_p, rescaled to [0, 1], is at most ``threshold``.

        The paper's sparsity tables use 0.01. The page with the lowest score then counts as
        inactive even if all pages are active; `sparsity` only counts pages with s_p = 0.
        """
        least = self.scores.min()
        return float((self.scores - least <= threshold * np.ptp(self.scores)).mean())


@dataclass(frozen=True, eq=False)
class Selection(Relevance):
    """The pages that a question needs, and every intermediate result of the method."""

    k: int
    """Number of selected pages, at most ``max_k``."""
    k_star: int
    """Number of pages the question needs, before the cap; a lower bound if not `k_star_exact`."""
    k_star_exact: bool
    """False if ``max_k`` ended the search for k* in a long document."""
    pages: Integers
    """The k selected pages, best first (0-based)."""
    cost: Float64
    """J(1), J(2), …; NaN where it can't matter. Empty after a fallback to k* = 1."""
    similarity: Float64 | None
    """Sim(p, q), N × N, or None without ``full_matrix=True``."""

    def __repr__(self) -> str:
        return (
            f"Selection(k={self.k}, k_star={self.k_star}, pages={self.pages.tolist()}, "
            f"sparsity={self.sparsity:.2f})"
        )


def maxsim(query: Any, pages: Any, *, offsets: Any = None) -> Float64:
    """Return the late interaction score of each page, Σ_i max_j <q_i, v_pj> (Eq. 1).

    An empty page has score 0. Pages are multiplied block by block, so that memory doesn't grow
    with the document: besides the result, at most ``LONGEST_BLOCK`` vectors in float32 and
    their products with the query exist at a time.

    >>> import numpy as np
    >>> maxsim(np.eye(2), [np.eye(2), np.array([[0.6, 0.8]])]).round(3)
    array([2. , 1.4])
    """
    return np.asarray(_compare(query, pages, offsets, keep=False).activation.sum(axis=1))


def score_pages(
    query: Any,
    pages: Any,
    *,
    offsets: Any = None,
    top_t: int = 50,
    unweighted: Collection[Weighting] = (),
) -> Relevance:
    """Weigh and score pages as `select` does, without deciding how many a query needs.

    This leaves out the similarity between pages, which takes most of the time. The parameters are
    those of `select`.

    >>> import numpy as np
    >>> pages = [np.eye(4)[[0, 1]], np.eye(4)[[2, 3]], np.eye(4)[[3]]]
    >>> score_pages(np.eye(4)[[0]], pages).ranking
    array([0, 1, 2])
    """
    _check_options({"top_t": top_t}, 0, unweighted)
    clock = _Stopwatch()
    products = _compare(query, pages, offsets)
    return _score(products, clock, top_t=top_t, unweighted=unweighted)[0]


def select(
    query: Any,
    pages: Any,
    *,
    offsets: Any = None,
    top_t: int = 50,
    gamma: float = 1e5,
    max_k: int | None = None,
    top_j: int | None = None,
    top_p: int | None = None,
    top_s: int | None = None,
    full_matrix: bool = False,
    unweighted: Collection[Weighting] = (),
) -> Selection:
    """Decide which pages a query needs, and how many.

    The result is that of the paper's equations, but only the values that decide it are computed.

    Parameters
    ----------
    query
        (m, D) unit vectors of the question: a numpy array or a torch tensor.
    pages
        A sequence of (n_p, D) arrays, one stacked (Σn, D) array with ``offsets``, or the result
        of `visar.prepare`, which saves checking the vectors again. `Products` of the same
        question and pages save the multiplication.
    offsets
        N + 1 row numbers in a stacked array: the start of each page, then the end of the last.
    top_t
        T of Eq. 11: number of patches of a page that its similarity to another page averages.
    gamma
        γ of Eq. 14: weight of leakage to the pages left out, relative to coherence.
    max_k
        Maximum number of pages to select. In a long document the search ends once these are
        certain, and ``k_star`` is then a lower bound.
    top_j, top_p, top_s
        The paper's approximation: only the j heaviest patches of a page, only the p pages with
        the heaviest patches, and J up to k = s + 2 with k* at most s. The paper uses 450, 75
        and 10.
    full_matrix
        Compute all of Sim and J, for inspection.
    unweighted
        The paper's ablations: ``"tokens"`` sets w_i = 1, ``"pages"`` sets w_p = 1.

    >>> import numpy as np
    >>> pages = [np.eye(4)[[0, 1]], np.eye(4)[[2, 3]], np.eye(4)[[3]]]
    >>> select(np.eye(4)[[0]], pages)
    Selection(k=1, k_star=1, pages=[0], sparsity=0.67)
    """
    _check_options(
        {"top_t": top_t, "max_k": max_k, "top_j": top_j, "top_p": top_p, "top_s": top_s},
        gamma,
        unweighted,
    )
    clock = _Stopwatch()
    scored, similarity = _score(
        _compare(query, pages, offsets),
        clock,
        top_t=top_t,
        top_j=top_j,
        top_p=top_p,
        unweighted=unweighted,
    )
    n_pages = len(scored.ranking)
    if similarity is None:
        return Selection(
            **vars(scored),
            k=1,
            k_star=1,
            k_star_exact=True,
            pages=scored.ranking[:1],
            cost=np.zeros(0),
            similarity=np.zeros((n_pages, n_pages)) if full_matrix else None,
        )
    sources, targets = similarity.row_bounds()
    clock.lap("page to page")

    ranked = scored.ranking[: len(similarity)]
    order = np.searchsorted(similarity.pages, ranked)

    def rows(first: int, end: int) -> Float64:
        clock.lap("ranking")
        batch = similarity.rows(order[first:end].tolist())[:, order]
        clock.lap("page to page")
        return batch

    matrix = np.stack(list(in_batches(rows, len(order), len(order)))) if full_matrix else None
    cutoff = find_cutoff(
        rows if matrix is None else lambda first, end: matrix[first:end],
        scored.scores[ranked],
        (sources[order], targets[order]),
        n_pages,
        gamma=gamma,
        top_s=top_s,
        max_k=max_k,
        every_row=full_matrix,
    )
    clock.lap("ranking")

    k = cutoff.k_star if max_k is None else min(cutoff.k_star, max_k)
    return Selection(
        **vars(scored),
        k=k,
        k_star=cutoff.k_star,
        k_star_exact=cutoff.exact,
        pages=scored.ranking[:k],
        cost=cutoff.cost,
        similarity=None if matrix is None else _expand(matrix, ranked, n_pages),
    )


def _compare(query: Any, pages: Any, offsets: Any, *, keep: bool = True) -> Products:
    """Return the products of a query with pages, or ``pages`` if they are products already."""
    if isinstance(pages, Products):
        return pages
    return Products(query, as_pages(pages, offsets), keep=keep)


def _score(
    products: Products,
    clock: _Stopwatch,
    *,
    top_t: int,
    top_j: int | None = None,
    top_p: int | None = None,
    unweighted: Collection[Weighting],
) -> tuple[Relevance, PageSimilarity | None]:
    """Return the relevance of pages, and the similarity of the active ones, if there are any."""
    vectors, n_query = products.pages, len(products.query)
    late = products.activation.sum(axis=1)
    clock.lap("query to page")

    weights = None
    if len(vectors) > 1:
        weights = weigh(
            products, tokens="tokens" not in unweighted, pages="pages" not in unweighted
        )
    del products  # their memory, unless the caller keeps them
    clock.lap("page to query")
    if weights is None or not weights.patches.any():
        return _rank_by_late_interaction(late, vectors, n_query, weights, clock), None

    similarity = PageSimilarity(vectors, weights.patches, top_t=top_t, top_j=top_j, top_p=top_p)
    scores = np.zeros(len(vectors))
    scores[similarity.pages] = similarity.diagonal()
    patch_weights = tuple(np.split(weights.patches, vectors.offsets[1:-1]))
    scored = Relevance(
        ranking=rank(scores, late),
        scores=scores,
        late_interaction=late,
        token_weights=weights.tokens,
        page_weights=weights.pages,
        patch_weights=patch_weights,
        active=np.flatnonzero([page.any() for page in patch_weights]),
        fallback=None,
        timings=clock.laps,
    )
    clock.lap("self-similarity")
    return scored, similarity


def rank(scores: Float64, late: Float64) -> Integers:
    """Return all pages, best first: by score, then late interaction, then page number."""
    return np.lexsort((_levels(late), _levels(scores)))


def _levels(values: Float64) -> Integers:
    """Return the dense rank of each value, from 0; values equal within rounding share a rank."""
    order = np.argsort(-values, kind="stable")
    descending = values[order]
    falls = descending[:-1] - descending[1:] > EPSILON * np.abs(descending[:-1])
    levels = np.empty(len(values), np.int64)
    levels[order] = np.concatenate([[0], np.cumsum(falls)])
    return levels


def _rank_by_late_interaction(
    late: Float64,
    vectors: PageVectors,
    n_query: int,
    weights: PatchWeights | None,
    clock: _Stopwatch,
) -> Relevance:
    """Rank pages by late interaction, for questions that the method can't score."""
    n_pages = len(late)
    if n_pages == 1:
        reason = "one page"
    elif weights is None:
        reason = "no query vector is active"
    else:
        reason = "no patch stands out"
    return Relevance(
        ranking=rank(np.zeros(n_pages), late),
        scores=np.zeros(n_pages),
        late_interaction=late,
        token_weights=weights.tokens if weights else np.zeros(n_query),
        page_weights=weights.pages if weights else np.zeros(n_pages),
        patch_weights=tuple(np.zeros(n, np.float32) for n in np.diff(vectors.offsets)),
        active=np.zeros(0, np.int64),
        fallback=reason,
        timings=clock.laps,
    )


def _expand(matrix: Float64, pages: Integers, n_pages: int) -> Float64:
    """Return the matrix of all pages, given the rows and columns of ``pages``."""
    whole = np.zeros((n_pages, n_pages))
    whole[np.ix_(pages, pages)] = matrix
    return whole


def _check_options(
    counts: Mapping[str, int | None], gamma: float, unweighted: Collection[str]
) -> None:
    for name, value in counts.items():
        if value is None and name != "top_t":
            continue
        try:
            count = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise InvalidOption(f"{name} must be a whole number, not {value!r}.") from None
        if count < 1:
            raise InvalidOption(f"{name} must be at least 1, not {count}.")
    if not (math.isfinite(gamma) and gamma >= 0):
        raise InvalidOption(f"gamma must be a finite number, 0 or more, not {gamma!r}.")
    unknown = set(unweighted) - {"tokens", "pages"}
    if isinstance(unweighted, str) or unknown:
        raise InvalidOption(
            f'unweighted must be a collection of "tokens" and "pages", not {unweighted!r}.'
        )


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._start = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to a stage."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._start
        self._start = now
