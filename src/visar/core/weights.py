"""Stages 1 and 2: what the query's vectors, the pages and the patches weigh (Eq. 2 to 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float32, Float64, Integers, PageVectors, as_query

# float32 must decide like float64: what differs by no more than this share is equal.
EPSILON = 1e-6
# A query vector with no more activation than this on the mean says nothing.
SILENT = 1e-9

# The products of stage 1 are kept for stage 2 while they fit in this and a quarter of the
# document's size; beyond that, stage 2 computes them again.
ROOM_FOR_PRODUCTS = 64 * 2**20


@dataclass(frozen=True, slots=True)
class BlockProducts:
    """<q_i, v_pj> for consecutive vectors, shape (m, rows): every maximum runs along memory."""

    first_row: int
    pages: Integers
    starts: Integers
    values: Float32


class Products:
    """The inner products of a query with every vector of a document, block by block.

    Iterating again gives them again: from memory when there was room to keep them. Raises
    InvalidVectors if the query is not made of unit vectors of the pages' dimension.
    """

    def __init__(self, query: Any, pages: PageVectors, *, keep: bool = True) -> None:
        self.query = as_query(query, pages.dimension)
        self.pages = pages
        size = len(self.query) * pages.rows * self.query.itemsize
        self._keep = keep and size <= ROOM_FOR_PRODUCTS + pages.nbytes // 4
        self._kept: list[BlockProducts] = []

    def __iter__(self) -> Iterator[BlockProducts]:
        if self._kept:
            yield from self._kept
            return
        kept = []
        for block in self.pages.blocks():
            values = self.query @ block.vectors.T
            products = BlockProducts(block.first_row, block.pages, block.starts, values)
            if self._keep:
                kept.append(products)
            yield products
        self._kept = kept

    @cached_property
    def activation(self) -> Float64:
        """A[p, i] = max_j <q_i, v_pj>, 0 for an empty page (Eq. 2)."""
        highest = np.full((len(self.query), len(self.pages)), -np.inf, np.float32)
        for block in self:
            if len(block.pages) == 1:
                maxima = block.values.max(axis=1, keepdims=True)
            else:
                maxima = np.maximum.reduceat(block.values, block.starts, axis=1)
            highest[:, block.pages] = np.maximum(highest[:, block.pages], maxima)
        highest[np.isneginf(highest)] = 0
        return highest.T.astype(np.float64)

    def only(self, pages: Sequence[int]) -> Products:
        """Return the products with some pages; those that were kept are not computed again."""
        chosen = Products(self.query, self.pages.only(pages), keep=self._keep)
        positions = {page: position for position, page in enumerate(pages)}
        for block in self._kept:
            ends = [*block.starts[1:].tolist(), block.values.shape[1]]
            for page, start, end in zip(
                block.pages.tolist(), block.starts.tolist(), ends, strict=True
            ):
                if page in positions:
                    row_of_page = block.first_row + start - int(self.pages.offsets[page])
                    chosen._kept.append(
                        BlockProducts(
                            int(chosen.pages.offsets[positions[page]]) + row_of_page,
                            np.array([positions[page]]),
                            np.array([0]),
                            block.values[:, start:end],
                        )
                    )
        return chosen


@dataclass(frozen=True, slots=True)
class PatchWeights:
    """The weights of stage 1 and 2, all in [0, 1]."""

    tokens: Float64
    """ŵ_i, zero for query vectors that say nothing."""
    pages: Float64
    """ŵ_p."""
    patches: Float32
    """ŵ_pj of all pages, stacked; all zero when no page is active."""


def weigh(products: Products, *, tokens: bool = True, pages: bool = True) -> PatchWeights | None:
    """ŵ_i, ŵ_p and ŵ_pj (Eq. 3 to 9); None when no query vector says anything.

    ``tokens=False`` sets ŵ_i = 1, ``pages=False`` sets ŵ_p = 1: the paper's ablations.
    """
    activation, offsets = products.activation, products.pages.offsets
    heard = activation.mean(axis=0) > SILENT
    if not heard.any():
        return None
    relative = activation[:, heard] / activation[:, heard].mean(axis=0)
    spread = relative_deviation(activation[:, heard])
    token_weights = np.zeros(len(heard))
    token_weights[heard] = min_max(token_rarity(spread, len(offsets) - 1)) if tokens else 1.0
    page_weights = min_max(page_co_activation(relative)) if pages else np.ones(len(relative))

    gain = np.zeros_like(activation)
    gain[:, heard] = (relative * spread * token_weights[heard] * page_weights[:, None]) ** 2
    relevance = patch_relevance(products, gain.astype(np.float32), heard, int(offsets[-1]))
    return PatchWeights(token_weights, page_weights, raise_above_mean(relevance))


def relative_deviation(activation: Float64) -> Float64:
    """σ̂_i: the deviation over pages, relative to the mean deviation (Eq. 3)."""
    deviation = activation.std(axis=0)
    deviation[deviation <= EPSILON * activation.mean(axis=0)] = 0
    if not deviation.any():
        return np.ones_like(deviation)
    return np.asarray(deviation / deviation.mean())


def token_rarity(spread: Float64, n_pages: int) -> Float64:
    """w_i = ln(N / (1 + Σ_p Ã[p, i])) (Eq. 5).

    Â has mean 1 over the pages, so that the sum over p of Ã = Â σ̂ is N σ̂.
    """
    return np.log(n_pages / (1 + n_pages * spread))


def page_co_activation(relative: Float64) -> Float64:
    """w_p, the mean co-activation summed over the query (Eq. 6 and 7).

    σ̂ cancels between Ã and Ā, and the double sum over i and i' is a square:
    w_p = (Σ_i Â[p, i])² / m. The m × m tensor per page is never formed.
    """
    return np.asarray(relative.sum(axis=1) ** 2 / relative.shape[1])


def patch_relevance(
    products: Products, gain: Float32, heard: NDArray[np.bool_], rows: int
) -> Float32:
    """r_pj = max_i <v_pj, q_i> (Ã[p, i] ŵ_i ŵ_p)² over the query vectors heard (Eq. 8), stacked."""
    relevance = np.empty(rows, np.float32)
    query = slice(None) if heard.all() else heard
    factors = np.ascontiguousarray(gain.T[query])
    for block in products:
        ends = [*block.starts[1:].tolist(), block.values.shape[1]]
        for page, start, end in zip(block.pages.tolist(), block.starts.tolist(), ends, strict=True):
            weighted = block.values[query, start:end] * factors[:, page, None]
            patches = slice(block.first_row + start, block.first_row + end)
            weighted.max(axis=0, out=relevance[patches])
    return relevance


def raise_above_mean(relevance: Float32) -> Float32:
    """ŵ_pj: what exceeds the mean over ALL pages and patches, relative to the most (Eq. 9)."""
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
