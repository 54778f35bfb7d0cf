"""Stage 3: the similarity of two pages with respect to the query (Eq. 10 and 11).

With u_pj = ŵ_pj v_pj, S_j(p→q) = max(0, max_j' <u_pj, u_qj'>): only patches with a weight take
part. Their inner products are bounded, <u, u'> ≤ ν² ŵ ŵ' with ν the longest vector's length
(one, up to rounding). Once b_j, the best product of source j so far, and θ, the t-th largest
of these, are known, a target with ν² ŵ_pj ŵ_qj' ≤ max(b_j, θ) can neither win the maximum of
Eq. 10 nor bring its source into the sum of Eq. 11.

The patches of each page are therefore sorted by weight. All sources are first multiplied with the
heaviest few targets of every page in one dense product, which settles most of them. Only the
sources that a lighter target can still change go on to the next targets. The result equals that of
the plain equations, because only products that can't change it are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float32, Float64, Integers, PageVectors

# Number of a page's heaviest targets that every source is multiplied with.
FIRST_TARGETS = 24
# Each further step multiplies the number of targets by this.
STEP = 3
# Products in one dense block: few enough to stay in the CPU cache until they are reduced.
BLOCK_PRODUCTS = 2**19
# Relative tolerance for float32 rounding in every bound.
SLACK = 1e-5


class PageSimilarity:
    """Sim(p, q) between the active pages of a document, computed on demand.

    Rows and columns are ``pages``: the active pages that take part, in ascending order.
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
        counts = lengths if top_j is None else np.minimum(lengths, top_j)
        self._summed: list[int] = np.minimum(counts, top_t).tolist()
        self._starts = np.concatenate([[0], np.cumsum([len(patches) for patches in rows])])
        every = np.concatenate(rows) if rows else active[:0]
        # searchsorted needs ascending values.
        self._negated = -weights[every]
        self._patches = vectors.take(every, weights[every])
        self._peaks = -self._negated[self._starts[:-1]]
        self._reach = vectors.longest**2 * (1 + SLACK)
        self._own_reach = vectors.shortest**2 * (1 - SLACK)

    def __len__(self) -> int:
        return len(self.pages)

    def diagonal(self) -> Float64:
        """Return s_p = Sim(p, p) of every page, by n small products instead of n²."""
        result = np.empty(len(self))
        for p in range(len(self)):
            sources = self._sources([p])
            # A source matches itself, so only targets about as heavy or heavier can beat that.
            shared = self._own_reach * sources.weights**2
            minimum = sources.min_weights(shared[None])[0]
            self._search(sources, p, shared, minimum, 0)
            result[p] = sources.similarity(shared[None])[0, 0]
        return result

    def rows(self, pages: Sequence[int]) -> Float64:
        """Return Sim(p, q) for these pages p and every page q."""
        sources = self._sources(pages)
        shared = np.empty((len(self), len(sources.vectors)), np.float32)
        step = max(1, BLOCK_PRODUCTS // (FIRST_TARGETS * len(sources.vectors)))
        for first in range(0, len(self), step):
            targets = self._first_targets[first : first + step]
            products = targets.reshape(-1, targets.shape[2]) @ sources.vectors.T
            products.reshape(*targets.shape[:2], -1).max(axis=1, out=shared[first : first + step])
        np.maximum(shared, 0, out=shared)
        minimum = sources.min_weights(shared)
        for q in range(len(self)):
            self._search(sources, q, shared[q], minimum[q], FIRST_TARGETS)
        return sources.similarity(shared)

    def row_bounds(self) -> tuple[Float64, Float64]:
        """Return a_p and b_q with Sim(p, q) ≤ a_p b_q.

        They come from the t heaviest sources of p and the heaviest target of q.
        """
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
        self, sources: _Sources, q: int, shared: Float32, minimum: Float32, first: int
    ) -> None:
        """Raise ``shared`` to S_j(p→q), as far as targets from ``first`` on can change Sim.

        ``minimum`` is the weight that a target needs for that.
        """
        targets, negated = self._page(q)
        end = max(first, FIRST_TARGETS)
        while first < len(targets):
            undecided = np.flatnonzero(minimum < -negated[first])
            if not len(undecided):
                return
            end *= STEP
            reachable = min(end, int(negated.searchsorted(-minimum[undecided].min())))
            vectors = sources.vectors.take(undecided, axis=0, mode="clip")
            best = (vectors @ targets[first:reachable].T).max(axis=1)
            shared[undecided] = np.maximum(best, shared[undecided])
            if reachable < end:
                return
            first = end
            minimum = sources.min_weights(shared[None])[0]

    @cached_property
    def _first_targets(self) -> NDArray[np.float32]:
        """The heaviest targets of every page, padded with zeros, which match nothing."""
        targets = np.zeros((len(self), FIRST_TARGETS, self._patches.shape[1]), np.float32)
        for q in range(len(self)):
            heaviest = self._page(q)[0][:FIRST_TARGETS]
            targets[q, : len(heaviest)] = heaviest
        return targets


class _Sources:
    """The active patches of some pages, heaviest first, as the sources of Eq. 10."""

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

    def min_weights(self, shared: Float32) -> Float32:
        """Return the weight that a target needs to change Sim, given the best products so far.

        ``shared`` has a row for each page q and a column for each source.
        """
        minimum = shared.copy()
        for first, end, summed in self._parts:
            spare = end - first - summed
            if spare >= 0:
                part = minimum[:, first:end]
                least = np.partition(part, spare, axis=1)[:, spare]
                np.maximum(part, least[:, None], out=part)
        minimum *= self.per_reach
        return minimum

    def similarity(self, shared: Float32) -> Float64:
        """Return Sim(p, q): the root of the mean of the largest S_j (Eq. 11)."""
        result = np.empty((len(self._parts), len(shared)))
        for row, (first, end, summed) in enumerate(self._parts):
            best, spare = shared[:, first:end], end - first - summed
            if spare > 0:
                best = np.partition(best, spare, axis=1)[:, spare:]
            result[row] = np.sqrt(best.sum(axis=1, dtype=np.float64) / summed)
        return result


def _heaviest_pages(weights: Float32, bounds: Integers, top_p: int | None) -> Integers:
    """Return the pages with weights, or the ``top_p`` of them with the largest weight."""
    pages = np.flatnonzero(np.diff(bounds))
    if top_p is None or top_p >= len(pages):
        return pages
    peaks = np.maximum.reduceat(weights, bounds[pages])
    return np.sort(pages[np.argsort(-peaks, kind="stable")[:top_p]])
