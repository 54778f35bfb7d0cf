"""The agreement of judges, compared with an independent implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from visar.errors import InvalidOption
from visar.evaluation.judge import Agreement, Verdict, compare_judges

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def verdicts(judge: str, given: list[bool]) -> list[Verdict]:
    return [Verdict(correct, judge, "") for correct in given]


def agreement(pairs: list[tuple[bool, bool]]) -> Agreement:
    return compare_judges(
        verdicts("a", [one for one, _ in pairs]), verdicts("b", [other for _, other in pairs])
    )


@given(PAIRS)
def test_kappa_equals_scikit_learn(pairs: list[tuple[bool, bool]]) -> None:
    kappa = agreement(pairs).kappa
    constant = len({verdict for pair in pairs for verdict in pair}) == 1
    assert (kappa is None) == constant
    if kappa is not None:
        expected = cohen_kappa_score(*zip(*pairs, strict=True))
        assert kappa == pytest.approx(expected, abs=1e-12)


@given(PAIRS)
def test_agreement_is_symmetric(pairs: list[tuple[bool, bool]]) -> None:
    there, back = agreement(pairs), agreement([(other, one) for one, other in pairs])
    assert (there.share, there.kappa) == (back.share, back.kappa)
    assert (there.only_first, there.cases) == (back.only_second, len(pairs))


@given(PAIRS)
def test_a_judge_agrees_with_itself(pairs: list[tuple[bool, bool]]) -> None:
    own = agreement([(one, one) for one, _ in pairs])
    assert own.share == 1
    assert own.kappa in (1, None)


def test_agreement_as_text() -> None:
    assert str(Agreement("rules 2", "llm 1 m", 20, 5, 10, 15)) == (
        "rules 2 and llm 1 m agree on 35 of 50 cases (70.0%), Cohen's κ 0.40: 20 correct and 15 "
        "incorrect for both, 5 correct for the first only, 10 for the second only"
    )


def test_incomparable_verdicts_are_errors() -> None:
    with pytest.raises(InvalidOption, match="2 with 1"):
        compare_judges(verdicts("a", [True, True]), verdicts("b", [True]))
    with pytest.raises(InvalidOption, match="0 with 0"):
        compare_judges([], [])
    with pytest.raises(InvalidOption, match="a, b"):
        compare_judges([*verdicts("a", [True]), *verdicts("b", [True])], verdicts("b", [True] * 2))
