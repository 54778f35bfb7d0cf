"""What docs/library.md shows works as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pikepdf
import pytest

from tests.programs import run_shown
from visar.index import Index

LIBRARY = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """The files the page speaks of."""
    folder = tmp_path_factory.mktemp("library-docs")
    with pikepdf.open(report) as pdf:
        del pdf.pages[12:]
        pdf.docinfo["/Author"] = "Harbour Light"
        pdf.save(folder / "annual-report.pdf")
        (folder / "letters").mkdir()
        del pdf.pages[1:]
        pdf.save(folder / "letters" / "first.pdf")
    return folder


def test_the_commands_run(folder: Path) -> None:
    commands = re.findall(r"^\$ (.*)\n((?:  .*\n)*)", LIBRARY, flags=re.M)
    assert len(commands) > 6
    for command, shown in commands:
        ran = run_shown(command, folder, COLUMNS="200")
        assert ran.returncode == (2 if "wrong here" in shown else 0), (command, ran.stderr)
        assert "Traceback" not in ran.stderr
        for line in shown.splitlines():
            assert line.removeprefix("  ") in ran.stdout + ran.stderr, command
    with Index.open(folder / "index", create=False) as index:
        stored = index.get("annual-report.pdf")
        known = {"kind": "report", "year": 2024, "author": "Harbour Light"}
        assert {**stored.metadata, **known} == stored.metadata
        assert stored.collections == ("finance",)
        chosen = index.documents(where='kind = "letter" or author is not null')
        assert {document.name for document in chosen} == {"annual-report.pdf", "first.pdf"}


def test_the_python_example_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (example,) = re.findall(r"```python\n(.*?)```", LIBRARY, flags=re.S)
    exec(example, {})  # noqa: S102
    assert capsys.readouterr().out.split()[0] == "annual-report.pdf"
