"""Compare every stage with values computed in float64 outside this project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import visar
from tests.comparison.plain_equations import plain_select

FILES = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        golden = {name: file[name] for name in file.files}
    options: dict[str, Any] = {}
    for option in golden["options"].tolist():
        name, value = option.split("=")
        options[name] = float(value) if name == "gamma" else int(value)
    return golden, options


def assert_close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("full_matrix", [False, True])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_stage(path: Path, full_matrix: bool) -> None:
    golden, options = read(path)
    selection = visar.select(
        golden["query"],
        golden["vectors"],
        offsets=golden["offsets"],
        full_matrix=full_matrix,
        **options,
    )
    assert selection.k_star == golden["k_star"]
    assert selection.k == golden["k"]
    assert selection.ranking.tolist() == golden["ranking"].tolist()
    assert selection.pages.tolist() == golden["ranking"][: golden["k"]].tolist()
    assert_close(selection.late_interaction, golden["late_interaction"])
    assert_close(selection.scores, golden["scores"])
    assert_close(np.concatenate(selection.patch_weights), golden["patch_weights"])
    fell_back = golden["token_weights"].size == 0
    assert (selection.fallback is not None) == fell_back
    if not fell_back:
        assert_close(selection.token_weights, golden["token_weights"])
        assert_close(selection.page_weights, golden["page_weights"])
    assert len(selection.cost) == len(golden["cost"])
    known = np.isfinite(selection.cost)
    assert known.all() if full_matrix else known[: selection.k_star].all()
    assert_close(selection.cost[known], golden["cost"][known])
    if full_matrix:
        assert selection.similarity is not None
        assert_close(selection.similarity, golden["similarity"])
    else:
        assert selection.similarity is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_plain_equations_match_golden_values(path: Path) -> None:
    """The property tests rely on this independent implementation."""
    golden, options = read(path)
    pages = np.split(golden["vectors"], golden["offsets"][1:-1])
    plain = plain_select(golden["query"], pages, **options)
    assert (plain.k_star, plain.k) == (golden["k_star"], golden["k"])
    assert plain.ranking == golden["ranking"].tolist()
    np.testing.assert_allclose(plain.activation, golden["activation"], rtol=1e-9)
    np.testing.assert_allclose(plain.similarity, golden["similarity"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(plain.cost, golden["cost"], rtol=1e-9)
