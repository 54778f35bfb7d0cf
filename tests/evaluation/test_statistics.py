"""Intervals and tests: sure of the right thing, and the same every time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import InvalidOption
from visar.evaluation.statistics import Interval, bootstrap, mcnemar, mcnemar_p, summarize

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def one_by_one(values: np.ndarray, samples: int) -> tuple[float, float]:
    """The bootstrap as the books have it: draw questions, take means."""
    drawn = np.random.default_rng(7).integers(0, len(values), (samples, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)


@pytest.mark.parametrize("kind", ["right or wrong", "recall", "any number"])
def test_the_interval_is_that_of_drawing_questions_one_by_one(kind: str) -> None:
    generator = np.random.default_rng(3)
    values = {
        "right or wrong": (generator.random(300) < 0.4).astype(float),
        "recall": generator.integers(0, 5, 300) / 4,
        "any number": generator.lognormal(size=300),
    }[kind]
    interval = bootstrap(values)
    # Two runs of 10,000 samples differ by chance, by far less than the interval is wide.
    allowed = 0.05 * (interval.high - interval.low)
    assert (interval.low, interval.high) == pytest.approx(one_by_one(values, 10_000), abs=allowed)


@given(SHARES)
def test_the_interval_holds_the_mean(values: list[float]) -> None:
    interval = bootstrap(values, samples=500)
    assert interval.low - 1e-9 <= interval.mean <= interval.high + 1e-9
    assert min(values) - 1e-9 <= interval.low
    assert interval.high <= max(values) + 1e-9


@given(SHARES, st.randoms())
def test_the_same_questions_in_any_order_give_the_same_interval(
    values: list[float], chance: Random
) -> None:
    shuffled = sorted(values, key=lambda _: chance.random())
    assert bootstrap(values, samples=200) == bootstrap(shuffled, samples=200)


def test_more_questions_give_a_narrower_interval() -> None:
    few, many = bootstrap([0, 1] * 20), bootstrap([0, 1] * 320)
    # Sixteen times the questions: a quarter of the width.
    assert (many.high - many.low) / (few.high - few.low) == pytest.approx(0.25, abs=0.02)


def test_memory_is_bounded_when_every_value_is_different() -> None:
    """So many counts at once would take 1.6 GB; in parts the result is the same kind of thing."""
    values = np.random.default_rng(0).random(200_000)
    interval = bootstrap(values, samples=20)
    assert interval.low < interval.mean < interval.high


def test_one_value_has_no_width() -> None:
    assert bootstrap([0.25] * 9) == Interval(0.25, 0.25, 0.25, 9)


def test_a_summary_is_numpys() -> None:
    values = np.random.default_rng(5).random(101)
    summary = summarize(values)
    assert (summary.mean, summary.std) == pytest.approx((values.mean(), values.std()))
    quartiles = (summary.lower_quartile, summary.median, summary.upper_quartile)
    assert quartiles == pytest.approx(tuple(np.quantile(values, (0.25, 0.5, 0.75))))


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_does_not_care_who_is_first(one: int, other: int) -> None:
    assert mcnemar_p(one, other) == mcnemar_p(other, one) <= 1
    # With the same number of discordant pairs, the more unequal split is the less likely one.
    assert mcnemar_p(one + other, 0) <= mcnemar_p(one, other)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bootstrap([]), "no values"),
        (lambda: bootstrap([1, float("nan")]), "Value 2 of 2 is nan"),
        (lambda: bootstrap([1], samples=0), "samples must be at least 1"),
        (lambda: summarize([]), "no values"),
        (lambda: mcnemar([True], []), "1 and 0 questions"),
        (lambda: mcnemar_p(-1, 2), "negative"),
    ],
)
def test_what_has_no_value_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        call()
