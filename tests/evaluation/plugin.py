"""Plugins as in another package: methods, an encoder and a generator."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding
from visar.generation.generator import OnText, Prompt, Reply, ignore_text
from visar.retrieval.methods import Method, ScoredPages


def three(pages: ScoredPages) -> int:
    """Choose the best three pages, or all."""
    return min(3, len(pages))


def broken(pages: ScoredPages) -> int:
    raise KeyError(f"{len(pages)} pages")


def killed(_pages: ScoredPages) -> int:
    """End this process, as the system does where memory runs out."""
    os._exit(9)


def threads(pages: ScoredPages) -> int:
    """Choose as many pages as libraries have threads."""
    import sklearn.cluster  # noqa: F401 - like Score-Cluster, to load its native libraries
    from threadpoolctl import threadpool_info

    return min(len(pages), max(int(library["num_threads"]) for library in threadpool_info()))


named = Method(name="another name", function=three)


class Counting:
    """A model that logs when it is loaded, used and released."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log
        self._is_loaded = False

    def _load(self) -> None:
        if not self._is_loaded:
            self._log.append(f"load {self.name}")
        self._is_loaded = True

    def release(self) -> None:
        if self._is_loaded:
            self._log.append(f"release {self.name}")
        self._is_loaded = False


class CountingEncoder(Counting):
    """An encoder with one vector per word, from its letters."""

    reads: Literal["words", "image"] = "words"
    weak_match = 0.1
    dimension = 26
    version = "1"

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any],  # noqa: ARG002
    ) -> list[PageEmbedding]:
        self._load()
        found = []
        for page in pages:
            vectors = np.asarray([_letters(word.text) for word in page.words]).reshape(-1, 26)
            boxes = np.zeros((len(vectors), 4), np.float32)
            words = np.arange(len(vectors), dtype=np.int32)
            found.append(PageEmbedding(vectors.astype(np.float16), boxes, words))
        return found

    def encode_query(self, question: str) -> NDArray[np.float32]:
        self._load()
        return np.asarray([_letters(word) for word in question.split()], np.float32)


class CountingGenerator(Counting):
    """A generator that answers with one word, and judges every answer correct."""

    reads: Literal["images", "text"] = "text"

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def generate(
        self,
        prompt: Prompt,  # noqa: ARG002
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        self._load()
        text = json.dumps({"choice": choices[0]} if choices else {"answer": "April", "pages": []})
        on_text(text)
        return Reply(text, f"{self.name}@1", None, min(max_tokens, 3), complete=True)


def _letters(word: str) -> NDArray[np.float64]:
    places = [ord(c) - 97 for c in word.lower() if c.isascii() and c.isalpha()]
    counts = np.bincount(places, minlength=26) + 0.01
    return np.asarray(counts / np.linalg.norm(counts))
