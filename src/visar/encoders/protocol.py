"""The protocol of encoders, the vectors of a page, and what all encoders do with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.errors import InvalidOption, InvalidVectors
from visar.serialization import Result

Reads: TypeAlias = Literal["words", "image"]


@dataclass(frozen=True, slots=True, eq=False)
class PageEmbedding:
    """The vectors of one page, and the part of the page each of them stands for."""

    vectors: NDArray[np.float16]
    """(n, D), unit length."""
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right, bottom as shares of the page as displayed; zeros for no place."""
    words: NDArray[np.int32]
    """(n,): the index in ``Page.words`` that a vector belongs to, -1 for none."""
    invalid: str | None = None
    """Why the encoder failed on the page, which then has no vectors; None if it did not fail."""


class Encoder(Protocol):
    """Turns pages and questions into multi-vector embeddings of one space.

    A class with these members is an encoder; plain attributes, frozen fields and properties all
    do. Reading ``name``, ``reads`` or ``weak_match`` should be cheap; ``version`` and
    ``dimension`` may look at files, but should load no weights.

    An encoder must be thread-safe: one object serves all threads of an index, and the index does
    not lock. Whatever cannot run twice at a time is locked by the encoder itself.

    An encoder may also have the methods ``fetch()``, ``load()`` and ``release()`` of
    ``Downloadable``, ``Loadable`` and ``Releasable`` in `visar.models.protocols`, and
    `SpanEncoder.question_spans`.
    """

    @property
    def name(self) -> str:
        """The name its vectors are stored under, unique among the encoders of an index."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the vectors change: embeddings of different versions never mix."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components D of each vector."""
        ...

    @property
    def reads(self) -> Reads:
        """The part of a page it encodes: "words" of its text or OCR, or its "image"."""
        ...

    @property
    def weak_match(self) -> float:
        """The mean cosine of a question with its best page below which a match is called weak.

        0 if it was not measured: no match is called weak then.
        """
        ...

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages.

        Parameters
        ----------
        pages
            Any number of pages of one document.
        images
            One PIL image for each page if ``reads`` is "image"; empty otherwise.

        Returns
        -------
        list of PageEmbedding
            One for each page, in order. The vectors of a page do not depend on the others. A page
            that cannot be encoded is returned without vectors and with the reason.
        """
        ...

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as unit vectors of shape (m, D).

        Raises
        ------
        EmptyQuestion
            If there is nothing to look for in it.
        """
        ...


@dataclass(frozen=True, slots=True)
class EncoderRef(Result):
    """The encoder that made vectors. Vectors of different versions never mix."""

    name: str
    version: str
    dimension: int

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderRef:
        """Return the reference of an encoder."""
        return cls(encoder.name, encoder.version, encoder.dimension)

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.dimension} dimensions)"


@runtime_checkable
class SpanEncoder(Protocol):
    """An encoder that can tell which part of a question each of its vectors stands for."""

    def question_spans(self, question: str) -> list[tuple[int, int]]:
        """Return the first and the last character (exclusive) of each vector of a question."""
        ...


def encode_image_query(encoder: Encoder, image: Any) -> NDArray[np.float32]:
    """Encode a picture as the question: its patches as an encoder of page images sees them.

    Parameters
    ----------
    encoder
        One that reads images, or runs elsewhere and does.
    image
        A PIL image, such as a cut-out of a page.

    Raises
    ------
    InvalidOption
        If the encoder reads words.
    InvalidVectors
        If it gives no vectors for the picture.
    """
    refuse_image_query(encoder)
    page = Page(1, float(image.width), float(image.height), 0, (), "none")
    (found,) = encoder.encode_pages([page], [image.convert("RGB")])
    # The vectors of an instruction have no place, and are the same for all pages.
    placed = found.boxes.any(axis=1)
    vectors = found.vectors[placed] if placed.any() else found.vectors
    if not len(vectors):
        raise InvalidVectors(
            f"The encoder {encoder.name} makes no vectors of the image"
            f"{f': {found.invalid}' if found.invalid else ''}. Take a larger part of the page."
        )
    return vectors.astype(np.float32)


def refuse_image_query(encoder: Encoder) -> None:
    """Raise InvalidOption if an image cannot be the question to an encoder."""
    if encoder.reads != "image":
        raise InvalidOption(
            f"The encoder {encoder.name} reads words, so that an image cannot be its question. Add "
            "the documents with one that reads page images, and search with it: colpali, "
            "colqwen2.5, colmodernvbert, colsmol-256m, colsmol-500m."
        )


def unit_vectors(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Scale each row to length 1; zeros stay zeros.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)


def page_without_vectors(dimension: int, invalid: str | None = None) -> PageEmbedding:
    """Return the embedding of a page with nothing on it, or of one that failed for a reason."""
    return PageEmbedding(
        np.zeros((0, dimension), np.float16),
        np.zeros((0, 4), np.float32),
        np.zeros(0, np.int32),
        invalid,
    )
