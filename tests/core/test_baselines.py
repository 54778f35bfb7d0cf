"""Test the baselines on scores with an obvious answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import cramervonmises, false_discovery_control, genpareto, norm

import visar
from tests.core.documents import planted, unit
from visar.core import baselines
from visar.errors import InvalidOption, InvalidVectors, MissingExtra

CLEAR = [0.2, 0.9, 0.88, 0.1, 0.15, 0.12, 0.86, 0.11]


def test_top_k_is_capped_at_the_document() -> None:
    assert baselines.top_k(CLEAR, 3).pages.tolist() == [1, 2, 6]
    assert baselines.top_k(CLEAR, 100).k == len(CLEAR)
    with pytest.raises(InvalidOption, match=r"\bk\b.* 0"):
        baselines.top_k(CLEAR, 0)


def test_single_vector_ranks_by_cosine_not_by_length() -> None:
    pages = np.array([[3.0, 3.0], [0.1, 0.0], [0.0, 5.0]])
    choice = baselines.single_vector(np.array([1.0, 0.0]), pages, 2)
    assert choice.pages.tolist() == [1, 0]
    with pytest.raises(InvalidVectors, match="2"):
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
    """The two steps are almost equally high; only the published version adds i / N."""
    scores = np.concatenate(
        [1 - 0.001 * np.arange(8), 0.6 - 0.001 * np.arange(8), 0.22 - 0.001 * np.arange(8)]
    )
    assert baselines.score_cluster(scores).k == 8
    assert baselines.score_cluster(scores, original=True).k == 16


@pytest.mark.parametrize("scores", [[0.4], [0.4, 0.2], [0.5, 0.5, 0.5], [0.1, np.nan, 0.3]])
def test_score_cluster_without_a_boundary_takes_all(scores: list[float]) -> None:
    assert baselines.score_cluster(scores).k == len(scores)


def test_score_cluster_rounds_scores_as_the_paper_does() -> None:
    # The two groups differ by only 0.0002. Rounded to three decimals all scores are 0.500, so there
    # is no boundary and all 6 pages are chosen. The published version finds the boundary.
    scores = [0.5002, 0.50019, 0.50018, 0.5, 0.49999, 0.49998]
    assert baselines.score_cluster(scores).k == 6
    assert baselines.score_cluster(scores, original=True).k == 3


def test_score_cluster_names_the_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(MissingExtra, match=r"visar-rag\[eval\]"):
        baselines.score_cluster(CLEAR)


def test_oracle_is_the_smallest_top_k_with_all_evidence() -> None:
    assert baselines.oracle(CLEAR, [6, 2]).pages.tolist() == [1, 2, 6]
    assert baselines.oracle(CLEAR, [1]).k == 1
    assert baselines.oracle(CLEAR, [3]).k == 8
    with pytest.raises(InvalidOption):
        baselines.oracle(CLEAR, [])
    with pytest.raises(InvalidOption, match="8"):
        baselines.oracle(CLEAR, [8])


def random_scores(seed: int) -> np.ndarray:
    """Return scores of 6 to 60 pages, with up to five outliers."""
    random = np.random.default_rng(seed)
    scores = random.normal(10, 1, random.integers(6, 60))
    scores[: random.integers(0, 6)] += random.uniform(0, 8)
    return np.asarray(random.permutation(scores))


@pytest.mark.parametrize("seed", range(30))
def test_two_means_are_the_best_of_all_cuts(seed: int) -> None:
    """Compare with the sum of squares of every cut."""
    scores = random_scores(seed)
    ordered = sorted(scores, reverse=True)

    def squares(k: int) -> float:
        return float(sum(np.var(part) * len(part) for part in (ordered[:k], ordered[k:])))

    best = min(range(1, len(ordered)), key=squares)
    assert baselines.two_means(scores, top=len(scores)).k == best
    assert baselines.two_means(scores).k == min(best, 5)


def test_two_means_use_a_threshold_in_short_documents() -> None:
    """0.5 is halfway between 0.1 and 0.9; two means would cut after 0.9."""
    assert baselines.two_means([0.9, 0.5, 0.45, 0.1]).pages.tolist() == [0, 1]
    assert baselines.two_means([0.4, 0.4, 0.4]).k == 3


def test_gaussian_mixture_takes_the_better_component_within_bounds() -> None:
    """Seven scores around 9 give k = 7; three give the minimum, k = 5."""
    low = [1.0 + 0.05 * n for n in range(12)]
    assert baselines.gaussian_mixture([*low, *(9 + 0.1 * n for n in range(7))]).k == 7
    assert baselines.gaussian_mixture([*low, 9.0, 9.1, 9.2]).k == 5
    assert baselines.gaussian_mixture([*low, 9.0, 9.1, 9.2], min_k=1).pages.tolist() == [14, 13, 12]


def test_gaussian_mixture_of_equal_scores_is_one_component() -> None:
    assert baselines.gaussian_mixture([0.5] * 30).k == 10
    assert baselines.gaussian_mixture([0.5]).k == 1


def test_pareto_fit_has_the_maximum_likelihood() -> None:
    """Compare with scipy's fit; a bounded tail gives the exponential distribution."""
    for shape in (0.2, 0.9):
        excesses = genpareto.rvs(shape, scale=2, size=300, random_state=3)
        theirs = genpareto.fit(excesses, floc=0)
        ours = baselines._fit_pareto(excesses)
        assert ours == pytest.approx((theirs[0], theirs[2]), rel=0.02)
        log_survival = genpareto.logsf(excesses, ours[0], scale=ours[1])
        assert -log_survival == pytest.approx(baselines._surprise(excesses, *ours))
        ordered = np.concatenate([[0], np.sort(excesses)]) + 7
        expected = cramervonmises(excesses, genpareto(ours[0], scale=ours[1]).cdf).statistic
        assert baselines._misfit(ordered) == pytest.approx(expected)
    bounded = np.linspace(0.1, 1, 50)
    assert baselines._fit_pareto(bounded) == pytest.approx((0, 0.55))


