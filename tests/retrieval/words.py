"""A test library of random words, with an exact encoder that needs no model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.store.samples import put
from visar.documents.blocks import lay_out
from visar.documents.page import Page, Word
from visar.encoders.encoder import PageEmbedding, page_without_vectors
from visar.results import Document, EncoderRef
from visar.store import Store


class WordEncoder:
    """An encoder that gives each word a fixed random vector, in pages and questions."""

    name = "words"
    version = "1"
    dimension = 40
    reads: Literal["words", "image"] = "words"
    weak_match = 0.25

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        assert not images
        return [self._page(page) for page in pages]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        return np.array([self._vector(word) for word in question.split()], np.float32)

    def _page(self, page: Page) -> PageEmbedding:
        if not page.words:
            return page_without_vectors(self.dimension)
        return PageEmbedding(
            np.array([self._vector(word.text) for word in page.words], np.float16),
            np.array([word.box for word in page.words], np.float32),
            np.arange(len(page.words), dtype=np.int32),
        )

    def _vector(self, word: str) -> NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).normal(size=self.dimension)
        return np.asarray(vector / np.linalg.norm(vector))


ENCODER = WordEncoder()


def add_texts(
    store: Store,
    name: str,
    texts: Sequence[str],
    encoder: WordEncoder = ENCODER,
    **metadata: Any,
) -> Document:
    """Add a document with one text per page; an empty text is an empty page."""
    pages = [lay_out(_page(number, text)) for number, text in enumerate(texts, start=1)]
    embeddings = encoder.encode_pages(pages, [])
    new = Document(f"id-{name}", name, len(texts), 1, source=f"/{name}", metadata=metadata)
    return put(store, new, EncoderRef.of(encoder), list(zip(pages, embeddings, strict=True)))


def _page(number: int, text: str) -> Page:
    words = tuple(
        Word(word, (0.1, min(0.02 * place, 0.9), 0.4, min(0.02 * place, 0.9) + 0.01), place)
        for place, word in enumerate(text.split())
    )
    return Page(number, 400, 500, 0, words, "text layer" if words else "none")


def texts(seed: int, pages: int) -> list[str]:
    """Return pages of common words, each with some unique words."""
    random = np.random.default_rng(seed)
    return [
        " ".join([asking(seed, page), *(f"word{n}" for n in random.integers(0, 60, 20))])
        for page in range(1, pages + 1)
    ]


def asking(seed: int, page: int) -> str:
    """Return the unique words of a page."""
    return f"only-{seed}-{page} also-{seed}-{page} too-{seed}-{page}"
