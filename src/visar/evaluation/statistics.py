"""How sure a mean is, and whether two methods differ: over questions, the same every time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visar.errors import InvalidOption

# The paper's: 10,000 samples, and the middle 95 % of their means.
SAMPLES = 10_000
PERCENTILES = (2.5, 97.5)
# Any number would do; the same data must give the same interval.
SEED = 2025
# How many counts are drawn at a time: 8 MB of them.
COUNTS_AT_A_TIME = 2**20


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the interval that holds 95 % of the means of resampled questions."""

    mean: float
    low: float
    high: float
    count: int
    """Of questions."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The middle and the spread of some numbers."""

    count: int
    mean: float
    std: float
    """√(Σ (x − mean)² / n)."""
    median: float
    lower_quartile: float
    upper_quartile: float


def bootstrap(values: Iterable[float], *, samples: int = SAMPLES, seed: int = SEED) -> Interval:
    """The mean over questions with its percentile bootstrap interval.

    Each sample draws n of the n questions with replacement; the interval runs from the 2.5th to
    the 97.5th percentile of the samples' means. For the difference of two methods, give the
    differences question by question. The order of the questions does not matter.

    >>> bootstrap([1, 1, 0, 1, 0, 1, 1, 0])
    Interval(mean=0.625, low=0.25, high=0.875, count=8)
    """
    known = _finite(values)
    if samples < 1:
        raise InvalidOption(f"samples must be at least 1, not {samples}.")
    # How often each different value is drawn is multinomial. Metrics have few different values
    # (a correct answer has two): that is far less to draw than the questions one by one.
    different, times = np.unique(known, return_counts=True)
    generator = np.random.default_rng(seed)
    means = np.empty(samples)
    step = max(1, COUNTS_AT_A_TIME // len(different))
    for first in range(0, samples, step):
        part = means[first : first + step]
        counts = generator.multinomial(len(known), times / len(known), size=len(part))
        np.divide(counts @ different, len(known), out=part)
    low, high = np.percentile(means, PERCENTILES)
    return Interval(math.fsum(known) / len(known), float(low), float(high), len(known))


def summarize(values: Iterable[float]) -> Summary:
    """Mean with standard deviation, median with quartiles.

    >>> summarize([1, 2, 3, 6])
    Summary(count=4, mean=3.0, std=1.8708286933869707, median=2.5, lower_quartile=1.75, \
upper_quartile=3.75)
    """
    known = _finite(values)
    lower, median, upper = np.percentile(known, (25, 50, 75))
    return Summary(
        count=len(known),
        mean=math.fsum(known) / len(known),
        std=float(known.std()),
        median=float(median),
        lower_quartile=float(lower),
        upper_quartile=float(upper),
    )


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Return the p of McNemar's exact test of whether one of two methods is right more often.

    ``first`` and ``second`` say of the same questions, in the same order, whether each method
    got them right.

    >>> mcnemar([True, True, True, False, True], [False, False, True, False, True])
    0.5
    """
    if len(first) != len(second):
        raise InvalidOption(
            f"The methods answered {len(first)} and {len(second)} questions: "
            "they can be compared on the same questions only."
        )
    pairs = Counter(zip(first, second, strict=True))
    return mcnemar_p(pairs[True, False], pairs[False, True])


def mcnemar_p(only_first: int, only_second: int) -> float:
    """The exact two-sided p: min(1, 2 P(X ≤ min(b, c))) with X ~ Binomial(b + c, ½).

    Computed in whole numbers: 2 Σ_{i ≤ min(b, c)} C(b + c, i) / 2^(b + c), rounded once.

    >>> mcnemar_p(1, 8)
    0.0390625
    """
    if min(only_first, only_second) < 0:
        raise InvalidOption(f"Counts cannot be negative: {only_first} and {only_second}.")
    pairs = only_first + only_second
    ways = term = 1
    for i in range(min(only_first, only_second)):
        term = term * (pairs - i) // (i + 1)
        ways += term
    return min(1.0, 2 * ways / (1 << pairs))


def _finite(values: Iterable[float]) -> NDArray[np.float64]:
    known = np.asarray(list(values), np.float64)
    if not len(known):
        raise InvalidOption("There are no values to summarize.")
    wrong = np.flatnonzero(~np.isfinite(known))
    if len(wrong):
        raise InvalidOption(
            f"Value {wrong[0] + 1} of {len(known)} is {known[wrong[0]]}: leave it out, and say so."
        )
    return known
