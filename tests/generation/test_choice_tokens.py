"""Tests of choices as token sequences."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generation.tiny_models import tokenizer
from visar.errors import InvalidOption
from visar.generation.local import ChoiceTokens

WORDS = tokenizer(["<|end|>"], end="<|end|>")
END = WORDS.eos_token_id


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6, unique=True), st.randoms())
def test_every_allowed_sequence_spells_a_choice(choices: list[str], random: Random) -> None:
    """Whatever the model prefers, the tokens spell a choice and then end."""
    held = ChoiceTokens(choices, WORDS, END)
    written: list[int] = []
    while not written or written[-1] != END:
        allowed = held.allowed_after(written)
        assert allowed
        written.append(random.choice(allowed))
        assert len(written) <= held.longest
    assert json.loads(held.text_of(written))["choice"] in choices


def test_choices_with_a_common_prefix_can_all_be_reached() -> None:
    choices = ["correct", "correctly", "co", ""]
    held = ChoiceTokens(choices, WORDS, END)
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


def test_only_the_end_token_follows_the_end() -> None:
    held = ChoiceTokens(["a"], WORDS, END)
    assert held.allowed_after([END, END]) == [END]


def test_a_choice_with_the_end_token_raises_an_error() -> None:
    with pytest.raises(InvalidOption, match=re.escape("a<|end|>b")):
        ChoiceTokens(["fine", "a<|end|>b"], WORDS, END)
