"""Retrieval in several processes: same results, one thread each, and clean exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.small_run import PAGES, MakePdf, evaluate, until, write_questions
from tests.evaluation.small_run import data as data
from visar.errors import VisarError
from visar.evaluation import workers
from visar.evaluation.methods import METHODS
from visar.evaluation.records import RetrievalRecord, read_by_key
from visar.evaluation.workers import FEW


def test_several_processes_give_the_same_results_as_one(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    """Enough questions to start worker processes, compared with one at a time."""
    make_pdf("notes.pdf", *PAGES)
    asked = [
        {"question": f"{word}?", "document": "notes.pdf", "evidence_pages": [1], "answers": ["x"]}
        for page in PAGES
        for word in page.split()[:4]
    ]
    assert len(asked) > FEW
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, asked)) + "\n")
    call = ("eval", "run", "--method", "main", "--json", "--index", tmp_path / "index")
    assert visar(*call, tmp_path / "all", "--data", tmp_path / "all.jsonl").code == 0
    together = read_by_key(tmp_path / "all", RetrievalRecord)
    assert len(together) == len(asked) * sum(m.group == "main" for m in METHODS.values())
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(map(json.dumps, asked[:3])) + "\n")
    visar(*call, tmp_path / "few", "--data", few)
    chosen = {key[1:]: record.pages for key, record in together.items()}
    for key, record in read_by_key(tmp_path / "few", RetrievalRecord).items():
        assert record.pages == chosen[key[1:]]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_worker_processes_end_with_the_run(data: Path, tmp_path: Path) -> None:
    asked = [
        {
            "question": f"{n} boats?",
            "document": "notes.pdf",
            "evidence_pages": [1],
            "answers": ["x"],
        }
        for n in range(400)
    ]
    data.write_text("\n".join(map(json.dumps, asked)) + "\n")
    run = [sys.executable, "-m", "visar", "eval", "run", str(tmp_path / "run"), "--data", str(data)]
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        until(lambda: list((tmp_path / "run").glob("retrieved*.jsonl")) != [])
        workers = [pid for pid in children_of(parent.pid) if "spawn_main" in command_of(pid)]
        parent.kill()
    assert workers
    until(lambda: not any("spawn_main" in command_of(pid) for pid in workers))


def many_questions(tmp_path: Path) -> Path:
    """Enough questions to start worker processes."""
    questions = [(f"{word}?", "notes.pdf", [1], ["x"]) for page in PAGES for word in page.split()]
    assert len(questions) > FEW
    return write_questions(tmp_path / "many_questions.jsonl", questions)


@pytest.mark.usefixtures("data")
def test_plugin_methods_work_in_worker_processes(visar: Visar, tmp_path: Path) -> None:
    names = ("tests.evaluation.plugin:three", "tests.evaluation.plugin:named")
    call = ("eval", "run", tmp_path / "run", "--data", many_questions(tmp_path), "--json")
    ran = visar(*call, "--method", names[0], "--method", names[1])
    assert ran.code == 0, ran.err
    found = read_by_key(tmp_path / "run", RetrievalRecord).values()
    assert {record.method for record in found} == set(names)
    assert {len(record.pages) for record in found} == {3}
    assert all(sum(record.seconds.values()) > 0 for record in found)
    assert visar("eval", "report", tmp_path / "run").code == 0
    compared = visar("eval", "compare", tmp_path / "run", "--out", tmp_path / "out", "--json")
    assert compared.code == 0, compared.err
    (_, retrieval) = json.loads(compared.out)["tables"]
    assert {row[2] for row in retrieval["rows"]} == set(names)
    failed = visar(*call, "--method", "tests.evaluation.plugin:broken")
    assert (failed.code, failed.out) == (2, "")
    assert "plugin:broken failed: KeyError: '4 pages'" in " ".join(failed.err.split())


@pytest.mark.usefixtures("data")
def test_a_worker_that_dies_is_an_error(visar: Visar, tmp_path: Path) -> None:
    call = ("eval", "run", tmp_path / "run", "--data", many_questions(tmp_path))
    ran = visar(*call, "--method", "tests.evaluation.plugin:killed")
    assert ran.code == 2
    assert "worker process died" in " ".join(ran.err.split())
    assert "Traceback" not in ran.err


def test_the_index_is_closed_when_a_method_fails(data: Path, tmp_path: Path) -> None:
    with pytest.raises(VisarError, match="broken"):
        evaluate(tmp_path / "run", data=[str(data)], methods=["tests.evaluation.plugin:broken"])
    assert workers._store is None


@pytest.mark.usefixtures("data")
def test_worker_processes_have_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    seen = set()

    def step(*_: object) -> None:
        seen.add(os.environ.get("OMP_NUM_THREADS"))

    method = "tests.evaluation.plugin:threads"
    evaluate(tmp_path / "run", step, data=[str(many_questions(tmp_path))], methods=[method])
    assert seen == {None}
    assert {found.k for found in read_by_key(tmp_path / "run", RetrievalRecord).values()} == {1}


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def children_of(pid: int) -> list[int]:
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
