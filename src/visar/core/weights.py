"""Stages 1 and 2: the weights of query vectors, pages and patches (Eq. 2 to 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float32, Float64, Integers, PageVectors, as_query

# Values whose relative difference is at most this count as equal, so that float32 decides like
# float64.
EPSILON = 1e-6
# A query vector needs a mean activation above this to take part.
MIN_ACTIVATION = 1e-9

# Stage 2 reuses the products of stage 1 if they fit into this plus a quarter of the document's
# size; otherwise it computes them again.
PRODUCT_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class BlockProducts:
    """The products <q_i, v_pj> for consecutive vectors, of shape (m, rows)."""

    first_row: int
    pages: Integers
    starts: Integers
    values: Float32


class Products:
    """The inner products of a query with every vector of a document, block by block.

    They can be iterated more than once, and are cached if they are small enough. Raises
    InvalidVectors unless the query consists of unit vectors of the pages' dimension.
    """

    def __init__(self, query: Any, pages: PageVectors, *, keep: bool = True) -> None:
        self.query = as_query(query, pages.dimension)
        self.pages = pages
        size = len(self.query) * pages.rows * self.query.itemsize
        self._keep = keep and size <= PRODUCT_CACHE_BYTES + pages.nbytes // 4
        self._cache: list[BlockProducts] = []

    def __iter__(self) -> Iterator[BlockProducts]:
        if self._cache:
            yield from self._cache
            return
        cache = []
        for block in self.pages.blocks():
            values = self.query @ block.vectors.T
            products = BlockProducts(block.first_row, block.pages, block.starts, values)
            if self._keep:
                cache.append(products)
            yield products
        self._cache = cache

    @cached_property
    def activation(self) -> Float64:
        """The activation A[p, i] = max_j <q_i, v_pj>, 0 for an empty page (Eq. 2)."""
        highest = np.full((len(self.query), len(self.pages)), -np.inf, np.float32)
        for block in self:
            if len(block.pages) == 1:
                maxima = block.values.max(axis=1, keepdims=True)
            else:
                maxima = np.maximum.reduceat(block.values, block.starts, axis=1)
            highest[:, block.pages] = np.maximum(highest[:, block.pages], maxima)
        highest[np.isneginf(highest)] = 0
        return highest.T.astype(np.float64)

    def subset(self, pages: Sequence[int]) -> Products:
        """Return the products with some of the pages; cached ones aren't computed again."""
        subset = Products(self.query, self.pages.subset(pages), keep=self._keep)
        positions = {page: position for position, page in enumerate(pages)}
        for block in self._cache:
            ends = [*block.starts[1:].tolist(), block.values.shape[1]]
            for page, start, end in zip(
                block.pages.tolist(), block.starts.tolist(), ends, strict=True
            ):
                if page in positions:
                    row_of_page = block.first_row + start - int(self.pages.offsets[page])
                    subset._cache.append(
                        BlockProducts(
                            int(subset.pages.offsets[positions[page]]) + row_of_page,
                            np.array([positions[page]]),
                            np.array([0]),
                            block.values[:, start:end],
                        )
                    )
        return subset


@dataclass(frozen=True, slots=True)
class PatchWeights:
    """The weights of stages 1 and 2, all in [0, 1]."""

    tokens: Float64
    """Weights of the query vectors, ŵ_i; zero for inactive ones."""
    pages: Float64
    """Weights of the pages, ŵ_p."""
    patches: Float32
    """Weights of the patches of all pages, ŵ_pj, stacked; all zero if no page is active."""


def weigh(products: Products, *, tokens: bool = True, pages: bool = True) -> PatchWeights | None:
    """Return ŵ_i, ŵ_p and ŵ_pj (Eq. 3 to 9), or None if no query vector is active.

    ``tokens=False`` sets ŵ_i = 1, ``pages=False`` sets ŵ_p = 1: the paper's ablations.
    """
    activation, offsets = products.activation, products.pages.offsets
    active_tokens = activation.mean(axis=0) > MIN_ACTIVATION
    if not active_tokens.any():
        return None
    relative = activation[:, active_tokens] / activation[:, active_tokens].mean(axis=0)
    spread = relative_deviation(activation[:, active_tokens])
    token_weights = np.zeros(len(active_tokens))
    token_weights[active_tokens] = (
        min_max(token_rarity(spread, len(offsets) - 1)) if tokens else 1.0
    )
    page_weights = min_max(page_co_activation(relative)) if pages else np.ones(len(relative))

    gain = np.zeros_like(activation)
    gain[:, active_tokens] = (
        relative * spread * token_weights[active_tokens] * page_weights[:, None]
    ) ** 2
    relevance = patch_relevance(products, gain.astype(np.float32), active_tokens, int(offsets[-1]))
    return PatchWeights(token_weights, page_weights, raise_above_mean(relevance))


def relative_deviation(activation: Float64) -> Float64:
    """Return σ̂_i, the deviation over pages relative to the mean deviation (Eq. 3)."""
    deviation = activation.std(axis=0)
    deviation[deviation <= EPSILON * activation.mean(axis=0)] = 0
    if not deviation.any():
        return np.ones_like(deviation)
    return np.asarray(deviation / deviation.mean())


def token_rarity(spread: Float64, n_pages: int) -> Float64:
    """Return w_i = ln(N / (1 + Σ_p Ã[p, i])) (Eq. 5).

    Â has mean 1 over the pages, so the sum over p of Ã = Â σ̂ is N σ̂.
    """
    return np.log(n_pages / (1 + n_pages * spread))


def page_co_activation(relative: Float64) -> Float64:
    """Return w_p, the mean co-activation summed over the query (Eq. 6 and 7).

    σ̂ cancels between Ã and Ā, and the double sum over i and i' is a square:
    w_p = (Σ_i Â[p, i])² / m. The m × m tensor per page is never formed.
    """
    return np.asarray(relative.sum(axis=1) ** 2 / relative.shape[1])


def patch_relevance(
    products: Products, gain: Float32, active_tokens: NDArray[np.bool_], rows: int
) -> Float32:
    """Return r_pj = max_i <v_pj, q_i> (Ã[p, i] ŵ_i ŵ_p)² over the active i (Eq. 8), stacked."""
    relevance = np.empty(rows, np.float32)
    query = slice(None) if active_tokens.all() else active_tokens
    factors = np.ascontiguousarray(gain.T[query])
    for block in products:
        ends = [*block.starts[1:].tolist(), block.values.shape[1]]
        for page, start, end in zip(block.pages.tolist(), block.starts.tolist(), ends, strict=True):
            weighted = block.values[query, start:end] * factors[:, page, None]
            patches = slice(block.first_row + start, block.first_row + end)
            weighted.max(axis=0, out=relevance[patches])
    return relevance


def raise_above_mean(relevance: Float32) -> Float32:
    """Return ŵ_pj: the excess over the mean of ALL patches, relative to the largest (Eq. 9)."""
    mean = relevance.mean(dtype=np.float64)
    highest = float(relevance.max()) - mean
    if highest <= EPSILON * float(np.abs(relevance).max()):
        return np.zeros_like(relevance)
    weights: Float32 = ((relevance - mean) / highest).astype(np.float32)
    weights[weights <= EPSILON] = 0
    return weights


def min_max(values: Float64) -> Float64:
    """Rescale to [0, 1]; equal values all become 1."""
    low, high = float(values.min()), float(values.max())
    if high - low <= EPSILON * max(abs(low), abs(high)):
        return np.ones_like(values)
    return np.asarray((values - low) / (high - low))
