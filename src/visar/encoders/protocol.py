"""What every encoder gives: vectors for a page, with their places, and vectors for a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page


@dataclass(frozen=True, slots=True, eq=False)
class PageEmbedding:
    """The vectors of one page and what part of the page each of them stands for."""

    vectors: NDArray[np.float16]
    """(n, D), unit length."""
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right, bottom as shares of the page; all zero for what has no place."""
    words: NDArray[np.int32]
    """(n,): the index in ``Page.words`` a vector belongs to, -1 for none."""
    invalid: str | None = None
    """Why the encoder could make nothing of the page; it has no vectors then."""


class Encoder(Protocol):
    """Turns pages and questions into multi-vector embeddings of one space."""

    @property
    def name(self) -> str:
        """What the user types to choose it."""
        ...

    @property
    def reads(self) -> Literal["words", "image"]:
        """Which part of a page it looks at."""
        ...

    @property
    def weak_match(self) -> float:
        """A question whose words have a lower mean cosine with a page is hardly answered there."""
        ...

    @property
    def dimension(self) -> int:
        """Of its vectors."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the vectors change: embeddings of different versions never mix."""
        ...

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages; ``images`` holds a PIL image per page when ``reads`` is "image"."""
        ...

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as (m, D) unit vectors."""
        ...
