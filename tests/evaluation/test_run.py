"""A whole evaluation on small documents: resumable, shared, corrected, honest about gaps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.plugin import CountingEncoder, CountingGenerator
from tests.generation.smollm import SmolLM
from visar.encoders import registry as encoder_registry
from visar.errors import GenerationError
from visar.evaluation.manifest import read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.plan import open_question_sets, read_plan
from visar.evaluation.records import Answered, Asked, Judged, Retrieved, read_by_key
from visar.evaluation.run import MOST_FAILURES, Outcome, ProgressListener, Run
from visar.evaluation.workers import FEW
from visar.generation import registry as generator_registry
from visar.generation.protocol import Prompt, Reply
from visar.index import Index

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
    return write_questions(tmp_path / "questions.jsonl", QUESTIONS)


def write_questions(file: Path, questions: Iterable[tuple[str, str, list[int], list[str]]]) -> Path:
    lines = [
        json.dumps({"id": f"q{n}", "question": q, "document": d, "evidence_pages": e, "answers": a})
        for n, (q, d, e, a) in enumerate(questions)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def evaluate(
    folder: Path, step: Callable[[str, int, int], None] = lambda *_: None, **settings: Any
) -> Outcome:
    """Make a call of a run as the command line does, with plug-in models in the index."""
    plan = read_plan(None, settings)
    index = Index.open(folder / "index")
    listener = ProgressListener(lambda _: lambda *_: None, step)
    return Run(folder, plan, open_question_sets(plan), index, listener).run()


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Encoders and generators by name, made anew in every index, as plug-ins are."""
    known: dict[str, Callable[[str], Any]] = {}
    for kind, registry in (("encoder", encoder_registry), ("generator", generator_registry)):
        real = getattr(registry, f"get_{kind}")

        def get(name: str, *, real: Any = real, **options: Any) -> Any:
            return known[name](name) if name in known else real(name, **options)

        monkeypatch.setattr(registry, f"get_{kind}", get)
    return known


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
    assert {verdict.judge for verdict in read_by_key(folder, Judged).values()} == {"rules 2"}
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
    assert {record.method for record in found} >= {"visar", "top-k", "oracle"}


def test_a_config_file_says_the_same_as_flags(visar: Visar, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "plan.toml"
    config.write_text(f'data = ["{data}"]\nmethods = ["visar"]\nmax_k = [5]\n')
    ran = visar("eval", "run", tmp_path / "run", "--config", config, "--json")
    assert json.loads(ran.out)["retrieved"] == 4


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('datum = ["x"]', "plan.toml: there is no setting 'datum', but data, encoders"),
        ('data = "x"', "plan.toml: data must be a list, not 'x'"),
        ('data = ["x"]\nmax_k = ["5"]', "max_k, item 1 must be a valid integer, not '5'"),
        ('data = ["x"]\nmax_k = [0]', "max_k, item 1 must be greater than or equal to 1, not 0"),
        ('data = ["x"]\nmax_k = 5', "plan.toml: max_k must be a list, not 5"),
        ('data = ["x"]\ndetails = [7]', "details, item 1 must be a valid string, not 7"),
        ('data = ["x"]\nocr = "maybe"', "ocr must be 'auto', 'always' or 'never', not 'maybe'"),
        ('data = ["x"]\nshare = [3, 2]', "There is no share 3 of 2"),
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
    assert said in " ".join(ran.err.split())
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


@pytest.fixture
def service() -> Iterator[str]:
    """The address of the embedded encoder in a process of its own."""
    command = [sys.executable, "-m", "visar", "encoders", "serve", "embedded", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "VISAR_TOKEN"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"http://[\w.:]+", one) for one in process.stdout)))
        yield found[0]
        process.terminate()


def test_an_encoder_at_an_address_runs_through_every_stage_and_resumes(
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
    # Five methods under two budgets.
    assert said["answered"] == said["judged"] == 4 * 5 * 2
    assert {found.encoder for found in read_by_key(folder, Retrieved).values()} == {"embedded"}
    assert {verdict.encoder for verdict in read_by_key(folder, Judged).values()} == {"embedded"}
    (manifest,) = read_manifests(folder)
    assert manifest["encoders"].keys() == {"embedded"}
    assert manifest["addresses"] == {"embedded": service}
    again = json.loads(visar(*call).out)
    assert (again["retrieved"], again["answered"], again["judged"]) == (0, 0, 0)
    # The same encoder on this machine goes on with the same records.
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
    )
    assert outcome.failures == {}
    assert (outcome.answered, outcome.judged) == (4 * 2 * 2 * 2 * 2, 2 * 4 * 2 * 2 * 2 * 2)
    assert len(list((tmp_path / "run" / "details").iterdir())) == 2
    stages = ("letters", "more", "writer", "grader")
    assert log == [f"{what} {name}" for name in stages for what in ("load", "release")]


class Moody(CountingGenerator):
    """Fails at prompts with certain words in them."""

    fails_at: tuple[str, ...] = ()

    def generate(self, prompt: Prompt, **options: Any) -> Reply:
        self._log.append(f"asked {self.name}")
        if any(words in str(prompt.parts) for words in self.fails_at):
            raise GenerationError(f"{self.name} does not feel like it.")
        return super().generate(prompt, **options)


