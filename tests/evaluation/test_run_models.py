"""Models in a run: loaded once, called once, and failures don't stop the run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.plugin import CountingEncoder, CountingGenerator
from tests.evaluation.small_run import PAGES, evaluate, write_questions
from tests.evaluation.small_run import data as data
from tests.evaluation.small_run import models as models
from tests.generation import tiny_models
from visar.errors import GenerationError
from visar.evaluation.calls import MAX_FAILURES
from visar.evaluation.manifest import read_manifests
from visar.evaluation.records import AnswerRecord, RetrievalRecord, VerdictRecord, read_by_key
from visar.generation.generator import Prompt, Reply
from visar.generation.local import LocalGenerator


@pytest.fixture
def service() -> Iterator[str]:
    """The address of the embedded encoder, served by another process."""
    command = [sys.executable, "-m", "visar", "encoders", "serve", "embedded", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "VISAR_TOKEN"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"http://[\w.:]+", one) for one in process.stdout)))
        yield found[0]
        process.terminate()


def test_a_run_with_a_remote_encoder_can_be_resumed(
    visar: Visar, data: Path, tmp_path: Path, service: str
) -> None:
    folder = tmp_path / "run"
    main = ("eval", "run", folder, "--data", data, "--method", "main", "--json")
    here = (*main, "--generator", "extractive", "--detail", "q0")
    call = (*here, "--encoder", service)
    ran = visar(*call)
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert said["retrieved"] == 4 * 7 - 1
    # Five methods with two budgets.
    assert said["answered"] == said["judged"] == 4 * 5 * 2
    assert {found.encoder for found in read_by_key(folder, RetrievalRecord).values()} == {
        "embedded"
    }
    assert {verdict.encoder for verdict in read_by_key(folder, VerdictRecord).values()} == {
        "embedded"
    }
    (manifest,) = read_manifests(folder)
    assert manifest["definitions"]["encoders"].keys() == {"embedded"}
    assert manifest["addresses"] == {"embedded": service}
    again = json.loads(visar(*call).out)
    assert (again["retrieved"], again["answered"], again["judged"]) == (0, 0, 0)
    # The same encoder, run locally, reuses the records.
    local = json.loads(visar(*here).out)
    assert (local["retrieved"], local["answered"], local["judged"]) == (0, 0, 0)
    twice = visar(*call, "--encoder", "embedded")
    assert twice.code == 2
    assert "are the same encoder" in twice.err


def test_each_model_is_loaded_once_and_released_before_the_next(
    data: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    log: list[str] = []
    models |= {name: lambda name: CountingEncoder(name, log) for name in ("letters", "more")}
    models |= {name: lambda name: CountingGenerator(name, log) for name in ("writer", "grader")}
    outcome = evaluate(
        tmp_path / "run",
        data=[str(data)],
        encoders=["letters", "more"],
        methods=["visar", "top-k"],
        generators=["extractive", "writer"],
        judges=["rules", "grader"],
        details=["q0"],
        concurrency=4,
    )
    assert outcome.failures == {}
    assert (outcome.answered, outcome.judged) == (4 * 2 * 2 * 2 * 2, 2 * 4 * 2 * 2 * 2 * 2)
    assert len(list((tmp_path / "run" / "details").iterdir())) == 2
    stages = ("letters", "more", "writer", "grader")
    assert log == [f"{what} {name}" for name in stages for what in ("load", "release")]


class FailingOnWords(CountingGenerator):
    """A generator that fails on prompts with certain words."""

    fails_at: tuple[str, ...] = ()

    def generate(self, prompt: Prompt, **options: Any) -> Reply:
        self._log.append(f"asked {self.name}")
        if any(words in str(prompt.parts) for words in self.fails_at):
            raise GenerationError(f"{self.name} does not feel like it.")
        return super().generate(prompt, **options)


def test_a_failing_judge_does_not_stop_the_run_and_is_retried(
    data: Path, tmp_path: Path, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    models["moody"] = lambda name: FailingOnWords(name, log)
    settings: dict[str, Any] = {
        "data": [str(data)],
        "methods": ["visar"],
        "generators": ["extractive"],
        "max_k": [5],
        "judges": ["moody", "rules"],
    }
    monkeypatch.setattr(FailingOnWords, "fails_at", ("sailing boats",))
    outcome = evaluate(tmp_path / "run", **settings)
    assert outcome.answered == 4
    # Three verdicts of the judge that failed once, and four of the rules.
    assert outcome.judged == 7
    ((judge, reason),) = outcome.failures.items()
    assert "moody" in judge
    assert reason == "1 time, last: moody does not feel like it."
    assert read_manifests(tmp_path / "run")[-1]["failures"] == outcome.failures
    monkeypatch.setattr(FailingOnWords, "fails_at", ())
    again = evaluate(tmp_path / "run", **settings)
    assert (again.answered, again.judged, again.failures) == (0, 1, {})


@pytest.mark.usefixtures("data")
def test_a_run_stops_calling_a_model_that_always_fails(
    tmp_path: Path, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    models["moody"] = lambda name: FailingOnWords(name, log)
    monkeypatch.setattr(FailingOnWords, "fails_at", ("",))
    questions = [(f"{word}?", "notes.pdf", [1], ["x"]) for word in PAGES[0].split()]
    outcome = evaluate(
        tmp_path / "run",
        data=[str(write_questions(tmp_path / "words.jsonl", questions))],
        methods=["visar"],
        generators=["extractive", "moody"],
        max_k=[5],
        judges=["moody"],
    )
    assert log == ["asked moody"] * 2 * MAX_FAILURES
    assert (outcome.answered, outcome.judged) == (len(questions), 0)
    assert [reason.partition(",")[0] for reason in outcome.failures.values()] == ["5 times"] * 2


class RaisingKeyError(CountingGenerator):
    """A generator that raises unexpected exceptions."""

    def generate(self, prompt: Prompt, **options: Any) -> Reply:
        raise ZeroDivisionError(f"{len(prompt.parts)} parts, {len(options)} options")


def test_failing_plugins_do_not_stop_the_run(
    data: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    models["strange"] = lambda name: RaisingKeyError(name, [])
    outcome = evaluate(
        tmp_path / "run",
        data=[str(data)],
        methods=["visar"],
        generators=["extractive", "strange"],
        max_k=[5],
    )
    assert (outcome.answered, outcome.judged) == (4, 4)
    assert "strange failed: ZeroDivisionError" in outcome.failures["strange"]


def test_answers_from_the_same_pages_are_shared(
    data: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    """Answers are shared between methods, budgets and uncorrected questions."""
    log: list[str] = []
    models["moody"] = lambda name: FailingOnWords(name, log)
    correction = {"question": "q1", "field": "evidence_pages", "was": [1, 9], "becomes": [1]}
    file = tmp_path / "corrections.jsonl"
    file.write_text(json.dumps(correction | {"why": "page 9 does not exist", "by": "us"}) + "\n")
    settings: dict[str, Any] = {
        "data": [str(data)],
        "methods": ["top-k"],
        "generators": ["moody"],
        "max_k": [10],
    }
    assert evaluate(tmp_path / "run", **settings).answered == 4
    again = evaluate(tmp_path / "run", corrections=str(file), **(settings | {"max_k": [10, 20]}))
    # One budget of the published data, two of the corrected data.
    assert again.answered == 4 * 3
    assert log.count("asked moody") == 4


def test_a_local_model_answers_and_judges_in_batches(
    visar: Visar, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny checkpoint gives the same answers with batches of one and three."""
    model = tiny_models.save("qwen2.5-7b", tmp_path / "model")
    sizes: list[int] = []
    replies = LocalGenerator._replies

    def noted(self: LocalGenerator, prompts: Sequence[Prompt], max_tokens: int, *given: Any) -> Any:
        sizes.append(len(prompts))
        # Text from random weights doesn't end by itself.
        return replies(self, prompts, min(max_tokens, 8), *given)

    monkeypatch.setattr(LocalGenerator, "_replies", noted)
    main = ("--data", data, "--method", "visar", "--method", "top-k", "--max-k", "2", "--json")
    models = ("--generator", model, "--judge", model, "--judge", f"paper:{model}")
    found = []
    for concurrency in (1, 3):
        folder = tmp_path / f"run-{concurrency}"
        sizes.clear()
        ran = visar("eval", "run", folder, *main, *models, "--concurrency", str(concurrency))
        assert ran.code == 0, ran.err
        assert max(sizes) == concurrency
        answers = read_by_key(folder, AnswerRecord)
        assert {one.concurrency for one in answers.values()} == {concurrency}
        said = {key: (one.raw, one.input_tokens) for key, one in answers.items()}
        found.append((said, read_by_key(folder, VerdictRecord)))
    assert found[0] == found[1]
    assert len(found[0][0]) == 8
    assert len(found[0][1]) == 16
    report = visar("eval", "report", tmp_path / "run-3", "--json")
    assert "up to 3 questions concurrently" in report.out
