"""Tokens to text: in whole characters, and held to choices."""

from __future__ import annotations

import json
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.generation.tiny_models import tokenizer
from visar.errors import InvalidOption
from visar.generation.decoding import Choices, Listener

WORDS = tokenizer(["<|end|>"], end="<|end|>")
END = WORDS.eos_token_id


def heard(tokens: list[int]) -> tuple[list[str], Listener]:
    pieces: list[str] = []
    listener = Listener(WORDS, pieces.append)
    listener.put(torch.tensor([[5, 6, 7]]))  # the prompt
    for token in tokens:
        listener.put(torch.tensor([token]))
    listener.end()
    return pieces, listener


@given(st.text(max_size=30))
def test_pieces_are_whole_characters_and_join_to_the_text(text: str) -> None:
    """Every token is at most one byte of what is not in the tiny vocabulary."""
    pieces, listener = heard([*WORDS(text, add_special_tokens=False)["input_ids"], END])
    assert "".join(pieces) == listener.text
    if "<|end|>" not in text:
        assert listener.text == text
        assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_a_character_of_four_bytes_comes_at_once() -> None:
    pieces, _ = heard(WORDS("a🎉b", add_special_tokens=False)["input_ids"])
    assert pieces == ["a", "🎉", "b"]


@given(st.lists(st.integers(1, len(WORDS) - 1), max_size=30))
def test_what_is_no_text_is_told_all_the_same(tokens: list[int]) -> None:
    """Bytes that make no character, as a random model writes them."""
    pieces, _ = heard(tokens)
    assert "".join(pieces) == WORDS.decode(tokens)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6, unique=True), st.randoms())
def test_every_way_through_the_choices_ends_in_one(choices: list[str], random: Random) -> None:
    """Whatever the model prefers: the tokens spell one of the choices and then end."""
    held = Choices(choices, WORDS, END)
    written: list[int] = []
    while not written or written[-1] != END:
        allowed = held.allowed_after(written)
        assert allowed
        written.append(random.choice(allowed))
        assert len(written) <= held.longest
    assert json.loads(held.text_of(written))["choice"] in choices


def test_choices_that_begin_alike_can_all_be_reached() -> None:
    choices = ["correct", "correctly", "co", ""]
    held = Choices(choices, WORDS, END)
    reached = set()
    open_ways: list[list[int]] = [[]]
    while open_ways:
        way = open_ways.pop()
        for token in held.allowed_after(way):
            if token == END:
                reached.add(held.text_of([*way, token]))
            else:
                open_ways.append([*way, token])
    assert reached == {f'{{"choice": "{choice}"}}' for choice in choices}


def test_after_the_end_nothing_but_the_end() -> None:
    held = Choices(["a"], WORDS, END)
    assert held.allowed_after([END, END]) == [END]


def test_a_choice_that_would_end_the_reply_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"choice 'a<\|end\|>b' holds the mark"):
        Choices(["fine", "a<|end|>b"], WORDS, END)
