"""Every method of the paper on one document: what they share is computed once, and is the same."""

from __future__ import annotations

import numpy as np
import pytest

from visar.core import maxsim, prepare, select
from visar.core.baselines import largest_gap, oracle
from visar.evaluation.choosing import DEPTH, Chosen, Pages, choose
from visar.evaluation.methods import METHODS

EVIDENCE = (3, 7)


@pytest.fixture(scope="module")
def pages() -> Pages:
    random = np.random.default_rng(5)
    vectors = random.normal(size=(14, 30, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return Pages(prepare([page[: 10 + number] for number, page in enumerate(vectors)]))


@pytest.fixture(scope="module")
def query() -> np.ndarray:
    vectors = np.random.default_rng(6).normal(size=(7, 16)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.fixture(scope="module")
def chosen(query: np.ndarray, pages: Pages) -> dict[str, Chosen]:
    return {found.method: found for found in choose(query, pages, EVIDENCE, METHODS)}


def test_every_method_chooses(chosen: dict[str, Chosen], pages: Pages) -> None:
    assert set(chosen) == set(METHODS)
    for found in chosen.values():
        assert len(found.pages) == len(set(found.pages)) >= 1
        assert set(found.pages) <= set(range(1, len(pages.vectors) + 1))
        assert found.pages[:DEPTH] == found.ranking[: len(found.pages)]
        assert sum(found.seconds.values()) > 0


def test_they_choose_what_the_functions_choose(
    chosen: dict[str, Chosen], query: np.ndarray, pages: Pages
) -> None:
    late = maxsim(query, pages.vectors)
    expected = {
        "visar": select(query, pages.vectors).pages,
        "visar gamma=10": select(query, pages.vectors, gamma=10).pages,
        "visar T=5": select(query, pages.vectors, top_t=5).pages,
        "visar w_p=1": select(query, pages.vectors, unweighted=["pages"]).pages,
        "late-interaction": np.argsort(-late, kind="stable")[:DEPTH],
        "largest-gap": largest_gap(late).pages,
        "oracle": oracle(late, [page - 1 for page in EVIDENCE]).pages,
        "visar largest-gap": largest_gap(select(query, pages.vectors).scores).pages,
    }
    for method, right in expected.items():
        assert [page - 1 for page in chosen[method].pages] == right.tolist(), method


def test_the_middle_of_each_sweep_is_the_usual_setting(chosen: dict[str, Chosen]) -> None:
    assert chosen["visar T=50"].pages == chosen["visar gamma=100000"].pages == chosen["visar"].pages


def test_the_oracle_needs_evidence(query: np.ndarray, pages: Pages) -> None:
    assert list(choose(query, pages, (), ["oracle"])) == []


def test_single_vectors_are_means(
    chosen: dict[str, Chosen], query: np.ndarray, pages: Pages
) -> None:
    """Compared with the plain formula, page by page."""
    stacked = np.concatenate([block.vectors for block in pages.vectors.blocks()])
    parts = np.split(stacked, pages.vectors.offsets[1:-1])
    means = [part.mean(axis=0) for part in parts]
    question = query.mean(axis=0)
    cosines = [mean @ question / np.linalg.norm(mean) for mean in means]
    right = np.argsort([-cosine for cosine in cosines])[:DEPTH]
    assert [page - 1 for page in chosen["single-vector"].pages] == right.tolist()
