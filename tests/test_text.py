"""Test cleaning untrusted text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.text import clean_line, clean_text

_HARMFUL = {"Cc", "Cs", "Co"}
_BIDIRECTIONAL = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_any_text = st.text(st.characters(codec=None))


def is_harmful(character: str) -> bool:
    return unicodedata.category(character) in _HARMFUL or character in _BIDIRECTIONAL


@given(_any_text)
def test_clean_text_removes_harmful_characters(text: str) -> None:
    assert set(filter(is_harmful, clean_text(text))) <= {"\n", "\t"}
    assert clean_text(clean_text(text)) == clean_text(text)
    clean_text(text).encode()


@given(_any_text, st.none() | st.integers(1, 20))
def test_clean_line_returns_one_line(text: str, longest: int | None) -> None:
    line = clean_line(text, longest)
    assert not any(map(is_harmful, line))
    assert line.split() == [word for word in line.split(" ") if word]
    assert len(line.splitlines()) <= 1
    assert longest is None or len(line) <= longest


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\ufffc\ufffd")))
def test_visible_characters_are_kept(text: str) -> None:
    assert clean_text(text) == text
    assert clean_line(text) == text


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "a\x0bb", "a\x0cb", "a\x85b", "a\u2028b"])
def test_all_kinds_of_line_breaks(text: str) -> None:
    assert clean_text(text) == "a\nb"
    assert clean_line(text) == "a b"


def test_clean_line_accepts_any_object() -> None:
    assert clean_line(ValueError("bad\nthing")) == "bad thing"
    assert clean_line("caf\udce9.pdf") == "caf .pdf"
