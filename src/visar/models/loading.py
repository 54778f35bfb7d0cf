"""Loading checkpoints with transformers: one at a time, quietly, complete, with clear errors."""

from __future__ import annotations

import contextlib
import importlib
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

# Held while anything is loaded: transformers and torch change defaults of the process meanwhile.
_loading = threading.RLock()
_is_quiet = False

# torchvision is needed for its image transforms. Where its compiled part does not match the torch
# that is installed (a CUDA build beside a CPU torch), the import fails for lack of two operators
# that nobody here calls: declaring them is enough.
_OPERATORS = ("nms", "qnms")
# The declarations end with the object that holds them.
_declared: list[Library] = []


class Lazy(Generic[Value]):
    """A value that is made when first asked for, once for all threads, and can be dropped.

    If making it raises, the next call of `get` tries again.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._made: list[Value] = []

    def get(self) -> Value:
        """Return the value; a thread that asks while another makes it waits for that one."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]

    def drop(self) -> bool:
        """Forget the value; the next call of `get` makes a new one.

        Returns whether there was one.
        """
        with self._lock:
            was_made = bool(self._made)
            self._made.clear()
            return was_made


def load_ahead(model: object) -> None:
    """Begin to load a model that loads quickly, while the caller does something else."""
    if isinstance(model, Loadable):
        threading.Thread(target=_load, args=(model,), name="visar-load").start()


def _load(model: Loadable) -> None:
    # What fails here fails again, and is reported, where the model is used.
    with contextlib.suppress(Exception):
        model.load()


@contextlib.contextmanager
def loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Let one thread load at a time, and turn the libraries' errors into CheckpointError.

    Progress bars and warnings of transformers are turned off for good with the first checkpoint,
    unless the environment or the program around us has chosen what it shows.
    """
    from safetensors import SafetensorError

    with _loading:
        _quiet_transformers()
        try:
            yield
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            on = f" on {checkpoint.base}" if checkpoint.base else ""
            raise CheckpointError(f"{checkpoint.name}{on} cannot be loaded: {error}") from error


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
        enable_progress_bars()  # transformers has turned the hub's off together with its own
    _is_quiet = True


def import_torchvision() -> bool:
    """Import torchvision; return whether operators had to be declared for it.

    The real import is tried first: where the operators exist, nothing is declared. Raises
    MissingExtra if it is not installed.
    """
    with _loading:
        try:
            importlib.import_module("torchvision")
        except ImportError as error:
            raise MissingExtra("A visual encoder", "colpali") from error
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
            _forget_half_imported()
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
    _declared.append(library)


def _forget_half_imported() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]


@contextlib.contextmanager
def in_float32(model: Any, attention: str | None = None) -> Iterator[None]:
    """Run a model of transformers in float32 in this block. The caller holds the model's lock.

    ``attention`` is the implementation that was chosen for it, to come back to.
    """
    import torch

    dtype = model.dtype
    if dtype == torch.float32:
        yield
        return
    model.float()
    if attention:
        model.set_attn_implementation("sdpa")  # flash attention knows no float32
    try:
        yield
    finally:
        model.to(dtype)
        if attention:
            model.set_attn_implementation(attention)


def refuse_incomplete(checkpoint: Checkpoint, model: Any, report: Mapping[str, Any]) -> None:
    """Raise DamagedModel if weights are missing: transformers fills them with random numbers."""
    empty = [name for name, weights in model.named_parameters() if weights.is_meta]
    reported = [*report.get("missing_keys", ()), *report.get("mismatched_keys", ())]
    absent = sorted({str(name) for name in (*empty, *reported)})
    if absent:
        raise DamagedModel(
            f"{checkpoint.name} lacks {len(absent)} weights of its model, such as {absent[0]}: "
            "it is damaged, or made for another model. Get it again."
        )
