"""Tests of follow-up questions, rewritten by a model or by rules."""

from __future__ import annotations

import json

import pytest

from tests.generation.scripted import Says, refuses, replies, scripted
from visar.generation.followups import MAX_TURNS, standalone_question
from visar.generation.openai_server import OpenAIGenerator
from visar.results import Turn

CHIEF = Turn("Who is the chief executive?", "Margaret Oyelaran, Chief Executive")
WARRANTY = Turn("How long is the warranty on the Aurora 4 lantern?", "Seven years.")
REVENUE = Turn("What was revenue in 2024?", "£412.6 million")
LEADER = Turn("Wer ist der Vorstandsvorsitzende?", "Hans Müller")


@pytest.mark.parametrize(
    ("question", "before", "added"),
    [
        ("And when was she appointed?", CHIEF, ["When was Margaret Oyelaran appointed?"]),
        ("And her salary?", CHIEF, ["Margaret Oyelaran's salary?"]),
        ("Who reports to her?", CHIEF, ["to Margaret Oyelaran?"]),
        ("Since when exactly?", CHIEF, ["chief executive"]),
        ("How was this paid for?", REVENUE, ["revenue in 2024"]),
        ("How much of that was abroad?", REVENUE, ["revenue in 2024"]),
        ("What about the battery?", WARRANTY, ["battery", "warranty", "Aurora 4 lantern"]),
        ("Why?", WARRANTY, ["warranty on the Aurora 4 lantern"]),
        ("How much was it two years before?", REVENUE, ["two years before", "revenue in 2024"]),
        ("Und wann wurde er ernannt?", LEADER, ["ernannt", "Vorstandsvorsitzende"]),
    ],
)
def test_rules_add_the_subject_of_the_previous_question(
    question: str, before: Turn, added: list[str]
) -> None:
    rewritten = standalone_question(question, [REVENUE, before])
    assert all(part in rewritten for part in added)


@pytest.mark.parametrize(
    ("question", "before", "rewritten"),
    [
        ("What about the chair?", CHIEF, "Who is the chair?"),
        ("And the chair?", CHIEF, "Who is the chair?"),
        ("And what about net debt?", REVENUE, "What was net debt in 2024?"),
        ("And net debt in 2022?", REVENUE, "What was net debt in 2022?"),
        (
            "How about operating profit?",
            Turn("How did revenue develop between 2020 and 2024?"),
            "How did operating profit develop between 2020 and 2024?",
        ),
    ],
)
def test_another_subject_replaces_that_of_a_short_question(
    question: str, before: Turn, rewritten: str
) -> None:
    assert standalone_question(question, [before]) == rewritten


@pytest.mark.parametrize(
    ("question", "before", "rewritten"),
    [
        ("And who is the auditor?", WARRANTY, "Who is the auditor?"),
        ("And what was net debt?", REVENUE, "What was net debt in 2024?"),
        ("So what was net debt in 2022?", REVENUE, "What was net debt in 2022?"),
    ],
)
def test_a_question_with_its_own_subject_gets_no_other(
    question: str, before: Turn, rewritten: str
) -> None:
    assert standalone_question(question, [before]) == rewritten


def test_a_subject_with_several_nouns_is_kept() -> None:
    """Either the salary or the person could be meant."""
    before = Turn("What is Margaret Oyelaran's salary?")
    rewritten = standalone_question("What about the chair?", [before])
    assert rewritten == "The chair (Margaret Oyelaran's salary)?"


def test_a_year_replaces_the_previous_year() -> None:
    assert standalone_question("And in 2023?", [REVENUE]) == "What was revenue in 2023?"
    assert "2024" not in standalone_question("And how did it change in 2022?", [REVENUE])


def test_a_new_year_replaces_a_range_of_years() -> None:
    before = Turn("How did capital expenditure change between 2020 and 2024?")
    rewritten = standalone_question("And what is planned for 2025?", [before])
    assert "capital expenditure" in rewritten
    assert "2020" not in rewritten
    assert "2024" not in rewritten


def test_a_new_subject_comes_before_the_old_one() -> None:
    first = standalone_question("What about operating profit?", [REVENUE])
    assert "(operating profit" in standalone_question("Why did it rise?", [Turn(first, "…")])
    first = standalone_question("And the chairman?", [CHIEF])
    second = standalone_question("When was he appointed?", [Turn(first, "Edmund Hale chairs it.")])
    assert second == "When was Edmund Hale appointed?"
    title = Turn(first, "What the Chief Executive earns")
    assert "was he appointed" in standalone_question("When was he appointed?", [title])


def test_a_subject_is_kept_through_several_follow_ups() -> None:
    first = standalone_question("And when was she appointed?", [CHIEF])
    second = standalone_question("And where did she work before?", [CHIEF, Turn(first, "In 2020.")])
    assert "Margaret Oyelaran" in second
    assert "appointed" not in second


@pytest.mark.parametrize(
    "question",
    [
        "Who is the auditor?",
        "What are the principal risks that the board considers?",
        "How many employees does the group have?",
    ],
)
def test_an_independent_question_is_unchanged(question: str) -> None:
    assert standalone_question(question, [CHIEF]) == question
    assert standalone_question(question, []) == question


def test_a_model_rewrites_the_question() -> None:
    wanted = "When did Margaret Oyelaran join the company?"
    with scripted(replies(json.dumps({"question": wanted}))) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        history = [Turn(f"Question {number}?", "x" * 5_000) for number in range(9)]
        assert standalone_question("And she?", [*history, CHIEF], generator) == wanted
    (asked,) = server.asked
    sent = asked.body.decode()
    assert "Margaret Oyelaran" in sent
    assert f"Question {9 - MAX_TURNS}?" not in sent
    assert len(sent) < 10_000  # of long answers, the beginning


@pytest.mark.parametrize(
    "fails",
    [replies("I would rather not."), replies('{"question": ""}'), refuses(400, "out of order")],
)
def test_rules_apply_if_the_model_fails(fails: Says) -> None:
    with scripted(fails) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        rewritten = standalone_question("And when was she appointed?", [CHIEF], generator)
    assert "Margaret Oyelaran" in rewritten
