"""Concurrent answers and verdicts of a served model; shares; latencies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.small_run import PAGES, until, write_questions
from tests.evaluation.small_run import data as data
from tests.generation.scripted import Asked, Says, refuses, replies, scripted
from visar.evaluation.manifest import read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.records import AnswerRecord, RetrievalRecord, VerdictRecord, read_by_key

STAGES = ("query to page", "page to query", "self-similarity", "page to page", "ranking")
MODEL = "openai-text:any"


def reply_to(asked: Asked) -> Says:
    """Return a model's reply: a verdict if there is a choice, otherwise an answer."""
    if "response_format" in asked.json:
        return replies('{"choice": "correct"}')
    return replies('{"answer": "April", "pages": []}')


def question_in(asked: Asked) -> str:
    return str(asked.json["messages"][1]["content"])


def test_a_served_model_handles_concurrent_questions(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    # Replies wait for four requests: four answers, then four verdicts.
    barrier = threading.Barrier(4)

    def behave(asked: Asked) -> Says:
        barrier.wait(60)
        return reply_to(asked)

    call = (
        *("eval", "run", tmp_path / "run", "--data", data, "--method", "visar", "--max-k", "5"),
        # Documents have at most five pages, so a larger budget gives the same pages.
        *("--max-k", "10", "--generator", MODEL, "--judge", MODEL, "--concurrency", "4", "--json"),
    )
    with scripted(*[behave] * 8) as server:
        ran = visar(*call, "--base-url", server.url)
        assert ran.code == 0, ran.err
        again = json.loads(visar(*call, "--base-url", server.url).out)
    assert len(server.asked) == 8, "the same question about the same pages is sent once"
    said = json.loads(ran.out)
    assert (said["answered"], said["judged"]) == (8, 8)
    assert (again["answered"], again["judged"]) == (0, 0)
    answers = read_by_key(tmp_path / "run", AnswerRecord).values()
    assert {answer.concurrency for answer in answers} == {4}
    assert read_manifests(tmp_path / "run")[0]["plan"]["concurrency"] == 4


def test_a_failed_answer_does_not_block_others_and_is_retried(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    is_well = threading.Event()

    def behave(asked: Asked) -> Says:
        is_bad = "sailing boats" in question_in(asked) and not is_well.is_set()
        return refuses(400, "I do not like boats") if is_bad else reply_to(asked)

    call = (
        *("eval", "run", tmp_path / "run", "--data", data, "--method", "visar", "--max-k", "5"),
        *("--generator", MODEL, "--judge", MODEL, "--concurrency", "3", "--json"),
    )
    with scripted(*[behave] * 20) as server:
        first = visar(*call, "--base-url", server.url)
        said = json.loads(first.out)
        # The answer failed, so there is one verdict less.
        assert (first.code, said["answered"], said["judged"]) == (1, 3, 3)
        assert said["failures"].keys() == {MODEL}
        assert "I do not like boats" in said["failures"][MODEL]
        assert read_manifests(tmp_path / "run")[0]["failures"] == said["failures"]
        is_well.set()
        second = visar(*call, "--base-url", server.url)
    said = json.loads(second.out)
    assert (second.code, said["answered"], said["judged"], said["failures"]) == (0, 1, 1, {})


def test_ctrl_c_ends_a_run_immediately_and_keeps_answers(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    over = threading.Event()

    def behave(asked: Asked) -> Says:
        if "income tax" not in question_in(asked):
            over.wait(120)
        return reply_to(asked)

    def written() -> int:
        return sum(file.read_bytes().count(b"\n") for file in folder.glob("answered*"))

    with scripted(*[behave] * 4, *[reply_to] * 3) as server:
        command = [
            *(sys.executable, "-m", "visar", "eval", "run", str(folder), "--data", str(data)),
            *("--method", "visar", "--max-k", "5", "--generator", MODEL, "--judge", "rules"),
            *("--base-url", server.url, "--concurrency", "4", "--json"),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: written() == 1 and len(server.asked) == 4)
            process.send_signal(signal.SIGINT)
            # The run doesn't wait for the three pending answers.
            _, err = process.communicate(timeout=100)
        assert not over.is_set()
        assert process.returncode != 0
        assert "Traceback" not in err
        (manifest,) = read_manifests(folder)
        assert manifest["finished"] is None
        over.set()
        again = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(again.stdout)
    assert (said["answered"], said["judged"]) == (3, 4)


def test_two_processes_can_share_a_folder(make_pdf: Callable[..., Path], tmp_path: Path) -> None:
    names = [f"part-{number}.pdf" for number in range(6)]
    for number, name in enumerate(names):
        make_pdf(name, *(f"{page} Part {number}." for page in PAGES))
    questions = [(f"When is the tax of {name} due?", name, [2], ["April"]) for name in names]
    data = write_questions(tmp_path / "questions.jsonl", questions)
    folder = tmp_path / "run"
    with scripted(*[reply_to] * 24) as server:
        call = [
            *(sys.executable, "-m", "visar", "eval", "run", str(folder), "--data", str(data)),
            *("--method", "visar", "--max-k", "5", "--generator", MODEL, "--judge", MODEL),
            *("--base-url", server.url, "--concurrency", "2", "--json"),
        ]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        shares = [subprocess.Popen([*call, "--share", f"{n}/2"], **pipes) for n in (1, 2)]
        ended = [share.communicate(timeout=300) for share in shares]
        assert [share.returncode for share in shares] == [0, 0], ended
        # Six answers and six verdicts: the processes didn't repeat each other's work.
        assert len(server.asked) == 12
        whole = subprocess.run(call, capture_output=True, text=True, check=True)
        assert len(server.asked) == 12
    for out, _ in ended:
        said = json.loads(out)
        assert (said["documents"], said["answered"], said["judged"]) == (3, 3, 3)
    assert {key: json.loads(whole.stdout)[key] for key in ("retrieved", "answered", "judged")} == {
        "retrieved": 0,
        "answered": 0,
        "judged": 0,
    }
    manifests = read_manifests(folder)
    assert all(manifest["finished"] for manifest in manifests)
    assert sorted(manifest["plan"]["share"] for manifest in manifests) == [[1, 1], [1, 2], [2, 2]]
    assert len(read_by_key(folder, RetrievalRecord)) == 6
    assert len(read_by_key(folder, AnswerRecord)) == 6
    assert len(read_by_key(folder, VerdictRecord)) == 6


def test_latencies_are_measured_once_without_concurrency(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    call = ("eval", "run", folder, "--data", data, "--method", "main", "--json")
    assert visar(*call).code == 0
    busy = read_by_key(folder, RetrievalRecord)
    assert not any(record.alone for record in busy.values())
    count = 4 * sum(method.group == "main" for method in METHODS.values()) - 1
    assert json.loads(visar(*call, "--measure-latency").out)["retrieved"] == count
    measured = read_by_key(folder, RetrievalRecord)
    assert all(record.alone for record in measured.values())
    # Only the times are new.
    assert {key: record.pages for key, record in measured.items()} == {
        key: record.pages for key, record in busy.items()
    }
    stages = measured["questions", "q0", "embedded", "visar"].seconds
    assert list(stages) == list(STAGES)
    for options in ((), ("--measure-latency",)):
        assert json.loads(visar(*call, *options).out)["retrieved"] == 0
