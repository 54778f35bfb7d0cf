"""Tests of the paper's prompts, and of prompts cut to the model's context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.generation.local_samples import PAGES
from visar.errors import CheckpointError, GenerationError
from visar.generation.answering import BUDGETS, Budget, answer_each, answer_from
from visar.generation.generator import Prompt
from visar.generation.local import _GREEDY, LocalGenerator
from visar.generation.openai_server import OpenAIGenerator
from visar.generation.prompts import GivenPage, paper_prompt
from visar.generation.registry import PUBLISHED, get_generator, model_class_of

Load = Callable[[str], LocalGenerator]
GIVEN = [GivenPage(str(n), "doc", n, page) for n, page in enumerate(PAGES, 1)]
QUESTION = "What is the total revenue?"
INSTRUCTION = "Do not use outside knowledge."


def asked(local: LocalGenerator) -> Prompt:
    return paper_prompt(QUESTION, GIVEN, local.reads, model_class_of(local))


def shown(local: LocalGenerator) -> str:
    """Return the prompt after the chat template, with one token per image."""
    return local._template.render(asked(local)).replace(local._processor.image_token, "@")


def test_internvl_only_gets_numbered_pages_and_the_question(generator: Load) -> None:
    local = generator("internvl3.5")
    parts = asked(local).parts
    assert parts[::2] == ("Image-1: ", "\nImage-2: ", "\nImage-3: ", f"\n{QUESTION}")
    assert parts[1::2] == PAGES
    text = shown(local)
    assert INSTRUCTION not in text
    assert "system" not in text, "there is one turn"


def test_idefics_gets_pages_then_instruction_and_question_in_one_turn(generator: Load) -> None:
    text = shown(generator("idefics3"))
    assert text.count("User:") == 1
    assert "System:" not in text
    assert text.rindex("@") < text.index(INSTRUCTION) < text.index(QUESTION)


def test_llava_gets_text_then_pages_and_its_template_puts_the_pages_first(generator: Load) -> None:
    local = generator("llava-onevision")
    text, *pages = asked(local).parts
    assert INSTRUCTION in str(text)
    assert str(text).endswith(QUESTION)
    assert tuple(pages) == PAGES
    rendered = shown(local)
    assert rendered.rindex("@") < rendered.index(INSTRUCTION) < rendered.index(QUESTION)


@pytest.mark.parametrize("name", ["qwen2.5-vl", "qwen3-vl", "qwen2.5-7b"])
def test_qwen_models_are_asked_for_json_in_a_system_turn(generator: Load, name: str) -> None:
    prompt = asked(generator(name))
    assert prompt.system.endswith('{"Answer": "…"}')
    assert QUESTION in str(prompt.parts[0])


@pytest.mark.parametrize("name", ["internvl3.5", "idefics3", "llava-onevision"])
def test_the_others_are_not_asked_for_json(generator: Load, name: str) -> None:
    assert "JSON" not in shown(generator(name))


def test_llava_only_tiles_pages_with_the_paper_s_settings(generator: Load) -> None:
    """Several pages are small crops, or tiled."""
    local = generator("llava-onevision")
    ours = Prompt("", asked(local).parts)
    counts = [
        local._inputs(prompt)["input_ids"][0].tolist().count(local._processor.image_token_id)
        for prompt in (ours, asked(local))
    ]
    alone = [local._inputs(Prompt("", (page,)))["input_ids"][0].tolist() for page in PAGES]
    tiled = sum(tokens.count(local._processor.image_token_id) for tokens in alone)
    assert counts == [17 * len(PAGES), tiled]
    assert tiled > 3 * counts[0]
    # The processor and the model agree about the tiles.
    assert local.generate(asked(local), max_tokens=2).input_tokens


def test_llava_tiles_each_page_of_a_batch(checkpoint: Callable[[str], Path]) -> None:
    local = LocalGenerator(str(checkpoint("llava-onevision")), device="cpu")
    prompts = [asked(local), paper_prompt("Why?", GIVEN[:1], "images", local.model_class)]
    together = local.generate_batch(prompts, max_tokens=4)
    assert together == [local.generate(prompt, max_tokens=4) for prompt in prompts]


@pytest.mark.parametrize(
    ("name", "is_greedy"),
    [
        ("qwen2.5-vl", (True, True)),
        ("internvl3.5", (False, True)),
        ("qwen2.5-7b", (True, False)),
        ("qwen2.5-14b", (True, False)),
        ("idefics3", (False, False)),
    ],
)
def test_the_decoding_of_each_mode(name: str, is_greedy: tuple[bool, bool]) -> None:
    local = LocalGenerator(name)
    prompts = (Prompt("", ("Why?",)), Prompt("", ("Why?",), as_in_paper=True))
    assert tuple(local._decoding(prompt) == _GREEDY for prompt in prompts) == is_greedy
    assert prompts[0].digest != prompts[1].digest


def test_a_folder_can_have_the_name_of_its_model(checkpoint: Callable[[str], Path]) -> None:
    folder = checkpoint("qwen2.5-7b")
    local = get_generator(f"qwen2.5-7b={folder}", device="cpu")
    assert isinstance(local, LocalGenerator)
    assert local.name == f"qwen2.5-7b={folder}"
    sampled = Prompt("", ("Why?",), as_in_paper=True)
    assert local._samples(sampled), "the decoding is that of the model it was told to be"
    assert local.identity == LocalGenerator(str(folder)).identity
    with pytest.raises(CheckpointError, match=r"Qwen2ForCausalLM.*Qwen3VL") as caught:
        get_generator(f"qwen3-vl={folder}", device="cpu").count_tokens("a")
    assert "revision" not in str(caught.value)


def test_the_class_of_a_served_model_is_known_by_its_repository() -> None:
    url = "http://127.0.0.1:1/v1"
    served = OpenAIGenerator("llava-hf/llava-onevision-qwen2-7b-ov-hf", base_url=url)
    assert model_class_of(served) == PUBLISHED["llava-onevision"].model_class
    real = OpenAIGenerator("OpenGVLab/InternVL3_5-8B-Instruct", base_url=url)
    assert model_class_of(real) == "InternVLChatModel"
    assert model_class_of(OpenAIGenerator("other", base_url=url)) is None


def long_texts() -> list[GivenPage]:
    return [GivenPage(str(n), "doc", n, "revenue grew\n" * 900) for n in (1, 2)]


def test_page_texts_are_cut_to_the_context(generator: Load) -> None:
    """The context is 4,096 tokens, and each page has several thousand."""
    local = generator("qwen2.5-7b")
    budget = Budget(answer_tokens=4)
    one = answer_from(QUESTION, long_texts(), local, budget)
    sent = one.generation
    assert sent.note is not None
    assert sent.pages == ("1", "2")
    assert sent.input_tokens is not None
    assert 2000 < sent.input_tokens <= 4092
    short = [GivenPage("1", "doc", 1, "revenue")]
    cut, whole = answer_each([(QUESTION, long_texts()), (QUESTION, short)], local, budget)
    assert not isinstance(cut, Exception)
    assert cut.generation.note == sent.note
    assert not isinstance(whole, Exception)
    assert whole.generation.note is None


def test_the_last_pages_that_do_not_fit_are_left_out(generator: Load) -> None:
    local = generator("llava-onevision")
    pages = [GivenPage(str(n), "doc", n, PAGES[0]) for n in range(1, 60)]
    sent = answer_from(QUESTION, pages, local, Budget(answer_tokens=4), prompt="paper").generation
    assert sent.pages == tuple(str(n) for n in range(1, len(sent.pages) + 1))
    assert 10 < len(sent.pages) < 59
    assert str(len(sent.pages)) in (sent.note or "")


def test_a_single_page_that_does_not_fit_raises_an_error(generator: Load) -> None:
    local, budget = generator("qwen2.5-vl"), Budget(answer_tokens=4096)
    with pytest.raises(GenerationError, match="4096"):
        answer_from(QUESTION, GIVEN, local, budget)
    (failed,) = answer_each([(QUESTION, GIVEN)], local, budget)
    assert isinstance(failed, GenerationError)
    assert BUDGETS["paper"].answer_tokens == 2048
