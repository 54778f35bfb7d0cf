"""Loading checkpoints with transformers: imports, errors, completeness, precision."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from visar.errors import CheckpointError, DamagedModel, MissingExtra
from visar.models.checkpoints import Checkpoint

if TYPE_CHECKING:
    from torch.library import Library

# torchvision is needed for its image transforms. Where its compiled part does not match the torch
# that is installed (a CUDA build beside a CPU torch), the import fails for lack of two operators
# that nobody here calls: declaring them is enough.
_OPERATORS = ("nms", "qnms")
# The declarations end with the object that holds them.
_declared: list[Library] = []


def import_torchvision() -> bool:
    """Import torchvision; tell whether operators had to be declared for it.

    The real import is tried first: where the operators exist, nothing is declared, so that
    nothing stands in their way.
    """
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
    """Run a model in full precision for a while; ``attention`` is what was chosen for it."""
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
    """Refuse weights that are not all there: the others would be random numbers."""
    empty = [name for name, weights in model.named_parameters() if weights.is_meta]
    reported = [*report.get("missing_keys", ()), *report.get("mismatched_keys", ())]
    absent = sorted({str(name) for name in (*empty, *reported)})
    if absent:
        raise DamagedModel(
            f"{checkpoint.name} lacks {len(absent)} weights of its model, such as {absent[0]}: "
            "it is damaged, or made for another model. Get it again."
        )


@contextlib.contextmanager
def explained(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what the libraries raise at a bad checkpoint to an error that names it."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        on = f" on {checkpoint.base}" if checkpoint.base else ""
        raise CheckpointError(f"{checkpoint.name}{on} cannot be loaded: {error}") from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without progress bars and without warnings that only the libraries' authors can act on."""
    from transformers.utils import logging

    showed_bars = logging.is_progress_bar_enabled()
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if showed_bars:
            logging.enable_progress_bar()
