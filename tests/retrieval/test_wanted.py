"""What a question wants, and which part of a text has that form."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.retrieval.wanted import Answer, answer_spans, wanted


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many ships were piloted?", "number"),
        ("What share of revenue comes from the north?", "percentage"),
        ("What were the basic earnings per share?", "money"),
        ("How long is the warranty?", "duration"),
        ("How heavy is the buoy?", "measure"),
        ("When does the concession end?", "date"),
        ("In which year was it founded?", "date"),
        ("Who is the chair of the board?", "name"),
        ("Where is the laboratory?", "place"),
        ("Which tool checks for plagiarism?", "thing"),
        ("What are the aims of the plan?", "list"),
        ("What does it mean?", "definition"),
        ("How did it change between 2020 and 2024?", "comparison"),
        ("Is it insured?", "yes or no"),
        ("What is the phone number?", "contact"),
        ("Wie viele Schiffe waren es?", "number"),
        ("Combien de navires?", "number"),
        ("Warum?", "text"),
    ],
)
def test_what_a_question_wants(question: str, answer: Answer) -> None:
    assert wanted(question) == answer


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("number", "In 2024 we piloted 31,240 ships.", ["31,240"]),
        ("number", "It has 214 engineers and seven tugs since 5 May 2020.", ["214", "seven"]),
        ("percentage", "Some 23% and seven-in-ten agree, of 400.", ["23%", "seven-in-ten", "400"]),
        ("money", "It cost £6.1 million.", ["£6.1 million"]),
        ("duration", "We give seven years on it.", ["seven years"]),
        ("measure", "Keep it at 6–8 °C.", ["6–8 °C"]),
        ("date", "It began on 15 May 2024.", ["15 May 2024"]),
        ("date", "It ends on March 3, 2019.", ["March 3, 2019"]),
        ("name", "The chair is Dr Helen Marsh.", ["Dr Helen Marsh"]),
        ("thing", "The code of Nordvika is NV07.", ["Nordvika", "NV07"]),
        ("contact", "Call 555.010.4477 or write.", ["555.010.4477"]),
        ("text", "Because it rained in 2020.", []),
    ],
)
def test_which_part_has_the_form(answer: Answer, text: str, expected: list[str]) -> None:
    found = [text[span.start : span.end] for span in answer_spans(answer, text, "?")]
    assert found == expected


def test_what_is_in_the_question_is_no_answer() -> None:
    spans = answer_spans(
        "percentage", "Of the 23% who agree, 40% work.", "Of the 23%, how many work?"
    )
    assert [span.start for span in spans] == [22]


@pytest.mark.parametrize(
    ("answer", "sign", "other"), [("percentage", "%", "40%"), ("money", "£ million", "£5")]
)
def test_the_unit_of_a_number_may_stand_in_the_title_of_its_table(
    answer: Answer, sign: str, other: str
) -> None:
    def fit(text: str) -> float:
        return next(s.fit for s in answer_spans(answer, text, "?") if text[s.start : s.end] == "61")

    assert fit(f"Crews who agree, {sign} | Tugs 61") > fit("Crews who agree | Tugs 61")
    # A sign at another number says nothing of this one.
    assert fit(f"Of {other} who agree | Tugs 61") == fit("Crews who agree | Tugs 61")


@given(st.text(max_size=60), st.text(max_size=40))
def test_spans_lie_within_the_text_and_apart(text: str, question: str) -> None:
    spans = sorted(answer_spans(wanted(question), text, question), key=lambda span: span.start)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(before.end <= after.start for before, after in pairwise(spans))
