"""What the README shows works as shown."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.fixture
def folder(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the document the README speaks of."""
    (tmp_path / "annual-report.pdf").write_bytes(report.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISAR_INDEX", str(tmp_path / "index"))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    index_example, method_example = blocks("python")
    exec(index_example, {})  # noqa: S102
    assert "47.5" in capsys.readouterr().out
    names: dict[str, object] = {}
    exec(method_example, names)  # noqa: S102
    assert getattr(names["selection"], "pages")[0] == 7  # noqa: B009


def test_the_shown_command_answers(folder: Path) -> None:
    (shown,) = re.findall(r"^\$ (visar ask .*)$", README, flags=re.M)
    command = [sys.executable, "-m", "visar", *shlex.split(shown)[1:]]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "47.5" in ran.stdout


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, flags=re.M):
        assert f"\n{target}:" in makefile


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link
