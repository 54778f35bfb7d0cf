"""Run the examples of the pages about evaluation and benchmarks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pikepdf
import pytest

from tests.docs.shown import blocks, commands, read
from tests.evaluation.datasets.test_converters import FINANCEBENCH
from tests.evaluation.synthetic import write_run
from tests.programs import run_shown
from visar.evaluation.datasets import open_dataset
from visar.evaluation.datasets.converters import CONVERTERS
from visar.evaluation.methods import METHODS

EVALUATION = read("evaluation.md").partition("## Reproduce the paper")[0]
REFERENCE, BENCH = read("evaluation-reference.md"), read("benchmarks.md")
(IN_PANDAS,) = blocks(EVALUATION, "python")


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
    (plan,) = blocks(EVALUATION, "toml")
    (folder / "plan.toml").write_text(plan)
    return folder


def run_commands(folder: Path, page: str, *without: str) -> int:
    """Run the commands of a page in a folder; return how many there are."""
    shown = [command for command, _ in commands(page) if not any(one in command for one in without)]
    for command in shown:
        ran = run_shown(command, folder, VISAR_INDEX=str(folder / "library"))
        assert ran.returncode == 0, (command, ran.stderr)
    return len(shown)


def test_an_evaluation_runs(folder: Path) -> None:
    assert run_commands(folder, EVALUATION, "compare") == 4


def test_runs_are_compared(
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
    assert run_commands(tmp_path, EVALUATION, "visar eval run", "status") == 2
    made = {path.name for path in (tmp_path / "shared").iterdir()}
    assert set(re.findall(r"`(?:shared/)?(leaderboard[\w-]*\.\w+)`", EVALUATION)) <= made
    monkeypatch.chdir(tmp_path)
    exec(IN_PANDAS, {})  # noqa: S102
    assert "score-cluster" in capsys.readouterr().out


def test_a_benchmark_is_converted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    source = tmp_path / "data" / "financebench_open_source.jsonl"
    source.write_text(json.dumps(FINANCEBENCH) + "\n")
    assert run_commands(tmp_path, REFERENCE) == 1
    assert open_dataset(tmp_path / "financebench.jsonl").questions()[0].evidence_pages == (1, 60)


def test_the_reference_names_every_converter_and_every_method_of_others() -> None:
    named = re.findall(r"^\| `([\w-]+)` \| `[\w/]+\.json", REFERENCE, flags=re.M)
    assert named == list(CONVERTERS)
    others = [name for name, method in METHODS.items() if method.group == "others"]
    table = REFERENCE.partition("| method | takes |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, flags=re.M) == others


def test_bench_runs(folder: Path) -> None:
    assert run_commands(folder, BENCH) == 3
