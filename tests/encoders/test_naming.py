"""One way to name an encoder, wherever it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.encoders.naming import EncoderName, parse_name
from visar.encoders.registry import get_encoder
from visar.errors import InvalidOption

_hub_part = st.text("abcXYZ019._-", min_size=1, max_size=8).filter(lambda part: part[0] != ".")
_bases = st.one_of(
    st.sampled_from(["embedded", "colpali", "colqwen2.5", "visrag-ret"]),
    st.tuples(_hub_part, _hub_part).map("/".join),
)
_revisions = st.text("abc019._-/@", min_size=1, max_size=12)
_addresses = st.sampled_from(
    ["http://127.0.0.1:8765", "https://host/a/path", "vllm+http://host:8000/org/model"]
)
_names = st.one_of(
    st.builds(
        EncoderName, _bases, st.none() | _revisions, st.booleans(), st.none() | st.integers(2, 999)
    ),
    st.builds(EncoderName, _addresses, st.none(), st.booleans(), st.none() | st.integers(2, 999)),
)


@given(_names)
def test_a_name_is_the_same_after_writing_and_reading_it(name: EncoderName) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize("name", ["model", "model@v2", "model+pool3", "model@v2+pool3", "a@b/c"])
def test_a_folder_that_is_there_wins(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    assert parse_name(str(folder)) == EncoderName(str(folder))
    assert parse_name(f"{folder}+pool2") == EncoderName(str(folder), None, pool=2)
    assert parse_name(f"{folder}@main+pool2") == EncoderName(str(folder), "main", pool=2)


def test_a_folder_of_the_working_directory_wins_over_a_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_name("mine@2+pool2") == EncoderName("mine", "2", pool=2)
    (tmp_path / "mine@2").mkdir()
    assert parse_name("mine@2+pool2") == EncoderName("mine@2", None, pool=2)


def test_a_path_that_is_not_there_is_told_as_it_was_typed(tmp_path: Path) -> None:
    assert parse_name("./nowhere@home/model") == EncoderName("./nowhere@home/model")
    assert parse_name(f"{tmp_path}/x+pool2") == EncoderName(f"{tmp_path}/x", None, pool=2)


@pytest.mark.parametrize("factor", ["", "0", "1", "-3", "2.5", "03", "x", "3@main", "²", " 3"])
def test_a_factor_is_a_whole_number_from_two_on(factor: str) -> None:
    with pytest.raises(InvalidOption, match="by a whole number from 2 on, not by"):
        parse_name(f"colpali+pool{factor}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "has no name"),
        ("+pool3", "has no name"),
        ("@main", "has no name"),
        ("colpali@", "no revision after the @"),
        ("colpali@+pool2", "no revision after the @"),
        ("colpali+pool3+pool2", "says twice"),
        ("colpali@main+pool3+pool2", "says twice"),
    ],
)
def test_names_that_say_too_little_or_too_much(name: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse_name(name)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-has-this-name/x"])
def test_what_can_be_no_path_is_no_folder(name: str) -> None:
    assert parse_name(name) == EncoderName(name)


@pytest.mark.parametrize("end", ["+poolx", "/a@", "+pool2+pool3", ""])
@pytest.mark.parametrize("kind", ["", "vllm+"])
def test_a_password_in_an_address_is_never_repeated(kind: str, end: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        get_encoder(f"{kind}http://user:5ecret@host/model{end}")
    assert "5ecret" not in str(refused.value)


@pytest.mark.parametrize("name", ["embedded+patches", "colbertv2+patches", "visrag-ret+patches"])
def test_only_what_has_an_instruction_can_leave_it_out(name: str) -> None:
    with pytest.raises(InvalidOption, match="has none"):
        get_encoder(name)


def test_a_service_decides_itself_about_its_instruction() -> None:
    with pytest.raises(InvalidOption, match=r"serve colpali\+patches"):
        get_encoder("http://127.0.0.1:1+patches")
