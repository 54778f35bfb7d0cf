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


class Hungry:
    """Doubles numbers, as many at a time as its memory has room for."""

    def __init__(self, room: int, error: Exception) -> None:
        self.room = room
        self.error = error
        self.tried: list[int] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.tried.append(len(items))
        if len(items) > self.room:
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
    work = Hungry(3, error)
    assert batches.run(range(9), work) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert work.tried == [8, 4, 2, 2, 2, 2, 1]
    assert batches.size == 2
    work.tried.clear()
    assert batches.run(range(4), work) == [0, 2, 4, 6]
    assert work.tried == [2, 2]


def test_a_page_too_large_for_the_memory_is_an_error_with_a_remedy() -> None:
    with pytest.raises(OutOfMemory, match="choose a smaller encoder, or another device"):
        Batches(4).run(range(4), Hungry(0, torch.OutOfMemoryError("CUDA out of memory.")))


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    work = Hungry(1, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1"):
        Batches(2).run(range(2), work)
    assert work.tried == [2]


def test_the_cpu_computes_in_float32_and_only_cuda_in_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert devices.choose_dtype("cpu") == devices.choose_dtype("mps") == torch.float32
    for supported, dtype in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda yes=supported: yes)
        assert devices.choose_dtype("cuda") == dtype


def test_auto_takes_the_best_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.choose_device("auto") == "cpu"
    with pytest.raises(EncoderUnavailable, match="no cuda device here"):
        devices.choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.choose_device("auto") == "cuda"
    with pytest.raises(InvalidOption, match="no device 'gpu': auto, cpu, cuda, mps"):
        devices.choose_device("gpu")


def test_flash_attention_is_used_on_cuda_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Built for another torch, it is there and cannot be imported."""
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
