"""What goes into the index and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from visar.encoders.protocol import Encoder, PageEmbedding


@dataclass(frozen=True, slots=True)
class EncoderRef:
    """Which encoder made vectors. Vectors of different versions never mix."""

    name: str
    version: str
    dimension: int

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderRef:
        """Return the reference of an encoder."""
        return cls(encoder.name, encoder.version, encoder.dimension)

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.dimension} dimensions)"


@dataclass(frozen=True, slots=True)
class NewDocument:
    """What has to be known of a document before its pages are added."""

    id: str
    """Made from the content: the same content has the same id."""
    name: str
    source: str
    """Where the file lies; adding other content from there replaces the old. Empty for none."""
    pages: int
    size: int
    """Of the file, in bytes."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Names with texts, numbers, truth values or null; kept if the document is new."""


@dataclass(frozen=True, slots=True)
class InvalidPage:
    """A page that an encoder could make nothing of; with that encoder it is never found."""

    encoder: str
    number: int
    """1 for the first page."""
    reason: str


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document of the index."""

    id: str
    name: str
    source: str
    pages: int
    size: int
    added: datetime
    encoders: tuple[EncoderRef, ...]
    """Those it has vectors of, by name."""
    invalid: tuple[InvalidPage, ...] = ()
    """Pages without vectors because an encoder failed on them."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    collections: tuple[str, ...] = ()

    def has(self, encoder: EncoderRef) -> bool:
        """Whether it has vectors of exactly this version of the encoder."""
        return encoder in self.encoders

    def count_invalid(self, encoder: str) -> int:
        """How many pages the encoder of that name could make nothing of."""
        return sum(page.encoder == encoder for page in self.invalid)


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
