"""Tests of generators by name, as objects, and from other packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from visar import plugins
from visar.errors import GeneratorUnavailable, InvalidOption
from visar.generation.generator import OnText, Prompt, Reads, Reply, ignore_text
from visar.generation.registry import available_generators, get_generator


class Shout:
    name = "shout"
    reads: Reads = "text"

    def __init__(self, device: str = "nowhere") -> None:
        self.device = device

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        raise NotImplementedError


class Deaf(Shout):
    def __init__(self) -> None:
        super().__init__("deaf")


def with_options(**options: str) -> Shout:
    return Shout(**options)


def fail() -> Shout:
    raise OSError("no licence")


def test_objects_are_returned_unchanged() -> None:
    generator = Shout()
    assert get_generator(generator) is generator


@pytest.mark.parametrize(
    ("name", "device"), [("Shout", "cpu"), ("Deaf", "deaf"), ("with_options", "cpu")]
)
def test_a_generator_can_come_from_a_class_or_function(name: str, device: str) -> None:
    """The device is passed to those that accept it."""
    made = get_generator(f"{__name__}:{name}", device="cpu")
    assert isinstance(made, Shout)
    assert made.device == device


def test_objects_of_modules_must_be_generators() -> None:
    with pytest.raises(InvalidOption, match="builtins:object"):
        get_generator("builtins:object")
    with pytest.raises(GeneratorUnavailable, match="OSError"):
        get_generator(f"{__name__}:fail")
    with pytest.raises(InvalidOption, match="no_such_module"):
        get_generator("no_such_module:Shout")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with a generator."""
    info = tmp_path / "shouting-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[visar.generators]\nshout = {__name__}:Shout\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    plugins.entry_points.cache_clear()
    yield
    plugins.entry_points.cache_clear()


@pytest.mark.usefixtures("installed")
def test_another_package_can_provide_a_generator() -> None:
    assert isinstance(get_generator("shout"), Shout)
    info = available_generators()[-1]
    assert (info.name, info.reads, info.state) == ("shout", None, "ready")
    assert info.description.endswith(":Shout from shouting 1.2")
    with pytest.raises(InvalidOption, match="shout"):
        get_generator("shut")


def test_the_error_of_an_unknown_name_suggests_a_similar_one() -> None:
    with pytest.raises(InvalidOption, match=r"'qwen3-v'.*qwen3-vl\b"):
        get_generator("qwen3-v")
    with pytest.raises(InvalidOption, match=r"openai:MODEL.*'qwen3-vl'"):
        get_generator("qwen3-vl", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(InvalidOption, match="'tpu'"):
        get_generator("openai:m", base_url="http://127.0.0.1:1/v1", device="tpu")


@pytest.mark.parametrize(("name", "reads"), [("openai:m", "images"), ("openai-text:m", "text")])
def test_served_models_keep_their_names(name: str, reads: Reads) -> None:
    """They look like a module with an attribute."""
    generator = get_generator(name, base_url="http://127.0.0.1:1/v1")
    assert (generator.name, generator.reads) == (name, reads)
