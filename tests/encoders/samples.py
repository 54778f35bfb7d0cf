"""Sample pages and images, and a small encoder with different vectors for every image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visar.documents.page import Page, Word
from visar.encoders.encoder import PageEmbedding

GRID = 4


def page_with(text: str, number: int = 1) -> Page:
    texts = text.split()
    height = 1 / max(10, len(texts))
    words = tuple(
        Word(word, (0.1, height * line, 0.5, height * (line + 0.5)), line)
        for line, word in enumerate(texts)
    )
    return Page(number, 400, 500, 0, words, "text layer")


def picture(seed: int, width: int = 40, height: int = 48) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


class PixelEncoder:
    """An encoder whose vectors are the colors of the patches."""

    name = "pixels"
    version = "1"
    dimension = 3 * GRID * GRID
    reads: Literal["words", "image"] = "image"
    weak_match = 0.25

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        assert len(pages) == len(images)
        return [_patches(image) for image in images]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        rng = np.random.default_rng(len(question))
        return _unit(rng.normal(size=(len(question.split()), self.dimension)))


def _patches(image: Image.Image) -> PageEmbedding:
    pixels = np.asarray(image.resize((GRID * GRID, GRID * GRID)), np.float32) + 1
    patches = pixels.reshape(GRID, GRID, GRID, GRID, 3).swapaxes(1, 2).reshape(GRID * GRID, -1)
    tops, lefts = np.divmod(np.arange(GRID * GRID), GRID)
    boxes = np.stack([lefts, tops, lefts + 1, tops + 1], axis=1) / GRID
    return PageEmbedding(
        _unit(patches).astype(np.float16),
        boxes.astype(np.float32),
        np.full(GRID * GRID, -1, np.int32),
    )


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / lengths, np.float32)
