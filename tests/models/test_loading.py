from __future__ import annotations

import subprocess
import sys

import pytest

STUB = """
import torch
from visar.models.loading import import_torchvision
library = torch.library.Library("torchvision", "DEF") if {declare} else None
for name in ("nms", "qnms") if {declare} else ():
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
first, second = import_torchvision(), import_torchvision()
import torchvision.transforms.v2
assert torch.ops.torchvision.nms
print(first, second)
"""


@pytest.mark.parametrize("there", [True, False])
def test_operators_are_declared_only_where_they_are_missing(there: bool) -> None:
    """A process of its own: torchvision is imported once."""
    complete = _ran("import torchvision").returncode == 0
    if complete and not there:
        pytest.skip("the installed torchvision has its operators")
    run = _ran(STUB.format(declare=there and not complete))
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.split()
    assert second == "False"
    if there:
        assert first == "False"


def _ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
