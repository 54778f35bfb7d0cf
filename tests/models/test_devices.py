from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from visar.errors import EncoderUnavailable, InvalidOption, OutOfMemory
from visar.models import devices
from visar.models.devices import Batches


class LimitedMemory:
    """Double numbers; fail on batches that are larger than the capacity."""

    def __init__(self, capacity: int, error: Exception) -> None:
        self.capacity = capacity
        self.error = error
        self.batch_sizes: list[int] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batch_sizes.append(len(items))
        if len(items) > self.capacity:
            raise self.error
        return [2 * item for item in items]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        RuntimeError("MPS backend out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_a_batch_that_does_not_fit_is_halved_for_good(error: Exception) -> None:
    batches = Batches(8)
    work = LimitedMemory(3, error)
    assert batches.run(range(9), work) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert work.batch_sizes == [8, 4, 2, 2, 2, 2, 1]
    assert batches.size == 2
    work.batch_sizes.clear()
    assert batches.run(range(4), work) == [0, 2, 4, 6]
    assert work.batch_sizes == [2, 2]


def test_a_page_too_large_for_memory_is_an_error() -> None:
    with pytest.raises(OutOfMemory):
        Batches(4).run(range(4), LimitedMemory(0, torch.OutOfMemoryError("CUDA out of memory.")))


def test_other_errors_are_not_taken_for_out_of_memory() -> None:
    work = LimitedMemory(1, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1"):
        Batches(2).run(range(2), work)
    assert work.batch_sizes == [2]


def test_only_cuda_uses_16_bit_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert devices.choose_dtype("cpu") == devices.choose_dtype("mps") == torch.float32
    for supported, dtype in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda yes=supported: yes)
        assert devices.choose_dtype("cuda") == dtype


def test_auto_picks_the_best_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.choose_device("auto") == "cpu"
    with pytest.raises(EncoderUnavailable, match="cuda"):
        devices.choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.choose_device("auto") == "cuda"
    with pytest.raises(InvalidOption, match=r"'gpu'.*cpu.*cuda.*mps"):
        devices.choose_device("gpu")


def test_flash_attention_is_used_on_cuda_if_it_can_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A build for a different torch is installed but can't be imported."""
    package = tmp_path / "flash_attn"
    package.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    (package / "__init__.py").write_text("raise ImportError('undefined symbol')")
    assert devices.attention_for("cuda") is None
    (package / "__init__.py").write_text("works = True")
    importlib.invalidate_caches()
    assert devices.attention_for("cuda") == "flash_attention_2"
    assert devices.attention_for("cpu") is None
    del sys.modules["flash_attn"]
