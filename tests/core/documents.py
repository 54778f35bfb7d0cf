"""Small synthetic documents for the tests of the core: planted topics and edge cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    query: Floats
    pages: list[Floats]

    def __repr__(self) -> str:
        return f"Case({self.query.shape}, {[len(page) for page in self.pages]})"


def unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def planted(
    seed: int, n_pages: int, n_patches: int = 60, relevant: int = 3, noise: float = 1.5
) -> Case:
    """Return a document in which ``relevant`` pages answer the query and the others do less."""
    rng = np.random.default_rng(seed)
    query = unit(rng.normal(size=(8, 32)))
    pages = []
    for p in range(n_pages):
        patches = rng.normal(size=(n_patches, 32))
        strength = 3.0 if p < relevant else rng.uniform(0, noise)
        tokens = rng.integers(len(query), size=n_patches // 3)
        patches[: len(tokens)] += strength * np.sqrt(32) * query[tokens]
        pages.append(unit(patches))
    order = rng.permutation(n_pages)
    return Case(query, [pages[p] for p in order])


@st.composite
def cases(draw: st.DrawFn, *, ties: bool = True) -> Case:
    """Draw documents with empty pages and pages of any length, with duplicates and near-ties."""
    kinds = ["topic", "topic", "opposite"] + ["duplicate", "near duplicate"] * ties
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dimension = draw(st.sampled_from([3, 8, 24]))
    query = unit(rng.normal(size=(draw(st.integers(1, 8)), dimension)))
    lengths = draw(st.lists(st.integers(0, 90), min_size=1, max_size=14))
    focus = draw(st.floats(0, 4))
    pages: list[Floats] = []
    for length in lengths:
        kind = draw(st.sampled_from(kinds))
        if kind == "duplicate" and pages:
            pages.append(pages[int(rng.integers(len(pages)))])
        elif kind == "near duplicate" and pages:
            page = pages[int(rng.integers(len(pages)))]
            noise = draw(st.sampled_from([1e-7, 1e-3])) * rng.normal(size=page.shape)
            pages.append(unit(page + noise) if len(page) else page)
        else:
            patches = rng.normal(size=(length, dimension))
            pull = focus * rng.uniform() * np.sqrt(dimension)
            toward = query[rng.integers(len(query), size=length)]
            patches += (-pull if kind == "opposite" else pull) * toward
            pages.append(unit(patches))
    return Case(query, pages)
