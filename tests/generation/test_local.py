"""Tests of local generators with tiny random checkpoints."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.generation.local_samples import ALL, PAGES, VISION, about, noise
from visar.errors import GenerationError, InvalidOption
from visar.generation.generator import Generator, Prompt, Reply, read_pieces, stream_reply
from visar.generation.local import LocalGenerator
from visar.models.protocols import Releasable

Load = Callable[[str], LocalGenerator]


@contextmanager
def hooked(local: LocalGenerator, hook: Callable[[Any], None]) -> Iterator[None]:
    """Call a function with the model's output at each step."""

    def call(_module: Any, _inputs: Any, output: Any) -> None:
        hook(output)

    handle = local._model.register_forward_hook(call)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("name", ALL)
def test_a_reply_is_streamed_counted_and_repeatable(generator: Load, name: str) -> None:
    local: Generator = generator(name)
    pieces: list[str] = []

    space = generator(name)._tokenizer(" ", add_special_tokens=False)["input_ids"]

    def write_words(output: Any) -> None:
        output.logits[..., generator(name)._ends] = -1e4
        output.logits[..., space] += 1e4 if next(steps) % 3 == 2 else -1e4

    with hooked(generator(name), write_words):
        steps = itertools.count()
        reply = local.generate(about(name), max_tokens=12, on_text=pieces.append)
        steps = itertools.count()
        assert local.generate(about(name), max_tokens=12) == reply
    assert "".join(pieces) == reply.text != ""
    assert len(pieces) > 2, "it comes word by word"
    assert "" not in pieces
    assert reply.output_tokens == 12
    assert reply.input_tokens is not None
    assert reply.input_tokens > local.count_tokens(about(name).system)
    assert not reply.complete


@pytest.mark.parametrize("name", VISION)
def test_replies_depend_on_the_pixels(generator: Load, name: str) -> None:
    """Other images with the same text lead to other probabilities."""
    chances = []
    for page in (noise(170, 220, 1), Image.new("RGB", (170, 220), "white")):
        inputs = generator(name)._inputs(Prompt("Look.", ("Page 1:", page, "What is this?")))
        with torch.inference_mode():
            chances.append(generator(name)._model(**inputs).logits[0, -1])
    assert float((chances[0] - chances[1]).abs().max()) > 1e-6


@pytest.mark.parametrize("name", VISION)
def test_every_page_follows_its_label(generator: Load, name: str) -> None:
    """The decoded input is: label, image of the page, next label."""
    local = generator(name)
    processor = local._processor
    tokens = local._inputs(about(name))["input_ids"][0].tolist()
    labels = [f"Page {number}:" for number in (1, 2, 3)]
    sections = _between(local._tokenizer.decode(tokens), [*labels, "Now answer."])
    assert processor.image_token not in sections[0] + sections[-1]
    for page, section in zip(PAGES, sections[1:-1], strict=True):
        alone = local._inputs(Prompt("x", (page, "x")))["input_ids"][0].tolist()
        expected = alone.count(processor.image_token_id)
        if name == "llava-onevision":
            expected = 17  # it sees each of several images whole and small: 4 x 4 and an end
        assert section.count(processor.image_token) == expected


def _between(text: str, marks: list[str]) -> list[str]:
    sections = []
    for mark in marks:
        before, found, text = text.partition(mark)
        assert found
        sections.append(before)
    return [*sections, text]


@pytest.mark.parametrize("name", [name for name in VISION if name != "llava-onevision"])
def test_inputs_match_those_of_transformers(generator: Load, name: str) -> None:
    """The reference applies template and processor in a single call, as documented."""
    local = generator(name)
    contents = [{"type": "text", "text": "One:"}, {"type": "image", "image": PAGES[0]}]
    contents += [{"type": "text", "text": "Two:"}, {"type": "image", "image": PAGES[1]}]
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "Read."}]},
        {"role": "user", "content": contents},
    ]
    theirs = local._processor.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    ours = local._inputs(Prompt("Read.", ("One:", PAGES[0], "Two:", PAGES[1])))
    for key in ours:
        torch.testing.assert_close(ours[key], theirs[key])


