"""How sure a mean is, and whether two methods differ: over questions, the same every time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
class Difference:
    """How much more one method has than another on the same questions."""

    value: float
    low: float
    high: float
    p: float
    """Two-sided, of the paired randomization test."""
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


Means: TypeAlias = NDArray[np.float64]
"""A row for each sample of questions, a column for each measure."""
Statistic: TypeAlias = Callable[[Means], NDArray[np.float64]]
"""One number for each row of means."""


def first_mean(means: Means) -> NDArray[np.float64]:
    """Return the mean of the only measure: the simplest statistic."""
    return means[:, 0]


def f1_of_means(means: Means) -> NDArray[np.float64]:
    """Return 2PR / (P + R) of mean precision P and mean recall R, the first two measures.

    >>> f1_of_means(np.array([[0.5, 0.25], [0.0, 0.0]]))
    array([0.33333333, 0.        ])
    """
    total = means[:, 0] + means[:, 1]
    return 2 * means[:, 0] * means[:, 1] / np.where(total > 0, total, 1)


class PairedSamples:
    """Resampled questions, the same ones for all methods, to compare functions of their means.

    Parameters
    ----------
    values
        By method: a row for each question, in the same order, and a column for each measure.
    samples
        Of the bootstrap, and of the randomization test.
    seed
        The same data and seed give the same result.

    Raises
    ------
    InvalidOption
        If there are no questions, the numbers of questions or measures differ, or a value is not
        finite.

    >>> pairs = PairedSamples({"a": [[1.0], [1.0], [1.0]], "b": [[0.0], [0.0], [1.0]]})
    >>> round(pairs.difference("a", "b").value, 3)
    0.667
    """

    def __init__(
        self, values: Mapping[str, ArrayLike], *, samples: int = SAMPLES, seed: int = SEED
    ) -> None:
        if samples < 1:
            raise InvalidOption(f"samples must be at least 1, not {samples}.")
        tables = {name: _table(of_method) for name, of_method in values.items()}
        shapes = {table.shape for table in tables.values()}
        if len(shapes) != 1:
            raise InvalidOption(
                f"The methods have different questions and measures ({sorted(shapes)}): they can "
                "be compared on the same ones only."
            )
        ((self._count, measures),) = shapes
        self._places = {
            name: slice(place * measures, (place + 1) * measures)
            for place, name in enumerate(tables)
        }
        everything = np.hstack(list(tables.values()))
        self._samples = samples
        self._means = everything.mean(axis=0, keepdims=True)
        self._resampled = _weighted_means("resampled", everything, samples, seed)
        self._chosen = _weighted_means("chosen", everything, samples, seed)

    def interval(self, method: str, statistic: Statistic = first_mean) -> Interval:
        """The statistic of a method with its percentile bootstrap interval."""
        place = self._places[method]
        value = float(statistic(self._means[:, place])[0])
        low, high = np.percentile(statistic(self._resampled[:, place]), PERCENTILES)
        return Interval(value, float(low), float(high), self._count)

    def difference(self, first: str, second: str, statistic: Statistic = first_mean) -> Difference:
        """statistic(first) − statistic(second), with interval and test.

        The interval is that of questions drawn with replacement, the same ones for both methods.
        The test exchanges the methods in a random choice of questions: p is the share of such
        exchanges after which they differ at least as much.
        """
        one, other = self._places[first], self._places[second]

        def differ(of_first: Means, of_second: Means) -> NDArray[np.float64]:
            return statistic(of_first) - statistic(of_second)

        value = float(differ(self._means[:, one], self._means[:, other])[0])
        sampled = differ(self._resampled[:, one], self._resampled[:, other])
        low, high = np.percentile(sampled, PERCENTILES)
        moved = self._chosen[:, one] - self._chosen[:, other]
        exchanged = differ(self._means[:, one] - moved, self._means[:, other] + moved)
        # What differs by rounding alone counts as equal.
        extreme = np.count_nonzero(np.abs(exchanged) >= abs(value) - 1e-12)
        p = (1 + extreme) / (1 + self._samples)
        return Difference(value, float(low), float(high), float(p), self._count)


_Kind = Literal["resampled", "chosen"]


def _weighted_means(
    kind: _Kind, values: NDArray[np.float64], samples: int, seed: int
) -> NDArray[np.float64]:
    """Σ weight · value / n for each sample; the weights of a question are the same everywhere."""
    return np.concatenate(
        [weights @ values / len(values) for weights in _weights(kind, len(values), samples, seed)]
    )


def _weights(kind: _Kind, count: int, samples: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    step = max(1, COUNTS_AT_A_TIME // count)
    for first in range(0, samples, step):
        yield _draw(kind, count, min(step, samples - first), (seed, first))


# Every table draws the same questions: 128 MB at most are kept for the next one.
@lru_cache(maxsize=128)
def _draw(kind: _Kind, count: int, rows: int, seed: tuple[int, int]) -> NDArray[np.uint8]:
    """How often each question is drawn ("resampled"), or whether it is (0 or 1)."""
    generator = np.random.default_rng(seed)
    if kind == "chosen":
        return generator.integers(0, 2, (rows, count), np.uint8)
    drawn = generator.integers(0, count, (rows, count))
    drawn += np.arange(rows)[:, None] * count
    times = np.bincount(drawn.ravel(), minlength=rows * count)
    return np.minimum(times, 255).astype(np.uint8).reshape(rows, count)


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


def _table(values: ArrayLike) -> NDArray[np.float64]:
    known = np.asarray(values, np.float64)
    if known.ndim != 2:
        raise InvalidOption("Give a row for each question, and a column for each measure.")
    _finite(known.ravel())
    return known


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
