"""Properties of metrics that hold for all pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import InvalidOption
from visar.evaluation.metrics import (
    f1,
    f1_of_means,
    hit_at,
    ndcg_at,
    paper_ndcg_at,
    precision,
    recall,
    recall_at,
    reciprocal_rank_at,
)

RANKINGS = st.permutations(range(1, 16)).map(tuple)
EVIDENCE = st.sets(st.integers(1, 15), min_size=1)
RANKED = (recall_at, ndcg_at, paper_ndcg_at, hit_at, reciprocal_rank_at)


@given(EVIDENCE, st.integers(1, 20))
def test_a_perfect_ranking_has_ndcg_1(evidence: set[int], k: int) -> None:
    others = [page for page in range(1, 16) if page not in evidence]
    assert ndcg_at((*sorted(evidence), *others), evidence, k) == pytest.approx(1)


@given(RANKINGS, EVIDENCE, st.integers(1, 14))
def test_more_pages_never_lose_recall_hits_or_reciprocal_rank(
    ranking: tuple[int, ...], evidence: set[int], k: int
) -> None:
    for metric in (recall_at, hit_at, reciprocal_rank_at):
        assert metric(ranking, evidence, k) <= metric(ranking, evidence, k + 1)
    assert recall(ranking, evidence) == 1


@given(RANKINGS, EVIDENCE, st.integers(1, 15))
def test_moving_evidence_up_never_lowers_ndcg(
    ranking: tuple[int, ...], evidence: set[int], k: int
) -> None:
    swapped = list(ranking)
    for rank in range(len(ranking) - 1):
        if swapped[rank] not in evidence and swapped[rank + 1] in evidence:
            swapped[rank], swapped[rank + 1] = swapped[rank + 1], swapped[rank]
            break
    assert ndcg_at(swapped, evidence, k) >= ndcg_at(ranking, evidence, k)


@given(RANKINGS, EVIDENCE, st.integers(1, 15))
def test_every_metric_lies_between_0_and_1(
    ranking: tuple[int, ...], evidence: set[int], k: int
) -> None:
    assert all(0 <= metric(ranking, evidence, k) <= 1 + 1e-12 for metric in RANKED)


@given(RANKINGS, EVIDENCE, st.integers(1, 15))
def test_the_papers_ndcg_ignores_missing_evidence(
    ranking: tuple[int, ...], evidence: set[int], k: int
) -> None:
    paper, standard = paper_ndcg_at(ranking, evidence, k), ndcg_at(ranking, evidence, k)
    assert paper >= standard - 1e-12
    if evidence.issubset(ranking[:k]):
        assert paper == pytest.approx(standard)
    first = [page for page in ranking[:k] if page in evidence]
    assert paper_ndcg_at((*first, 99), evidence, len(first) + 1) == (1.0 if first else 0.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_f1_lies_between_mean_precision_and_mean_recall(pairs: list[tuple[float, float]]) -> None:
    precisions, recalls = [p for p, _ in pairs], [r for _, r in pairs]
    means = sorted((sum(precisions) / len(pairs), sum(recalls) / len(pairs)))
    assert means[0] - 1e-9 <= f1_of_means(precisions, recalls) <= means[1] + 1e-9


def test_f1_of_a_data_set_uses_means() -> None:
    """The mean F1 of the two questions would be 0.59."""
    assert f1_of_means([0.1, 1.0], [1.0, 1.0]) == pytest.approx(2 * 0.55 / 1.55)
    assert f1_of_means([0.0], [0.0]) == 0
    assert f1(tuple(range(1, 11)), {1}) == pytest.approx(2 * 0.1 / 1.1)
    assert f1((2,), {1}) == 0


def test_choosing_no_pages_scores_0() -> None:
    assert precision((), {1}) == recall((), {1}) == ndcg_at((), {1}, 5) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recall((1,), ()), "no evidence"),
        (lambda: ndcg_at((1,), (), 5), "no evidence"),
        (lambda: reciprocal_rank_at((1,), (), 5), "no evidence"),
        (lambda: precision((3, 1, 3), {1}), "Page 3 stands more than once"),
        (lambda: hit_at((1,), {1}, 0), "at least 1, not 0"),
        (lambda: f1_of_means([1.0], []), "1 precisions and 0 recalls"),
    ],
)
def test_undefined_values_are_errors(call: Callable[[], float], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        call()
