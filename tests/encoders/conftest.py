from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.encoders import tiny
from visar.encoders.visual import VisualEncoder

# remote_code.py is part of a checkpoint and is imported by the test, after torchvision.
collect_ignore = ["remote_code.py"]


@pytest.fixture(scope="session")
def encoder(checkpoint: Callable[[str], Path]) -> Callable[[str], VisualEncoder]:
    """A function that loads the encoder of a family's tiny checkpoint, with batches of three."""

    @cache
    def load(family: str) -> VisualEncoder:
        return VisualEncoder(str(checkpoint(family)), device="cpu", batch_size=3)

    return load


@pytest.fixture(scope="session")
def pixel_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], VisualEncoder]:
    """A function that loads an encoder whose patch vectors only depend on their own pixels."""
    folder = tmp_path_factory.mktemp("pixels")

    @cache
    def load(family: str) -> VisualEncoder:
        path = tiny.save(family, folder, tiny.look_at_own_pixels_only)
        return VisualEncoder(str(path), device="cpu")

    return load
