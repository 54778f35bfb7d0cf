"""Results of the methods of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from visar.encoders.encoder import PageEmbedding


@dataclass(frozen=True, slots=True, eq=False)
class DocumentVectors:
    """All vectors of a document by one encoder, page by page, in read-only arrays."""

    vectors: NDArray[np.float16]
    """Vectors, of shape (n, D)."""
    offsets: NDArray[np.int64]
    """Page p (from 1) has the rows ``offsets[p - 1]`` to ``offsets[p]``."""
    boxes: NDArray[np.float32]
    """Box of each vector on its page, of shape (n, 4)."""
    words: NDArray[np.int32]
    """Index of the word of each vector, or -1, of shape (n,)."""

    def page(self, number: int) -> PageEmbedding:
        """Return the vectors of a page, counted from 1."""
        from visar.encoders.encoder import PageEmbedding

        rows = slice(self.offsets[number - 1], self.offsets[number])
        return PageEmbedding(self.vectors[rows], self.boxes[rows], self.words[rows])


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in the index."""

    kind: Literal["damage", "orphan"]
    """Damage means lost data; an orphan is left over from an interrupted write, and harmless."""
    document: str
    """Id of the document; empty for a problem of the whole index."""
    what: str

    def __str__(self) -> str:
        return f"document {self.document}: {self.what}" if self.document else self.what


@dataclass(frozen=True, slots=True)
class Compaction:
    """The data that compacting the index deleted."""

    pages: int
    """Number of pages of unfinished additions."""
    files: int
    """Number of files."""
    bytes: int
    """Total size of the files."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of an index."""

    documents: int
    """Number of documents in the copy."""
    bytes: int
    """Size of the copy."""
