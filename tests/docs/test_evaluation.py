"""What the pages about evaluation and docs/bench.md show works as shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pikepdf
import pytest

from tests.evaluation.datasets.test_converters import FINANCEBENCH
from tests.evaluation.synthetic import write_run
from tests.programs import run_shown
from visar.evaluation.datasets import open_dataset
from visar.evaluation.datasets.converters import CONVERTERS
from visar.evaluation.methods import METHODS
from visar.index import Index

DOCS = Path(__file__).parents[2] / "docs"
EVALUATION, BENCH, DATA, REPORT = (
    (DOCS / name).read_text("utf-8")
    for name in ("evaluation.md", "bench.md", "evaluation-data.md", "evaluation-report.md")
)


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
    assert run_commands(folder, page) >= 4


def run_commands(folder: Path, page: str) -> int:
    """Run the commands of a page in a folder; return how many there are."""
    commands = re.findall(r"^\$ (visar .*)$", page, flags=re.M)
    for command in commands:
        ran = run_shown(command, folder, VISAR_INDEX=str(folder / "library"))
        assert ran.returncode == 0, (command, ran.stderr)
    return len(commands)


def test_a_benchmark_is_converted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    source = tmp_path / "data" / "financebench_open_source.jsonl"
    source.write_text(json.dumps(FINANCEBENCH) + "\n")
    assert run_commands(tmp_path, DATA) == 1
    assert open_dataset(tmp_path / "financebench.jsonl").questions()[0].evidence_pages == (1, 60)


def test_runs_are_reported_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("results", "earlier"):
        write_run(
            tmp_path / name,
            questions=8,
            datasets=("own",),
            encoders=("embedded",),
            generators=("extractive",),
            groups=("main",),
        )
    assert run_commands(tmp_path, REPORT) == 2
    made = {path.name for path in (tmp_path / "shared").iterdir()}
    files = r"`((?:report|leaderboard)[\w-]*\.\w+)`"
    assert {*re.findall(files, REPORT), "leaderboard.json", "leaderboard.csv"} <= made
    monkeypatch.chdir(tmp_path)
    exec(block(REPORT, "python"), {})  # noqa: S102
    assert "score-cluster" in capsys.readouterr().out


def test_the_pages_name_every_converter_and_every_method_of_others() -> None:
    named = re.findall(r"^\| `([\w-]+)` \| `[\w/]+\.json", DATA, flags=re.M)
    assert named == list(CONVERTERS)
    others = [name for name, method in METHODS.items() if method.group == "others"]
    assert re.findall(r"^\| `([\w-]+)` \| [^`]*\|[^`]*\|$", EVALUATION, flags=re.M) == others


def test_the_python_example_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    Index.open("library").add("annual-report.pdf")
    exec(block(BENCH, "python"), {})  # noqa: S102
    assert float(capsys.readouterr().out) > 0
