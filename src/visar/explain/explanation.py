"""Why these pages: everything that the views of a decision show, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from visar.core import select
from visar.core.selection import Selection
from visar.core.similarity import PageSimilarity
from visar.core.weights import Products, activation
from visar.results import SearchResult
from visar.retrieval.calibration import find_calibration
from visar.retrieval.methods import METHODS, DocumentPages, ScoredPages

# A matrix of more pages than this is too fine to look at.
MOST_PAGES = 200
TOP_T = 50
# Score-Cluster clusters the pages once for every size of cluster.
_CLUSTERED_PAGES = 150


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A word of the question."""

    text: str
    influence: float
    """How much of the weight on the chosen pages it has given, 0 to 1 relative to the most."""
    vectors: tuple[int, ...]
    """Which of the question's vectors are of it."""


@dataclass(frozen=True, slots=True)
class SearchedPage:
    """A page that was searched."""

    document: str
    page: int
    """1 for the first."""
    activity: float
    """s_p, 0 to 1 relative to the largest: how much of the page speaks of the question."""
    late_interaction: float
    rank: int
    """1 for the best."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What the method saw of a question."""

    words: tuple[QuestionWord, ...]
    """Empty if the encoder does not tell which of its vectors belong to which word."""
    pages: tuple[SearchedPage, ...]
    """Those that the method chose from, in the order of their documents."""
    cost: tuple[float | None, ...]
    """J(1), J(2), …; None where it was proved not to matter."""
    k_star: int
    similarity: NDArray[np.float32]
    """Sim(p, q) between the best active pages, at most 200, in rank order."""
    cuts: Mapping[str, int]
    """How many pages other methods would take, by the names of ``visar.retrieval.methods``."""


def explain(
    found: SearchResult, pages: DocumentPages, spans: Sequence[tuple[int, int]] | None
) -> Explanation:
    """Explain a result, given the vectors of the pages that were searched.

    ``spans`` are the characters of the question that each of its vectors stands for.
    """
    few = len(found.selection.active) <= MOST_PAGES
    selection = select(found.query, pages.vectors, full_matrix=few)
    return Explanation(
        words=_words(found, pages, spans),
        pages=_pages(found, selection),
        cost=tuple(float(value) if np.isfinite(value) else None for value in selection.cost),
        k_star=selection.k_star,
        similarity=_similarity(pages, selection),
        cuts=_cuts(found, pages),
    )


def _words(
    found: SearchResult, pages: DocumentPages, spans: Sequence[tuple[int, int]] | None
) -> tuple[QuestionWord, ...]:
    if spans is None:
        return ()
    given = _influence(found, pages)
    words, start = [], 0
    for text in found.question.split():
        start = found.question.index(text, start)
        end = start + len(text)
        vectors = tuple(n for n, (first, last) in enumerate(spans) if first < end and last > start)
        words.append((text, float(given[list(vectors)].sum()), vectors))
        start = end
    most = max((influence for _, influence, _ in words), default=0.0) or 1.0
    return tuple(QuestionWord(text, given / most, vectors) for text, given, vectors in words)


def _influence(found: SearchResult, pages: DocumentPages) -> NDArray[np.float64]:
    """How much each vector of the question speaks for the chosen pages.

    A patch's weight comes from the largest term of Eq. 8; here it is shared among all vectors in
    proportion to their terms, since a word that nearly wins everywhere matters too.
    """
    selection, vectors = found.selection, pages.vectors
    products = Products(found.query, vectors, keep=False)
    activations = activation(products, len(vectors), len(found.query))
    means = np.maximum(activations.mean(axis=0), np.finfo(np.float64).tiny)
    # The normalised spread of a vector's activations is a factor of all of them.
    factors = activations / means * activations.std(axis=0) * selection.token_weights
    given = np.zeros(len(found.query))
    for page in selection.pages.tolist():
        rows = np.arange(vectors.offsets[page], vectors.offsets[page + 1])
        cosines = vectors.take(rows, np.ones(len(rows), np.float32)) @ found.query.T
        terms = np.maximum(cosines, 0) * factors[page] ** 2
        terms /= np.maximum(terms.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        given += selection.patch_weights[page] @ terms
    return given


def _pages(found: SearchResult, selection: Selection) -> tuple[SearchedPage, ...]:
    ranks = np.empty(len(selection.ranking), int)
    ranks[selection.ranking] = np.arange(1, len(ranks) + 1)
    largest = float(selection.scores.max(initial=0)) or 1.0
    values = zip(found.places, selection.scores, selection.late_interaction, ranks, strict=True)
    return tuple(
        SearchedPage(document, page, float(score) / largest, float(late), int(rank))
        for (document, page), score, late, rank in values
    )


def _similarity(pages: DocumentPages, selection: Selection) -> NDArray[np.float32]:
    """Sim of the best active pages, in rank order."""
    active = set(selection.active.tolist())
    best = [page for page in selection.ranking.tolist() if page in active][:MOST_PAGES]
    if selection.similarity is not None:
        return selection.similarity[np.ix_(best, best)].astype(np.float32)
    weights = np.concatenate(selection.patch_weights)
    similarity = PageSimilarity(pages.vectors, weights, top_t=TOP_T)
    order = np.searchsorted(similarity.pages, best).tolist()
    return similarity.rows(order)[:, order].astype(np.float32)


def _cuts(found: SearchResult, pages: DocumentPages) -> dict[str, int]:
    calibration = find_calibration(found.encoder)
    scored = ScoredPages(found.query, pages, calibration=calibration)
    names = ["visar", "visar-approx", "largest-gap"]
    if len(scored) <= _CLUSTERED_PAGES and find_spec("sklearn") is not None:
        names.append("score-cluster")
    if calibration is not None:
        names.append("calibrated")
    return {name: METHODS[name].choose(scored).k for name in names}