@pytest.mark.parametrize("name", ALL)
def test_choices_are_enforced(generator: Load, name: str) -> None:
    local = generator(name)
    choices = ("correct", "incorrect", 'naïve "quoted" \\ 🎉')
    pieces: list[str] = []
    reply = local.generate(about(name), max_tokens=1, choices=choices, on_text=pieces.append)
    assert json.loads(reply.text)["choice"] in choices
    assert reply.text == json.dumps(json.loads(reply.text), ensure_ascii=False)
    assert reply.complete
    assert "".join(pieces) == reply.text
    assert local.generate(about(name), max_tokens=1, choices=choices) == reply
    for only in choices:
        forced = local.generate(about(name), max_tokens=1, choices=[only])
        assert json.loads(forced.text) == {"choice": only}


def test_the_model_chooses(generator: Load) -> None:
    """The likelier token wins, without a penalty for words in the prompt."""
    local = generator("qwen2.5-7b")
    prompt = about("qwen2.5-7b")
    inputs = local._inputs(prompt)
    words = local._tokenizer
    common = words('{"choice": "', add_special_tokens=False)["input_ids"]
    options = {letter: words(letter, add_special_tokens=False)["input_ids"] for letter in "XYZ"}
    assert all(len(tokens) == 1 for tokens in options.values())
    with torch.inference_mode():
        tokens = torch.cat([inputs["input_ids"], torch.tensor([common])], dim=1)
        chances = local._model(input_ids=tokens).logits[0, -1]
    likeliest = max(options, key=lambda letter: float(chances[options[letter][0]]))
    reply = local.generate(prompt, max_tokens=9, choices=sorted(options))
    assert json.loads(reply.text) == {"choice": likeliest}


def test_decoding_is_greedy_or_uses_the_checkpoint_s_settings(
    checkpoint: Callable[[str], Path],
) -> None:
    """The same checkpoint with sampling in its configuration, under two names."""
    folder = str(checkpoint("qwen3-vl"))
    sampled = LocalGenerator("qwen3-vl", folder, device="cpu")
    greedy = LocalGenerator(folder, device="cpu")
    state = torch.random.get_rng_state()
    one = sampled.generate(about("qwen3-vl"), max_tokens=20)
    other = greedy.generate(about("qwen3-vl"), max_tokens=20)
    assert one.text != other.text
    assert one.model == other.model
    torch.manual_seed(99)
    assert sampled.generate(about("qwen3-vl"), max_tokens=20) == one
    torch.random.set_rng_state(state)
    sampled.generate(about("qwen3-vl"), max_tokens=2)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's chance was changed"


def test_a_greedy_reply_has_the_likeliest_tokens(generator: Load) -> None:
    """The reference has no cache, and the checkpoint's penalty of 1.05."""
    local = generator("qwen2.5-7b")
    tokens = local._inputs(about("qwen2.5-7b"))["input_ids"]
    given = tokens.shape[1]
    with torch.inference_mode():
        for _ in range(6):
            scores = local._model(input_ids=tokens).logits[0, -1].clone()
            said = tokens[0].unique()
            scores[said] = torch.where(scores[said] < 0, scores[said] * 1.05, scores[said] / 1.05)
            tokens = torch.cat([tokens, scores.argmax().reshape(1, 1)], dim=1)
            if int(tokens[0, -1]) in local._ends:
                break
    expected = local._tokenizer.decode(tokens[0, given:], skip_special_tokens=True)
    assert local.generate(about("qwen2.5-7b"), max_tokens=6).text == expected


