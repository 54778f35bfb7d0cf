"""What docs/explain.md shows works as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pikepdf
import pytest

from tests.programs import run_shown

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """A folder with some pages of the report, none of them to be read by OCR."""
    folder = tmp_path_factory.mktemp("explain")
    with pikepdf.open(report) as pdf:
        del pdf.pages[12:]
        pdf.save(folder / "annual-report.pdf")
    return folder


def test_the_commands_run(folder: Path) -> None:
    commands = re.findall(r"^\$ (visar .*)$", PAGE, flags=re.M)
    assert len(commands) == 4
    for command in commands:
        ran = run_shown(command, folder)
        assert ran.returncode == 0, (command, ran.stderr)
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert {f"{name}.png" for name in re.findall(r"`(\w+)\.png`", PAGE)} < {
        path.name for path in (folder / "pictures").iterdir()
    }


def test_the_python_example_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102
    assert "'visar': 1" in capsys.readouterr().out
    assert str(names["report"]).startswith("<!doctype html>")
