"""What docs/answers.md and docs/generators.md show in Python works as shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.generation.conftest import checkpoint as checkpoint
from tests.generation.smollm import SmolLM

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)


def run(code: str, *replaced: tuple[str, str]) -> dict[str, object]:
    for shown, here in replaced:
        assert shown in code
        code = code.replace(shown, here)
    names: dict[str, object] = {"__name__": "shown"}
    exec(compile(code, "docs", "exec"), names)  # noqa: S102
    return names


def test_a_server_is_asked(smollm: SmolLM, capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = blocks("generators.md")
    run(shown, ("http://127.0.0.1:11434/v1", smollm.base_url), ("qwen2.5vl", smollm.model))
    assert "sky" in capsys.readouterr().out


def test_a_model_runs_here(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shown = blocks("generators.md")
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (200, 260), "white").save("page-1.png")
    names = run(shown, ("qwen2.5-vl", str(checkpoint("qwen2.5-vl"))), ("=200", "=5"))
    assert "checkpoint-" in str(names["reply"])


def test_an_answer_is_read_as_an_iterator(
    smollm: SmolLM, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shown = blocks("answers.md")
    run(shown, ("http://127.0.0.1:8080/v1", smollm.base_url))
    assert "60" in capsys.readouterr().out


def test_an_index_is_asked(
    checkpoint: Callable[[str], Path],
    make_pdf: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from visar.index import Index

    monkeypatch.setenv("VISAR_INDEX", str(tmp_path / "index"))
    Index.open().add(make_pdf("report.pdf", "The warranty lasts 60 months."))
    shown, _ = blocks("answers.md")
    run(shown, ("qwen2.5-vl", str(checkpoint("qwen2.5-vl"))))
