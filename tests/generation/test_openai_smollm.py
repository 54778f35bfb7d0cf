"""Tests of the OpenAI-compatible backend with a real model in llama.cpp."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from tests.generation.openai_samples import alone as alone
from tests.generation.smollm import SmolLM
from visar.errors import GenerationError
from visar.generation.answering import Budget, answer_from
from visar.generation.generator import Prompt
from visar.generation.openai_server import OpenAIGenerator
from visar.generation.prompts import GivenPage

pytestmark = pytest.mark.usefixtures("alone")
WARRANTY = Prompt(
    "Answer from the page in a few words.",
    (
        "Page 1: The warranty on the Aurora 4 lantern lasts 60 months.",
        "How many months does the warranty last?",
    ),
)


@pytest.fixture
def generator(smollm: SmolLM) -> OpenAIGenerator:
    return OpenAIGenerator(smollm.model, reads="text", base_url=smollm.base_url)


def test_answers_come_from_the_page_and_are_repeatable(generator: OpenAIGenerator) -> None:
    pieces: list[str] = []
    reply = generator.generate(WARRANTY, max_tokens=32, on_text=pieces.append)
    assert "60" in reply.text
    assert reply.complete
    assert len(pieces) > 2
    assert "".join(pieces) == reply.text
    assert reply.model == "smollm2"
    # The estimate is above the tokenizer's count, which includes the template here.
    said = "".join(part for part in WARRANTY.parts if isinstance(part, str))
    assert reply.input_tokens is not None
    assert 20 < reply.input_tokens <= generator.count_tokens(WARRANTY.system + said)
    assert reply.output_tokens is not None
    assert len(pieces) <= reply.output_tokens <= 32
    assert generator.generate(WARRANTY, max_tokens=32) == reply


def test_max_tokens_limits_the_reply(generator: OpenAIGenerator) -> None:
    reply = generator.generate(WARRANTY, max_tokens=3)
    assert (reply.output_tokens, reply.complete) == (3, False)


@pytest.mark.parametrize("choices", [("correct", "incorrect"), ("zebra", 'ünlü "4"')])
def test_choices_limit_the_reply(generator: OpenAIGenerator, choices: tuple[str, ...]) -> None:
    """Even choices that no model would write on its own."""
    pieces: list[str] = []
    reply = generator.generate(WARRANTY, max_tokens=64, choices=choices, on_text=pieces.append)
    assert json.loads(reply.text)["choice"] in choices
    assert json.loads("".join(pieces)) == json.loads(reply.text)


def test_a_prompt_that_exceeds_the_context_raises_an_error(generator: OpenAIGenerator) -> None:
    with pytest.raises(GenerationError, match=r"2048.*--max-k"):
        generator.generate(Prompt("s", ("word " * 4000,)), max_tokens=8)


def test_a_long_page_is_cut_to_the_context(generator: OpenAIGenerator) -> None:
    """The server rejects long prompts; the page is shortened until it fits."""
    page = GivenPage("1", "doc", 1, "The warranty lasts 60 months.\n" * 900)
    sent = answer_from("How long?", [page], generator, Budget(answer_tokens=8)).generation
    assert sent.note is not None
    assert sent.input_tokens is not None
    assert 300 < sent.input_tokens < 2048


def test_images_raise_an_error(generator: OpenAIGenerator) -> None:
    with pytest.raises(GenerationError, match="openai-text:smollm2"):
        generator.generate(Prompt("s", (Image.new("RGB", (8, 8)), "What?")), max_tokens=8)
