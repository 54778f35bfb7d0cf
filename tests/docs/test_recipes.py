"""Each recipe of docs/extending.md runs and chooses the right page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.shown import read
from visar.core import Selection

PAGE = read("extending.md").partition("## Write your own parts")[0]
FIRST, *_ = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)
RECIPES = dict(re.findall(r"^### ([\w-]+).*?```python\n(.*?)^```", PAGE, flags=re.M | re.S))


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
    assert list(RECIPES) == ["numpy", "Qdrant", "colpali-engine"]


def test_a_memory_map() -> None:
    selection, _ = run("numpy")
    assert selection.pages.tolist() == [2]


def test_qdrant() -> None:
    selection, names = run("Qdrant")
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
