"""What docs/evaluation.md and docs/bench.md show works as shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pikepdf
import pytest

from visar.index import Index

DOCS = Path(__file__).parents[2] / "docs"
EVALUATION, BENCH = ((DOCS / name).read_text("utf-8") for name in ("evaluation.md", "bench.md"))


def block(page: str, language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", page, flags=re.S)
    return str(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """The files the pages speak of."""
    folder = tmp_path_factory.mktemp("evaluation")
    with pikepdf.open(report) as pdf:
        # Few pages, so that the commands take a moment, and none of them to be read by OCR.
        del pdf.pages[12:]
        del pdf.pages[:8]
        pdf.save(folder / "annual-report.pdf")
    question = {"question": "How long is the warranty?", "document": "annual-report.pdf"}
    right = {"evidence_pages": [2], "answers": ["seven years"]}
    (folder / "questions.jsonl").write_text(json.dumps(question | right) + "\n")
    (folder / "questions.txt").write_text("How long is the warranty?\n")
    (folder / "plan.toml").write_text(block(EVALUATION, "toml"))
    (folder / "my_methods.py").write_text(block(EVALUATION, "python"))
    return folder


@pytest.mark.parametrize("page", [EVALUATION, BENCH], ids=["evaluation", "bench"])
def test_the_commands_run(folder: Path, page: str) -> None:
    commands = re.findall(r"^\$ visar (.*)$", page, flags=re.M)
    assert len(commands) >= 4
    for command in commands:
        ran = subprocess.run(
            ["/bin/sh", "-c", f"{sys.executable} -m visar {command}"],
            cwd=folder,
            env={**os.environ, "VISAR_INDEX": str(folder / "library")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (command, ran.stderr)


def test_the_python_example_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    Index.open("library").add("annual-report.pdf")
    exec(block(BENCH, "python"), {})  # noqa: S102
    assert float(capsys.readouterr().out) > 0