def test_a_judge_that_fails_stops_nothing_and_is_asked_again(
    data: Path, tmp_path: Path, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    models["moody"] = lambda name: Moody(name, log)
    settings: dict[str, Any] = {
        "data": [str(data)],
        "methods": ["visar"],
        "generators": ["extractive"],
        "max_k": [5],
        "judges": ["moody", "rules"],
    }
    monkeypatch.setattr(Moody, "fails_at", ("sailing boats",))
    outcome = evaluate(tmp_path / "run", **settings)
    assert outcome.answered == 4
    # Three of the judge that failed at one, and four of the rules.
    assert outcome.judged == 7
    ((judge, reason),) = outcome.failures.items()
    assert "moody" in judge
    assert reason == "1 time, last: moody does not feel like it."
    assert read_manifests(tmp_path / "run")[-1]["failures"] == outcome.failures
    monkeypatch.setattr(Moody, "fails_at", ())
    again = evaluate(tmp_path / "run", **settings)
    assert (again.answered, again.judged, again.failures) == (0, 1, {})


def test_a_model_that_always_fails_is_not_asked_forever(
    data: Path, tmp_path: Path, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    models["moody"] = lambda name: Moody(name, log)
    monkeypatch.setattr(Moody, "fails_at", ("",))
    outcome = evaluate(
        tmp_path / "run",
        data=[str(data)],
        methods=["main"],
        generators=["extractive", "moody"],
        judges=["moody"],
    )
    assert log == ["asked moody"] * 2 * MOST_FAILURES
    assert (outcome.answered, outcome.judged) == (4 * 5 * 2, 0)
    assert [reason.partition(",")[0] for reason in outcome.failures.values()] == ["5 times"] * 2


def test_answers_of_two_data_sets_with_the_same_ids_are_not_mixed(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    make_pdf("one.pdf", *PAGES)
    make_pdf("two.pdf", *(page.replace("April", "October") for page in PAGES))
    files = [
        write_questions(
            tmp_path / f"{name}.jsonl", [("When is income tax due?", f"{name}.pdf", [2], [right])]
        )
        for name, right in (("one", "April"), ("two", "October"))
    ]
    folder = tmp_path / "run"
    call = ("eval", "run", folder, "--method", "visar", "--generator", "extractive", "--max-k", "5")
    assert visar(*call, "--data", files[0], "--data", files[1], "--json").code == 0
    answers = {key[0]: record.text for key, record in read_by_key(folder, Answered).items()}
    assert "April" in answers["one"]
    assert "October" in answers["two"]


def test_what_was_answered_from_the_same_pages_is_not_asked_again(
    data: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    """Neither for another method or budget, nor where corrections leave the question as it is."""
    log: list[str] = []
    models["moody"] = lambda name: Moody(name, log)
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
    # One budget of the published data, two of the corrected ones.
    assert again.answered == 4 * 3
    assert log.count("asked moody") == 4


def test_fixed_top_k_keeps_as_many_pages_as_the_largest_budget(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    make_pdf("long.pdf", *(f"Boat {n} needs wind, sail {n} and oar {n}." for n in range(25)))
    data = write_questions(
        tmp_path / "questions.jsonl", [("What do boats need?", "long.pdf", [3], ["wind"])]
    )
    folder = tmp_path / "run"
    main = ("eval", "run", folder, "--data", data, "--method", "main", "--json")
    call = (*main, "--generator", "extractive")
    first = json.loads(visar(*call, "--max-k", "5").out)
    found = read_by_key(folder, Retrieved)
    assert (first["retrieved"], first["answered"]) == (7, 5)
    assert len(found["questions", "q0", "embedded", "top-k"].pages) == 10
    # What was kept too shallow is retrieved again, and nothing else.
    more = json.loads(visar(*call, "--max-k", "20").out)
    assert (more["retrieved"], more["answered"]) == (2, 5)
    deep = read_by_key(folder, Retrieved)["questions", "q0", "embedded", "top-k"]
    assert len(deep.pages) == 20
    answers = read_by_key(folder, Answered)
    given = answers["questions", "q0", "embedded", "top-k", "extractive", 20]
    assert given.pages == deep.pages
    again = json.loads(visar(*call, "--max-k", "20").out)
    assert (again["retrieved"], again["answered"]) == (0, 0)


def many(tmp_path: Path) -> Path:
    """More questions than are worth other processes."""
    questions = [(f"{word}?", "notes.pdf", [1], ["x"]) for page in PAGES for word in page.split()]
    assert len(questions) > FEW
    return write_questions(tmp_path / "many.jsonl", questions)


@pytest.mark.usefixtures("data")
def test_methods_of_others_work_in_other_processes(visar: Visar, tmp_path: Path) -> None:
    names = ("tests.evaluation.plugin:three", "tests.evaluation.plugin:named")
    call = ("eval", "run", tmp_path / "run", "--data", many(tmp_path), "--json")
    ran = visar(*call, "--method", names[0], "--method", names[1])
    assert ran.code == 0, ran.err
    found = read_by_key(tmp_path / "run", Retrieved).values()
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
def test_other_processes_have_one_thread_and_this_one_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    seen = set()

    def step(*_: object) -> None:
        seen.add(os.environ.get("OMP_NUM_THREADS"))

    method = "tests.evaluation.plugin:threads"
    evaluate(tmp_path / "run", step, data=[str(many(tmp_path))], methods=[method])
    assert seen == {None}
    assert {found.k for found in read_by_key(tmp_path / "run", Retrieved).values()} == {1}


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
