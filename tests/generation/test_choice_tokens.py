"""Choices as tokens: every way through them ends in one."""

from __future__ import annotations

import json
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
def test_every_way_through_the_choices_ends_in_one(choices: list[str], random: Random) -> None:
    """Whatever the model prefers: the tokens spell one of the choices and then end."""
    held = ChoiceTokens(choices, WORDS, END)
    written: list[int] = []
    while not written or written[-1] != END:
        allowed = held.allowed_after(written)
        assert allowed
        written.append(random.choice(allowed))
        assert len(written) <= held.longest
    assert json.loads(held.text_of(written))["choice"] in choices


def test_choices_that_begin_alike_can_all_be_reached() -> None:
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


def test_after_the_end_nothing_but_the_end() -> None:
    held = ChoiceTokens(["a"], WORDS, END)
    assert held.allowed_after([END, END]) == [END]


def test_a_choice_that_would_end_the_reply_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"choice 'a<\|end\|>b' holds the mark"):
        ChoiceTokens(["fine", "a<|end|>b"], WORDS, END)
