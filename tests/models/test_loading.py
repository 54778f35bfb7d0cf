"""Models load once, one at a time, and change process-wide settings permanently."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from visar.errors import CheckpointError
from visar.models.checkpoints import Checkpoint
from visar.models.loading import Lazy, loading


def test_a_value_is_created_once_for_all_threads() -> None:
    made: list[object] = []
    ready = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    value = Lazy(make)

    def get(_: int) -> object:
        ready.wait()
        return value.get()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(get, range(8))) == set(made)
    assert len(made) == 1
    assert value.drop()
    assert not value.drop()
    assert value.get() is made[1]


def test_a_value_is_created_again_after_an_error() -> None:
    results: Iterator[ValueError | str] = iter([ValueError("first"), "made"])

    def make() -> str:
        result = next(results)
        if isinstance(result, ValueError):
            raise result
        return result

    value = Lazy(make)
    with pytest.raises(ValueError, match="first"):
        value.get()
    assert value.get() == value.get() == "made"


def test_one_thread_loads_at_a_time_and_errors_name_the_checkpoint() -> None:
    checkpoint = Checkpoint("mine", None, "1", {}, None, base="theirs")
    inside: list[int] = []

    def load(number: int) -> None:
        with loading(checkpoint):
            inside.append(number)
            assert len(inside) == 1
            inside.remove(number)
            raise OSError("cut off")

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(load, number) for number in range(8)]:
            with pytest.raises(CheckpointError, match=r"mine.*theirs.*cut off"):
                future.result()


QUIET = """
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from transformers.utils import logging
from visar.models.checkpoints import Checkpoint
from visar.models.loading import loading
with loading(Checkpoint("mine", None, "1", {{}}, None)):
    pass
assert logging.get_verbosity() == logging.{level}
assert not logging.is_progress_bar_enabled()
assert not are_progress_bars_disabled()
"""


@pytest.mark.parametrize(("chosen", "level"), [("", "ERROR"), ("info", "INFO")])
def test_transformers_is_quiet_unless_told_otherwise(
    chosen: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is permanent, because toggling it would affect other threads."""
    if chosen:
        monkeypatch.setenv("TRANSFORMERS_VERBOSITY", chosen)
    run = _run_python(QUIET.format(level=level))
    assert run.returncode == 0, run.stderr


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


@pytest.fixture(scope="module")
def complete() -> bool:
    """Whether the installed torchvision has its operators."""
    return _run_python("import torchvision").returncode == 0


@pytest.mark.parametrize("declared", [True, False])
def test_operators_are_declared_only_if_they_are_missing(declared: bool, complete: bool) -> None:
    """Runs in its own process, because torchvision is imported only once."""
    if complete and not declared:
        pytest.skip("the installed torchvision has its operators")
    run = _run_python(STUB.format(declare=declared and not complete))
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.split()
    assert second == "False"
    if declared:
        assert first == "False"


def _run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
