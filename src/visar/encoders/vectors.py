"""Small things that all encoders do with vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.encoders.protocol import PageEmbedding

NO_NUMBERS = "the encoder gave values that are no numbers, in float32 too"
NO_MEMORY = "the encoder gave values that are no numbers, and memory does not suffice for float32"
"""Why a page has no vectors."""


def unit_vectors(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Scale each vector to length 1; zeros stay zeros.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)


def page_without_vectors(dimension: int, invalid: str | None = None) -> PageEmbedding:
    """A page that has nothing, or that its encoder failed on for the reason given."""
    return PageEmbedding(
        np.zeros((0, dimension), np.float16),
        np.zeros((0, 4), np.float32),
        np.zeros(0, np.int32),
        invalid,
    )
