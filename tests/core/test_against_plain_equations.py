"""Compare `visar.select` with the plain equations, on random documents and with all options."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import visar
from tests.comparison.plain_equations import PlainSelection, how_many, plain_select
from tests.core.documents import Case, cases

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "top_t": st.sampled_from([1, 3, 50]),
        "gamma": st.sampled_from([0.0, 1.0, 1e3, 1e8]),
        "max_k": st.integers(1, 6),
        "top_j": st.integers(1, 60),
        "top_p": st.integers(1, 8),
        "top_s": st.integers(1, 6),
        "unweighted": st.sampled_from([("tokens",), ("pages",), ("tokens", "pages")]),
    },
)
many_examples = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def select_plain(case: Case, options: dict[str, Any]) -> PlainSelection:
    translated = dict(options)
    unweighted = translated.pop("unweighted", ())
    return plain_select(
        case.query,
        case.pages,
        weigh_tokens="tokens" not in unweighted,
        weigh_pages="pages" not in unweighted,
        **translated,
    )


def has_gap(values: NDArray[np.float64], kept: int | None) -> bool:
    """Return whether rounding can't change which values are the ``kept`` largest."""
    if kept is None or kept >= len(values):
        return True
    descending = np.sort(values)[::-1]
    return bool(descending[kept - 1] - descending[kept] > 1e-4 or descending[kept] == 0)


def is_clear(plain: PlainSelection, options: dict[str, Any]) -> bool:
    """Return whether float32 is precise enough for every decision."""
    deviation = plain.activation.std(axis=0) / plain.activation.mean(axis=0)
    if ((np.abs(deviation) < 1e-2) & (plain.token_weights > 0)).any():
        return False
    active_tokens = deviation[plain.token_weights > 0]
    if len(active_tokens) > 1 and np.ptp(active_tokens) < 1e-2:
        return False
    weights = np.concatenate(plain.patch_weights)
    if ((weights > 0) & (weights < 1e-4)).any():
        return False
    peaks = np.array([w.max(initial=0) for w in plain.patch_weights])
    if not has_gap(peaks, options.get("top_p")):
        return False
    if not all(has_gap(w, options.get("top_j")) for w in plain.patch_weights):
        return False
    scores = np.sort(plain.scores[plain.scores > 0])
    if len(scores) > 1 and (np.diff(scores) / scores[1:]).min() < 1e-4:
        return False
    if (plain.similarity[plain.similarity > 0] < 1e-2).any():
        return False
    costs = np.sort(plain.cost)
    if len(costs) > 1 and costs[1] - costs[0] < 1e-3 * abs(costs[0]):
        return False
    k = int(np.argmin(plain.cost)) + 1
    n = round(math.log(k))
    changes = np.abs(np.diff(plain.cost))
    beyond, before = changes[k - 1 : k - 1 + n].sum(), changes[k - 1 - n : k - 1].sum()
    return n == 0 or k + n > len(plain.cost) or bool(abs(beyond - before) > 1e-3 * before)


@many_examples
@given(cases(), OPTIONS)
def test_selection_equals_plain_equations(case: Case, options: dict[str, Any]) -> None:
    plain = select_plain(case, options)
    selection = visar.select(case.query, case.pages, **options)
    np.testing.assert_allclose(
        selection.late_interaction, plain.late_interaction, rtol=1e-5, atol=1e-5
    )
    if not plain.fallback and is_clear(plain, options):
        assert selection.fallback is None
        assert selection.k_star == plain.k_star
        assert selection.k == plain.k
        scored = int((plain.scores > 0).sum())
        assert selection.ranking[:scored].tolist() == plain.ranking[:scored]
        rest = plain.late_interaction[selection.ranking[scored:]]
        assert (np.diff(rest) <= 1e-4).all()
        known = np.isfinite(selection.cost)
        np.testing.assert_allclose(selection.cost[known], plain.cost[known], rtol=1e-3)


@many_examples
@given(cases(ties=False), OPTIONS)
def test_weights_and_similarity_equal_plain_equations(case: Case, options: dict[str, Any]) -> None:
    plain = select_plain(case, options)
    selection = visar.select(case.query, case.pages, full_matrix=True, **options)
    if plain.fallback:
        return
    np.testing.assert_allclose(selection.token_weights, plain.token_weights, atol=1e-4)
    np.testing.assert_allclose(selection.page_weights, plain.page_weights, atol=1e-4)
    np.testing.assert_allclose(
        np.concatenate(selection.patch_weights), np.concatenate(plain.patch_weights), atol=1e-4
    )
    assert selection.similarity is not None
    # Squared: the root magnifies the rounding of a similarity near zero.
    np.testing.assert_allclose(selection.similarity**2, plain.similarity**2, atol=1e-4)


@many_examples
@given(cases(), OPTIONS)
def test_early_stop_does_not_change_the_result(case: Case, options: dict[str, Any]) -> None:
    """The values that weren't computed could not have changed the decision."""
    early = visar.select(case.query, case.pages, **options)
    full = visar.select(case.query, case.pages, full_matrix=True, **options)
    assert (early.k, early.k_star) == (full.k, full.k_star)
    assert early.ranking.tolist() == full.ranking.tolist()
    np.testing.assert_array_equal(early.scores, full.scores)
    known = np.isfinite(early.cost)
    np.testing.assert_array_equal(early.cost[known], full.cost[known])
    assert not np.isnan(full.cost).any()


@many_examples
@given(cases(), OPTIONS)
def test_cost_equals_its_definition(case: Case, options: dict[str, Any]) -> None:
    """Test stage 4 only, in float64 on both sides: running sums equal the definition of J."""
    selection = visar.select(case.query, case.pages, full_matrix=True, **options)
    if selection.fallback:
        return
    assert selection.similarity is not None
    np.testing.assert_allclose(np.diag(selection.similarity), selection.scores, rtol=1e-5)
    matrix = selection.similarity.copy()
    np.fill_diagonal(matrix, selection.scores)
    n_active = int((selection.scores > 0).sum())
    cost, _ = how_many(
        matrix,
        selection.ranking.tolist(),
        n_active,
        options.get("gamma", 1e5),
        options.get("top_s"),
    )
    # Coherence and leakage may cancel, so rounding is relative to each of them.
    rounding = 1e-6 * max(1.0, options.get("gamma", 1e5))
    np.testing.assert_allclose(selection.cost, cost, rtol=1e-4, atol=rounding)
    least = cost.min()
    if matrix.sum() > np.trace(matrix) and n_active > 1:
        lowest = int(np.argmax(cost <= least + 1e-6 * abs(least))) + 1
        capped = min(lowest, options.get("top_s", lowest))
        assert capped <= selection.k_star <= lowest + 1


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_permuting_pages_permutes_the_result(case: Case, random: Any) -> None:
    order = list(range(len(case.pages)))
    random.shuffle(order)
    before = visar.select(case.query, case.pages)
    after = visar.select(case.query, [case.pages[p] for p in order])
    np.testing.assert_allclose(after.scores, before.scores[order], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(
        after.late_interaction, before.late_interaction[order], rtol=1e-5, atol=1e-5
    )
    plain = select_plain(case, {})
    if not plain.fallback and is_clear(plain, {}):
        assert [order[p] for p in after.pages] == before.pages.tolist()
