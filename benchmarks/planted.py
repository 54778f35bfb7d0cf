"""Documents made up to behave like those of visual encoders: topics, background, blank paper."""

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


def planted_document(n_pages: int, n_queries: int, seed: int = 0) -> Example:
    """Pages of 1030 × 128 that share topics, and questions about one topic each.

    A page speaks mostly of one topic and mentions another; a third of its patches is blank
    paper, alike on all pages. A question names its topic with half of its vectors, the others
    are words that match every page about equally. A few pages stress their topic, most don't:
    about half of the pages end up inactive.
    """
    rng = np.random.default_rng([seed, n_pages])
    common = _directions(rng, 1)[0]
    topics = _directions(rng, TOPICS * WORDS).reshape(TOPICS, WORDS, DIMENSION)
    blank = _directions(rng, 4)
    pages = []
    for page in range(n_pages):
        # As few pages stress a topic in a long document as in a short one.
        emphasis = np.exp(-(page // TOPICS) / 2)
        own = [(page % TOPICS, emphasis), (int(rng.integers(TOPICS)), 0.0)]
        pages.append(_page(rng, common, topics, blank, own))
    queries = [_query(rng, common, topics[topic], blank) for topic in np.arange(n_queries) % TOPICS]
    offsets = np.arange(n_pages + 1) * PATCHES
    return Example(f"planted, {n_pages} pages", np.concatenate(pages), offsets, queries)


def _page(
    rng: np.random.Generator,
    common: NDArray[np.float64],
    topics: NDArray[np.float64],
    blank: NDArray[np.float64],
    own: list[tuple[int, float]],
) -> NDArray[np.float16]:
    signal = np.zeros((PATCHES, DIMENSION))
    kind = rng.choice(4, size=PATCHES, p=[0.30, 0.35, 0.05, 0.30])
    for place, (topic, emphasis) in enumerate(own):
        chosen = kind == place + 1
        # A page that only touches a topic knows few of its words.
        known = rng.permutation(WORDS)[: max(int(rng.integers(1, 4)), round(emphasis * WORDS))]
        word = known[rng.integers(len(known), size=chosen.sum())]
        strength = (rng.uniform(0.1, 0.45) + 1.5 * emphasis) * rng.gamma(4, 0.25, size=chosen.sum())
        signal[chosen] = strength[:, None] * topics[topic, word]
    paper = kind == 0
    signal[paper] = 2 * blank[rng.integers(len(blank), size=paper.sum())]
    noise = rng.normal(size=(PATCHES, DIMENSION)) / np.sqrt(DIMENSION)
    return _unit(0.6 * common + signal + 0.8 * noise).astype(np.float16)


def _query(
    rng: np.random.Generator,
    common: NDArray[np.float64],
    topic: NDArray[np.float64],
    blank: NDArray[np.float64],
) -> NDArray[np.float16]:
    noise = rng.normal(size=(QUERY_VECTORS, DIMENSION)) / np.sqrt(DIMENSION)
    signal = 0.5 * blank[rng.integers(len(blank), size=QUERY_VECTORS)]
    named = QUERY_VECTORS // 2
    signal[:named] = topic[rng.integers(len(topic), size=named)]
    return _unit(0.6 * common + signal + 0.5 * noise).astype(np.float16)


def _directions(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return _unit(rng.normal(size=(count, DIMENSION)))


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
