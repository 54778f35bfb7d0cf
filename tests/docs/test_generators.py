"""Run the Python examples of docs/generators.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.docs.shown import blocks, read
from tests.generation.conftest import checkpoint as checkpoint
from tests.generation.smollm import SmolLM

SERVED, LOCAL = blocks(read("generators.md"), "python")


def run(code: str, *replaced: tuple[str, str]) -> dict[str, object]:
    for shown, here in replaced:
        assert shown in code
        code = code.replace(shown, here)
    names: dict[str, object] = {"__name__": "shown"}
    exec(compile(code, "docs", "exec"), names)  # noqa: S102
    return names


def test_a_server_is_asked(smollm: SmolLM, capsys: pytest.CaptureFixture[str]) -> None:
    run(SERVED, ("http://127.0.0.1:11434/v1", smollm.base_url), ("qwen2.5vl", smollm.model))
    assert "sky" in capsys.readouterr().out


def test_a_model_runs_here(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (200, 260), "white").save("page-1.png")
    names = run(LOCAL, ("qwen2.5-vl", str(checkpoint("qwen2.5-vl"))), ("=200", "=5"))
    assert "checkpoint-" in str(names["reply"])
