"""Stage 3: how alike two pages are in what the query asks for (Eq. 10 and 11).

With u_pj = ŵ_pj v_pj, S_j(p→q) = max(0, max_j' <u_pj, u_qj'>): only patches with a weight take
part. Their inner products are bounded, <u, u'> ≤ ν² ŵ ŵ' with ν the longest vector's length
(one, but for rounding). Once b_j, the best product of source j so far, and θ, the t-th largest
of these, are known, a target with ν² ŵ_pj ŵ_qj' ≤ max(b_j, θ) can neither win the maximum of
Eq. 10 nor bring its source into the sum of Eq. 11.

So with the patches of each page sorted by weight, all sources meet the heaviest few targets of
every page in one dense product, which settles most of them; those that a lighter target can
still change go on to the next targets, ever fewer of them. The result is that of the plain
equations; nothing that could change it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float32, Float64, Integers, PageVectors

# How many of a page's heaviest targets every source meets.
FIRST_TARGETS = 24
# Each further step takes the targets up to this many times as far down the page.
STEP = 3
# Products of one dense block: they stay in the cache until they are reduced.
BLOCK_PRODUCTS = 2**19
# Room for float32 rounding in every bound.
SLACK = 1e-5


class PageSimilarity:
    """Sim(p, q) between the active pages of a document, computed as far as it is asked for.

    Rows and columns stand for ``pages``: the active pages, ascending, that take part.
    """

    def __init__(
        self,
        vectors: PageVectors,
        weights: Float32,
        *,
        top_t: int,
        top_j: int | None = None,
        top_p: int | None = None,
    ) -> None:
        active = np.flatnonzero(weights > 0)
        bounds = np.searchsorted(active, vectors.offsets)
        self.pages = _heaviest_pages(weights[active], bounds, top_p)
        rows = []
        for page in self.pages.tolist():
            patches = active[bounds[page] : bounds[page + 1]]
            rows.append(patches[np.argsort(-weights[patches], kind="stable")[:top_j]])
        lengths = np.diff(vectors.offsets)[self.pages]
        kept = lengths if top_j is None else np.minimum(lengths, top_j)
        self._summed: list[int] = np.minimum(kept, top_t).tolist()
        self._starts = np.concatenate([[0], np.cumsum([len(patches) for patches in rows])])
        every = np.concatenate(rows) if rows else active[:0]
        # Negated, weights ascend: what searchsorted wants.
        self._negated = -weights[every]
        self._patches = vectors.take(every, weights[every])
        self._peaks = -self._negated[self._starts[:-1]]
        self._reach = vectors.longest**2 * (1 + SLACK)
        self._own_reach = vectors.shortest**2 * (1 - SLACK)

    def __len__(self) -> int:
        return len(self.pages)

    def diagonal(self) -> Float64:
        """s_p = Sim(p, p) of every page: n small products, never n²."""
        result = np.empty(len(self))
        for p in range(len(self)):
            sources = self._sources([p])
            # A source matches itself, so only targets about as heavy or heavier can beat that.
            shared = self._own_reach * sources.weights**2
            needed = sources.needed(shared[None])[0]
            self._search(sources, p, shared, needed, 0)
            result[p] = sources.similarity(shared[None])[0, 0]
        return result

    def rows(self, pages: Sequence[int]) -> Float64:
        """Sim(p, q) for these pages p and every page q."""
        sources = self._sources(pages)
        shared = np.empty((len(self), len(sources.vectors)), np.float32)
        step = max(1, BLOCK_PRODUCTS // (FIRST_TARGETS * len(sources.vectors)))
        for first in range(0, len(self), step):
            tops = self._tops[first : first + step]
            products = tops.reshape(-1, tops.shape[2]) @ sources.vectors.T
            products.reshape(*tops.shape[:2], -1).max(axis=1, out=shared[first : first + step])
        np.maximum(shared, 0, out=shared)
        needed = sources.needed(shared)
        for q in range(len(self)):
            self._search(sources, q, shared[q], needed[q], FIRST_TARGETS)
        return sources.similarity(shared)

    def row_bounds(self) -> tuple[Float64, Float64]:
        """a_p and b_q with Sim(p, q) ≤ a_p b_q: the t heaviest sources, the heaviest target."""
        sources = np.empty(len(self))
        for p, summed in enumerate(self._summed):
            _, negated = self._page(p)
            sources[p] = -float(negated[:summed].sum(dtype=np.float64)) / summed
        return np.sqrt(self._reach * sources), np.sqrt(self._peaks.astype(np.float64))

    def _page(self, p: int) -> tuple[Float32, Float32]:
        patches = slice(self._starts[p], self._starts[p + 1])
        return self._patches[patches], self._negated[patches]

    def _sources(self, pages: Sequence[int]) -> _Sources:
        parts = [self._page(p) for p in pages]
        return _Sources(
            np.concatenate([vectors for vectors, _ in parts]),
            -np.concatenate([negated for _, negated in parts]),
            np.concatenate([[0], np.cumsum([len(vectors) for vectors, _ in parts])]).tolist(),
            [self._summed[p] for p in pages],
            self._reach,
        )

    def _search(
        self, sources: _Sources, q: int, shared: Float32, needed: Float32, first: int
    ) -> None:
        """Raise ``shared`` to S_j(p→q) where targets from ``first`` on can, and it matters.

        ``needed`` is what a target must weigh for that.
        """
        targets, negated = self._page(q)
        end = max(first, FIRST_TARGETS)
        while first < len(targets):
            undecided = np.flatnonzero(needed < -negated[first])
            if not len(undecided):
                return
            end *= STEP
            reachable = min(end, int(negated.searchsorted(-needed[undecided].min())))
            vectors = sources.vectors.take(undecided, axis=0, mode="clip")
            best = (vectors @ targets[first:reachable].T).max(axis=1)
            shared[undecided] = np.maximum(best, shared[undecided])
            if reachable < end:
                return
            first = end
            needed = sources.needed(shared[None])[0]

    @cached_property
    def _tops(self) -> NDArray[np.float32]:
        """The first targets of every page; zeros, which match nothing, where it has fewer."""
        tops = np.zeros((len(self), FIRST_TARGETS, self._patches.shape[1]), np.float32)
        for q in range(len(self)):
            heaviest = self._page(q)[0][:FIRST_TARGETS]
            tops[q, : len(heaviest)] = heaviest
        return tops


class _Sources:
    """The active patches of some pages, heaviest first, which look for their best targets."""

    def __init__(
        self,
        vectors: Float32,
        weights: Float32,
        starts: list[int],
        summed: list[int],
        reach: float,
    ) -> None:
        self.vectors = vectors
        self.weights = weights
        self.per_reach = 1 / (np.float32(reach) * weights)
        self._parts = list(zip(starts[:-1], starts[1:], summed, strict=True))

    def needed(self, shared: Float32) -> Float32:
        """What a target must weigh to change anything, given the best products so far.

        ``shared`` has a line for each page q and a column for each source.
        """
        needed = shared.copy()
        for first, end, summed in self._parts:
            spare = end - first - summed
            if spare >= 0:
                part = needed[:, first:end]
                least = np.partition(part, spare, axis=1)[:, spare]
                np.maximum(part, least[:, None], out=part)
        needed *= self.per_reach
        return needed

    def similarity(self, shared: Float32) -> Float64:
        """Eq. 11: the root of the mean of the largest S_j, for each page and page q."""
        result = np.empty((len(self._parts), len(shared)))
        for row, (first, end, summed) in enumerate(self._parts):
            best, spare = shared[:, first:end], end - first - summed
            if spare > 0:
                best = np.partition(best, spare, axis=1)[:, spare:]
            result[row] = np.sqrt(best.sum(axis=1, dtype=np.float64) / summed)
        return result


def _heaviest_pages(weights: Float32, bounds: Integers, top_p: int | None) -> Integers:
    """The pages that have weights; of these the ``top_p`` with the largest one."""
    pages = np.flatnonzero(np.diff(bounds))
    if top_p is None or top_p >= len(pages):
        return pages
    peaks = np.maximum.reduceat(weights, bounds[pages])
    return np.sort(pages[np.argsort(-peaks, kind="stable")[:top_p]])
