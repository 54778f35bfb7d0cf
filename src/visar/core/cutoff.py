"""Stage 4: how many pages (Eq. 12 to 14 and the end of Algorithm S1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from visar.core.vectors import Float64
from visar.core.weights import EPSILON

# Rows cost less together than alone. Batches grow with the rows known, so that few are computed
# in vain.
LARGEST_BATCH = 8
# Up to so many active pages all rows together cost little, and k* is found whatever the budget.
CHEAP_PAGES = 32


@dataclass(frozen=True, slots=True)
class Cutoff:
    """How many pages, and the cost as far as it had to be known."""

    k_star: int
    exact: bool
    """False if the budget ended the search: k* is at least that."""
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
    """k* from the rows of Sim, asking for no more rows than it takes to be certain.

    All arrays are in ranking order and hold the active pages alone: ``rows(i, j)`` gives Sim
    of the pages from the i-th to before the j-th to all of them, ``scores`` the diagonal, and
    ``bounds`` two factors with Sim(i, j) ≤ a_i b_j. With the rows of the first r pages known,
    J(k) of every later k is bounded from below; when none of these bounds lies under the
    smallest J so far, the rest of the matrix cannot change k*. Of a long document it is enough to
    know that k* is at least ``max_k``: once J of some k from there on lies below all before it, no
    later row can bring the minimum back.
    """
    n = len(scores)
    budget = max_k if max_k is not None and n > CHEAP_PAGES and not every_row else n
    last = max(1, n - 1)
    if top_s is not None:
        last = min(last, top_s + 2)
    shares = scores / scores.sum()
    later = _LaterCosts(shares, scores, bounds, n_pages, gamma, last)
    cost = np.full(last, np.nan)
    # Σ_{p ≤ k} w_s(p) Sim(p, q) for every q: all that J needs of the rows so far.
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
    # Pages that share nothing at all are all relevant: no cost tells them apart.
    leaks = leaks or any(_leaks(rows(i, i + 1)[0], i) for i in range(k, n - 1))
    k_star = _after_step(cost) if leaks else n
    return Cutoff(k_star if top_s is None else min(k_star, top_s), True, cost)


def in_batches(rows: Callable[[int, int], Float64], n: int, budget: int) -> Iterator[Float64]:
    """All ``n`` rows, one after the other, computed some at a time; a batch ends at the budget."""
    first = 0
    while first < n:
        end = min(first + min(1 + first // 2, LARGEST_BATCH), budget if first < budget else n)
        yield from rows(first, end)
        first = end


def lowest(cost: Float64) -> int:
    """The first k whose J is the smallest, equal within rounding."""
    least = float(np.nanmin(cost))
    return int(np.argmax(cost <= least + EPSILON * abs(least))) + 1


def _after_step(cost: Float64) -> int:
    """k*, grown by one when J varies more sharply beyond its minimum than before it."""
    k = lowest(cost)
    n = round(math.log(k))
    if n < 1 or k + n > len(cost):
        return k
    changes = np.abs(np.diff(cost))
    beyond, before = changes[k - 1 : k - 1 + n].sum(), changes[k - 1 - n : k - 1].sum()
    return k + int(beyond > before * (1 + EPSILON))


def _step_is_known(cost: Float64, last: int) -> bool:
    """Whether the costs that `_after_step` compares are all there."""
    k = lowest(cost)
    needed = k + round(math.log(k))
    return needed <= len(cost) or needed > last


def _leaks(similar: Float64, own: int) -> bool:
    """Whether a page is similar to any page but itself."""
    return bool(similar[:own].any() or similar[own + 1 :].any())


class _LaterCosts:
    """Lower bounds of J(k) for every k whose rows are not all known."""

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
        """Whether every J(k) with k > len(cost) is certain not to undercut the costs known.

        Of the unknown rows p, coherence is at least Sim(p, p), and leakage at most the bound.
        """
        known = len(cost)
        if known == self._last:
            return True
        k = np.arange(known + 1, self._last + 1)
        inside = np.cumsum(weighted)[k - 1]
        coherence = inside + self._coherent[k - 1] - self._coherent[known - 1]
        unknown = (self._reaching[k - 1] - self._reaching[known - 1]) * self._reached[k - 1]
        leakage = weighted.sum() - inside + unknown
        lower = coherence / k - self._gamma * leakage / (self._n_pages - k)
        return bool(lower.min() >= cost.min())
