"""Intervals and tests, compared with plain loops, and deterministic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visar.errors import InvalidOption
from visar.evaluation.statistics import (
    Estimate,
    adjust,
    bootstrap,
    compare,
    f1_of_means,
    mcnemar,
    summarize,
)

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@pytest.mark.parametrize("kind", ["right or wrong", "recall", "any number"])
def test_the_interval_equals_a_plain_bootstrap(kind: str) -> None:
    generator = np.random.default_rng(3)
    values = {
        "right or wrong": (generator.random(300) < 0.4).astype(float),
        "recall": generator.integers(0, 5, 300) / 4,
        "any number": generator.lognormal(size=300),
    }[kind]
    interval = bootstrap(values)
    drawn = np.random.default_rng(7).integers(0, 300, (10_000, 300))
    expected = np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))
    # Two runs of 10,000 samples differ randomly by much less than the interval's width.
    allowed = 0.05 * (interval.high - interval.low)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected), abs=allowed)
    assert bootstrap(values) == interval


@settings(deadline=None, max_examples=30)
@given(SHARES)
def test_the_interval_is_within_the_values(values: list[float]) -> None:
    interval = bootstrap(values, samples=200)
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9


def test_the_interval_of_one_value_has_no_width() -> None:
    assert bootstrap([0.25] * 9) == Estimate(0.25, 0.25, 0.25, 9)
    assert bootstrap([0.25]) == Estimate(0.25, 0.25, 0.25, 1)
    assert compare([1.0], [0.5]).p == 1


def test_an_interval_of_a_function_of_means() -> None:
    """F1 of (P, R) = (1, 1) and (0, 0): means ½ and ½, so F1 = ½.

    A sample of two is twice the second question (F1 = 0) or the first (F1 = 1) with p = ¼ each.
    """
    assert bootstrap([[1, 1], [0, 0]], f1_of_means) == Estimate(0.5, 0.0, 1.0, 2)


def test_samples_are_the_same_for_both_methods() -> None:
    """The second is always 0.1 lower; unpaired, the difference would have a wide interval."""
    first = np.random.default_rng(2).random(50)
    difference = compare(first, first - 0.1)
    assert (difference.low, difference.value, difference.high) == pytest.approx((0.1,) * 3)


def test_the_permutation_test_counts_permutations() -> None:
    """Five questions with +1 each: of 2^5 permutations, only two give |difference| = 1.

    So p = 2 / 32 = 0.0625. If one of them is −1, the difference is ⅗, which is reached with 0, 1,
    4 or 5 swaps: p = (1 + 5 + 5 + 1) / 32 = 0.375.
    """
    assert compare(np.ones(5), np.zeros(5)).p == 0.0625
    difference = compare([-1, 1, 1, 1, 1], np.zeros(5))
    assert (difference.value, difference.p) == pytest.approx((0.6, 0.375))


def test_the_difference_of_f1_against_plain_loops() -> None:
    """Computes the value by the formula, and interval and p with plain loops."""
    random = np.random.default_rng(4)
    first, second = random.random((2, 40, 2))
    second *= 0.8

    def f1(rows: list[np.ndarray]) -> float:
        precision, recall = (sum(row[i] for row in rows) / len(rows) for i in (0, 1))
        return float(2 * recall * precision / (recall + precision))

    found = compare(first, second, f1_of_means)
    value = f1(list(first)) - f1(list(second))
    assert found.value == pytest.approx(value)
    drawn, extreme = [], 0
    for _ in range(4000):
        places = random.integers(0, 40, 40)
        drawn.append(f1([first[i] for i in places]) - f1([second[i] for i in places]))
        swap = random.random(40) < 0.5
        ones = [second[i] if swap[i] else first[i] for i in range(40)]
        others = [first[i] if swap[i] else second[i] for i in range(40)]
        extreme += abs(f1(ones) - f1(others)) >= abs(value)
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.02)
    assert found.p == pytest.approx(extreme / 4000, abs=0.02)


def test_equal_methods_have_p_1_and_different_ones_a_small_p() -> None:
    values = np.random.default_rng(4).random((200, 2))
    assert compare(values, values, f1_of_means).p == 1
    better = compare(values + 0.2, values, f1_of_means)
    worse = compare(values, values + 0.2, f1_of_means)
    assert better.p == worse.p == pytest.approx(0, abs=0.001)
    assert better.value == -worse.value


def test_p_values_are_adjusted_by_holms_method() -> None:
    """0.01, 0.03 and 0.04 become 3 · 0.01, 2 · 0.03, and at least the previous value: 0.06."""
    assert adjust([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert adjust([]) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap([]), "No values"),
        (lambda: bootstrap([1, float("nan")]), "Value 2 of 2 is nan"),
        (lambda: bootstrap([1], samples=0), "samples 0"),
        (lambda: summarize([]), "No values"),
        (lambda: compare([[1.0]], [[1.0], [2.0]]), "same questions"),
        (lambda: mcnemar([True], []), "1 with 0"),
    ],
)
def test_invalid_values_are_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        call()
