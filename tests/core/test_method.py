"""Test properties of the method: identities, degenerate input and the early stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import visar
from tests.comparison.plain_equations import co_activation, relative_activation
from tests.core.documents import Case, cases, planted, unit
from visar.core import cutoff, weights
from visar.core.similarity import PageSimilarity
from visar.core.weights import page_co_activation, relative_deviation, token_rarity

ACTIVATIONS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
    elements=st.floats(0.01, 1),
)


@given(ACTIVATIONS)
def test_sum_of_relative_activation_is_n_times_the_deviation(activation: np.ndarray) -> None:
    amplified = relative_activation(activation)
    spread = relative_deviation(activation)
    np.testing.assert_allclose(amplified.sum(axis=0), len(activation) * spread, atol=1e-9)
    written_out = np.log(len(activation) / (1 + amplified.sum(axis=0)))
    np.testing.assert_allclose(token_rarity(spread, len(activation)), written_out, atol=1e-9)


@given(ACTIVATIONS)
def test_deviation_cancels_in_the_page_weight(activation: np.ndarray) -> None:
    relative = activation / activation.mean(axis=0)
    spread = relative_deviation(activation)
    spread[spread == 0] = 1
    np.testing.assert_allclose(
        page_co_activation(relative), co_activation(relative * spread), rtol=1e-9
    )


def test_only_some_rows_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only three of 60 pages contain the answer, so a few rows must be enough."""
    case = planted(seed=1, n_pages=60, noise=1.2)
    computed: list[int] = []
    rows = PageSimilarity.rows

    def counted(self: PageSimilarity, pages: Sequence[int]) -> np.ndarray:
        computed.extend(pages)
        return rows(self, pages)

    monkeypatch.setattr(PageSimilarity, "rows", counted)
    selection = visar.select(case.query, case.pages)
    assert len(selection.active) > 20
    unused = len(computed) - np.isfinite(selection.cost).sum()
    assert 0 <= unused <= len(computed) // 3
    assert len(computed) < len(selection.active) / 3
    computed.clear()
    full = visar.select(case.query, case.pages, full_matrix=True)
    assert len(computed) == len(full.active)
    assert full.pages.tolist() == selection.pages.tolist()


@pytest.mark.parametrize("max_k", [1, 5, 10])
def test_max_k_bounds_the_rows(monkeypatch: pytest.MonkeyPatch, max_k: int) -> None:
    """Forty of 80 pages contain the answer, but the best ten need only ten rows."""
    case = planted(seed=1, n_pages=80, relevant=40, noise=1.2)
    free = visar.select(case.query, case.pages)
    assert free.k_star > 15
    assert free.k_star_exact
    computed: list[int] = []
    rows = PageSimilarity.rows

    def counted(self: PageSimilarity, pages: Sequence[int]) -> np.ndarray:
        computed.extend(pages)
        return rows(self, pages)

    monkeypatch.setattr(PageSimilarity, "rows", counted)
    capped = visar.select(case.query, case.pages, max_k=max_k)
    assert len(computed) == max_k
    assert capped.pages.tolist() == free.pages[:max_k].tolist()
    assert (capped.k, capped.k_star, capped.k_star_exact) == (max_k, max_k, False)


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 6))
def test_max_k_does_not_change_the_ranking(case: Case, max_k: int) -> None:
    free = visar.select(case.query, case.pages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutoff, "CHEAP_PAGES", 0)
        capped = visar.select(case.query, case.pages, max_k=max_k)
    assert capped.pages.tolist() == free.pages[:max_k].tolist()
    assert capped.k_star == free.k_star if capped.k_star_exact else capped.k_star <= free.k_star


def test_result_is_the_same_without_cached_products(monkeypatch: pytest.MonkeyPatch) -> None:
    case = planted(seed=2, n_pages=20)
    cached = visar.select(case.query, case.pages)
    monkeypatch.setattr(weights, "PRODUCT_CACHE_BYTES", -(2**40))
    uncached = visar.select(case.query, case.pages)
    np.testing.assert_array_equal(uncached.scores, cached.scores)
    assert uncached.pages.tolist() == cached.pages.tolist()


def test_planted_pages_are_selected() -> None:
    case = planted(seed=3, n_pages=30, relevant=3)
    selection = visar.select(case.query, case.pages)
    strongest = np.argsort(-selection.late_interaction)[:3]
    assert set(strongest) <= set(selection.pages.tolist())
    assert selection.k <= 5
    assert 0 < selection.sparsity < 1


