"""Vectors, problems and leftovers of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from visar.encoders.protocol import PageEmbedding


@dataclass(frozen=True, slots=True, eq=False)
class DocumentVectors:
    """All vectors of a document by one encoder, page after page. The arrays are read-only."""

    vectors: NDArray[np.float16]
    """(n, D)."""
    offsets: NDArray[np.int64]
    """Page p (from 1) has the rows ``offsets[p - 1]`` to ``offsets[p]``."""
    boxes: NDArray[np.float32]
    """(n, 4)."""
    words: NDArray[np.int32]
    """(n,)."""

    def page(self, number: int) -> PageEmbedding:
        """Return the vectors of a page, counted from 1."""
        from visar.encoders.protocol import PageEmbedding

        rows = slice(self.offsets[number - 1], self.offsets[number])
        return PageEmbedding(self.vectors[rows], self.boxes[rows], self.words[rows])


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be in the index."""

    kind: Literal["damage", "orphan"]
    """Damage loses data; an orphan is a leftover of an interrupted write that compacting drops."""
    document: str
    """Its id; empty when the index as a whole is concerned."""
    what: str

    def __str__(self) -> str:
        return f"document {self.document}: {self.what}" if self.document else self.what


@dataclass(frozen=True, slots=True)
class Compaction:
    """What compacting the index dropped."""

    pages: int
    """Of additions that were never finished."""
    files: int
    bytes: int
    """Of these files."""
