"""All methods of an evaluation on one document, and their names."""

from __future__ import annotations

import numpy as np
import pytest

from visar.core import maxsim, prepare, select
from visar.core.baselines import (
    autocut,
    benjamini_hochberg,
    gaussian_mixture,
    kneedle,
    largest_gap,
    oracle,
    score_cluster,
    share_of_best,
    surprise,
    top_p,
    two_means,
)
from visar.errors import InvalidOption
from visar.evaluation.methods import (
    DEPTH,
    GROUPS,
    METHODS,
    MethodResult,
    TimedPages,
    find_methods,
    is_answered,
)
from visar.retrieval.methods import DocumentPages

EVIDENCE = (2, 6)


@pytest.fixture(scope="module")
def pages() -> DocumentPages:
    random = np.random.default_rng(5)
    vectors = random.normal(size=(14, 30, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return DocumentPages(prepare([page[: 10 + number] for number, page in enumerate(vectors)]))


@pytest.fixture(scope="module")
def query() -> np.ndarray:
    vectors = np.random.default_rng(6).normal(size=(7, 16)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.fixture(scope="module")
def chosen(query: np.ndarray, pages: DocumentPages) -> dict[str, MethodResult]:
    scored = TimedPages(query, pages, evidence=EVIDENCE)
    return {method.name: scored.run(method) for method in find_methods(GROUPS)}


def test_every_method_chooses(chosen: dict[str, MethodResult], pages: DocumentPages) -> None:
    assert set(chosen) == set(METHODS)
    for found in chosen.values():
        assert len(found.pages) == len(set(found.pages.tolist())) >= 1
        assert set(found.pages.tolist()) <= set(range(len(pages.vectors)))
        assert found.pages.tolist() == found.ranking[: len(found.pages)].tolist()
        assert sum(found.seconds.values()) > 0


def test_methods_choose_the_same_as_their_functions(
    chosen: dict[str, MethodResult], query: np.ndarray, pages: DocumentPages
) -> None:
    late = maxsim(query, pages.vectors)
    similarity = select(query, pages.vectors, full_matrix=True).similarity
    assert similarity is not None
    normalized = np.diag(similarity - similarity.min()) / np.ptp(similarity)
    expected = {
        "visar": select(query, pages.vectors).pages,
        "visar gamma=10": select(query, pages.vectors, gamma=10).pages,
        "visar T=5": select(query, pages.vectors, top_t=5).pages,
        "visar w_p=1": select(query, pages.vectors, unweighted=["pages"]).pages,
        "visar top_j=450 top_s=10": select(query, pages.vectors, top_j=450, top_s=10).pages,
        "top-k": np.argsort(-late, kind="stable")[:DEPTH],
        "largest-gap": largest_gap(late).pages,
        "oracle": oracle(late, EVIDENCE).pages,
        "adaptive-k": largest_gap(late, original=True).pages,
        "car": score_cluster(late, original=True).pages,
        "gaussian-mixture": gaussian_mixture(late).pages,
        "two-means": two_means(late).pages,
        "surprise": surprise(late).pages,
        "benjamini-hochberg": benjamini_hochberg(late).pages,
        "autocut": autocut(late).pages,
        "kneedle": kneedle(late).pages,
        "share-of-best": share_of_best(late).pages,
        "top-p": top_p(late).pages,
        "visar top-k": select(query, pages.vectors).ranking[:DEPTH],
        "visar largest-gap": largest_gap(normalized).pages,
        "visar score-cluster": score_cluster(normalized).pages,
    }
    for method, right in expected.items():
        assert chosen[method].pages.tolist() == right.tolist(), method


def test_sweeps_include_the_default_setting(chosen: dict[str, MethodResult]) -> None:
    usual = chosen["visar"].pages.tolist()
    assert chosen["visar T=50"].pages.tolist() == usual
    assert chosen["visar gamma=100000"].pages.tolist() == usual


def test_single_vectors_are_means(
    chosen: dict[str, MethodResult], query: np.ndarray, pages: DocumentPages
) -> None:
    """Compared with the plain formula, page by page."""
    stacked = np.concatenate([block.vectors for block in pages.vectors.blocks()])
    parts = np.split(stacked, pages.vectors.offsets[1:-1])
    means = [part.mean(axis=0) for part in parts]
    question = query.mean(axis=0)
    cosines = [mean @ question / np.linalg.norm(mean) for mean in means]
    right = np.argsort([-cosine for cosine in cosines])[:DEPTH]
    assert chosen["single-vector"].pages.tolist() == right.tolist()


def test_other_methods_are_a_group() -> None:
    named = [method.name for method in find_methods(["others"])]
    assert named == [
        "adaptive-k",
        "gaussian-mixture",
        "two-means",
        "surprise",
        "benjamini-hochberg",
        "autocut",
        "kneedle",
        "share-of-best",
        "top-p",
        "car",
    ]


def test_the_approximation_study_has_all_combinations_of_shortcuts() -> None:
    studied = {frozenset(m.options) for m in METHODS.values() if m.group == "acceleration"}
    studied.add(frozenset(METHODS["visar-approx"].options))
    assert len(studied) == 7


def test_methods_with_fixed_k_choose_as_many_pages_as_the_depth() -> None:
    deep = {method.name: method.options.get("k") for method in find_methods(["main"], 20)}
    assert (deep["top-k"], deep["single-vector"], deep["visar"]) == (20, 20, None)


def test_methods_are_found_by_name_group_or_function_slow_ones_last() -> None:
    named = find_methods(["score-cluster", "gamma", "visar", "tests.evaluation.plugin:three"])
    names = [method.name for method in named]
    assert names[0] == "tests.evaluation.plugin:three"
    assert names[-1] == "score-cluster"
    assert len(names) == len(set(names)) == 12
    with pytest.raises(InvalidOption, match=r"There is no method 'vizar': did you mean visar"):
        find_methods(["vizar"])


def test_generators_answer_from_the_methods_in_the_papers_tables() -> None:
    assert [method.name for method in METHODS.values() if is_answered(method)] == [
        "top-k",
        "single-vector",
        "visar",
        "largest-gap",
        "score-cluster",
        "visar top-k",
        "visar largest-gap",
        "visar score-cluster",
    ]
