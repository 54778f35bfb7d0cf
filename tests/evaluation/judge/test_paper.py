"""The judge ``paper``: its prompts, and the parsing of replies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.judge.generators import Says
from visar.errors import GenerationError
from visar.evaluation.judge import BenchmarkJudge, PaperJudge
from visar.evaluation.judge.models import as_alternatives, says_correct
from visar.evaluation.questions import write_list
from visar.generation.generator import Reply


def case_shown(model: Says) -> Any:
    (case,) = model.prompts[0].parts
    return json.loads(str(case).splitlines()[-1])


def test_the_model_gets_rules_two_examples_and_the_case() -> None:
    model = Says('{"correctness": "CORRECT"}')
    verdict = PaperJudge(model).judge("Who?", ["Tom", " ", "Ada"], "It was Ada.")
    assert verdict.correct
    assert verdict.judge == "paper 3-aff8ba27 says"
    assert (verdict.model, verdict.reason) == ("says@1", model.text)
    (prompt,) = model.prompts
    assert verdict.prompt_digest == prompt.digest
    assert [f"\n{rule}. " in prompt.system for rule in range(1, 8)] == [True] * 6 + [False]
    shown = [json.loads(line) for line in prompt.system.splitlines() if line.startswith('{"q')]
    verdicts = [line for line in prompt.system.splitlines() if line.startswith('{"c')]
    assert len(shown) == 2
    assert verdicts[-2:] == ['{"correctness": "CORRECT"}', '{"correctness": "INCORRECT"}']
    assert case_shown(model) == {
        "question": "Who?",
        "references": ["Tom", "Ada"],
        "answer": "It was Ada.",
    }


@pytest.mark.parametrize(
    ("reply", "correct"),
    [
        ('{"correctness": "CORRECT"}', True),
        ('{"correctness": "INCORRECT"}', False),
        ('```json\n{\n  "correctness": "CORRECT"\n}\n```', True),
        ("Both name Ada. {'Correctness': 'Correct'}", True),
        ('{"correctness": "CORRECT', True),
        ("CORRECT", True),
        ("Correct.", True),
        ("**INCORRECT**", False),
        # Prose with the word counts as correct, as in the paper.
        ("The answer names Ada, so it is CORRECT.", True),
        ("The answer names Tom, so it is INCORRECT.", False),
        # The reply corrects itself.
        ('{"correctness": "CORRECT"} No: {"correctness": "INCORRECT"}', False),
        ('<think>{"correctness": "CORRECT"}?</think>{"correctness": "INCORRECT"}', False),
        # Unreadable replies count as incorrect, but not as failures.
        ("", False),
        ("It is not correct.", False),
        ('{"correctness": true}', False),
        ('{"correctness": "CORRECTED"}', False),
        ('{"choice": "correct"}', False),
    ],
)
def test_replies_are_parsed_leniently(reply: str, correct: bool) -> None:
    assert PaperJudge(Says(reply)).judge("Who?", ["Ada"], "Ada").correct is correct


@given(st.text())
def test_any_reply_gives_a_verdict(reply: str) -> None:
    assert says_correct(reply) in (True, False)


def test_a_failing_model_is_an_error() -> None:
    class Broken(Says):
        def generate(self, *_: object, **__: object) -> Reply:
            raise OSError("no more memory")

    with pytest.raises(GenerationError, match="says failed: OSError"):
        PaperJudge(Broken("")).judge("Who?", ["Ada"], "Ada")


def test_only_a_json_list_is_a_list_of_alternatives() -> None:
    # MMLongBench-Doc has lists as strings, as Python writes them: with double quotes around
    # apostrophes, and valid JSON for numbers. LongDocURL has real lists, which the loader stores as
    # JSON without spaces. Blank and duplicate references are ignored.
    as_text = ["['Oban', 'Mallaig']", '["Men\'s", "Ladies\'"]', "[1500, 8000]", "[14"]
    references = [*as_text, write_list(["Oban", "14"]), "", "both ports", "Oban"]
    expected = [*as_text, "Oban", "14", "both ports"]
    assert as_alternatives(references) == expected
    model = Says("")
    PaperJudge(model).judge("Which?", references, "Oban")
    assert case_shown(model)["references"] == expected


def test_one_item_of_a_json_list_is_correct_only_for_this_judge() -> None:
    references = [write_list(["Oban", "Mallaig"])]
    assert as_alternatives(references) == ["Oban", "Mallaig"]
    # One port of two; the benchmarks' own rules require both.
    assert not BenchmarkJudge().judge("Which?", references, "Oban", kind="List").correct


@pytest.mark.parametrize("reference", ['[""]', "[]", "[" * 100_000])
def test_other_lists_are_one_reference(reference: str) -> None:
    assert as_alternatives([reference]) == [reference]