def test_surprise_takes_scores_that_the_tail_does_not_explain() -> None:
    """Exponential scores plus two outliers: −ln(1 − F) of 20 and 25 is above −ln 0.001 ≈ 7."""
    tail = -np.log(1 - (np.arange(60) + 0.5) / 60)
    choice = baselines.surprise(np.concatenate([tail[::-1], [25.0, 20.0]]), p=0.001)
    assert choice.pages.tolist() == [60, 61]
    assert baselines.surprise([0.5, 0.5, 0.7, 0.7]).k == 1


@pytest.mark.parametrize("seed", range(20))
def test_benjamini_hochberg_equals_scipy(seed: int) -> None:
    scores = random_scores(seed)
    middle = np.median(scores)
    spread = np.median(np.abs(scores - middle)) * 1.4826
    adjusted = false_discovery_control(norm.sf(scores, middle, spread), method="bh")
    assert baselines.benjamini_hochberg(scores).k == max(1, (adjusted <= 0.1).sum())


def test_benjamini_hochberg_without_spread_takes_scores_above_the_median() -> None:
    assert baselines.benjamini_hochberg([1, 1, 1, 1, 3]).pages.tolist() == [4]
    assert baselines.benjamini_hochberg([1, 1, 1]).k == 1


def test_autocut_counts_jumps() -> None:
    """The 8 scores have two jumps: after 3 scores around 9, and after 2 more around 5."""
    scores = [9.2, 9.1, 9.0, 5.1, 5.0, 1.2, 1.1, 1.0]
    assert baselines.autocut(scores).k == 3
    assert baselines.autocut(scores, jumps=2).k == 5
    assert baselines.autocut(scores, jumps=3).k == 8
    # The jump can be at the last page.
    assert baselines.autocut([9.2, 9.1, 9.0, 1.0]).k == 3
    # Neither a straight line nor equal scores have a jump.
    assert baselines.autocut([4, 3, 2, 1]).k == baselines.autocut([2, 2, 2, 2]).k == 4
    with pytest.raises(InvalidOption, match=r"jumps.* 0"):
        baselines.autocut(scores, jumps=0)


def test_kneedle_skips_shallow_peaks() -> None:
    """The peak at rank 1 falls by less than a step of 1/8, so the elbow is at rank 4."""
    scores = [10.0, 7.6, 6.9, 5.2, 1.0, 0.7, 0.5, 0.2, 0.0]
    fall = [(10 - score) / 10 - rank / 8 for rank, score in enumerate(scores)]
    assert fall[1] > max(fall[0], fall[2])
    assert fall[1] - fall[2] < 1 / 8
    assert baselines.autocut(scores).k == 1
    assert baselines.kneedle(scores).k == 4
    assert baselines.kneedle(scores, sensitivity=0).k == 1
    assert baselines.kneedle(scores, sensitivity=9).k == len(scores)


def test_share_of_best_is_relative() -> None:
    assert baselines.share_of_best([50, 44, 45, 3]).pages.tolist() == [0, 2]
    assert baselines.share_of_best([50, 44, 45, 3], share=0.06).k == 4
    assert baselines.share_of_best([-1.0, -2.0]).k == 1
    with pytest.raises(InvalidOption, match=r"share.* 1\.5"):
        baselines.share_of_best([1.0], share=1.5)


def test_top_p_sums_probabilities() -> None:
    """The softmax of ln 6, ln 3 and ln 1 is 0.6, 0.3 and 0.1."""
    scores = np.log([3.0, 6.0, 1.0])
    for p, k in ((0.5, 1), (0.6, 1), (0.61, 2), (0.9, 2), (0.95, 3), (1.0, 3)):
        assert baselines.top_p(scores, p=p).k == k
    assert baselines.top_p(scores).pages.tolist() == [1, 0]
    # A high temperature makes the distribution nearly uniform; a low one leaves only the best.
    assert baselines.top_p(scores, temperature=100).k == 3
    assert baselines.top_p(scores, temperature=0.01).k == 1
    with pytest.raises(InvalidOption, match=r"temperature.* 0"):
        baselines.top_p(scores, temperature=0)


