"""torchvision beside a torch without its compiled operators.

The visual encoders need torchvision's image transforms. Where its compiled part does not go with
the torch that is installed (a CUDA build beside a CPU torch), the import fails because two
operators are not there that nobody here calls. Declaring them is enough.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from visar.errors import MissingExtra

if TYPE_CHECKING:
    from torch.library import Library

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