def test_sparsity_at_a_threshold_counts_pages_near_zero() -> None:
    """Three of the rescaled s_p 0, 0.009, 0.01, 0.5 and 1 are at most 0.01."""
    case = planted(seed=3, n_pages=5)
    selection = visar.select(case.query, case.pages)
    scores = np.array([0, 0.009, 0.01, 0.5, 1])
    known = replace(selection, scores=2 * scores)
    assert known.sparsity_at(0.01) == 0.6
    # If all pages are active, the lowest still counts: (s − 0.25) / 0.75 is 0 for s = 0.25.
    active = replace(selection, scores=np.array([0.25, 0.5, 0.5, 1, 1]))
    assert active.sparsity_at(0.01) == 0.2
    assert known.sparsity_at(0) == 0.2


def test_single_page_is_selected() -> None:
    selection = visar.select(np.eye(3), [np.eye(3)])
    assert (selection.k, bool(selection.fallback)) == (1, True)


def test_inactive_query_vector_is_ignored() -> None:
    """A vector opposite to every page has negative activation."""
    case = planted(seed=4, n_pages=12)
    up = np.zeros((1, 33))
    up[0, -1] = 1
    pages = [unit(np.pad(page, ((0, 0), (0, 1)), constant_values=0.3)) for page in case.pages]
    query = np.pad(case.query, ((0, 0), (0, 1)))
    without = visar.select(query, pages)
    both = visar.select(np.vstack([query, -up]), pages)
    assert both.token_weights[-1] == 0
    np.testing.assert_allclose(both.token_weights[:-1], without.token_weights)
    np.testing.assert_allclose(both.scores, without.scores, rtol=1e-5)
    assert both.pages.tolist() == without.pages.tolist()


def test_late_interaction_ranks_without_active_query_vectors() -> None:
    selection = visar.select(-np.eye(2)[:1], [np.eye(2)[:1], unit(np.array([[1.0, 1.0]]))])
    assert selection.fallback
    assert selection.pages.tolist() == [1]


def test_identical_patches_fall_back() -> None:
    selection = visar.select(np.eye(2)[:1], [np.eye(2)[:1]] * 3, full_matrix=True)
    assert selection.fallback
    assert selection.pages.tolist() == [0]
    assert selection.sparsity == 1
    assert selection.similarity is not None
    assert not selection.similarity.any()


def test_dissimilar_pages_are_all_selected() -> None:
    """Each page matches another query vector, and the pages are orthogonal."""
    query = np.eye(8)[:3]
    pages = [np.eye(8)[[p, p + 4]] for p in range(3)] + [np.eye(8)[[7]]]
    selection = visar.select(query, pages, unweighted=("tokens", "pages"))
    assert selection.k_star == 3
    assert sorted(selection.pages.tolist()) == [0, 1, 2]


def test_identical_pages_rank_in_page_order() -> None:
    page = planted(seed=5, n_pages=1).pages[0]
    other = planted(seed=6, n_pages=1).pages[0]
    query = page[:4]
    selection = visar.select(query, [other, page, other, page, page])
    assert selection.ranking[:3].tolist() == [1, 3, 4]


def test_max_k_only_caps_the_pages() -> None:
    case = planted(seed=7, n_pages=30, relevant=5)
    free = visar.select(case.query, case.pages)
    capped = visar.select(case.query, case.pages, max_k=2)
    assert free.k_star > 2
    assert (capped.k, capped.k_star) == (2, free.k_star)
    assert capped.pages.tolist() == free.pages[:2].tolist()


def test_approximation_with_high_limits_is_exact() -> None:
    case = planted(seed=8, n_pages=30)
    exact = visar.select(case.query, case.pages)
    approximate = visar.select(case.query, case.pages, top_j=60, top_p=30, top_s=10)
    np.testing.assert_allclose(approximate.scores, exact.scores)
    assert approximate.pages.tolist() == exact.pages.tolist()


def test_timings_name_the_stages() -> None:
    case = planted(seed=9, n_pages=5)
    timings = visar.select(case.query, case.pages).timings
    assert list(timings) == [
        *("query to page", "page to query"),
        *("self-similarity", "page to page"),
        "ranking",
    ]
    assert all(seconds >= 0 for seconds in timings.values())


def test_selection_repr() -> None:
    case = planted(seed=3, n_pages=30)
    selection = visar.select(case.query, case.pages, max_k=2)
    assert repr(selection) == (
        f"Selection(k=2, k_star={selection.k_star}, pages={selection.pages.tolist()}, "
        f"sparsity={selection.sparsity:.2f})"
    )
