"""Encoders that reduce the number or size of their model's vectors."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.coding import CODINGS, CodingName
from visar.encoders.encoder import (
    Encoder,
    PageEmbedding,
    Reads,
    check_embedding,
    check_embeddings,
    unit_vectors,
)
from visar.errors import InvalidOption, MissingExtra
from visar.models.protocols import Downloadable, Releasable

# Pooled vectors match worse than the best vector of their cluster. Measured with the embedded
# encoder for factors 2, 3 and 4: the cosine falls by about the factor to this power.
_POOLING_EXPONENT = 0.05
# Mean cosine of a vector with its sign vector.
_SIGN_COSINE = float(np.sqrt(2 / np.pi))


class ReducedEncoder:
    """An encoder whose vectors are cut, then pooled, then stored with fewer bits.

    Parameters
    ----------
    encoder
        Encoder that computes the vectors.
    dimension
        Number of leading components to keep, for pages and questions. Meant for models trained
        for it (Matryoshka).
    pool
        Number of page vectors merged into one. Question vectors are not pooled.
    coding
        Coding of the stored page vectors.

    Raises
    ------
    InvalidOption
        If the pooling factor is less than 2, or the encoder has too few dimensions.
    MissingExtra
        If pooling is requested and scipy isn't installed.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        dimension: int | None = None,
        pool: int | None = None,
        coding: CodingName = "float16",
    ) -> None:
        if pool is not None and pool < 2:
            raise InvalidOption(f"Invalid pooling factor {pool}: use a whole number of at least 2.")
        # Fail now instead of after the first pages were read and encoded.
        if pool is not None and importlib.util.find_spec("scipy") is None:
            raise MissingExtra("Token pooling", "pooling")
        self._encoder = encoder
        self._dimension = dimension
        self._pool = pool
        self._coding = CODINGS[coding]

    def __repr__(self) -> str:
        return f"ReducedEncoder({self.name!r})"

    @property
    def name(self) -> str:
        return f"{self._encoder.name}{self._suffixes('+')}"

    @property
    def version(self) -> str:
        return f"{self._encoder.version}{self._suffixes('-')}"

    @property
    def dimension(self) -> int:
        full = self._encoder.dimension
        if self._dimension is None:
            return full
        if self._dimension >= full:
            raise InvalidOption(
                f"{self._encoder.name} has {full} dimensions, so +dim{self._dimension} has no "
                "effect: use a smaller number."
            )
        return self._dimension

    @property
    def reads(self) -> Reads:
        return self._encoder.reads

    @property
    def weak_match(self) -> float:
        if self._dimension is not None:
            return 0.0  # not measured
        pooled = self._encoder.weak_match * float((self._pool or 1) ** -_POOLING_EXPONENT)
        return pooled * _SIGN_COSINE if self._coding.name == "bits" else pooled

    def fetch(self) -> None:
        """Download the encoder's weights, if any."""
        if isinstance(self._encoder, Downloadable):
            self._encoder.fetch()

    def release(self) -> None:
        """Free the memory of the encoder's weights, if any."""
        if isinstance(self._encoder, Releasable):
            self._encoder.release()

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages, and reduce the vectors of each page on its own."""
        found = self._encoder.encode_pages(pages, images)
        check_embeddings(self._encoder, pages, found)
        for page, embedding in zip(pages, found, strict=True):
            # What is reduced is scaled to length 1 again, which would hide wrong vectors.
            where = f"page {page.number}, encoded by {self._encoder.name}"
            check_embedding(embedding, page, self._encoder.dimension, where)
        return [self._reduce(embedding) for embedding in found]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question. Its vectors are cut, but not pooled."""
        return self._truncate(self._encoder.encode_query(question))

    def _suffixes(self, sign: str) -> str:
        """Return the suffixes of the name and the version."""
        numbers = {"dim": self._dimension, "pool": self._pool}
        suffixes = [f"{sign}{name}{n}" for name, n in numbers.items() if n is not None]
        if self._coding.name != "float16":
            suffixes.append(f"{sign}{self._coding.name}")
        return "".join(suffixes)

    def _truncate(self, vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        if self._dimension is None:
            return np.asarray(vectors, np.float32)
        return unit_vectors(vectors[:, : self.dimension].astype(np.float32))

    def _reduce(self, page: PageEmbedding) -> PageEmbedding:
        if self._dimension is not None:
            page = replace(page, vectors=self._truncate(page.vectors).astype(np.float16))
        if self._pool is not None:
            from visar.encoders.pooling import pool_page

            page = pool_page(page, self._pool)
        # Return the vectors as they will be read back from the store.
        stored = self._coding.decode(self._coding.encode(page.vectors), self.dimension)
        return replace(page, vectors=stored)
