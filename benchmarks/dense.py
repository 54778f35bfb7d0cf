"""The paper's dense similarity in blocks of pages, as a baseline for the exact selection.

Inactive pages are skipped. For active pages, all patches are multiplied with all patches. Stages 1
and 2 are the engine's own, so that only the difference is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visar.core.selection import rank
from visar.core.vectors import Float32, Float64, PageVectors
from visar.core.weights import Products, weigh

PAGES_PER_BLOCK = 4


@dataclass(frozen=True)
class DenseSelection:
    k_star: int
    pages: list[int]


def dense_select(
    query: NDArray[np.float16],
    vectors: PageVectors,
    *,
    top_t: int = 50,
    gamma: float = 1e5,
    top_j: int | None = None,
    top_p: int | None = None,
    top_s: int | None = None,
) -> DenseSelection:
    """Select pages with a dense matrix; ``top_j``, ``top_p``, ``top_s`` set the approximation."""
    products = Products(query, vectors)
    activations = products.activation
    weighed = weigh(products)
    if weighed is None:
        raise ValueError("The query has no active pages: use a query about the document.")
    del products
    weights = np.split(weighed.patches, vectors.offsets[1:-1])
    peaks = np.array([page.max(initial=0) for page in weights])
    active = np.flatnonzero(peaks)
    if top_p is not None:
        active = np.sort(active[np.argsort(-peaks[active], kind="stable")[:top_p]])
    matrix = _dense_matrix(vectors, weights, active.tolist(), top_t, top_j)
    scores = np.zeros(len(vectors))
    scores[active] = np.diag(matrix)
    ranking = rank(scores, activations.sum(axis=1))
    order = np.searchsorted(active, ranking[: len(active)])
    k_star = _argmin_cost(matrix[np.ix_(order, order)], len(vectors), gamma, top_s)
    return DenseSelection(k_star, ranking[:k_star].tolist())


def _dense_matrix(
    vectors: PageVectors,
    weights: list[Float32],
    active: list[int],
    top_t: int,
    top_j: int | None,
) -> Float64:
    matrix = np.empty((len(active), len(active)))
    blocks = [active[i : i + PAGES_PER_BLOCK] for i in range(0, len(active), PAGES_PER_BLOCK)]
    for a, sources in enumerate(blocks):
        weighted = [_weighted(vectors, weights, page, top_j) for page in sources]
        for b, targets in enumerate(blocks):
            others = [_weighted(vectors, weights, page, top_j) for page in targets]
            products = np.concatenate(weighted) @ np.concatenate(others).T
            starts = np.cumsum([0, *(len(page) for page in others[:-1])])
            best = np.maximum(np.maximum.reduceat(products, starts, axis=1), 0)
            ends = np.cumsum([len(page) for page in weighted])
            for i, shared in enumerate(np.split(best, ends[:-1])):
                t = min(top_t, len(shared))
                largest = np.partition(shared, len(shared) - t, axis=0)[len(shared) - t :]
                row = a * PAGES_PER_BLOCK + i
                columns = slice(b * PAGES_PER_BLOCK, b * PAGES_PER_BLOCK + len(targets))
                matrix[row, columns] = np.sqrt(largest.sum(axis=0, dtype=np.float64) / t)
    return matrix


def _weighted(
    vectors: PageVectors, weights: list[Float32], page: int, top_j: int | None
) -> Float32:
    rows = np.arange(len(weights[page]))
    if top_j is not None:
        rows = np.sort(np.argsort(-weights[page], kind="stable")[:top_j])
    return vectors.take(vectors.offsets[page] + rows, weights[page][rows])


def _argmin_cost(ranked: Float64, n_pages: int, gamma: float, top_s: int | None) -> int:
    """Return k* by the definition of J and the step past its minimum."""
    n = len(ranked)
    last = max(1, n - 1) if top_s is None else min(max(1, n - 1), top_s + 2)
    share = np.diag(ranked) / np.trace(ranked)
    cost = []
    for k in range(1, last + 1):
        inside = ranked[:k, :k].mean(axis=1)
        leaking = ranked[:k, k:].sum(axis=1) / (n_pages - k)
        cost.append(float((share[:k] * (inside - gamma * leaking)).sum()))
    k_star = int(np.argmin(cost)) + 1
    steps = round(math.log(k_star))
    if steps >= 1 and k_star + steps <= last:
        changes = np.abs(np.diff(cost))
        beyond = changes[k_star - 1 : k_star - 1 + steps].sum()
        k_star += bool(beyond > changes[k_star - 1 - steps : k_star - 1].sum())
    return k_star if top_s is None else min(k_star, top_s)
