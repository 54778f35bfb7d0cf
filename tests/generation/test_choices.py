"""A reply that is one of a few: enforced where a server can, checked where it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generation.openai_samples import QUESTION
from tests.generation.openai_samples import alone as alone
from tests.generation.scripted import Says, refuses, replies, scripted
from visar.errors import GenerationError
from visar.generation.choices import choice_text, find_choice
from visar.generation.openai_compatible import OpenAIGenerator

pytestmark = pytest.mark.usefixtures("alone")
VERDICTS = ("correct", "incorrect")


def test_choices_go_as_a_strict_schema() -> None:
    with scripted(replies('{"choice":', ' "correct"}')) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        reply = generator.generate(QUESTION, max_tokens=16, choices=VERDICTS)
    assert reply.text == '{"choice": "correct"}'
    assert server.asked[0].json["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "choice",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"choice": {"type": "string", "enum": ["correct", "incorrect"]}},
                "required": ["choice"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.parametrize(
    "refusal",
    [
        refuses(400, "'response_format.type' must be 'json_object'"),
        refuses(400, "json_schema is not supported by this model"),
        Says(501, body=b'{"error": "Grammar sampling is not available"}'),
    ],
)
def test_a_server_that_knows_no_schema_is_told_in_words(refusal: Says) -> None:
    with scripted(refusal, replies("Incorrect."), replies("correct")) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        first = generator.generate(QUESTION, max_tokens=16, choices=VERDICTS)
        second = generator.generate(QUESTION, max_tokens=16, choices=VERDICTS)
    assert [first.text, second.text] == ['{"choice": "incorrect"}', '{"choice": "correct"}']
    for asked in server.asked[1:]:
        assert "response_format" not in asked.json
        assert asked.json["messages"][1]["content"].endswith(
            'nothing else: {"choice": "correct"} or {"choice": "incorrect"}'
        )


@pytest.mark.parametrize(
    "said", ["I think it is right.", '{"choice": "maybe"}', '{"choice": "corr']
)
def test_a_reply_that_is_none_of_them_is_an_error(said: str) -> None:
    with (
        scripted(replies(said)) as server,
        pytest.raises(GenerationError, match="answers with none of correct, incorrect but"),
    ):
        OpenAIGenerator("m", base_url=server.url).generate(
            QUESTION, max_tokens=16, choices=VERDICTS
        )


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('```json\n{"choice": "correct"}\n```', "correct"),
        ('<think>{"choice": "incorrect"}?</think>{"choice": "correct"}', "correct"),
        ('{"reason": "{x", "choice": "incorrect"}', "incorrect"),
        ("**Correct**", "correct"),
        ("not correct", None),
        ('{"choice": "correct"} or {"choice": "incorrect"}', None),
        ('{"choice": ["correct"]}', None),
        ("{" * 20_000, None),
        ('{"a":' * 9_000, None),
    ],
)
def test_choices_are_found_in_what_models_write(said: str, found: str | None) -> None:
    assert find_choice(said, VERDICTS) == found


@given(st.lists(st.text('ab {}"\\\n:é', min_size=1), min_size=1, unique=True), st.data())
def test_every_choice_is_found_again(choices: list[str], data: st.DataObject) -> None:
    """Whatever signs of JSON it is made of."""
    choice = data.draw(st.sampled_from(choices))
    assert find_choice(choice_text(choice), choices) == choice
