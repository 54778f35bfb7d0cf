"""Devices: which one a model runs on, in which number format, with how many pages at a time."""

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

# Pages in the first batch: on a CPU several pages at a time only take memory.
_FIRST_BATCH = {"cuda": 8, "mps": 2, "cpu": 1}


def check_device(device: str) -> None:
    """Raise InvalidOption if there is no device of that name."""
    if device not in get_args(Device):
        raise InvalidOption(f"There is no device {device!r}: {', '.join(get_args(Device))}.")


def choose_device(device: str) -> str:
    """Return the device to run on; "auto" takes the best that is present.

    Raises EncoderUnavailable if the device named is not present.
    """
    import torch

    check_device(device)
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device == "auto":
        return next(name for name, there in present.items() if there)
    if not present[device]:
        raise EncoderUnavailable(
            f"There is no {device} device here, or torch was installed without it: "
            "choose auto or cpu."
        )
    return device


def choose_dtype(device: str, half: str = "bfloat16") -> torch.dtype:
    """Return the number format for a device: 16 bits on CUDA, float32 elsewhere.

    ``half`` is "bfloat16" or "float16", which every card has.

    Never bfloat16 on a CPU: on some of them a product of such matrices ends the process.
    """
    import torch

    if device != "cuda":
        return torch.float32
    is_bfloat16 = half == "bfloat16" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if is_bfloat16 else torch.float16


def attention_for(device: str) -> str | None:
    """Return flash attention where it can be imported and runs; None for the model's own choice."""
    if device != "cuda":
        return None
    try:
        importlib.import_module("flash_attn")
    except (ImportError, OSError):  # often built for another torch
        return None
    return "flash_attention_2"


def first_batch(device: str) -> int:
    """Return how many pages to try at a time on a device."""
    return _FIRST_BATCH[device]


class Batches:
    """Batches whose size is halved when memory does not suffice.

    Threads may share one object: each keeps its own place, and the size only ever falls.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise InvalidOption(f"A batch has at least one page, not {size}.")
        self.size = size

    def run(
        self, items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
    ) -> list[Result]:
        """Do the work on all items, batch by batch; return the results in order.

        Raises OutOfMemory if memory does not suffice for a single item.
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
                        "A single page does not fit into the memory of the device: choose a "
                        "smaller encoder, or another device."
                    ) from error
            else:
                continue
            # After the except clause, which holds on to the tensors of the failed call.
            self.size = min(self.size, max(1, len(batch) // 2))
            free_memory()
        return done


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory did not suffice; torch has another for each device."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    message = str(error).lower()
    return "out of memory" in message or "can't allocate memory" in message


def free_memory() -> None:
    """Collect what nothing refers to any more, and give a graphics card's memory back."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch is not None and torch.backends.mps.is_available():
        torch.mps.empty_cache()


def usable_cores() -> int:
    """Return the number of cores this process may use; in a container often not all of them.

    ``VISAR_CORES`` in the environment says how many where the system does not.
    """
    told = os.environ.get("VISAR_CORES", "")
    if told.isdecimal() and int(told):
        return int(told)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
