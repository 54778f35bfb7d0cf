"""Nothing that others wrote commands a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.text import clean_line, clean_text

_HARMFUL = {"Cc", "Cs", "Co"}
_TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_everything = st.text(st.characters(codec=None))


@given(_everything)
def test_nothing_harmful_is_left_in_a_text(text: str) -> None:
    left = {c for c in clean_text(text) if unicodedata.category(c) in _HARMFUL or c in _TURNING}
    assert left <= {"\n", "\t"}
    assert clean_text(clean_text(text)) == clean_text(text)
    clean_text(text).encode()


@given(_everything, st.none() | st.integers(1, 20))
def test_a_line_is_one_line(text: str, longest: int | None) -> None:
    line = clean_line(text, longest)
    assert not any(unicodedata.category(c) in _HARMFUL or c in _TURNING for c in line)
    assert line.split() == [word for word in line.split(" ") if word]
    assert len(line.splitlines()) <= 1
    assert longest is None or len(line) <= longest


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\ufffc\ufffd")))
def test_what_is_seen_stays(text: str) -> None:
    assert clean_text(text) == text
    assert clean_line(text) == text


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "a\x0bb", "a\x0cb", "a\x85b", "a\u2028b"])
def test_line_breaks_of_all_kinds(text: str) -> None:
    assert clean_text(text) == "a\nb"
    assert clean_line(text) == "a b"


def test_a_line_of_anything() -> None:
    assert clean_line(ValueError("bad\nthing")) == "bad thing"
    assert clean_line("caf\udce9.pdf") == "caf .pdf"
