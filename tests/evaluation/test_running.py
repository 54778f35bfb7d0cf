"""A whole evaluation on small documents: resumable, shared, corrected, honest about gaps."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.generation.smollm import SmolLM
from visar.evaluation.findings import read_manifests
from visar.evaluation.keeping import read_by_key
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Asked, Judged, Retrieved
from visar.evaluation.retrieving import FEW

MakePdf = Callable[..., Path]
PAGES = (
    "Sailing boats need wind to leave the harbour.",
    "Income tax is due in April.",
    "The lighthouse was built in 1898.",
    "Nets are mended in winter.",
)
QUESTIONS: tuple[tuple[str, str, list[int], list[str]], ...] = (
    ("When is income tax due?", "notes.pdf", [2], ["April"]),
    ("What do sailing boats need?", "notes.pdf", [1, 9], ["wind"]),
    ("Who owns the harbour?", "notes.pdf", [], ["Not answerable"]),
    ("When was the lighthouse built?", "gone.pdf", [3], ["1898"]),
    ("When are nets mended?", "more.pdf", [4], ["winter"]),
)


@pytest.fixture
def data(make_pdf: MakePdf, tmp_path: Path) -> Path:
    make_pdf("notes.pdf", *PAGES)
    make_pdf("more.pdf", *PAGES[::-1][:2], *PAGES[:2], "An empty quay.")
    file = tmp_path / "questions.jsonl"
    lines = [
        json.dumps({"id": f"q{n}", "question": q, "document": d, "evidence_pages": e, "answers": a})
        for n, (q, d, e, a) in enumerate(QUESTIONS)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_a_run_keeps_every_question_and_setting(visar: Visar, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ran = visar(
        *("eval", "run", folder, "--data", data, "--generator", "extractive", "--detail", "q0"),
        "--json",
    )
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert (said["questions"], said["documents"]) == (4, 2)
    (dataset,) = said["skipped"]["missing"]
    assert said["skipped"]["missing"] == {dataset: ["gone.pdf"]}
    assert said["skipped"]["pages_outside"] == {dataset: ["q1"]}
    retrieved = read_by_key(folder, Retrieved)
    # The oracle knows nothing of the question without evidence.
    assert len(retrieved) == 4 * len(METHODS) - 1
    found = retrieved[dataset, "q0", "embedded", "visar"]
    assert 2 in found.pages
    assert {verdict.judge for verdict in read_by_key(folder, Judged).values()} == {"rules 1"}
    assert read_by_key(folder, Asked)[dataset, "q1"].evidence_pages == (1,)
    assert not read_by_key(folder, Asked)[dataset, "q2"].answerable
    (detail,) = (folder / "details").glob("*.npz")
    with np.load(detail, allow_pickle=False) as kept:
        assert kept["similarity"].shape == (4, 4)
    (manifest,) = read_manifests(folder)
    assert manifest["finished"]
    assert manifest["encoders"].keys() == {"embedded"}


def test_a_second_call_does_nothing_again(visar: Visar, data: Path, tmp_path: Path) -> None:
    call = ("eval", "run", tmp_path / "run", "--data", data, "--method", "main", "--json")
    assert json.loads(visar(*call).out)["retrieved"] > 0
    before = read_by_key(tmp_path / "run", Retrieved)
    again = json.loads(visar(*call).out)
    assert (again["retrieved"], again["answered"], again["judged"]) == (0, 0, 0)
    assert read_by_key(tmp_path / "run", Retrieved) == before
    # A larger plan adds what it has more.
    more = json.loads(visar(*call, "--method", "gamma").out)
    assert more["retrieved"] == 4 * sum(method.group == "gamma" for method in METHODS.values())
    assert len(read_manifests(tmp_path / "run")) == 3


def test_what_was_lost_in_a_crash_is_done_again(visar: Visar, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    call = ("eval", "run", folder, "--data", data, "--method", "main", "--json")
    visar(*call)
    whole = read_by_key(folder, Retrieved)
    (file,) = folder.glob("retrieved*.jsonl")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    again = json.loads(visar(*call).out)
    assert 0 < again["retrieved"] < len(whole)
    repaired = read_by_key(folder, Retrieved)
    assert {key: record.pages for key, record in repaired.items()} == {
        key: record.pages for key, record in whole.items()
    }


def test_shares_of_two_machines_add_up(visar: Visar, data: Path, tmp_path: Path) -> None:
    call = ("eval", "run", "--data", data, "--method", "visar", "--json")
    visar(*call, tmp_path / "whole")
    for share in ("1/2", "2/2"):
        visar(*call, tmp_path / "shared", "--share", share)
    whole, shared = (read_by_key(tmp_path / name, Retrieved) for name in ("whole", "shared"))
    assert {key: record.pages for key, record in whole.items()} == {
        key: record.pages for key, record in shared.items()
    }


def test_corrections_give_results_with_and_without(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    correction = {
        "question": "q1",
        "field": "evidence_pages",
        "was": [1, 9],
        "becomes": [1, 2],
        "why": "page 9 does not exist",
        "by": "a reader",
    }
    file = tmp_path / "corrections.jsonl"
    file.write_text(json.dumps(correction) + "\n")
    folder = tmp_path / "run"
    ran = visar(
        *("eval", "run", folder, "--data", data, "--method", "main"),
        *("--corrections", file, "--json"),
    )
    assert ran.code == 0, ran.err
    asked = read_by_key(folder, Asked)
    published, corrected = sorted({dataset for dataset, _ in asked})
    assert corrected == f"{published}, corrected"
    assert asked[published, "q1"].evidence_pages == (1,)
    assert asked[corrected, "q1"].evidence_pages == (1, 2)
    assert [key for key, record in asked.items() if record.corrected] == [(corrected, "q1")]
    found = read_by_key(folder, Retrieved)
    without, having = (found[name, "q1", "embedded", "oracle"] for name in (published, corrected))
    assert set(without.pages) >= {1}
    assert set(having.pages) >= {1, 2}
    same: list[Any] = [
        found[name, "q1", "embedded", "visar"].seconds for name in (published, corrected)
    ]
    assert same[0] == same[1], "what corrections leave as it was is taken over, not computed"


def test_a_visual_encoder_runs_through_the_same_path(
    visar: Visar, data: Path, tmp_path: Path, checkpoint: Callable[[str], Path]
) -> None:
    colpali = checkpoint("colpali")
    ran = visar(
        *("eval", "run", tmp_path / "run", "--data", data, "--method", "main", "--json"),
        *("--encoder", colpali, "--ocr", "never"),
    )
    assert ran.code == 0, ran.err
    found = read_by_key(tmp_path / "run", Retrieved).values()
    assert {record.encoder for record in found} == {str(colpali)}
    assert {record.method for record in found} >= {"visar", "late-interaction", "oracle"}


def test_a_config_file_says_the_same_as_flags(visar: Visar, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "plan.toml"
    config.write_text(f'data = ["{data}"]\nmethods = ["visar"]\nmax_k = [5]\n')
    ran = visar("eval", "run", tmp_path / "run", "--config", config, "--json")
    assert json.loads(ran.out)["retrieved"] == 4


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('datum = ["x"]', "there is no setting 'datum'"),
        ('data = "x"', "data must be a list"),
        ("data = [", "is no TOML file"),
        ('data = ["x"]\nmethods = ["magic"]', "There is no method 'magic'"),
        ("", "Name the data"),
    ],
)
def test_a_wrong_plan_is_refused(visar: Visar, tmp_path: Path, config: str, said: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(config)
    ran = visar("eval", "run", tmp_path / "run", "--config", file)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_share_is_written_with_a_slash(visar: Visar, data: Path, tmp_path: Path) -> None:
    for wrong in ("2", "3/2", "0/2", "a/b"):
        ran = visar("eval", "run", tmp_path / "run", "--data", data, "--share", wrong)
        assert ran.code == 2
        assert "share" in ran.err


def test_processes_find_what_one_process_finds(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    """More questions than are worth other processes, against one at a time."""
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
    together = read_by_key(tmp_path / "all", Retrieved)
    assert len(together) == len(asked) * sum(m.group == "main" for m in METHODS.values())
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(map(json.dumps, asked[:3])) + "\n")
    visar(*call, tmp_path / "few", "--data", few)
    chosen = {key[1:]: record.pages for key, record in together.items()}
    for key, record in read_by_key(tmp_path / "few", Retrieved).items():
        assert record.pages == chosen[key[1:]]


def test_a_model_behind_a_server_answers_and_judges(
    visar: Visar, data: Path, tmp_path: Path, smollm: SmolLM
) -> None:
    """A real small model; what it says of what it wrote is compared with the rules."""
    model = f"openai-text:{smollm.model}"
    folder = tmp_path / "run"
    ran = visar(
        *("eval", "run", folder, "--data", data, "--method", "visar", "--max-k", "2"),
        *("--generator", model, "--judge", "rules", "--judge", model),
        *("--base-url", smollm.base_url, "--json"),
    )
    assert ran.code == 0, ran.err
    answers = read_by_key(folder, Answered).values()
    assert len(answers) == 4
    assert {answer.model for answer in answers} == {smollm.model}
    assert all(answer.input_tokens and answer.raw for answer in answers)
    judges = {verdict.judge for verdict in read_by_key(folder, Judged).values()}
    assert len(judges) == 2
    assert visar("eval", "report", folder).code == 0
    assert "Agreement of the judges" in (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_processes_end_with_the_run_however_it_ends(data: Path, tmp_path: Path) -> None:
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


def until(happens: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.1)


def command_of(pid: int) -> str:
    """Empty when it has ended."""
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
