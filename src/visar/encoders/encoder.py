"""The encoder protocol, page embeddings, and helpers for vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import check_vectors
from visar.documents.page import Page
from visar.errors import EmptyQuestion, InvalidOption, InvalidVectors
from visar.serialization import Result

Reads: TypeAlias = Literal["words", "image"]

NOT_FINITE = "the encoder returned values that aren't finite"
"""Reason for a page without vectors."""
# Grids of patches may exceed 1 by rounding.
_BOX_SLACK = 1e-3
_LONGEST_LINE = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class PageEmbedding:
    """The vectors of one page, and the part of the page that each vector represents."""

    vectors: NDArray[np.float16]
    """Unit vectors of shape (n, D)."""
    boxes: NDArray[np.float32]
    """Boxes of shape (n, 4): left, top, right and bottom as fractions of the displayed page.
    All zeros if a vector has no position on the page."""
    words: NDArray[np.int32]
    """Indices into ``Page.words``, of shape (n,); -1 if a vector belongs to no word."""
    invalid: str | None = None
    """The reason the encoder failed on the page, which then has no vectors; None on success."""


class Encoder(Protocol):
    """An encoder of pages and questions as multi-vector embeddings in one space.

    Any class with these members is an encoder. They can be attributes, frozen fields or
    properties. Reading ``name``, ``reads`` or ``weak_match`` should be cheap; ``version`` and
    ``dimension`` may read files, but shouldn't load weights.

    An encoder must be thread-safe: all threads of an index share one object, without a lock. Lock
    inside the encoder where needed.

    An encoder may also implement ``fetch()``, ``load()`` and ``release()`` of ``Downloadable``,
    ``Loadable`` and ``Releasable`` in `visar.models.protocols`, and `SpanEncoder.question_spans`.
    """

    @property
    def name(self) -> str:
        """The name its vectors are stored under, unique among the encoders of an index."""
        ...

    @property
    def version(self) -> str:
        """A version that changes whenever the vectors change. Vectors of two versions never mix."""
        ...

    @property
    def dimension(self) -> int:
        """The number of components D of each vector."""
        ...

    @property
    def reads(self) -> Reads:
        """The part of a page it encodes: "words" (from text or OCR) or "image"."""
        ...

    @property
    def weak_match(self) -> float:
        """The threshold for weak matches: mean cosine of a question with its best page.

        0 if it wasn't measured, so that no match counts as weak.
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
            One for each page, in order. A page's vectors don't depend on other pages. A page that
            can't be encoded has no vectors and a reason in ``invalid``.
        """
        ...

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as unit vectors of shape (m, D).

        Raises
        ------
        EmptyQuestion
            If the question has no words to search for.
        """
        ...


@dataclass(frozen=True, slots=True)
class EncoderRef(Result):
    """The encoder that computed some vectors. Vectors of two versions never mix."""

    name: str
    version: str
    dimension: int

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderRef:
        """Return the reference of an encoder; raise InvalidOption if it declares invalid values."""
        for key, is_valid in _IS_VALID.items():
            value = getattr(encoder, key, None)
            if not is_valid(value):
                kind = type(encoder)
                raise InvalidOption(
                    f"{kind.__module__}:{kind.__qualname__} isn't a valid encoder: {key} is "
                    f"{value!r:.40}. See visar.encoders.encoder.Encoder."
                )
        return cls(encoder.name, encoder.version, encoder.dimension)

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.dimension} dimensions)"


def is_line(value: object) -> bool:
    """Return whether a value is a short line of printable text, safe for terminals."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_LINE and value.isprintable()


# Checks of the values that an encoder declares.
_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "name": is_line,
    "version": is_line,
    "dimension": lambda value: type(value) is int and 0 < value <= 65_536,
    "reads": lambda value: value in get_args(Reads),
    "weak_match": lambda value: (
        isinstance(value, int | float | np.floating) and bool(-1 <= value <= 1)
    ),
}


@runtime_checkable
class SpanEncoder(Protocol):
    """An encoder that knows which part of a question each vector represents."""

    def question_spans(self, question: str) -> list[tuple[int, int]]:
        """Return the start and end (exclusive) in the question of each of its vectors."""
        ...


def encode_image_query(encoder: Encoder, image: Any) -> NDArray[np.float32]:
    """Encode an image as the question, using the patches of a page-image encoder.

    Parameters
    ----------
    encoder
        Encoder that reads images.
    image
        PIL image, such as a crop of a page.

    Raises
    ------
    InvalidOption
        If the encoder reads words.
    InvalidVectors
        If it computes no vectors for the image.
    """
    refuse_image_query(encoder)
    page = Page(1, float(image.width), float(image.height), 0, (), "none")
    (found,) = encoder.encode_pages([page], [image.convert("RGB")])
    # Instruction vectors have no position and are the same for all pages.
    placed = found.boxes.any(axis=1)
    vectors = found.vectors[placed] if placed.any() else found.vectors
    if not len(vectors):
        raise InvalidVectors(
            f"The encoder {encoder.name} computed no vectors for the image"
            f"{f': {found.invalid}' if found.invalid else ''}. Use a larger part of the page."
        )
    return vectors.astype(np.float32)


def refuse_image_query(encoder: Encoder) -> None:
    """Raise InvalidOption if an encoder can't encode images."""
    if encoder.reads != "image":
        from visar.encoders.records import RECORDS  # imported here, since records imports this

        names = (one.name for one in RECORDS.values() if one.reads == "image" and one.vectors != 1)
        raise InvalidOption(
            f"The encoder {encoder.name} reads words, not images. Add the documents with an "
            f"encoder of page images and search with it: {', '.join(names)}."
        )