@pytest.mark.parametrize("name", ALL)
def test_the_end_of_turn_token_ends_the_reply_and_is_hidden(generator: Load, name: str) -> None:
    local = generator(name)
    mark = "<end_of_utterance>" if name == "idefics3" else "<|im_end|>"
    end = local._tokenizer.convert_tokens_to_ids(mark)
    steps = 0

    def end_after_three(output: Any) -> None:
        nonlocal steps
        steps += 1
        output.logits[..., end] += 1e4 if steps == 4 else -1e4

    with hooked(local, end_after_three):
        reply = local.generate(about(name), max_tokens=12)
    assert reply.complete
    assert reply.output_tokens == 4
    assert mark not in reply.text


def test_the_out_of_memory_error_names_options(generator: Load) -> None:
    """A real allocation fails while the model runs."""
    local = generator("qwen2.5-vl")

    def too_much(_output: Any) -> None:
        torch.empty(1 << 60, dtype=torch.uint8)

    with hooked(local, too_much), pytest.raises(GenerationError, match="--max-k"):
        local.generate(about("qwen2.5-vl"), max_tokens=4)


def test_a_prompt_that_exceeds_the_context_raises_an_error(generator: Load) -> None:
    local = generator("qwen2.5-7b")
    prompt = Prompt("", ("revenue " * 5000,))
    given = local._inputs(prompt)["input_ids"].shape[1]
    with pytest.raises(GenerationError, match=rf"\b{given}\b.*4096.*--max-k"):
        local.generate(prompt, max_tokens=4)
    with pytest.raises(GenerationError, match="4096"):
        local.generate(about("qwen2.5-7b"), max_tokens=4096)


def test_unreadable_prompts_raise_errors(generator: Load) -> None:
    with pytest.raises(GenerationError):
        generator("qwen2.5-7b").generate(about("qwen2.5-vl"), max_tokens=4)
    with pytest.raises(GenerationError, match="1500"):
        generator("qwen2.5-vl").generate(Prompt("", (noise(3000, 2, 1),)), max_tokens=4)
    with pytest.raises(InvalidOption, match=r"max_tokens.*\b0\b"):
        generator("qwen2.5-7b").generate(about("qwen2.5-7b"), max_tokens=0)


@pytest.mark.parametrize("name", VISION)
@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
def test_pages_of_every_image_mode_are_read(generator: Load, name: str, mode: str) -> None:
    page = PAGES[0].convert(mode)
    reply = generator(name).generate(Prompt("Read.", (page, "What is it?")), max_tokens=2)
    assert reply.output_tokens == 2


def test_tokens_are_counted_by_the_checkpoint_s_tokenizer(generator: Load) -> None:
    local = generator("qwen2.5-7b")
    assert local.count_tokens("") == 0
    assert local.count_tokens("é") == 2  # bytes: the tiny tokenizer knows no such letter
    assert local.count_tokens("What is the total revenue?") < 26


def test_a_model_is_loaded_once_on_first_use(
    checkpoint: Callable[[str], Path],
) -> None:
    local = LocalGenerator("qwen2.5-7b", str(checkpoint("qwen2.5-7b")), device="cpu")
    assert local.reads == "text"
    assert "_checkpoint" not in vars(local)
    local.count_tokens("words")
    assert "_model" not in vars(local), "counting needs no weights"
    local.generate(Prompt("", ("a",)), max_tokens=1)
    model = local._model
    local.generate(Prompt("", ("b",)), max_tokens=1)
    assert local._model is model


def test_released_weights_are_freed_and_loaded_again(checkpoint: Callable[[str], Path]) -> None:
    local = LocalGenerator("qwen2.5-7b", str(checkpoint("qwen2.5-7b")), device="cpu")
    assert isinstance(local, Releasable)
    local.release()  # nothing is loaded yet
    before = local.generate(Prompt("", ("a",)), max_tokens=4)
    model = weakref.ref(local._model)
    weights = weakref.ref(local._model.lm_head.weight)
    local.release()
    assert model() is weights() is None
    assert local.generate(Prompt("", ("a",)), max_tokens=4) == before


