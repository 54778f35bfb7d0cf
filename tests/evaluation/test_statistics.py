"""Intervals and tests: sure of the right thing, and the same every time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import InvalidOption
from visar.evaluation.statistics import (
    Interval,
    PairedSamples,
    bootstrap,
    f1_of_means,
    mcnemar,
    mcnemar_p,
    summarize,
)

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


def test_an_interval_of_a_function_of_means() -> None:
    """F1 of (P, R) = (1, 1) and (0, 0): means ½ and ½, so F1 = ½.

    Of two questions drawn, both are the second with a chance of ¼ (F1 = 0), or the first (F1 = 1).
    """
    pairs = PairedSamples({"a": [[1, 1], [0, 0]]})
    assert pairs.interval("a", f1_of_means) == Interval(0.5, 0.0, 1.0, 2)


def test_the_interval_of_one_mean_is_that_of_the_quicker_bootstrap() -> None:
    values = np.random.default_rng(1).random((300, 1))
    slow, quick = PairedSamples({"a": values}).interval("a"), bootstrap(values[:, 0])
    assert slow.mean == pytest.approx(quick.mean)
    allowed = 0.05 * (quick.high - quick.low)
    assert (slow.low, slow.high) == pytest.approx((quick.low, quick.high), abs=allowed)


def test_questions_are_drawn_for_both_methods_together() -> None:
    """The second is always 0.1 lower: unpaired, the difference would have a wide interval."""
    first = np.random.default_rng(2).random((50, 1))
    difference = PairedSamples({"a": first, "b": first - 0.1}).difference("a", "b")
    assert (difference.low, difference.value, difference.high) == pytest.approx((0.1,) * 3)


def test_the_randomization_test_counts_exchanges() -> None:
    """Five questions with +1 each: of the 2^5 exchanges, only two give |difference| = 1.

    So p = 2 / 32 = 0.0625, but for the chance of 10,000 draws (its standard error is 0.0024). With
    one of them −1, the difference is ⅗; it is at least that with 0, 1, 4 or 5 exchanges:
    p = (1 + 5 + 5 + 1) / 32 = 0.375.
    """
    ones, zeros = np.ones((5, 1)), np.zeros((5, 1))
    assert PairedSamples({"a": ones, "b": zeros}).difference("a", "b").p == pytest.approx(
        0.0625, abs=0.01
    )
    mixed = ones.copy()
    mixed[0] = -1
    difference = PairedSamples({"a": mixed, "b": zeros}).difference("a", "b")
    assert difference.value == pytest.approx(0.6)
    assert difference.p == pytest.approx(0.375, abs=0.02)


def test_the_difference_of_f1_against_plain_loops() -> None:
    """The value by the formula; interval and p by drawing and exchanging questions one by one."""
    random = np.random.default_rng(4)
    first, second = random.random((2, 12, 2))
    second *= 0.7

    def f1(rows: list[np.ndarray]) -> float:
        precision, recall = (sum(row[i] for row in rows) / len(rows) for i in (0, 1))
        return float(2 * recall * precision / (recall + precision))

    pairs = PairedSamples({"first": first, "second": second})
    found = pairs.difference("first", "second", f1_of_means)
    value = f1(list(first)) - f1(list(second))
    assert found.value == pytest.approx(value)
    drawn, extreme = [], 0
    for _ in range(4000):
        places = random.integers(0, 12, 12)
        drawn.append(f1([first[i] for i in places]) - f1([second[i] for i in places]))
        swap = random.random(12) < 0.5
        ones = [second[i] if swap[i] else first[i] for i in range(12)]
        others = [first[i] if swap[i] else second[i] for i in range(12)]
        extreme += abs(f1(ones) - f1(others)) >= abs(value)
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.02)
    assert found.p == pytest.approx(extreme / 4000, abs=0.02)
    assert pairs.difference("second", "second", f1_of_means).p == 1


def test_methods_that_do_not_differ_have_p_1_and_others_a_small_one() -> None:
    values = np.random.default_rng(4).random((200, 2))
    pairs = PairedSamples({"a": values, "same": values, "better": values + 0.2})
    assert pairs.difference("a", "same", f1_of_means).p == 1
    assert pairs.difference("better", "a", f1_of_means).p == pytest.approx(1 / 10_001)


@given(st.integers(2, 30), st.integers(0, 2**32))
def test_a_difference_has_two_sides(count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    pairs = PairedSamples(
        {"a": generator.random((count, 1)), "b": generator.random((count, 1))}, samples=200
    )
    one, other = pairs.difference("a", "b"), pairs.difference("b", "a")
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
    assert one.p == other.p <= 1
    assert one.low <= one.high


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
        (lambda: PairedSamples({"a": [[1.0]], "b": [[1.0], [2.0]]}), "different questions"),
        (lambda: PairedSamples({"a": [1.0]}), "a row for each question"),
        (lambda: PairedSamples({"a": [[1.0]]}, samples=0), "samples must be at least 1"),
        (lambda: PairedSamples({"a": [[float("inf")]]}), "Value 1 of 1 is inf"),
        (lambda: mcnemar([True], []), "1 and 0 questions"),
        (lambda: mcnemar_p(-1, 2), "negative"),
    ],
)
def test_what_has_no_value_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        call()
