"""The ways of choosing pages that the paper compares ViSAR with.

Each function takes one score per page, whatever it came from: late interaction for the paper's
baselines, ``Selection.scores`` for its ablations (k chosen by another rule on s_p).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float64, Integers, as_matrix, as_query, decode
from visar.errors import InvalidOption, InvalidVectors, MissingExtra

# The paper rounds scores before it looks for the largest gap between them, or for clusters.
DECIMALS = 3
# Adaptive-k as published: the last tenth of the gaps is ignored, and five pages are added.
IGNORED_TAIL = 0.1
BUFFER = 5


@dataclass(frozen=True, eq=False)
class Choice:
    """How many pages, and which."""

    k: int
    pages: Integers
    """The k pages, best first (0-based)."""

    def __repr__(self) -> str:
        return f"Choice(k={self.k}, pages={self.pages.tolist()})"


def top_k(scores: Any, k: int) -> Choice:
    """The k pages with the highest score: the usual way.

    >>> top_k([0.1, 0.9, 0.5], 2)
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    if k < 1:
        raise InvalidOption(f"k must be at least 1, not {k}.")
    return _first(values, k)


def single_vector(query: Any, pages: Any, k: int) -> Choice:
    """The k pages whose one vector has the largest cosine with the query's one vector.

    ``query`` has shape (D,) or (1, D), ``pages`` (N, D).
    """
    raw = as_matrix(pages, "the pages")
    vectors = np.empty(raw.shape, np.float32)
    decode(raw, vectors)
    question = as_query(query[None] if query.ndim == 1 else query, raw.shape[1])
    if len(question) != 1:
        raise InvalidVectors(f"A single-vector query has one vector, not {len(question)}.")
    return top_k(vectors @ question[0] / np.linalg.norm(vectors, axis=1), k)


def largest_gap(scores: Any, *, original: bool = False) -> Choice:
    """The pages before the largest drop in score.

    The paper's version rounds scores to three decimals and takes the first largest drop.
    ``original=True`` is Adaptive-k (Taguchi et al., 2025) as published: no rounding, the last
    tenth of the gaps ignored, five pages added.

    >>> largest_gap([0.2, 0.9, 0.8, 0.1])
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    descending = np.sort(values)[::-1]
    if original:
        drops = descending[:-1] - descending[1:]
        drops = drops[: len(drops) - int(len(drops) * IGNORED_TAIL)]
    else:
        # Drops between rounded scores are rounded again: equal ones must be equal.
        rounded = np.round(descending, DECIMALS)
        drops = np.round(rounded[:-1] - rounded[1:], DECIMALS)
    if not len(drops):
        return _first(values, 1)
    k = int(np.argmax(drops)) + 1
    return _first(values, k + BUFFER if original else k)


def score_cluster(scores: Any, *, original: bool = False) -> Choice:
    """The pages before the best boundary between clusters of scores.

    After Cluster-based Adaptive Retrieval (Xu et al., 2025): HDBSCAN groups the points
    (δ, rank), δ being 1 − score rescaled to [0, 1], for every smallest cluster size; the
    grouping with the best silhouette gives the boundaries. The paper rounds scores to three
    decimals and takes the boundary with the largest step in δ; ``original=True`` does not round,
    and adds a share for its depth, rank / N. All pages when scores are not numbers, are all the
    same, or have no boundary.

    Needs scikit-learn: ``pip install 'visar[eval]'``.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim == 1 and np.isnan(values).any():
        return Choice(len(values), np.arange(len(values)))
    values = _as_scores(values)
    n = len(values)
    descending = np.sort(values)[::-1]
    distance = 1 - (descending if original else np.round(descending, DECIMALS))
    span = distance[-1] - distance[0]
    if n < 3 or span == 0:
        return _first(values, n)
    distance = (distance - distance[0]) / span
    labels = _best_clusters(np.column_stack([distance, np.arange(n)]))
    boundaries = np.flatnonzero(np.diff(labels)) + 1
    if not len(boundaries):
        return _first(values, n)
    steps = distance[boundaries] - distance[boundaries - 1]
    quality = steps / (steps.max() + 1e-6)
    if original:
        quality = quality + boundaries / n
    return _first(values, int(boundaries[np.argmax(quality)]))


def oracle(scores: Any, evidence: Iterable[int]) -> Choice:
    """The smallest top-k that holds every evidence page (0-based): what a fixed ranking can reach.

    >>> oracle([0.1, 0.9, 0.5], [2])
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    wanted = sorted(set(evidence))
    if not wanted:
        raise InvalidOption("The oracle needs at least one evidence page.")
    if wanted[0] < 0 or wanted[-1] >= len(values):
        raise InvalidOption(
            f"Evidence pages must lie between 0 and {len(values) - 1}, not {wanted}."
        )
    places = np.flatnonzero(np.isin(_descending(values), wanted))
    return _first(values, int(places[-1]) + 1)


def _as_scores(scores: Any) -> Float64:
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not len(values):
        raise InvalidVectors(f"There must be one score per page, not shape {values.shape}.")
    if not np.isfinite(values).all():
        page = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidVectors(f"The score of page {page} (counted from 0) is {values[page]}.")
    return values


def _descending(values: Float64) -> Integers:
    return np.argsort(-values, kind="stable")


def _first(values: Float64, k: int) -> Choice:
    k = min(max(k, 1), len(values))
    return Choice(k, _descending(values)[:k])


def _best_clusters(points: Float64) -> NDArray[np.int64]:
    """HDBSCAN's labels for the (first) smallest cluster size with the best silhouette."""
    try:
        from sklearn.cluster import HDBSCAN
        from sklearn.metrics import silhouette_score
    except ImportError:
        raise MissingExtra("Score-Cluster", "eval") from None
    best, best_quality = np.zeros(len(points), np.int64), -np.inf
    for smallest in range(2, len(points)):
        labels = HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(points)
        quality = -1.0
        if 1 < len(np.unique(labels)) < len(points):
            quality = float(silhouette_score(points, labels))
        if quality > best_quality:
            best, best_quality = labels, quality
    return best
