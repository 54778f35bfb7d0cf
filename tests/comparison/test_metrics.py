"""Compare our metrics with trec_eval and McNemar's test with scipy, on random data."""

from __future__ import annotations

import statistics

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from visar.evaluation import metrics
from visar.evaluation.statistics import mcnemar

Case = tuple[tuple[int, ...], set[int]]

PAGES = 30
CUTOFFS = (1, 5, 10)
CASES = st.tuples(
    st.lists(st.integers(1, PAGES), min_size=1, unique=True).map(tuple),
    st.sets(st.integers(1, PAGES), min_size=1),
)


def trec(cases: list[Case], *measures: str) -> list[dict[str, float]]:
    """Return trec_eval's values for each case, with scores that fall with the rank."""
    names = [f"q{number}" for number in range(len(cases))]
    truth = {n: {str(page): 1 for page in case[1]} for n, case in zip(names, cases, strict=True)}
    run = {
        n: {str(page): -float(rank) for rank, page in enumerate(case[0])}
        for n, case in zip(names, cases, strict=True)
    }
    evaluated = pytrec_eval.RelevanceEvaluator(truth, set(measures)).evaluate(run)
    return [evaluated[name] for name in names]


@given(CASES)
def test_ranked_metrics_equal_trec_eval(case: Case) -> None:
    cut = {name: f"{name}.{','.join(map(str, CUTOFFS))}" for name in ("P", "recall", "success")}
    [expected] = trec([case], *cut.values(), f"ndcg_cut.{','.join(map(str, CUTOFFS))}")
    for k in CUTOFFS:
        assert metrics.recall_at(*case, k) == pytest.approx(expected[f"recall_{k}"])
        assert metrics.hit_at(*case, k) == expected[f"success_{k}"]
        assert metrics.ndcg_at(*case, k) == pytest.approx(expected[f"ndcg_cut_{k}"])


@given(CASES, st.sampled_from(CUTOFFS))
def test_reciprocal_rank_equals_trec_eval_on_a_ranking_cut_at_k(case: Case, k: int) -> None:
    ranking, evidence = case
    [expected] = trec([(ranking[:k], evidence)], "recip_rank")
    assert metrics.reciprocal_rank_at(ranking, evidence, k) == pytest.approx(expected["recip_rank"])


@given(st.lists(CASES, min_size=1, max_size=8))
def test_set_metrics_and_f1_equal_trec_eval(cases: list[Case]) -> None:
    expected = trec(cases, "set_P", "set_recall")
    precisions = [metrics.precision(*case) for case in cases]
    recalls = [metrics.recall(*case) for case in cases]
    assert precisions == pytest.approx([each["set_P"] for each in expected])
    assert recalls == pytest.approx([each["set_recall"] for each in expected])
    means = [statistics.fmean(each[name] for each in expected) for name in ("set_P", "set_recall")]
    f1 = metrics.f1_of_means(precisions, recalls)
    assert f1 == pytest.approx(statistics.harmonic_mean(means))


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_mcnemar_is_the_binomial_test_of_discordant_pairs(pairs: list[tuple[bool, bool]]) -> None:
    """In a discordant pair only one method is right, and either is equally likely."""
    only_first, only_second = pairs.count((True, False)), pairs.count((False, True))
    discordant = only_first + only_second
    expected = binomtest(only_first, discordant).pvalue if discordant else 1.0
    p_value = mcnemar([a for a, _ in pairs], [b for _, b in pairs])
    assert p_value == pytest.approx(expected)
