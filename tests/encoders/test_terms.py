from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visar.encoders.terms import LEXICAL_DIMENSION, find_terms, lexical_vectors


def keys(*words: str) -> list[str]:
    return [term.key for term in find_terms(words)]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("(2021),", ["2021"]),
        ("$1,577.25", ["1577.25"]),
        ("U.S.", ["u.s"]),
        ("Company’s", ["company"]),
        ("late-interaction/RAG", ["late", "interaction", "rag"]),
        ("snake_case", ["snake", "case"]),
        ("naïve", ["naive"]),
        ("ﬁnance", ["finance"]),  # a ligature, as in PDFs
        ("日本語", ["日", "本", "語"]),
        ("B2B:", ["b2b"]),
        ("—", []),
        ("😀", []),
        ("\x01\x02", []),
        ("", []),
    ],
)
def test_terms_of_words(word: str, expected: list[str]) -> None:
    assert keys(word) == expected


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=5))
def test_a_term_is_a_part_of_its_word(words: list[str]) -> None:
    for term in find_terms(words):
        part = words[term.word][term.start : term.end]
        assert re.fullmatch(r"\w(.*\w)?", part)


def test_inflections_match_and_other_words_do_not() -> None:
    words = ["expenditure", "Expenditures", "EXPENDITURE’S", "revenue", "1,000", "1000", "2000"]
    cosines = lexical_vectors(find_terms(words)) @ lexical_vectors(find_terms(words)).T
    same = np.zeros((7, 7), bool)
    same[:3, :3] = same[3, 3] = same[4:6, 4:6] = same[6, 6] = True
    np.testing.assert_allclose(cosines[same], 1, rtol=1e-6)
    # Four standard deviations of the cosine of two random directions.
    assert np.abs(cosines[~same]).max() < 4 / np.sqrt(LEXICAL_DIMENSION)


def test_stop_words_have_no_exact_match() -> None:
    terms = find_terms(["The", "which", "of", "it's"])
    assert all(term.is_stop_word for term in terms)
    assert not lexical_vectors(terms).any()


def test_a_direction_is_the_same_on_every_machine() -> None:
    # Stored vectors must match those of later processes, so the signs are pinned.
    (vector,) = lexical_vectors(find_terms(["expenditure"]))
    assert (vector[:16] > 0).astype(int).tolist() == [
        1,
        0,
        1,
        1,
        1,
        0,
        1,
        0,
        1,
        1,
        0,
        0,
        1,
        0,
        0,
        1,
    ]
