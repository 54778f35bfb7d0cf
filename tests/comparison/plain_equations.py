"""ViSAR straight from the equations: float64, dense, slow, and sharing no code with `visar.core`.

Every loop and tensor of the paper is written out, including the m × m × N co-activation that
`visar.core` never forms. Cases that the paper leaves open (ties, degenerate input) follow the
conventions documented in ``docs/method.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EPSILON = 1e-6
MIN_ACTIVATION = 1e-9


@dataclass
class PlainSelection:
    """The results of every stage."""

    late_interaction: Floats
    activation: Floats
    k: int = 1
    k_star: int = 1
    ranking: list[int] = field(default_factory=list)
    fallback: bool = True
    token_weights: Floats = field(default_factory=lambda: np.zeros(0))
    page_weights: Floats = field(default_factory=lambda: np.zeros(0))
    patch_weights: list[Floats] = field(default_factory=list)
    similarity: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    scores: Floats = field(default_factory=lambda: np.zeros(0))
    cost: Floats = field(default_factory=lambda: np.zeros(0))


def plain_select(
    query: Floats,
    pages: Sequence[Floats],
    *,
    top_t: int = 50,
    gamma: float = 1e5,
    max_k: int | None = None,
    top_j: int | None = None,
    top_p: int | None = None,
    top_s: int | None = None,
    weigh_tokens: bool = True,
    weigh_pages: bool = True,
) -> PlainSelection:
    """Select pages by the plain equations of the paper."""
    query = np.asarray(query, np.float64)
    pages = [np.asarray(page, np.float64) for page in pages]
    n_pages = len(pages)
    activation = np.zeros((n_pages, len(query)))
    for p, page in enumerate(pages):
        if len(page):
            activation[p] = (page @ query.T).max(axis=0)
    late = activation.sum(axis=1)
    result = PlainSelection(late_interaction=late, activation=activation)
    result.ranking = sorted(range(n_pages), key=lambda p: (-late[p], p))
    result.scores = np.zeros(n_pages)
    result.similarity = np.zeros((n_pages, n_pages))

    active_tokens = activation.mean(axis=0) > MIN_ACTIVATION
    if n_pages == 1 or not active_tokens.any():
        return result

    amplified = relative_activation(activation[:, active_tokens])
    token_weights = np.zeros(len(query))
    token_weights[active_tokens] = (
        min_max(np.log(n_pages / (1 + amplified.sum(axis=0)))) if weigh_tokens else 1.0
    )
    page_weights = min_max(co_activation(amplified)) if weigh_pages else np.ones(n_pages)

    relevance = []
    for p, page in enumerate(pages):
        gain = (amplified[p] * token_weights[active_tokens] * page_weights[p]) ** 2
        relevance.append(
            ((page @ query[active_tokens].T) * gain).max(axis=1) if len(page) else np.zeros(0)
        )
    every = np.concatenate(relevance)
    if every.max() - every.mean() <= EPSILON * np.abs(every).max():
        return result
    raised = [np.maximum(0, r - every.mean()) for r in relevance]
    highest = max(w.max() for w in raised if len(w))
    weights = [np.where(w / highest <= EPSILON, 0, w / highest) for w in raised]

    result.fallback = False
    result.token_weights, result.page_weights, result.patch_weights = (
        token_weights,
        page_weights,
        weights,
    )
    result.similarity = similarity_matrix(pages, weights, top_t, top_j, top_p)
    result.scores = np.diag(result.similarity).copy()
    scores = result.scores
    result.ranking = sorted(range(n_pages), key=lambda p: (-scores[p], -late[p], p))
    n_active = int((scores > 0).sum())
    result.cost, result.k_star = how_many(result.similarity, result.ranking, n_active, gamma, top_s)
    result.k = result.k_star if max_k is None else min(result.k_star, max_k)
    return result


def relative_activation(activation: Floats) -> Floats:
    """Return Ã (Eq. 3 and 4)."""
    mean = activation.mean(axis=0)
    deviation = activation.std(axis=0)
    deviation[deviation <= EPSILON * mean] = 0
    spread = deviation / deviation.mean() if deviation.any() else np.ones_like(deviation)
    return np.asarray(activation / mean * spread)


def co_activation(amplified: Floats) -> Floats:
    """Return w_p (Eq. 6 and 7), from the m × m tensor per page that the paper defines.

    For a query vector with the same activation on all pages, Ā is 0 / 0. It is set to the limit
    of the fraction, in which σ̂ cancels as for every other vector.
    """
    spread = amplified.mean(axis=0)
    relative = np.divide(amplified, spread, out=np.ones_like(amplified), where=spread > 0)
    pairs = relative[:, :, None] * relative[:, None, :]
    return np.asarray(pairs.mean(axis=2).sum(axis=1))


def min_max(values: Floats) -> Floats:
    """Rescale to [0, 1]; equal values all become 1."""
    low, high = values.min(), values.max()
    if high - low <= EPSILON * max(abs(low), abs(high)):
        return np.ones_like(values)
    return np.asarray((values - low) / (high - low))


def similarity_matrix(
    pages: Sequence[Floats],
    weights: Sequence[Floats],
    top_t: int,
    top_j: int | None,
    top_p: int | None,
) -> Floats:
    """Return Sim for every pair of pages (Eq. 10 and 11), from the heaviest patches and pages."""
    heaviest = [w.max() if len(w) else 0.0 for w in weights]
    kept_pages = sorted(range(len(pages)), key=lambda p: (-heaviest[p], p))[:top_p]
    kept = []
    for page, w in zip(pages, weights, strict=True):
        order = np.argsort(-w, kind="stable")[:top_j]
        kept.append((page[order], w[order]))
    similarity = np.zeros((len(pages), len(pages)))
    for p in kept_pages:
        for q in kept_pages:
            (source, source_weights), (target, target_weights) = kept[p], kept[q]
            if not len(source) or not len(target):
                continue
            best = ((source @ target.T) * target_weights).max(axis=1)
            shared = np.sort(source_weights * np.maximum(0, best))[::-1]
            similarity[p, q] = math.sqrt(shared[: min(top_t, len(shared))].mean())
    return similarity


def how_many(
    similarity: Floats, ranking: Sequence[int], n_active: int, gamma: float, top_s: int | None
) -> tuple[Floats, int]:
    """Return J (Eq. 14) and k*: its argmin and the step after it (Algorithm S1)."""
    n_pages = len(similarity)
    last = max(1, n_active - 1)
    if top_s is not None:
        last = min(last, top_s + 2)
    share = np.diag(similarity) / np.diag(similarity).sum()
    cost = []
    for k in range(1, last + 1):
        inside, outside = list(ranking[:k]), list(ranking[k:])
        cost.append(
            sum(
                share[p]
                * (
                    similarity[p, inside].mean()
                    - gamma * similarity[p, outside].sum() / (n_pages - k)
                )
                for p in inside
            )
        )
    off_diagonal = similarity - np.diag(np.diag(similarity))
    if n_active == 1:
        k_star = 1
    elif not off_diagonal.any():
        k_star = n_active
    else:
        k_star = int(np.argmin(cost)) + 1
        n = round(math.log(k_star))
        if n >= 1 and k_star + n <= last:
            at = dict(enumerate(cost, start=1))
            beyond = sum(abs(at[k_star + i] - at[k_star + i + 1]) for i in range(n))
            before = sum(abs(at[k_star - i] - at[k_star - i - 1]) for i in range(n))
            k_star += beyond > before
    if top_s is not None:
        k_star = min(k_star, top_s)
    return np.asarray(cost), k_star
