"""Stage 4: the number of pages (Eq. 12 to 14 and the end of Algorithm S1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from visar.core.vectors import Float64
from visar.core.weights import EPSILON

# Rows are cheaper in batches. Batches grow with the number of known rows, so that few rows are
# computed for nothing.
LARGEST_BATCH = 8
# Up to this many active pages, computing every row is cheap, and `max_k` doesn't end the search.
CHEAP_PAGES = 32


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The number of pages, and the part of the cost curve that decided it."""

    k_star: int
    exact: bool
    """False if the budget ended the search, so that ``k_star`` is a lower bound."""
    cost: Float64
    """J(1), J(2), …; NaN where it cannot be the minimum."""


def find_cutoff(
    rows: Callable[[int, int], Float64],
    scores: Float64,
    bounds: tuple[Float64, Float64],
    n_pages: int,
    *,
    gamma: float,
    top_s: int | None = None,
    max_k: int | None = None,
    every_row: bool = False,
) -> Cutoff:
    """Find k* from as few rows of Sim as it takes to be certain.

    All arrays are in ranking order and hold only the active pages: ``rows(i, j)`` returns rows
    i to j − 1 of Sim, ``scores`` is its diagonal, and ``bounds`` are two factors with
    Sim(i, j) ≤ a_i b_j. Once the rows of the first r pages are known, J(k) of every later k has
    a lower bound. When no bound lies below the smallest J so far, the rest of the matrix can't
    change k*. In a long document it is enough to know that k* is at least ``max_k``: once J of
    some k from there on lies below all J before it, no later row can move the minimum back.
    """
    n = len(scores)
    budget = max_k if max_k is not None and n > CHEAP_PAGES and not every_row else n
    last = max(1, n - 1)
    if top_s is not None:
        last = min(last, top_s + 2)
    shares = scores / scores.sum()
    later = _LaterCosts(shares, scores, bounds, n_pages, gamma, last)
    cost = np.full(last, np.nan)
    # Σ_{p ≤ k} w_s(p) Sim(p, q) for every q: J needs nothing else from the rows so far.
    weighted = np.zeros(n)
    leaks = False
    for k, similar in zip(range(1, last + 1), in_batches(rows, n, budget), strict=False):
        leaks = leaks or _leaks(similar, k - 1)
        weighted += shares[k - 1] * similar
        cost[k - 1] = weighted[:k].sum() / k - gamma * weighted[k:].sum() / (n_pages - k)
        if (
            not every_row
            and _step_is_known(cost[:k], last)
            and later.cannot_win(weighted, cost[:k])
        ):
            break
        if budget <= k < last and lowest(cost[:k]) >= budget:
            k_star = budget if top_s is None else min(budget, top_s)
            return Cutoff(k_star, top_s is not None and top_s <= budget, cost)
    # If no pages are similar to each other, the cost can't tell them apart: all are relevant.
    leaks = leaks or any(_leaks(rows(i, i + 1)[0], i) for i in range(k, n - 1))
    k_star = _after_step(cost) if leaks else n
    return Cutoff(k_star if top_s is None else min(k_star, top_s), True, cost)


def in_batches(rows: Callable[[int, int], Float64], n: int, budget: int) -> Iterator[Float64]:
    """Yield ``n`` rows, computed in batches; one batch ends exactly at the budget."""
    first = 0
    while first < n:
        end = min(first + min(1 + first // 2, LARGEST_BATCH), budget if first < budget else n)
        yield from rows(first, end)
        first = end


def lowest(cost: Float64) -> int:
    """Return the first k whose J is the smallest, within rounding."""
    least = float(np.nanmin(cost))
    return int(np.argmax(cost <= least + EPSILON * abs(least))) + 1


def _after_step(cost: Float64) -> int:
    """Return k*: the minimum of J, plus one if J varies more after it than before it."""
    k = lowest(cost)
    n = round(math.log(k))
    if n < 1 or k + n > len(cost):
        return k
    changes = np.abs(np.diff(cost))
    beyond, before = changes[k - 1 : k - 1 + n].sum(), changes[k - 1 - n : k - 1].sum()
    return k + int(beyond > before * (1 + EPSILON))


def _step_is_known(cost: Float64, last: int) -> bool:
    """Return whether all costs that `_after_step` compares are known."""
    k = lowest(cost)
    needed = k + round(math.log(k))
    return needed <= len(cost) or needed > last


def _leaks(similar: Float64, own: int) -> bool:
    """Return whether a page is similar to any page but itself."""
    return bool(similar[:own].any() or similar[own + 1 :].any())


class _LaterCosts:
    """Lower bounds of J(k) for every k with unknown rows."""

    def __init__(
        self,
        shares: Float64,
        scores: Float64,
        bounds: tuple[Float64, Float64],
        n_pages: int,
        gamma: float,
        last: int,
    ) -> None:
        self._coherent = np.cumsum(shares * scores)
        self._reaching = np.cumsum(shares * bounds[0])
        self._reached = bounds[1].sum() - np.cumsum(bounds[1])
        self._n_pages, self._gamma, self._last = n_pages, gamma, last

    def cannot_win(self, weighted: Float64, cost: Float64) -> bool:
        """Return whether no J(k) with k > len(cost) can be below the known costs.

        In an unknown row p, coherence is at least Sim(p, p), and leakage at most the bound.
        """
        n_known = len(cost)
        if n_known == self._last:
            return True
        k = np.arange(n_known + 1, self._last + 1)
        inside = np.cumsum(weighted)[k - 1]
        coherence = inside + self._coherent[k - 1] - self._coherent[n_known - 1]
        unknown = (self._reaching[k - 1] - self._reaching[n_known - 1]) * self._reached[k - 1]
        leakage = weighted.sum() - inside + unknown
        lower = coherence / k - self._gamma * leakage / (self._n_pages - k)
        return bool(lower.min() >= cost.min())
