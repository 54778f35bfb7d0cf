"""Stage 3: how alike two pages are in what the query asks for (Eq. 10 and 11).

With u_pj = ŵ_pj v_pj, S_j(p→q) = max(0, max_j' <u_pj, u_qj'>): only patches with a weight take
part. Their inner products are bounded, <u, u'> ≤ ν² ŵ ŵ' with ν the longest vector's length
(one, but for rounding). Once θ, the t-th best S_j of Eq. 11, is known from below,

- a source with ν² ŵ_pj max_j' ŵ_qj' ≤ θ cannot enter the sum;
- a target with ν² ŵ_pj ŵ_qj' ≤ θ cannot bring its source into it.

So with the patches of each page sorted by weight, a row of the matrix is one dense product of
the heaviest sources with all targets, which gives θ for every page, and then small products of
those further sources and targets that can still matter. The result is that of the plain
equations; nothing that could change it is left out.
"""

from __future__ import annotations

import numpy as np

from visar.core.vectors import Float32, Float64, Integers, PageVectors

# Targets of one dense product: its result stays in the cache until it is reduced.
TARGET_ROWS = 8192
# How many further sources the first group takes.
FIRST_GROUP = 64
# The heaviest sources are as many as Eq. 11 sums, rounded up to the width of a BLAS kernel.
KERNEL_ROWS = 16
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
        self._blocks = self._target_blocks()

    def __len__(self) -> int:
        return len(self.pages)

    def diagonal(self) -> Float64:
        """s_p = Sim(p, p) of every page: n small products, never n²."""
        result = np.empty(len(self))
        for p in range(len(self)):
            patches, negated = self._page(p)
            head = self._head(p)
            # A source matches itself, so only targets about as heavy or heavier can beat that.
            lightest = negated[head - 1] * (self._own_reach / self._reach)
            near = int(np.searchsorted(negated, lightest, side="right"))
            shared = np.zeros(len(patches), np.float32)
            shared[:head] = (patches[:head] @ patches[:near].T).max(axis=1)
            if head < len(patches):
                nth = head - self._summed[p]
                self._add_sources(shared, p, p, float(np.partition(shared[:head], nth)[nth]))
            result[p] = self._mean_of_best(shared[None], self._summed[p])[0]
        return result

    def row(self, p: int) -> Float64:
        """Sim(p, q) for every page q."""
        patches, _ = self._page(p)
        head, summed = self._head(p), self._summed[p]
        shared = np.zeros((len(self), len(patches)), np.float32)
        for first, last, starts in self._blocks:
            targets = self._patches[self._starts[first] : self._starts[last]]
            products = patches[:head] @ targets.T
            best = np.maximum.reduceat(products, starts, axis=1)
            np.maximum(best.T, 0, out=shared[first:last, :head])
        if head < len(patches):
            nth = head - summed
            thresholds = np.partition(shared[:, :head], nth, axis=1)[:, nth]
            for q, threshold in enumerate(thresholds.tolist()):
                self._add_sources(shared[q], p, q, threshold)
        return self._mean_of_best(shared, summed)

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

    def _head(self, p: int) -> int:
        """How many sources of a page are multiplied with every target."""
        rounded = -(-self._summed[p] // KERNEL_ROWS) * KERNEL_ROWS
        return min(rounded, int(self._starts[p + 1] - self._starts[p]))

    def _add_sources(self, shared: Float32, p: int, q: int, threshold: float) -> None:
        """Fill in S_j for the sources past the head that may exceed the threshold.

        They come in groups, each twice as large as the one before and with its own cut of
        the targets.
        """
        sources, source_weights = self._page(p)
        targets, target_weights = self._page(q)
        needed = -threshold / self._reach
        last = int(source_weights.searchsorted(needed / self._peaks[q]))
        first, size = self._head(p), FIRST_GROUP
        while first < last:
            group = slice(first, min(first + size, last))
            reachable = int(target_weights.searchsorted(needed / -source_weights[first]))
            products = sources[group] @ targets[:reachable].T
            shared[group] = products.max(axis=1, initial=0)
            first, size = group.stop, 2 * size

    def _mean_of_best(self, shared: Float32, summed: int) -> Float64:
        """Eq. 11 for each row of ``shared``."""
        spare = shared.shape[1] - summed
        best = np.partition(shared, spare, axis=1)[:, spare:] if spare > 0 else shared
        return np.asarray(np.sqrt(best.sum(axis=1, dtype=np.float64) / summed))

    def _target_blocks(self) -> list[tuple[int, int, Integers]]:
        """Runs of pages with about TARGET_ROWS patches, and where in a run each page starts."""
        blocks = []
        first = 0
        for page in range(1, len(self) + 1):
            full = self._starts[page] - self._starts[first] >= TARGET_ROWS
            if full or page == len(self):
                blocks.append((first, page, self._starts[first:page] - self._starts[first]))
                first = page
        return blocks


def _heaviest_pages(weights: Float32, bounds: Integers, top_p: int | None) -> Integers:
    """The pages that have weights; of these the ``top_p`` with the largest one."""
    pages = np.flatnonzero(np.diff(bounds))
    if top_p is None or top_p >= len(pages):
        return pages
    peaks = np.maximum.reduceat(weights, bounds[pages])
    return np.sort(pages[np.argsort(-peaks, kind="stable")[:top_p]])