@pytest.mark.parametrize("name", ["qwen2.5-vl", "qwen2.5-7b"])
def test_a_reply_can_be_read_as_an_iterator(generator: Load, name: str) -> None:
    expected: list[str] = []
    reply = generator(name).generate(about(name), max_tokens=8, on_text=expected.append)
    pieces: list[str] = []
    stream = stream_reply(generator(name), about(name), max_tokens=8)
    assert read_pieces(stream, pieces.append) == reply
    assert pieces == expected


def test_closing_the_iterator_stops_the_model(generator: Load) -> None:
    """The model stops long before its limit and can be used again; its thread ends."""
    local = generator("qwen2.5-7b")
    space = local._tokenizer(" ", add_special_tokens=False)["input_ids"]
    running = set(threading.enumerate())
    closed = threading.Event()
    steps = itertools.count()

    def write_spaces(output: Any) -> None:
        if next(steps) == 20:
            assert closed.wait(60)
        output.logits[..., space] += 1e4

    with hooked(local, write_spaces):
        stream = stream_reply(local, about("qwen2.5-7b"), max_tokens=3000)
        assert next(stream) == " "
        stream.close()
        closed.set()
        for thread in set(threading.enumerate()) - running:
            thread.join(timeout=60)
        assert set(threading.enumerate()) == running
    assert next(steps) < 25
    assert local.generate(about("qwen2.5-7b"), max_tokens=2).output_tokens == 2


def test_an_iterator_raises_errors_of_the_model(generator: Load) -> None:
    local = generator("qwen2.5-7b")
    with pytest.raises(GenerationError, match="4096"):
        list(stream_reply(local, about("qwen2.5-7b"), max_tokens=4096))


@pytest.mark.parametrize("name", ALL)
def test_an_error_in_on_text_stops_the_model(generator: Load, name: str) -> None:
    """Afterwards the model works as before, and no thread is left."""
    local = generator(name)
    expected = local.generate(about(name), max_tokens=8)
    running = threading.active_count()
    heard: list[str] = []

    def interrupt(piece: str) -> None:
        heard.append(piece)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        local.generate(about(name), max_tokens=500, on_text=interrupt)
    assert len(heard) == 1
    assert threading.active_count() == running
    assert local.generate(about(name), max_tokens=8) == expected


def test_threads_share_one_loaded_model(checkpoint: Callable[[str], Path]) -> None:
    local = LocalGenerator("qwen2.5-7b", str(checkpoint("qwen2.5-7b")), device="cpu")

    def ask(_: int) -> tuple[int, str]:
        reply = local.generate(Prompt("", ("a",)), max_tokens=2)
        return id(local._model), reply.text

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(ask, range(4)))) == 1


def test_concurrent_replies_are_the_same_as_sequential_ones(generator: Load) -> None:
    """Threads share one model, which stores the positions of images in its prompt."""
    local = generator("qwen3-vl")
    prompts = [
        about("qwen3-vl"),
        Prompt("Read.", (PAGES[1], "Which page?")),
        about("qwen3-vl", "?"),
    ]
    alone = [local.generate(prompt, max_tokens=10) for prompt in prompts]

    def ask(prompt: Prompt) -> Reply:
        return local.generate(prompt, max_tokens=10)

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(ask, prompts)) == alone


_CHILD = """
import sys, threading
from visar.generation.local import LocalGenerator
from visar.generation.generator import Prompt
local = LocalGenerator("qwen2.5-vl", sys.argv[1], device="cpu")
local._processor, local._model
try:
    while True:
        local.generate(Prompt("", ("Go on.",)), max_tokens=3000,
                       on_text=lambda piece: print("writing", flush=True))
except KeyboardInterrupt:
    reply = local.generate(Prompt("", ("Again.",)), max_tokens=2)
    print("stopped", reply.output_tokens, threading.active_count(), flush=True)
"""


def test_ctrl_c_stops_a_process_during_a_reply(checkpoint: Callable[[str], Path]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(checkpoint("qwen2.5-vl"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=120)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0, errors
    assert output.splitlines()[-1].startswith("stopped 2 1")
