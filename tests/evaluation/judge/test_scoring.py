"""Judges without a model: the benchmarks' scoring by answer type, and quotes."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from visar.errors import InvalidOption
from visar.evaluation.judge import CORRECT_FROM, BenchmarkJudge, QuoteJudge
from visar.evaluation.judge.scoring import answer_type

JUDGE = BenchmarkJudge()


def score(reference: str, answer: str, kind: str | None = None) -> float:
    return JUDGE.judge("What is it?", [reference], answer, kind=kind).score


@pytest.mark.parametrize(
    ("reference", "kind", "expected"),
    [
        ("14", None, "Int"),
        ("1,204", None, "Int"),
        ("14.", None, "Int"),
        ("$450,000", None, "Int"),
        ("-418", None, "Int"),
        ("62%", None, "Float"),
        ("3.25", None, "Float"),
        ("14 ferries", None, "Str"),
        ("2016-2017", None, "Str"),
        ("['Oban', 'Coll']", None, "List"),
        ('["Oban", 3]', None, "List"),
        ("[unclear]", None, "Str"),
        ("Not answerable", None, "None"),
        # The data set's type takes precedence, in either benchmark's notation.
        ("14", "Str", "Str"),
        ("14", "String", "Str"),
        ("14", "Float", "Float"),
        ("14 ferries", "Integer", "Int"),
        ("Oban", "List", "List"),
        ("Not answerable", "Str", "None"),
        # A correction can add an answer that the data set didn't have.
        ("Ann Lee", "None", "Str"),
        ("14", "some other form", "Int"),
    ],
)
def test_the_type_of_a_reference(reference: str, kind: str | None, expected: str) -> None:
    assert answer_type(reference, kind) == expected


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        ("14", "14", 1),
        ("14", "14.0", 1),
        ("14", "**14**", 1),
        ("14", "14 ferries", 1),
        ("14", "There are 14 of them.", 1),
        ("1204", "1,204", 1),
        ("1,204", "$1204.", 1),
        ("-418", "−418", 1),
        ("418", "(418)", 1),
        ("14", "13", 0),
        ("14", "14.5", 0),
        ("14", "13 or 14", 0),
        ("14", "12-14", 0),
        ("14", "K-14", 0),
        ("14", "14:00", 0),
        ("14", "fourteen", 0),
        ("14", "", 0),
        ("12345678901234567890123", "12345678901234567890124", 0),
        ("9" * 5000, "9" * 5000, 1),
    ],
)
def test_whole_numbers_must_be_equal(reference: str, answer: str, expected: int) -> None:
    assert score(reference, answer, "Int") == expected


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        ("58.36", "58.4", 1),
        ("58.36", "58.9", 1),
        ("58.36", "59.0", 0),
        ("62%", "0.62", 1),
        ("0.62", "62 %", 1),
        ("62%", "62", 1),
        ("$3.2", "3.2 dollars", 1),
        ("-418.0", "418", 0),
        ("0.0", "0", 1),
        ("0.0", "0.001", 0),
        ("58.36", "unclear", 0),
    ],
)
def test_other_numbers_may_differ_by_one_percent(
    reference: str, answer: str, expected: int
) -> None:
    assert score(reference, answer, "Float") == expected


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        ("Ada Merrow", "ada  merrow.", 1),
        ("Ada Merrow", "“Ada Merrow”", 1),
        ("High-Speed Craft", "High–Speed Craft (HSC)", 1),
        ("Coastal erosion", "Coastal erosio", 14 / 15),
        ("abcd", "abxy", 0),  # a similarity of 0.5 is too low
        ("abcde", "abcxy", 3 / 5),
        ("Ada Merrow", "The lens was designed by Ada Merrow.", 0),
        ("Yes", "No", 0),
        ("★ Oban", "★ oban", 1),
    ],
)
def test_texts_score_by_edit_distance(reference: str, answer: str, expected: float) -> None:
    assert score(reference, answer, "Str") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("reference", "near"),
    [
        ("https://harbour.example/map", "https://harbour.example/maps"),
        ("www.harbour.example", "www.harbour.examples"),
        ("ann.lee@harbour.example", "ann.leo@harbour.example"),
        ("select_pages.py", "select_page.py"),
        ("555-010-0199", "555-010-0198"),
        ("+44 20 7946 0123", "+44 20 7946 0124"),
        ("2019-06-04", "2019-06-05"),
        ("2019-06", "2019-07"),
        ("12 May 1931", "12 May 1913"),
        ("May 12, 1931", "May 12, 1913"),
        ("10:45", "10:40"),
        ("9:45 a.m.", "9:45 p.m."),
        ("page 178", "page 179"),
        ("2016-2017", "2016-2018"),
        ("12.75", "12.76"),
    ],
)
def test_some_texts_must_be_exact(reference: str, near: str) -> None:
    assert score(reference, reference.upper(), "Str") == 1
    assert score(reference, near, "Str") == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("['Oban', 'Coll', 'Tiree']", 1),
        ('["Tiree", "Oban", "Coll"]', 1),
        ("1. Oban\n2. Coll\n3. Tiree", 1),
        ("* Tiree\n* Coll\n* Oban", 1),
        ("Oban, Coll and Tiree", 1),
        ("Oban (2 piers); Coll; Tiree.", 1),
        ("Oban, Coll, Tire", 4 / 5),  # the lowest of the three scores
        ("Oban, Coll", 0),
        ("Oban, Coll, Tiree, Mull", 0),
        ("Oban, Coll, Mull", 0),
        ("", 0),
    ],
)
def test_lists(answer: str, expected: float) -> None:
    assert score("['Oban', 'Coll', 'Tiree']", answer, "List") == pytest.approx(expected)


def test_items_that_are_numbers_or_dates_must_be_exact() -> None:
    assert score("['84%', '1,031']", "1,031 and 84%", "List") == 1
    assert score("[3.25, 8]", "[8, 3.26]", "List") == 0
    assert score("['2011-08-02', '2011-08-03']", "2011-08-03, 2011-08-04", "List") == 0


def test_a_list_with_one_item_equals_the_item() -> None:
    assert score("['Oban, Argyll and Bute']", "Oban, Argyll and Bute", "List") == 1
    assert score("Oban", "oban", "List") == 1


def test_no_answer_is_correct_only_for_unanswerable_questions() -> None:
    for nothing in ("Not answerable", "unanswerable.", "The question cannot be answered.", ""):
        assert score("Not answerable", nothing, "None") == 1
        for reference, kind in (("12", "Int"), ("1.5", "Float"), ("Oban", "Str"), ("[1]", "List")):
            assert score(reference, nothing, kind) == 0
    assert score("Not answerable", "12", "None") == 0
    # Other phrases aren't recognized.
    assert score("Not answerable", "The document does not mention camels.", "None") == 0


def test_any_one_of_several_references_is_enough() -> None:
    verdict = JUDGE.judge("Who?", ["Tom", "12", " ", "Ada Merrow"], "ada merrow")
    assert (verdict.score, verdict.reason, verdict.judge) == (1, "Str", "rules 2")
    assert not JUDGE.judge("Who?", ["Tom", "Ada Merrow"], "Ines").correct


def test_correct_means_at_least_the_threshold() -> None:
    assert CORRECT_FROM == 0.9
    assert JUDGE.judge("Which?", ["abcdefghij"], "abcdefghix").correct
    assert not JUDGE.judge("Which?", ["abcdefghi"], "abcdefghx").correct


def test_missing_references_are_errors() -> None:
    for nothing in ([], [" "]):
        with pytest.raises(InvalidOption, match="no reference"):
            JUDGE.judge("Who?", nothing, "Ada")
    with pytest.raises(InvalidOption, match="list of strings"):
        JUDGE.judge("Who?", "Ada", "Ada")


KINDS = st.sampled_from([None, "Int", "Float", "Str", "List", "None", "Integer", "?"])


@given(reference=st.text(min_size=1).filter(str.strip), kind=KINDS)
def test_a_reference_scores_1_against_itself(reference: str, kind: str | None) -> None:
    assert score(reference, reference, kind) == 1


@given(reference=st.text(), answer=st.text(), kind=KINDS)
def test_every_score_is_between_0_and_1(reference: str, answer: str, kind: str | None) -> None:
    assume(reference.strip())
    assert 0 <= score(reference, answer, kind) <= 1


ITEMS = st.lists(st.text("bcdfghjklmprstvz", min_size=4, max_size=9), min_size=2, max_size=5)


@given(items=ITEMS, seed=st.integers(0, 99))
def test_a_list_in_any_order(items: list[str], seed: int) -> None:
    shuffled = random.Random(seed).sample(items, len(items))
    for answer in (str(shuffled), json.dumps(shuffled), ", ".join(shuffled), "\n".join(shuffled)):
        assert score(str(items), answer) == score(json.dumps(items), answer, "List") == 1
    assert score(str(items), ", ".join([*shuffled, "xyx"])) == 0


@pytest.mark.parametrize(
    "piece", ["(", "(a", "[", "5 ", "1,111", "aaaa", "a-", "and ", ", ", "5a", "\n", "1:", "$", "."]
)
def test_long_answers_are_judged_quickly(piece: str) -> None:
    """Adversarial answers must not stall a run; if they do, this test doesn't end."""
    for reference in (
        "12",
        "Not answerable",
        "Ada Merrow",
        "['a', 'b']",
        "2019-06-04",
        f"x{piece * 99}",
    ):
        score(reference, piece * 5_000)


def test_threads_can_share_a_judge() -> None:
    cases = [(str(number), str(number + number % 2)) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda case: score(*case), cases))
    assert scores == [float(reference == answer) for reference, answer in cases]


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
def test_all_items_of_the_reference_must_be_quoted(reference: str, correct: bool) -> None:
    assert QuoteJudge().judge("How long?", [reference], QUOTED).correct is correct


def test_not_answerable_is_correct_for_unanswerable_questions() -> None:
    judge = QuoteJudge()
    assert judge.judge("Who?", ["Not answerable"], "Not answerable").correct
    assert not judge.judge("Who?", ["Ada"], "Not answerable").correct


WORDS = st.lists(st.text("abcdefgh", min_size=3, max_size=8), min_size=1, max_size=6)


@given(WORDS, WORDS, WORDS)
def test_references_are_found_within_longer_quotes(
    before: list[str], reference: list[str], after: list[str]
) -> None:
    quotation = " ".join([*before, *reference, *after])
    assert QuoteJudge().judge("What?", [" ".join(reference)], quotation).correct