QUESTION = st.lists(st.integers(0, 20), min_size=2, max_size=8).flatmap(
    lambda scores: st.tuples(
        st.just(scores), st.sets(st.integers(0, len(scores) - 1), min_size=1, max_size=3)
    )
)


@given(st.lists(QUESTION, min_size=1, max_size=6))
def test_fitted_threshold_has_the_highest_mean_f1(
    questions: list[tuple[list[int], set[int]]],
) -> None:
    """Compare with F1 counted page by page at every threshold that could matter."""

    def mean_f1(minimum: float) -> float:
        total = 0.0
        for scores, evidence in questions:
            chosen = {page for page, score in enumerate(scores) if score >= minimum}
            if not chosen:
                # Every page with the best score is chosen then.
                chosen = {page for page, score in enumerate(scores) if score == max(scores)}
            total += 2 * len(chosen & evidence) / (len(chosen) + len(evidence))
        return total / len(questions)

    best = max(mean_f1(minimum) for minimum in np.arange(0, 21.5, 0.5))
    assert mean_f1(baselines.fit_threshold(questions)) == pytest.approx(best)


def test_fitting_a_threshold_needs_evidence() -> None:
    with pytest.raises(InvalidOption):
        baselines.fit_threshold([([0.1, 0.2], [])])


RULES: dict[str, Callable[..., baselines.Choice]] = {
    "largest-gap": baselines.largest_gap,
    "adaptive-k": lambda scores: baselines.largest_gap(scores, original=True),
    "gaussian-mixture": baselines.gaussian_mixture,
    "two-means": baselines.two_means,
    "surprise": baselines.surprise,
    "benjamini-hochberg": baselines.benjamini_hochberg,
    "autocut": baselines.autocut,
    "kneedle": baselines.kneedle,
    "share-of-best": baselines.share_of_best,
    "top-p": baselines.top_p,
    "threshold": lambda scores: baselines.threshold(scores, 3),
}
# Shifting and scaling multiples of 1/8 by powers of two is exact in floating point.
EXACT = st.lists(st.integers(-400, 400).map(lambda n: n / 8), min_size=1, max_size=40)


@pytest.mark.parametrize("rule", RULES)
@given(scores=EXACT)
def test_every_rule_takes_the_k_best(rule: str, scores: list[float]) -> None:
    chosen = RULES[rule](scores)
    assert 1 <= chosen.k == len(set(chosen.pages.tolist())) <= len(scores)
    rest = set(range(len(scores))) - set(chosen.pages.tolist())
    assert all(scores[page] >= scores[other] for page, other in pairwise(chosen.pages))
    assert all(scores[chosen.pages[-1]] >= scores[page] for page in rest)


@pytest.mark.parametrize("rule", RULES)
@given(scores=EXACT, seed=st.integers(0, 9))
def test_page_order_does_not_matter(rule: str, scores: list[float], seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(scores)
    assert RULES[rule](shuffled).k == RULES[rule](scores).k


@pytest.mark.parametrize("rule", ["adaptive-k", "two-means", "benjamini-hochberg"])
@given(scores=EXACT, shift=st.integers(-64, 64), scale=st.sampled_from([0.25, 2, 16]))
def test_shift_and_scale_do_not_matter(
    rule: str, scores: list[float], shift: int, scale: float
) -> None:
    """The other rules round scores, or fit iteratively."""
    others = np.asarray(scores) * scale + shift
    assert RULES[rule](others).k == RULES[rule](scores).k


@given(scores=EXACT, shift=st.integers(-64, 64), scale=st.sampled_from([0.25, 2, 16]))
def test_scale_does_not_matter_to_autocut_kneedle_and_share_nor_shift_to_top_p(
    scores: list[float], shift: int, scale: float
) -> None:
    values = np.asarray(scores)
    for rule in (baselines.autocut, baselines.kneedle):
        assert rule(values * scale).k == rule(values).k
    assert baselines.share_of_best(values * scale).k == baselines.share_of_best(values).k
    assert baselines.top_p(values + shift).k == baselines.top_p(values).k


@pytest.mark.parametrize("seed", range(20))
def test_shift_and_scale_do_not_matter_to_surprise(seed: int) -> None:
    scores = random_scores(seed)
    assert baselines.surprise(100 * scores - 7).k == baselines.surprise(scores).k


@pytest.mark.parametrize("scores", [[], [[0.1, 0.2]], [0.1, np.inf]])
def test_scores_must_be_one_number_per_page(scores: list[float]) -> None:
    with pytest.raises(InvalidVectors):
        baselines.top_k(scores, 1)


def test_ablations_of_the_paper() -> None:
    """The ablations set w_i = 1 or w_p = 1, or choose k by another rule on s_p."""
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


def test_single_vector_finds_the_same_vector() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(5, 8)))
    assert baselines.single_vector(vectors[3], vectors, 1).pages.tolist() == [3]
