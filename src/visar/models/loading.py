"""Load checkpoints with transformers: one at a time, quietly, with clear errors."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from logging import WARNING
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from visar.errors import CheckpointError, DamagedModel, MissingExtra
from visar.models.checkpoints import Checkpoint
from visar.models.protocols import Loadable

if TYPE_CHECKING:
    from torch.library import Library

Value = TypeVar("Value")

# Held during loading, because transformers and torch temporarily change process-wide defaults.
_loading_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A forked child would inherit a lock held by a thread that doesn't exist in it.
    os.register_at_fork(after_in_child=lambda: globals().update(_loading_lock=threading.RLock()))
_is_quiet = False

# torchvision is needed for its image transforms. If its compiled part doesn't match the installed
# torch (such as a CUDA build with a CPU torch), the import fails because two operators are
# missing. They aren't used here, so declaring them is enough.
_OPERATORS = ("nms", "qnms")
# Declarations last only as long as the Library object, so keep it alive.
_operator_libraries: list[Library] = []


class Lazy(Generic[Value]):
    """A value that is created on first use, shared by all threads, and can be dropped.

    If creating it raises, the next call of `get` tries again.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._values: list[Value] = []

    def get(self) -> Value:
        """Return the value, waiting if another thread is creating it."""
        with self._lock:
            if not self._values:
                self._values.append(self._make())
            return self._values[0]

    def drop(self) -> bool:
        """Drop the value and return whether there was one; the next `get` creates a new one."""
        with self._lock:
            had_value = bool(self._values)
            self._values.clear()
            return had_value


def load_ahead(model: object) -> None:
    """Start loading a model in the background, if it supports that."""
    if not isinstance(model, Loadable):
        return

    def load() -> None:
        # Errors are raised again, and reported, when the model is used.
        with contextlib.suppress(Exception):
            model.load()

    threading.Thread(target=load, name="visar-load").start()


@contextlib.contextmanager
def loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Let one thread load at a time, and convert library errors to CheckpointError.

    The first checkpoint permanently turns off transformers' progress bars and warnings, unless
    the environment or the calling program has configured them.
    """
    from safetensors import SafetensorError

    with _loading_lock:
        _quiet_transformers()
        try:
            yield
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            on = f" on {checkpoint.base}" if checkpoint.base else ""
            raise CheckpointError(f"Can't load {checkpoint.name}{on}: {error}") from error


def _quiet_transformers() -> None:
    global _is_quiet
    if _is_quiet:
        return
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging

    if logging.get_verbosity() == WARNING:
        logging.set_verbosity_error()
    shows_downloads = not are_progress_bars_disabled()
    logging.disable_progress_bar()
    if shows_downloads:
        enable_progress_bars()  # disable_progress_bar() turned off the hub's bars too
    _is_quiet = True


def import_torchvision() -> bool:
    """Import torchvision; return whether missing operators had to be declared.

    Raises MissingExtra if it isn't installed.
    """
    with _loading_lock:
        try:
            importlib.import_module("torchvision")
        except ImportError as error:
            raise MissingExtra("A visual encoder", "colpali") from error
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]  # imported in part
            _declare_operators()
            importlib.import_module("torchvision")
            return True
        return False


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _operator_libraries.append(library)


@contextlib.contextmanager
def in_float32(model: Any, attention: str | None = None) -> Iterator[None]:
    """Run a transformers model in float32 within this block. The caller must hold its lock.

    ``attention`` is the model's attention implementation, restored afterwards.
    """
    import torch

    dtype = model.dtype
    if dtype == torch.float32:
        yield
        return
    model.float()
    if attention:
        model.set_attn_implementation("sdpa")  # flash attention doesn't support float32
    try:
        yield
    finally:
        model.to(dtype)
        if attention:
            model.set_attn_implementation(attention)


def refuse_incomplete(checkpoint: Checkpoint, model: Any, report: Mapping[str, Any]) -> None:
    """Raise DamagedModel if weights are missing, which transformers would fill randomly."""
    empty = [name for name, weights in model.named_parameters() if weights.is_meta]
    reported = [*report.get("missing_keys", ()), *report.get("mismatched_keys", ())]
    missing = sorted({str(name) for name in (*empty, *reported)})
    if missing:
        raise DamagedModel(
            f"{checkpoint.name} is missing {len(missing)} weights of its model, such as "
            f"{missing[0]}: it is damaged or made for another model. Download it again."
        )
