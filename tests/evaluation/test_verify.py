"""The smoke test of models, with the embedded encoder and tiny random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.generation import tiny_models
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.encoder import PageEmbedding
from visar.errors import InvalidOption
from visar.evaluation.verify import Verification, open_model, verify
from visar.generation.local import LocalGenerator


def differing(verified: Verification) -> set[str]:
    return {check.name for check in verified.checks if not check.ok}


def test_the_embedded_encoder_passes() -> None:
    verified = verify(open_model("embedded"))
    assert verified.ok, differing(verified)
    assert {"page: vectors", "closest page", "score of page 34"} <= {
        check.name for check in verified.checks
    }


class Longer(EmbeddedEncoder):
    """An encoder with vectors of length 2, half of them missing, and boxes outside the page."""

    def encode_pages(self, pages: Sequence[Any], images: Sequence[Any] = ()) -> list[PageEmbedding]:
        found = super().encode_pages(pages, images)
        last = found[-1]
        half = len(last.vectors) // 2
        vectors = (last.vectors[:half] * 2).astype(np.float16)
        return [PageEmbedding(vectors, last.boxes[:half] + 2, last.words[:half])] * len(found)


def test_differences_are_found() -> None:
    expected = {"page: length", "page: boxes", "page: vectors", "same page again", "closest page"}
    assert differing(verify(Longer())) == expected


@pytest.mark.parametrize("family", ["colpali", "colqwen2.5", "colmodernvbert"])
def test_a_tiny_visual_encoder_fails_only_on_size(
    checkpoint: Callable[[str], Path], family: str
) -> None:
    """With random weights, the closest page is random but reported."""
    verified = verify(open_model(f"{family}={checkpoint(family)}", device="cpu"))
    assert "closest page" in {check.name for check in verified.checks}
    counts = {"page: patches"}
    if family != "colmodernvbert":
        counts |= {"page: vectors", "page: grid"}
    assert differing(verified) - {"closest page"} == counts
    assert verified.identity.startswith(f"{checkpoint(family).name}@")


@pytest.mark.parametrize("model", ["qwen2.5-vl", "qwen2.5-7b"])
def test_the_tokens_of_a_tiny_generator_are_counted(tmp_path: Path, model: str) -> None:
    folder = tiny_models.save(model, tmp_path / "tiny")
    opened = open_model(str(folder), device="cpu")
    assert isinstance(opened, LocalGenerator)
    verified = verify(opened)
    assert verified.kind == "generator"
    assert differing(verified) <= {
        f"{prompt}: {part}" for prompt in ("default", "paper") for part in ("answer", "reply")
    }
    tokens = {check.name: check.found for check in verified.checks if check.name.endswith("tokens")}
    assert list(tokens) == ["default: tokens", "paper: tokens"]
    assert all(" in, " in found for found in tokens.values())


def test_the_command_prints_a_table_and_returns_an_exit_code(
    visar: Visar, checkpoint: Callable[[str], Path]
) -> None:
    good = visar("eval", "verify", "embedded")
    assert good.code == 0, good.err
    assert "closest page" in good.out
    assert "differs" not in good.out
    bad = visar("eval", "verify", f"colpali={checkpoint('colpali')}", "--device", "cpu")
    assert bad.code == 1
    assert "32 × 32" in bad.out
    assert "--json" in bad.out
    told = visar("eval", "verify", "embedded", "--json")
    said = json.loads(told.out)
    assert said["ok"]
    assert "numpy" in said["packages"]


@pytest.mark.parametrize("name", ["extractive", "colpalli"])
def test_generators_without_a_model_are_errors(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"'{name}'"):
        open_model(name)
