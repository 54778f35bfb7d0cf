"""What docs/embedded-encoder.md and docs/visual-encoders.md show works as shown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text("utf-8"), re.DOTALL)


def test_the_embedded_encoder_is_used_as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = blocks("embedded-encoder.md")
    exec(code, {})  # noqa: S102


def test_an_encoder_of_one_s_own_is_used_as_shown(
    tmp_path: Path,
    report: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(report, tmp_path / "report.pdf")
    _, code = blocks("visual-encoders.md")
    exec(code, {})  # noqa: S102
    assert capsys.readouterr().out.strip().isdecimal()
