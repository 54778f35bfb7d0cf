"""A quotation is right when the reference stands in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.evaluation.judge import QuoteJudge

QUOTED = (
    "We give a warranty of seven years on the lantern.\nNet debt was £98.3 million (2023: 103.4)."
)


@pytest.mark.parametrize(
    ("reference", "correct"),
    [
        ("seven years", True),
        ("7 years", True),
        ("98.3", True),
        ("£98.3 million", True),
        ("['lantern', 'net debt']", True),
        ("['lantern', 'anchor']", False),
        ("years seven", False),
        ("8.3", False),
        ("Not answerable", False),
    ],
)
def test_every_part_of_the_reference_must_stand_there(reference: str, correct: bool) -> None:
    assert QuoteJudge().judge("How long?", [reference], QUOTED).correct is correct


def test_saying_that_there_is_no_answer_is_right_where_there_is_none() -> None:
    judge = QuoteJudge()
    assert judge.judge("Who?", ["Not answerable"], "Not answerable").correct
    assert not judge.judge("Who?", ["Ada"], "Not answerable").correct


WORDS = st.lists(st.text("abcdefgh", min_size=3, max_size=8), min_size=1, max_size=6)


@given(WORDS, WORDS, WORDS)
def test_what_is_quoted_with_anything_around_it_is_found(
    before: list[str], reference: list[str], after: list[str]
) -> None:
    quotation = " ".join([*before, *reference, *after])
    assert QuoteJudge().judge("What?", [" ".join(reference)], quotation).correct
