"""Stores, encoders and scanned documents for the tests of adding documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.documents.conftest import text_image
from visar.documents import Page
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.encoder import Encoder, PageEmbedding
from visar.store import Store, open_store


def unit(vector: NDArray[np.floating | np.integer]) -> NDArray[np.float16]:
    """Return the single vector of a page, normalized to length 1."""
    return np.asarray(vector / np.linalg.norm(vector), np.float16)[None]


class MeanColor:
    """An encoder that uses images: one vector per page, its mean color."""

    name = "mean-color"
    version = "1"
    dimension = 3
    reads: Literal["words", "image"] = "image"
    weak_match = 0.5

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        assert len(pages) == len(images)
        return [
            PageEmbedding(
                unit(np.asarray(image, np.float32).mean((0, 1)) + 1),
                np.array([[0, 0, 1, 1]], np.float32),
                np.array([-1], np.int32),
            )
            for image in images
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        raise NotImplementedError


class FirstWord:
    """An encoder that uses words: one vector per page, for its first word."""

    name = "first-word"
    version = "1"
    dimension = 2
    reads: Literal["words", "image"] = "words"
    weak_match = 0.5

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        assert not images
        return [
            PageEmbedding(
                unit(np.array([page.number, len(page.words[0].text)])),
                np.array([page.words[0].box], np.float32),
                np.array([0], np.int32),
            )
            for page in pages
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        raise NotImplementedError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "index")


@pytest.fixture(scope="session")
def embedded() -> Encoder:
    return EmbeddedEncoder()


@pytest.fixture
def make_scan(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a folder with one page image per text."""

    def make(name: str, *texts: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for number, text in enumerate(texts, start=1):
            text_image(text).save(folder / f"{number}.png")
        return folder

    return make
