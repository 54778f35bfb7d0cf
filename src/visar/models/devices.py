"""The device, number format and batch size that models run with."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

from visar.errors import EncoderUnavailable, InvalidOption, OutOfMemory

if TYPE_CHECKING:
    import torch

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Pages in the first batch. On a CPU, larger batches use more memory without being faster.
_FIRST_BATCH = {"cuda": 8, "mps": 2, "cpu": 1}


def check_device(device: str) -> None:
    """Raise InvalidOption if a device is unknown."""
    if device not in get_args(Device):
        raise InvalidOption(f"Unknown device {device!r}: choose {', '.join(get_args(Device))}.")


def choose_device(device: str) -> str:
    """Return the device to run on; "auto" picks the best one available.

    Raises EncoderUnavailable if the requested device isn't available.
    """
    import torch

    check_device(device)
    is_available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        return next(name for name, available in is_available.items() if available)
    if not is_available[device]:
        raise EncoderUnavailable(
            f"No {device} device found, or torch was installed without support for it: "
            "choose auto or cpu."
        )
    return device


def choose_dtype(device: str, half: str = "bfloat16") -> torch.dtype:
    """Return the number format for a device: 16 bits on CUDA, float32 elsewhere.

    ``half`` is the preferred 16-bit format, "bfloat16" or "float16". Every card supports float16.

    bfloat16 is never used on a CPU: on some CPUs a bfloat16 matrix product crashes the process.
    """
    import torch

    if device != "cuda":
        return torch.float32
    is_bfloat16 = half == "bfloat16" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if is_bfloat16 else torch.float16


def attention_for(device: str) -> str | None:
    """Return "flash_attention_2" if it is usable; None for the model's default."""
    if device != "cuda":
        return None
    try:
        importlib.import_module("flash_attn")
    except (ImportError, OSError):  # often built for a different torch
        return None
    return "flash_attention_2"


def first_batch(device: str) -> int:
    return _FIRST_BATCH[device]


class Batches:
    """Batches whose size is halved when memory runs out.

    Threads may share one object: each tracks its own position, and the size only decreases.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise InvalidOption(f"Batch size {size} is too small: use at least 1.")
        self.size = size

    def run(
        self, items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
    ) -> list[Result]:
        """Call ``work`` on all items, batch by batch; return the results in order.

        Raises OutOfMemory if a single item doesn't fit into memory.
        """
        done: list[Result] = []
        while len(done) < len(items):
            batch = items[len(done) : len(done) + self.size]
            try:
                done.extend(work(batch))
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise OutOfMemory(
                        "A single page doesn't fit into the device's memory: choose a smaller "
                        "encoder or another device."
                    ) from error
            else:
                continue
            # Outside the except clause, which keeps the failed call's tensors alive.
            self.size = min(self.size, max(1, len(batch) // 2))
            free_memory()
        return done


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory; torch raises a different one per device."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    message = str(error).lower()
    return "out of memory" in message or "can't allocate memory" in message


def free_memory() -> None:
    """Collect garbage and release cached GPU memory."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch is not None and torch.backends.mps.is_available():
        torch.mps.empty_cache()


def usable_cores() -> int:
    """Return the number of cores this process may use, which containers often limit.

    The environment variable ``VISAR_CORES`` overrides what the system reports.
    """
    cores = os.environ.get("VISAR_CORES", "")
    if cores.isdecimal() and int(cores):
        return int(cores)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
