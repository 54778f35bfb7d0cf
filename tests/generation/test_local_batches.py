"""Tests of local generators with batches of prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.generation.local_samples import ALL, PAGES, SYSTEM, VISION
from visar.errors import GenerationError, PromptTooLong
from visar.generation.generator import BatchGenerator, Prompt, Reply, generate_each
from visar.generation.local import LocalGenerator

Load = Callable[[str], LocalGenerator]


@pytest.fixture
def local(request: pytest.FixtureRequest, checkpoint: Any) -> LocalGenerator:
    """Return a generator with greedy decoding."""
    name: str = getattr(request, "param", "qwen2.5-7b")
    return LocalGenerator(f"my-{name}", str(checkpoint(name)), device="cpu")


def prompts_for(reads: str) -> list[Prompt]:
    """Return prompts of different lengths, with one, three and two pages."""
    prompts = []
    for pages, question in (
        (1, "When?"),
        (3, "What is the revenue of all the years?"),
        (2, "Who?"),
    ):
        parts: list[Any] = [question]
        for number, page in enumerate(PAGES[:pages], 1):
            shown = page if reads == "images" else f"Revenue was {number} million."
            parts += [f"Page {number}:\n", shown]
        prompts.append(Prompt(SYSTEM, (*parts, f"Now answer. {question}")))
    return prompts


@pytest.mark.parametrize("local", ALL, indirect=True)
def test_replies_in_a_batch_match_single_replies(
    local: LocalGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = prompts_for(local.reads)
    alone = [local.generate(prompt, max_tokens=12) for prompt in prompts]
    held = [local.generate(prompt, max_tokens=1, choices=("yes", "no")) for prompt in prompts]
    calls = rows_given(local, monkeypatch)
    assert isinstance(local, BatchGenerator)
    assert local.generate_batch(prompts, max_tokens=12) == alone
    assert local.generate_batch(prompts, max_tokens=1, choices=("yes", "no")) == held
    assert calls == [3, 3], "all in one call of the model"
    assert len({reply.input_tokens for reply in alone}) == 3, "padding is not counted"


@pytest.mark.parametrize("local", ALL, indirect=True)
def test_logits_do_not_depend_on_the_padding(local: LocalGenerator) -> None:
    """Stricter than comparing replies, which can be the same by chance."""
    prompts = prompts_for(local.reads)
    with torch.inference_mode():
        together = local._model.generate(
            **local._inputs(*prompts), **_SCORES, eos_token_id=local._ends
        ).logits
        for place, prompt in enumerate(prompts):
            alone = local._model.generate(
                **local._inputs(prompt), **_SCORES, eos_token_id=local._ends
            ).logits
            for step, of_all in zip(alone, together, strict=True):
                torch.testing.assert_close(of_all[place], step[0], atol=1e-4, rtol=1e-4)


_SCORES: dict[str, Any] = {
    "max_new_tokens": 3,
    "min_new_tokens": 3,
    "do_sample": False,
    "output_logits": True,
    "return_dict_in_generate": True,
    **dict.fromkeys(("temperature", "top_p", "top_k")),
}


def test_a_reply_that_ends_early_has_no_padding(local: LocalGenerator) -> None:
    end = local._ends[0]

    def end_the_first(_module: Any, _inputs: Any, output: Any) -> None:
        output.logits[0, -1, end] = 1e4
        output.logits[1:, -1, local._ends] = -1e4

    handle = local._model.register_forward_hook(end_the_first)
    try:
        first, *others = local.generate_batch(prompts_for("text"), max_tokens=6)
    finally:
        handle.remove()
    assert isinstance(first, Reply)
    assert (first.text, first.output_tokens, first.complete) == ("", 1, True)
    for other in others:
        assert isinstance(other, Reply)
        assert (other.output_tokens, other.complete) == (6, False)


def test_a_failing_prompt_does_not_affect_the_others(local: LocalGenerator) -> None:
    short, long, other = prompts_for("text")
    too_long = Prompt(long.system, (*long.parts, "word " * 5000))
    replies = local.generate_batch([short, too_long, other], max_tokens=4)
    assert [type(reply) for reply in replies] == [Reply, PromptTooLong, Reply]
    assert replies[0] == local.generate(short, max_tokens=4)
    assert "4096" in str(replies[1])
    with_image = Prompt(SYSTEM, ("Look.", PAGES[0]))
    replies = local.generate_batch([with_image, short], max_tokens=4)
    assert isinstance(replies[0], GenerationError)
    assert "images" in str(replies[0])
    assert isinstance(replies[1], Reply)


def test_batches_are_halved_when_memory_runs_out(
    local: LocalGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = prompts_for("text") * 2
    alone = [local.generate(prompt, max_tokens=4) for prompt in prompts]
    calls = rows_given(local, monkeypatch, most=2)
    assert local.generate_batch(prompts, max_tokens=4) == alone
    assert calls == [6, 3, 1, 1, 1, 1, 1, 1]
    calls.clear()
    assert local.generate_batch(prompts[:2], max_tokens=4) == alone[:2]
    assert calls == [1, 1], "it is not tried again"


def test_a_prompt_that_is_too_large_for_memory_has_its_own_error(
    local: LocalGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_given(local, monkeypatch, most=0)
    for error in local.generate_batch(prompts_for("text"), max_tokens=4):
        assert isinstance(error, GenerationError)
        assert "memory" in str(error)


def test_a_model_without_batches_gets_one_prompt_at_a_time(
    local: LocalGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = prompts_for("text")
    alone = [local.generate(prompt, max_tokens=4) for prompt in prompts]
    calls = rows_given(local, monkeypatch, most=1, error=ValueError("one row only"))
    assert local.generate_batch(prompts, max_tokens=4) == alone
    assert calls == [3, 1, 1, 1]


def test_a_tokenizer_without_a_padding_token_gets_one(local: LocalGenerator) -> None:
    prompts = prompts_for("text")
    alone = [local.generate(prompt, max_tokens=4) for prompt in prompts]
    local._tokenizer.pad_token = None
    assert local.generate_batch(prompts, max_tokens=4) == alone


def test_sampled_replies_do_not_depend_on_the_batch(
    generator: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """qwen3-vl samples with the settings of its checkpoint and a fixed seed."""
    draws = generator("qwen3-vl")
    prompts = prompts_for("images")
    alone = [draws.generate(prompt, max_tokens=6) for prompt in prompts]
    calls = rows_given(draws, monkeypatch)
    assert generate_each(draws, prompts, max_tokens=6) == alone
    assert calls == [1, 1, 1]


def test_prompts_with_and_without_images_can_share_a_batch(checkpoint: Any) -> None:
    local = LocalGenerator("mine", str(checkpoint(VISION[0])), device="cpu")
    prompts = [prompts_for("images")[1], Prompt(SYSTEM, ("No page at all.",))]
    alone = [local.generate(prompt, max_tokens=6) for prompt in prompts]
    assert local.generate_batch(prompts, max_tokens=6) == alone


def rows_given(
    local: LocalGenerator,
    monkeypatch: pytest.MonkeyPatch,
    most: int = 100,
    error: Exception | None = None,
) -> list[int]:
    """Record the batch sizes of model calls; batches larger than ``most`` fail."""
    rows: list[int] = []
    write = local._write

    def call(inputs: Any, *args: Any) -> Sequence[Sequence[int]]:
        rows.append(len(inputs["input_ids"]))
        if rows[-1] > most:
            raise error or torch.OutOfMemoryError("out of memory")
        return write(inputs, *args)

    monkeypatch.setattr(local, "_write", call)
    return rows
