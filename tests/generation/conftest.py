from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.generation import tiny_models
from visar.generation.local import LocalGenerator


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that creates a tiny checkpoint of a model, once per name."""
    folder = tmp_path_factory.mktemp("language-models")

    @cache
    def make(name: str) -> Path:
        return tiny_models.save(name, folder / f"checkpoint-{len(list(folder.iterdir()))}")

    return make


@pytest.fixture(scope="session")
def generator(checkpoint: Callable[[str], Path]) -> Callable[[str], LocalGenerator]:
    """Return a function that loads the generator of a tiny checkpoint, once per name."""

    @cache
    def load(name: str) -> LocalGenerator:
        return LocalGenerator(name, str(checkpoint(name)), device="cpu")

    return load
