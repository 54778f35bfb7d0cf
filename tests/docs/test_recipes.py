"""Each recipe of docs/recipes.md runs and chooses the right page."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from visar.core import Selection

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
FIRST, *_ = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)
RECIPES = dict(re.findall(r"^## ([\w-]+).*?```python\n(.*?)^```", PAGE, flags=re.M | re.S))


def run(recipe: str, **names: Any) -> tuple[Selection, dict[str, Any]]:
    """Run a recipe after the lines that make the vectors."""
    exec(FIRST, names)  # noqa: S102
    exec(RECIPES[recipe], names)  # noqa: S102
    selection = names["selection"]
    assert isinstance(selection, Selection)
    return selection, names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_recipe_is_tested() -> None:
    tested = ["numpy", "torch", "Qdrant", "LanceDB", "colpali-engine", "PyLate", "fastembed"]
    assert list(RECIPES) == tested


@pytest.mark.parametrize("recipe", ["numpy", "torch"])
def test_arrays_and_tensors(recipe: str) -> None:
    selection, _ = run(recipe)
    assert selection.pages.tolist() == [2]


@pytest.mark.parametrize("recipe", ["Qdrant", "LanceDB"])
def test_stores(recipe: str) -> None:
    selection, names = run(recipe)
    assert names["needed"] == [3]
    assert len(selection.ranking) == 4


def test_colpali_engine(checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny checkpoint of the same layout."""
    model = str(checkpoint("colpali"))
    shown = RECIPES["colpali-engine"]
    monkeypatch.setitem(RECIPES, "colpali-engine", shown.replace("vidore/colpali-v1.2", model))
    selection, names = run("colpali-engine")
    assert len(selection.ranking) == 3
    assert all(vectors.shape[1] == 128 for vectors in names["image_vectors"])


class Arrays:
    """Stands in for a model: vectors of the form it returns, by the letters of words."""

    def __init__(self, name: str) -> None:
        self.name = name

    def one(self, text: str) -> Any:
        rows = [
            np.random.default_rng(sum(map(ord, word.strip(".?").lower()))).normal(size=128)
            for word in text.split()
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def test_pylate(monkeypatch: pytest.MonkeyPatch) -> None:
    """``encode`` of version 1.6: a list of (tokens, dimension) arrays of length 1."""

    class ColBERT(Arrays):
        def encode(self, texts: list[str], *, is_query: bool) -> list[Any]:
            assert isinstance(is_query, bool)
            return [self.one(text) for text in texts]

    stand_in = ModuleType("pylate")
    monkeypatch.setattr(stand_in, "models", ModuleType("pylate.models"), raising=False)
    monkeypatch.setattr(stand_in.models, "ColBERT", ColBERT, raising=False)
    monkeypatch.setitem(sys.modules, "pylate", stand_in)
    selection, _ = run("PyLate")
    assert selection.pages[0] == 0


def test_fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    """``embed`` and ``query_embed`` of version 0.9.1: iterators; questions of any length."""

    class LateInteractionTextEmbedding(Arrays):
        def embed(self, texts: list[str]) -> Iterator[Any]:
            yield from map(self.one, texts)

        def query_embed(self, question: str) -> Iterator[Any]:
            yield 3 * self.one(question)

    stand_in = ModuleType("fastembed")
    model = LateInteractionTextEmbedding
    monkeypatch.setattr(stand_in, model.__name__, model, raising=False)
    monkeypatch.setitem(sys.modules, "fastembed", stand_in)
    selection, _ = run("fastembed")
    assert selection.pages[0] == 0
