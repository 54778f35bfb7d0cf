"""Codings of stored vectors: 16, 8 or 1 bit per component.

Vectors have unit length, so no scale is stored and decoded vectors are normalized. Encoding a
decoded vector gives the same bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.encoders.encoder import unit_vectors

CodingName: TypeAlias = Literal["float16", "int8", "bits"]

# Rows decoded at a time, to limit the memory for float32 intermediates.
_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Coding:
    """A coding of stored vectors."""

    name: CodingName
    dtype: np.dtype[Any]

    def columns(self, dimension: int) -> int:
        """Return the number of stored values per vector."""
        return -(-dimension // 8) if self.name == "bits" else dimension

    def row_bytes(self, dimension: int) -> int:
        """Return the number of bytes per vector."""
        return self.columns(dimension) * self.dtype.itemsize

    def encode(self, vectors: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Encode unit vectors as an array of shape (n, columns)."""
        if self.name == "float16":
            return np.ascontiguousarray(vectors, self.dtype)
        if self.name == "bits":
            return np.packbits(vectors >= 0, axis=1)
        values = np.asarray(vectors, np.float32)
        largest = np.abs(values).max(axis=1, keepdims=True, initial=np.finfo(np.float32).tiny)
        scaled: NDArray[Any] = np.rint(values * (127 / largest)).astype(self.dtype)
        return scaled

    def decode(self, rows: NDArray[Any], dimension: int) -> NDArray[np.float16]:
        """Decode an array of `encode` to unit vectors."""
        if self.name == "float16":
            return np.asarray(rows, np.float16)
        vectors = np.empty((len(rows), dimension), np.float16)
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            if self.name == "bits":
                signs = np.unpackbits(part, axis=1, count=dimension).astype(np.float32)
                vectors[first : first + _ROWS] = (2 * signs - 1) / np.sqrt(dimension)
            else:
                vectors[first : first + _ROWS] = unit_vectors(part.astype(np.float32))
        return vectors


CODINGS: dict[str, Coding] = {
    one.name: one
    for one in (
        Coding("float16", np.dtype("<f2")),
        Coding("int8", np.dtype("i1")),
        Coding("bits", np.dtype("u1")),
    )
}


def coding_of(encoder: str) -> Coding:
    """Return the coding of an encoder's stored vectors, by the encoder's name.

    >>> coding_of("colpali+pool3+int8").name, coding_of("colpali").name
    ('int8', 'float16')
    """
    _, _, suffixes = encoder.partition("+")
    return CODINGS.get(suffixes.rpartition("+")[2], CODINGS["float16"])
