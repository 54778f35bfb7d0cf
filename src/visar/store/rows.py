"""Pages and vectors as rows of their tables, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from visar.documents.page import Page, Word
from visar.encoders.protocol import PageEmbedding
from visar.errors import InvalidVectors, StoreError
from visar.store.tables import Row

PAGE_COLUMNS = (
    *("number", "width", "height", "rotation", "text_source"),
    *("texts", "boxes", "lines", "checksum"),
)

VECTOR = np.dtype("<f2")
BOX = np.dtype("<f4")
WORD = np.dtype("<i4")
PLACE_BYTES = 4 * BOX.itemsize + WORD.itemsize
"""What a vector needs beside itself: its box and its word."""

HEADER_BYTES = 16
"""A block begins with its revision, so that no reader can take another's block for its own."""


def page_row(page: Page) -> Row:
    """The page's own columns. Boxes are rounded to float32: 1e-7 of the page."""
    boxes = np.array([word.box for word in page.words], BOX).reshape(-1)
    lines = np.array([word.line for word in page.words], np.int32)
    row: Row = {
        "number": page.number,
        "width": float(page.width),
        "height": float(page.height),
        "rotation": page.rotation,
        "text_source": page.text_source,
        "texts": [word.text for word in page.words],
        "boxes": boxes,
        "lines": lines,
    }
    try:
        row["checksum"] = page_checksum(row)
    except UnicodeEncodeError as error:
        raise StoreError(
            f"page {page.number} has a word that is not valid text: {error.object!r}"
        ) from error
    return row


def page_checksum(row: Mapping[str, Any]) -> int:
    """Over everything a page's row says of the page."""
    plain = [row[name] for name in ("number", "width", "height", "rotation", "text_source")]
    text = json.dumps([*plain, row["texts"]], ensure_ascii=False).encode()
    checksum = crc32(np.asarray(row["boxes"], BOX).tobytes(), crc32(text))
    return crc32(np.asarray(row["lines"], WORD).tobytes(), checksum)


def page_of(row: Mapping[str, Any]) -> Page:
    """The page of a row."""
    boxes = row["boxes"]
    corners = zip(boxes[0::4], boxes[1::4], boxes[2::4], boxes[3::4], strict=True)
    placed = zip(row["texts"], corners, row["lines"], strict=True)
    words = tuple(Word(text, box, line) for text, box, line in placed)
    return Page(
        number=row["number"],
        width=row["width"],
        height=row["height"],
        rotation=row["rotation"],
        words=words,
        text_source=row["text_source"],
    )


def checksum_of_pages(checksums: Sequence[int]) -> int:
    """One checksum for all pages, given theirs in page order."""
    return crc32(np.array(checksums, "<i8").tobytes())


def check_embedding(page: Page, embedding: PageEmbedding, dimension: int) -> None:
    """Refuse arrays that are not what they must be, before anything is written."""
    n = len(embedding.vectors)
    expected = (
        ("vectors", embedding.vectors, (n, dimension), np.float16),
        ("boxes", embedding.boxes, (n, 4), np.float32),
        ("words", embedding.words, (n,), np.int32),
    )
    for name, array, shape, dtype in expected:
        if array.shape != shape or array.dtype != dtype:
            raise InvalidVectors(
                f"page {page.number}: {name} must be {np.dtype(dtype).name} of shape {shape}, "
                f"not {array.dtype.name} of shape {array.shape}"
            )
    if n and embedding.invalid is not None:
        raise InvalidVectors(f"page {page.number} is invalid and has {n} vectors; it may have none")
    if n and not -1 <= embedding.words.min() <= embedding.words.max() < len(page.words):
        raise InvalidVectors(
            f"page {page.number}: words must be -1 or below {len(page.words)}, the number of its "
            f"words, not {embedding.words.min()} to {embedding.words.max()}"
        )


def embedding_bytes(length: int, dimension: int) -> int:
    """How many bytes this many vectors take with their places."""
    return length * (dimension * VECTOR.itemsize + PLACE_BYTES)


def block_row(revision: str, first: int, embeddings: Sequence[PageEmbedding]) -> Row:
    """The columns for the vectors of consecutive pages: all vectors, then boxes, then words."""
    parts = [np.ascontiguousarray(e.vectors, VECTOR) for e in embeddings]
    parts += [np.ascontiguousarray(e.boxes, BOX) for e in embeddings]
    parts += [np.ascontiguousarray(e.words, WORD) for e in embeddings]
    data = b"".join([bytes.fromhex(revision), *(part.tobytes() for part in parts)])
    return {
        "first": first,
        "lengths": [len(e.vectors) for e in embeddings],
        "checksum": crc32(data),
        "invalid": invalid_to_text(
            (number, embedding.invalid)
            for number, embedding in enumerate(embeddings, start=first)
            if embedding.invalid is not None
        ),
        "data": data,
    }


def invalid_to_text(pages: Iterable[tuple[int, str]]) -> str | None:
    """Invalid pages with their reasons as a text for a column; none for none."""
    listed = list(pages)
    return json.dumps(listed, ensure_ascii=False) if listed else None


def invalid_of(text: str | None) -> tuple[tuple[int, str], ...]:
    """Undo :func:`invalid_to_text`.

    >>> invalid_of(invalid_to_text([(3, "no numbers")]))
    ((3, 'no numbers'),)
    """
    return tuple((int(number), str(reason)) for number, reason in json.loads(text or "[]"))


def embeddings_of(data: bytes, lengths: Sequence[int], dimension: int) -> list[PageEmbedding]:
    """The pages of a block, given its bytes without the header."""
    n = sum(lengths)
    split = n * dimension * VECTOR.itemsize, n * (dimension * VECTOR.itemsize + 4 * BOX.itemsize)
    vectors = np.frombuffer(data[: split[0]], VECTOR).reshape(n, dimension)
    boxes = np.frombuffer(data[split[0] : split[1]], BOX).reshape(n, 4)
    words = np.frombuffer(data[split[1] :], WORD)
    edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    return [PageEmbedding(vectors[a:b], boxes[a:b], words[a:b]) for a, b in pairwise(edges)]
