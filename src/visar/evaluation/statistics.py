"""Deterministic intervals, tests and summaries over questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visar.errors import InvalidOption

SAMPLES = 10_000
"""Number of bootstrap samples and of permutations, as in the paper."""
CONFIDENCE = 0.95
SEED = 2025
# Number of values drawn at a time, which limits memory to 8 MB.
_BATCH_VALUES = 2**20

Floats: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[[Floats], Any]
"""A function of the means of measures, on the last axis."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A function of means over questions, or its difference between two methods."""

    value: float
    low: float
    """The lower end of the 95% bootstrap interval."""
    high: float
    count: int
    """The number of questions."""
    p: float | None = None
    """The two-sided p-value of a difference."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The center and spread of values."""

    count: int
    mean: float
    std: float
    """√(Σ (x − mean)² / n)."""
    median: float
    lower_quartile: float
    upper_quartile: float


def first_mean(means: Floats) -> Any:
    """Return the mean of the first measure."""
    return means[..., 0]


def f1_of_means(means: Floats) -> Any:
    """Return 2PR / (P + R) of mean precision P and mean recall R, the first two measures.

    >>> f1_of_means(np.array([[0.5, 0.25], [0.0, 0.0]]))
    array([0.33333333, 0.        ])
    """
    precision, recall = means[..., 0], means[..., 1]
    total = precision + recall
    return 2 * precision * recall / np.where(total > 0, total, 1)


def bootstrap(
    values: ArrayLike, statistic: Statistic = first_mean, *, samples: int = SAMPLES
) -> Estimate:
    """Return a statistic of means over questions, with its percentile bootstrap interval.

    ``values`` has a row for each question and, for several measures, a column for each. Each
    sample draws n of n questions with replacement. The interval is from the 2.5th to the 97.5th
    percentile. Calls with the same number of questions draw the same samples.

    >>> bootstrap([1, 0, 1, 1] * 4)
    Estimate(value=0.75, low=0.5, high=0.9375, count=16, p=None)
    """
    from scipy import stats

    table = _table(values)
    if samples < 1:
        raise InvalidOption(f"Invalid number of samples {samples}: use at least 1.")
    value = float(statistic(table.mean(axis=0)))
    if len(table) == 1:
        return Estimate(value, value, value, 1)

    def of_sample(*columns: Floats, axis: int) -> Any:
        return statistic(np.stack([column.mean(axis) for column in columns], axis=-1))

    found = stats.bootstrap(
        tuple(table.T),
        of_sample,
        paired=True,
        vectorized=True,
        n_resamples=samples,
        batch=max(1, _BATCH_VALUES // len(table)),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return Estimate(value, float(found.low), float(found.high), len(table))


def compare(first: ArrayLike, second: ArrayLike, statistic: Statistic = first_mean) -> Estimate:
    """Return statistic(first) − statistic(second) on the same questions, with interval and p-value.

    Rows are questions and columns are measures, as in `bootstrap`. The interval uses the same
    samples for both. The test swaps the methods for random subsets of questions; p is the share of
    permutations with at least the same difference.

    >>> compare([1, 1, 1], [0, 0, 1]).p
    0.5
    """
    from scipy import stats

    one, other = _table(first), _table(second)
    if one.shape != other.shape:
        raise InvalidOption(
            f"Can't compare {one.shape} with {other.shape} questions and measures: use the same "
            "questions and measures for both."
        )
    count, measures = one.shape

    def differ(means: Floats) -> Any:
        return statistic(means[..., :measures]) - statistic(means[..., measures:])

    interval = bootstrap(np.hstack([one, other]), differ)
    if count == 1:
        return replace(interval, p=1.0)
    means, gap = np.hstack([one, other]).mean(axis=0), other - one

    def swapped(rows: NDArray[np.int64], _: NDArray[np.int64], axis: int) -> Any:
        # The first method's rows are 0 … n − 1 before swapping.
        moved = np.moveaxis(rows >= count, axis, -1).astype(np.float64) @ gap / count
        return differ(means + np.concatenate([moved, -moved], axis=-1))

    test = stats.permutation_test(
        (np.arange(count), np.arange(count, 2 * count)),
        swapped,
        permutation_type="samples",
        vectorized=True,
        n_resamples=SAMPLES,
        batch=max(1, _BATCH_VALUES // count),
        rng=np.random.default_rng(SEED),
    )
    return replace(interval, p=float(test.pvalue))


def compare_accuracy(
    first: ArrayLike, second: ArrayLike, statistic: Statistic = first_mean
) -> Estimate:
    """Return the difference of mean accuracies, with interval and the p-value of `mcnemar`.

    The values are 0 for incorrect answers to the same questions, and any number for correct ones.
    """
    found = bootstrap(_table(first) - _table(second), statistic)
    return replace(found, p=mcnemar(first, second))


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Return the p-value of McNemar's exact test that both methods are equally often correct.

    ``first`` and ``second`` say whether each method is correct, for the same questions.

    >>> mcnemar([True, True, True, False, True], [False, False, True, False, True])
    0.5
    """
    from statsmodels.stats.contingency_tables import mcnemar as exact_mcnemar

    one, other = np.asarray(first, bool), np.asarray(second, bool)
    if len(one) != len(other):
        raise InvalidOption(
            f"Can't compare {len(one)} with {len(other)} answers: use the same questions for both."
        )
    table = [[(one & other).sum(), (one & ~other).sum()], [(~one & other).sum(), 0]]
    return float(exact_mcnemar(table, exact=True).pvalue)


def adjust(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests by Holm's method.

    >>> [round(p, 4) for p in adjust([0.04, 0.01, 0.03])]
    [0.06, 0.03, 0.06]
    """
    from statsmodels.stats.multitest import multipletests

    return [float(p) for p in multipletests(p_values, method="holm")[1]] if len(p_values) else []


def summarize(values: ArrayLike) -> Summary:
    """Return mean with standard deviation, and median with quartiles.

    >>> summarize([1, 2, 3, 6])
    Summary(count=4, mean=3.0, std=1.8708286933869707, median=2.5, lower_quartile=1.75, \
upper_quartile=3.75)
    """
    known = _table(values)[:, 0]
    lower, median, upper = map(float, np.percentile(known, (25, 50, 75)))
    return Summary(len(known), float(known.mean()), float(known.std()), median, lower, upper)


def _table(values: ArrayLike) -> Floats:
    known = np.asarray(values, np.float64)
    known = known[:, None] if known.ndim == 1 else known
    if known.ndim != 2 or not len(known):
        raise InvalidOption("No values given: pass a row for each question.")
    wrong = np.argwhere(~np.isfinite(known))
    if len(wrong):
        row, column = wrong[0]
        raise InvalidOption(
            f"Value {row + 1} of {len(known)} is {known[row, column]}: remove the question."
        )
    return known
