"""What the README shows works as shown."""

from __future__ import annotations

import os
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
    wide = {**os.environ, "COLUMNS": "100"}
    ran = subprocess.run(command, cwd=folder, env=wide, capture_output=True, text=True, check=True)
    (output,) = re.findall(r"```\n(  .*?)```", README, flags=re.S)
    for line in output.splitlines():
        # How long it takes differs between machines.
        told = re.sub(r" · .*$|^  …$", "", line).strip()
        assert told in ran.stdout, line


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, flags=re.M):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file, and to a heading of it where one is named."""
    for link in re.findall(r"\]\(([^) ]+)\)", page.read_text("utf-8")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), flags=re.M)
            anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in anchors, link
