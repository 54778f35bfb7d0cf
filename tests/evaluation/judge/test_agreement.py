"""The agreement of judges, compared with an independent implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from visar.evaluation.judge.agreement import Agreement, count_agreement

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def agreement(pairs: list[tuple[bool, bool]]) -> Agreement:
    return count_agreement("a", "b", pairs)


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
