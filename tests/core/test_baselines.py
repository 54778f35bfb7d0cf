"""The baselines, on scores whose answer can be read off."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import visar
from tests.core.documents import planted, unit
from visar.core import baselines
from visar.errors import InvalidOption, InvalidVectors, MissingExtra

CLEAR = [0.2, 0.9, 0.88, 0.1, 0.15, 0.12, 0.86, 0.11]


def test_top_k_is_capped_at_the_document() -> None:
    assert baselines.top_k(CLEAR, 3).pages.tolist() == [1, 2, 6]
    assert baselines.top_k(CLEAR, 100).k == len(CLEAR)
    with pytest.raises(InvalidOption, match="at least 1"):
        baselines.top_k(CLEAR, 0)


def test_single_vector_ranks_by_cosine_not_by_length() -> None:
    pages = np.array([[3.0, 3.0], [0.1, 0.0], [0.0, 5.0]])
    choice = baselines.single_vector(np.array([1.0, 0.0]), pages, 2)
    assert choice.pages.tolist() == [1, 0]
    with pytest.raises(InvalidVectors, match="one vector, not 2"):
        baselines.single_vector(np.eye(2), pages, 1)


def test_largest_gap_cuts_at_the_first_largest_drop() -> None:
    assert baselines.largest_gap(CLEAR).pages.tolist() == [1, 2, 6]
    assert baselines.largest_gap([0.5, 0.3, 0.1]).k == 1
    assert baselines.largest_gap([0.7]).k == 1


def test_largest_gap_of_the_paper_rounds_to_three_decimals() -> None:
    scores = [0.5004, 0.4002, 0.3, 0.2994]
    assert baselines.largest_gap(scores).k == 1
    assert baselines.largest_gap([0.5001, 0.4004, 0.2999]).k == 1
    assert baselines.largest_gap([0.5001, 0.4004, 0.2999], original=True).k == 3


def test_largest_gap_as_published_ignores_the_tail_and_adds_five() -> None:
    scores = np.concatenate([[1.0, 0.9], np.linspace(0.6, 0.5, 18), [0.0]])
    assert baselines.largest_gap(scores).k == 20
    assert baselines.largest_gap(scores, original=True).k == 2 + 5


def test_score_cluster_cuts_between_clusters() -> None:
    scores = np.concatenate([np.linspace(0.99, 0.97, 4), np.linspace(0.1, 0.0, 16)])
    choice = baselines.score_cluster(scores)
    assert choice.k == 4
    assert choice.pages.tolist() == [0, 1, 2, 3]


def test_score_cluster_as_published_prefers_deeper_boundaries() -> None:
    """Two steps of nearly the same height: only the published version adds i / N."""
    scores = np.concatenate(
        [1 - 0.001 * np.arange(8), 0.6 - 0.001 * np.arange(8), 0.22 - 0.001 * np.arange(8)]
    )
    assert baselines.score_cluster(scores).k == 8
    assert baselines.score_cluster(scores, original=True).k == 16


@pytest.mark.parametrize("scores", [[0.4], [0.4, 0.2], [0.5, 0.5, 0.5], [0.1, np.nan, 0.3]])
def test_score_cluster_without_a_boundary_takes_all(scores: list[float]) -> None:
    assert baselines.score_cluster(scores).k == len(scores)


def test_score_cluster_rounds_scores_as_the_paper_does() -> None:
    # Two groups that differ by 0.0002 only: to three decimals every score is 0.500, so that there
    # is no boundary and all 6 pages are taken. As published, the boundary is seen.
    scores = [0.5002, 0.50019, 0.50018, 0.5, 0.49999, 0.49998]
    assert baselines.score_cluster(scores).k == 6
    assert baselines.score_cluster(scores, original=True).k == 3


def test_score_cluster_names_the_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(MissingExtra, match=r"pip install 'visar\[eval\]'"):
        baselines.score_cluster(CLEAR)


def test_oracle_is_the_smallest_top_k_with_all_evidence() -> None:
    assert baselines.oracle(CLEAR, [6, 2]).pages.tolist() == [1, 2, 6]
    assert baselines.oracle(CLEAR, [1]).k == 1
    assert baselines.oracle(CLEAR, [3]).k == 8
    with pytest.raises(InvalidOption, match="at least one"):
        baselines.oracle(CLEAR, [])
    with pytest.raises(InvalidOption, match="between 0 and 7"):
        baselines.oracle(CLEAR, [8])


@pytest.mark.parametrize("scores", [[], [[0.1, 0.2]], [0.1, np.inf]])
def test_scores_must_be_one_number_per_page(scores: list[float]) -> None:
    with pytest.raises(InvalidVectors):
        baselines.top_k(scores, 1)


def test_the_ablations_run_through_the_engine() -> None:
    """w_i = 1 and w_p = 1 inside, another rule for k on s_p outside."""
    case = planted(seed=20, n_pages=30)
    full = visar.select(case.query, case.pages)
    tokens = visar.select(case.query, case.pages, unweighted=["tokens"])
    both = visar.select(case.query, case.pages, unweighted={"tokens", "pages"})
    assert (tokens.token_weights == 1).all()
    assert not (tokens.page_weights == 1).all()
    assert (both.page_weights == 1).all()
    assert both.sparsity < full.sparsity
    for rule in (baselines.largest_gap, baselines.score_cluster):
        assert set(rule(full.scores).pages.tolist()) <= set(full.ranking.tolist())
    assert baselines.top_k(full.scores, full.k).pages.tolist() == full.pages.tolist()


def test_unit_helper_is_what_single_vector_needs() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(5, 8)))
    assert baselines.single_vector(vectors[3], vectors, 1).pages.tolist() == [3]