def check_embeddings(
    encoder: Encoder, pages: Sequence[Page], found: Sequence[PageEmbedding]
) -> None:
    """Refuse what an encoder gave unless it is one embedding for each page."""
    if len(found) != len(pages):
        raise InvalidVectors(
            f"The encoder {encoder.name} gave {len(found)} embeddings for {len(pages)} pages, from "
            f"page {pages[0].number} on: it must give one for each page."
        )
    for page, one in zip(pages, found, strict=True):
        if not isinstance(one, PageEmbedding):
            raise InvalidVectors(
                f"The encoder {encoder.name} gave {one!r:.40} for page {page.number}, not a "
                "PageEmbedding."
            )


def check_embedding(embedding: PageEmbedding, page: Page, dimension: int, where: str) -> None:
    """Refuse arrays of another kind or shape, words or boxes off the page, and invalid vectors."""
    # An encoder of somebody else's may give anything.
    vectors: Any = embedding.vectors
    boxes, words = embedding.boxes, embedding.words
    n = len(vectors) if isinstance(vectors, np.ndarray) and vectors.ndim else 0
    for name, array, kind in (
        ("vectors", vectors, f"float16 of shape {(n, dimension)}"),
        ("boxes", boxes, f"float32 of shape {(n, 4)}"),
        ("words", words, f"int32 of shape {(n,)}"),
    ):
        if not isinstance(array, np.ndarray):
            raise InvalidVectors(
                f"{where}: {name} must be a numpy array, not a {type(array).__name__}"
            )
        if (given := f"{array.dtype.name} of shape {array.shape}") != kind:
            raise InvalidVectors(f"{where}: {name} must be {kind}, not {given}")
    if n and embedding.invalid is not None:
        raise InvalidVectors(f"{where}: it is invalid and has {n} vectors; it may have none")
    if n and not -1 <= words.min() <= words.max() < len(page.words):
        raise InvalidVectors(
            f"{where}: words must be -1 or below {len(page.words)}, the number of its words, "
            f"not {words.min()} to {words.max()}"
        )
    on_page = ((boxes >= -_BOX_SLACK) & (boxes <= 1 + _BOX_SLACK)).all(axis=1)
    if not on_page.all():
        row = int(on_page.argmin())
        raise InvalidVectors(
            f"{where}: boxes must be between 0 and 1, but that of vector {row} is "
            f"{boxes[row].tolist()}"
        )
    check_vectors(vectors, where)


def unit_vectors(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Scale each row to length 1; zeros stay zeros.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)


def embed_page(
    vectors: NDArray[np.floating[Any]],
    boxes: NDArray[np.float32],
    words: NDArray[np.int32] | None = None,
) -> PageEmbedding:
    """Scale the vectors of a page to length 1; return an invalid page if not all are finite."""
    if not np.isfinite(vectors).all():
        return page_without_vectors(vectors.shape[1], NOT_FINITE)
    if words is None:
        words = np.full(len(vectors), -1, np.int32)
    return PageEmbedding(unit_vectors(vectors).astype(np.float16), boxes, words)


def refuse_blank(question: str) -> None:
    """Raise EmptyQuestion for a question without words."""
    if not question.strip():
        raise EmptyQuestion("The question is empty. Ask with at least one word.")


def embed_question(
    encoder: str, question: str, vectors: NDArray[np.floating[Any]]
) -> NDArray[np.float32]:
    """Scale the vectors of a question to length 1; raise InvalidVectors if not all are finite."""
    if not np.isfinite(vectors).all():
        raise InvalidVectors(
            f"The encoder {encoder} returned values that aren't finite for the question "
            f"{question[:80]!r}: rephrase it or choose another encoder."
        )
    return unit_vectors(vectors)


def page_without_vectors(dimension: int, invalid: str | None = None) -> PageEmbedding:
    """Return the embedding of an empty page, or of a page that failed with a reason."""
    return PageEmbedding(
        np.zeros((0, dimension), np.float16),
        np.zeros((0, 4), np.float32),
        np.zeros(0, np.int32),
        invalid,
    )
