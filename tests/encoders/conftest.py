from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.encoders import tiny
from visar.encoders.visual import VisualEncoder
from visar.models.loading import import_torchvision

# Part of a checkpoint: it is imported where the test wants it, after torchvision.
collect_ignore = ["remote_code.py"]


@pytest.fixture(scope="session")
def encoder(checkpoint: Callable[[str], Path]) -> Callable[[str], VisualEncoder]:
    """The encoder of a family's tiny checkpoint, loaded once, three pages at a time."""

    @cache
    def load(family: str) -> VisualEncoder:
        return VisualEncoder(str(checkpoint(family)), device="cpu", batch_size=3)

    return load


@pytest.fixture(scope="session")
def pixel_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], VisualEncoder]:
    """An encoder of a family for which a patch's vector depends on its own pixels alone."""
    folder = tmp_path_factory.mktemp("pixels")

    @cache
    def load(family: str) -> VisualEncoder:
        path = _saved(family, folder, tiny.look_at_own_pixels_only)
        return VisualEncoder(str(path), device="cpu")

    return load


def _saved(family: str, folder: Path, tune: Callable[[Any], None] | None = None) -> Path:
    import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about how checkpoints are saved
        return tiny.save(family, folder, tune)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make a tiny checkpoint of a family, once; give the folder of its adapter."""
    folder = tmp_path_factory.mktemp("checkpoints")

    @cache
    def make(family: str) -> Path:
        return _saved(family, folder)

    return make
