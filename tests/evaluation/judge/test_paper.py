"""The paper's protocol: what the model is shown, and how its reply is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import GenerationError
from visar.evaluation.judge import BenchmarkJudge, LLMJudge, PaperJudge
from visar.evaluation.judge.paper import as_alternatives, says_correct
from visar.generation.protocol import OnText, Prompt, Reply, ignore_text


@dataclass
class Says:
    """A model that always replies the same, and keeps what it was given."""

    text: str
    name: str = "says"
    reads: Literal["images", "text"] = "text"
    prompts: list[Prompt] = field(default_factory=list)

    def count_tokens(self, text: str) -> int:
        return len(text)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        assert not choices
        self.prompts.append(prompt)
        on_text(self.text)
        return Reply(self.text, "says@1", 100, min(max_tokens, 9))


def case_shown(model: Says) -> Any:
    (case,) = model.prompts[0].parts
    return json.loads(str(case).splitlines()[-1])


def test_the_model_sees_rules_two_examples_and_the_case() -> None:
    model = Says('{"correctness": "CORRECT"}')
    verdict = PaperJudge(model).judge("Who?", ["Tom", " ", "Ada"], "It was Ada.")
    assert verdict.correct
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


def test_its_name_tells_the_protocol_and_the_model() -> None:
    assert PaperJudge(Says("")).name.startswith("paper 2-")
    assert PaperJudge(Says("", name="qwen2.5-14b")).name.endswith(" qwen2.5-14b")
    assert PaperJudge(Says("")).name != LLMJudge(Says("")).name


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
        # Prose that holds the word counts as right, as in the paper.
        ("The answer names Ada, so it is CORRECT.", True),
        ("The answer names Tom, so it is INCORRECT.", False),
        # It corrects itself.
        ('{"correctness": "CORRECT"} No: {"correctness": "INCORRECT"}', False),
        ('<think>{"correctness": "CORRECT"}?</think>{"correctness": "INCORRECT"}', False),
        # Not to be read: counted as wrong, and no failure.
        ("", False),
        ("It is not correct.", False),
        ('{"correctness": true}', False),
        ('{"correctness": "CORRECTED"}', False),
        ('{"choice": "correct"}', False),
    ],
)
def test_a_reply_is_read_leniently_and_what_cannot_be_read_is_wrong(
    reply: str, correct: bool
) -> None:
    assert PaperJudge(Says(reply)).judge("Who?", ["Ada"], "Ada").correct is correct


@given(st.text())
def test_any_reply_gives_a_verdict(reply: str) -> None:
    assert says_correct(reply) in (True, False)


def test_a_model_that_fails_has_given_no_verdict() -> None:
    class Broken(Says):
        def generate(self, *_: object, **__: object) -> Reply:
            raise OSError("no more memory")

    with pytest.raises(GenerationError, match="says failed: OSError"):
        PaperJudge(Broken("")).judge("Who?", ["Ada"], "Ada")


def test_only_a_json_list_is_a_list_of_alternatives() -> None:
    # MMLongBench-Doc writes a list as text, with numbers in the form of JSON; LongDocURL has real
    # lists, which the loader keeps as JSON texts. Blank references and repetitions are nothing.
    as_text = ["['Oban', 'Mallaig']", "[1500, 8000]", "[14"]
    references = [*as_text, '["Oban", "14"]', "", "both ports", "Oban"]
    expected = [*as_text, "Oban", "14", "both ports"]
    assert as_alternatives(references) == expected
    model = Says("")
    PaperJudge(model).judge("Which?", references, "Oban")
    assert case_shown(model)["references"] == expected


def test_one_item_of_a_json_list_is_right_for_this_judge_alone() -> None:
    references = ['["Oban", "Mallaig"]']
    assert as_alternatives(references) == ["Oban", "Mallaig"]
    # One port of two: the benchmarks' own rules want both.
    assert not BenchmarkJudge().judge("Which?", references, "Oban", kind="List").correct


@pytest.mark.parametrize("reference", ['[""]', "[]", "[" * 100_000])
def test_a_list_without_texts_stays_what_it_is(reference: str) -> None:
    assert as_alternatives([reference]) == [reference]
