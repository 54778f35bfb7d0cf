"""Synthetic page vectors with planted topics, which resemble those of visual encoders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DIMENSION = 128
PATCHES = 1030
QUERY_VECTORS = 20
TOPICS = 2
WORDS = 6


@dataclass(frozen=True)
class Example:
    """A document with questions about it."""

    name: str
    vectors: NDArray[np.float16]
    offsets: NDArray[np.int64]
    queries: list[NDArray[np.float16]]


def planted_document(
    n_pages: int, n_queries: int, seed: int = 0, dimension: int = DIMENSION
) -> Example:
    """Return pages of 1030 vectors that share topics, and questions about one topic each.

    A page is mostly about one topic and mentions another; a third of its patches are blank and
    similar on all pages. Half of a question's vectors are about its topic, the others are words
    that match all pages about equally. A few pages focus on the topic, and the others mention it
    slightly, so about half of the pages are inactive, as in the paper.
    """
    rng = np.random.default_rng([seed, n_pages])
    common = _directions(rng, 1, dimension)[0]
    topics = _directions(rng, TOPICS * WORDS, dimension).reshape(TOPICS, WORDS, dimension)
    blank = _directions(rng, 4, dimension)
    # With fewer pages, more of the topic is needed for half of them to be above the mean.
    faint = 0.1 * (1 + 25 / n_pages)
    pages = []
    for page in range(n_pages):
        # The number of pages that focus on a topic doesn't depend on the document's length.
        emphasis = np.exp(-(page // TOPICS))
        own = [(page % TOPICS, emphasis), (int(rng.integers(TOPICS)), 0.0)]
        pages.append(_page(rng, common, topics, blank, own, faint))
    queries = [_query(rng, common, topics[topic], blank) for topic in np.arange(n_queries) % TOPICS]
    offsets = np.arange(n_pages + 1) * PATCHES
    return Example(f"planted, {n_pages} pages", np.concatenate(pages), offsets, queries)


def _page(
    rng: np.random.Generator,
    common: NDArray[np.float64],
    topics: NDArray[np.float64],
    blank: NDArray[np.float64],
    own: list[tuple[int, float]],
    faint: float,
) -> NDArray[np.float16]:
    signal = np.zeros((PATCHES, len(common)))
    kind = rng.choice(4, size=PATCHES, p=[0.30, 0.35, 0.15, 0.20])
    for place, (topic, emphasis) in enumerate(own):
        chosen = kind == place + 1
        word = rng.integers(WORDS, size=chosen.sum())
        level = faint * rng.uniform(1, 2) + 2.5 * emphasis
        strength = level * rng.gamma(30, 1 / 30, size=chosen.sum())
        signal[chosen] = strength[:, None] * topics[topic, word]
    paper = kind == 0
    signal[paper] = 2 * blank[rng.integers(len(blank), size=paper.sum())]
    noise = rng.normal(size=signal.shape) / np.sqrt(len(common))
    return _unit(0.6 * common + signal + 0.8 * noise).astype(np.float16)


def _query(
    rng: np.random.Generator,
    common: NDArray[np.float64],
    topic: NDArray[np.float64],
    blank: NDArray[np.float64],
) -> NDArray[np.float16]:
    noise = rng.normal(size=(QUERY_VECTORS, len(common))) / np.sqrt(len(common))
    signal = 0.5 * blank[rng.integers(len(blank), size=QUERY_VECTORS)]
    named = QUERY_VECTORS // 2
    signal[:named] = topic[rng.integers(len(topic), size=named)]
    return _unit(0.6 * common + signal + 0.5 * noise).astype(np.float16)


def _directions(
    rng: np.random.Generator, count: int, dimension: int = DIMENSION
) -> NDArray[np.float64]:
    return _unit(rng.normal(size=(count, dimension)))


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
