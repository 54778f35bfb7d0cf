"""Complete runs on small documents: resuming, shares, corrections and skipped documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.small_run import PAGES, MakePdf, write_questions
from tests.evaluation.small_run import data as data
from tests.evaluation.small_run import models as models
from visar.evaluation.manifest import read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.records import (
    AnswerRecord,
    QuestionRecord,
    RetrievalRecord,
    VerdictRecord,
    read_by_key,
)


def test_a_run_stores_all_questions_and_settings_once(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    options = ("--generator", "extractive", "--detail", "q0", "--method", "main", "--json")
    call = ("eval", "run", folder, "--data", data, *options)
    ran = visar(*call)
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert (said["questions"], said["documents"]) == (4, 2)
    (dataset,) = said["skipped"]["missing"]
    assert said["skipped"]["missing"] == {dataset: ["gone.pdf"]}
    assert said["skipped"]["pages_outside"] == {dataset: ["q1"]}
    retrieved = read_by_key(folder, RetrievalRecord)
    # The oracle skips the question without evidence.
    assert len(retrieved) == 4 * sum(method.group == "main" for method in METHODS.values()) - 1
    assert 2 in retrieved[dataset, "q0", "embedded", "visar"].pages
    assert {verdict.judge for verdict in read_by_key(folder, VerdictRecord).values()} == {"rules 2"}
    asked = read_by_key(folder, QuestionRecord)
    assert asked[dataset, "q1"].evidence_pages == (1,)
    assert not asked[dataset, "q2"].answerable
    (detail,) = (folder / "details").glob("*.npz")
    with np.load(detail, allow_pickle=False) as kept:
        assert kept["similarity"].shape == (4, 4)
    (manifest,) = read_manifests(folder)
    assert manifest["finished"]
    assert manifest["definitions"]["encoders"].keys() == {"embedded"}
    again = json.loads(visar(*call).out)
    assert (again["retrieved"], again["answered"], again["judged"]) == (0, 0, 0)
    assert read_by_key(folder, RetrievalRecord) == retrieved
    # A larger plan only adds what is missing; by default, all methods run.
    more = json.loads(visar("eval", "run", folder, "--data", data, "--json").out)
    assert len(retrieved) + more["retrieved"] == 4 * len(METHODS) - 1
    assert len(read_manifests(folder)) == 3


def test_results_lost_in_a_crash_are_computed_again(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    call = ("eval", "run", folder, "--data", data, "--method", "main", "--json")
    visar(*call)
    whole = read_by_key(folder, RetrievalRecord)
    (file,) = folder.glob("retrieved*.jsonl")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    again = json.loads(visar(*call).out)
    assert 0 < again["retrieved"] < len(whole)
    repaired = read_by_key(folder, RetrievalRecord)
    assert {key: record.pages for key, record in repaired.items()} == {
        key: record.pages for key, record in whole.items()
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
    asked = read_by_key(folder, QuestionRecord)
    published, corrected = sorted({dataset for dataset, _ in asked})
    assert corrected == f"{published}, corrected"
    assert asked[published, "q1"].evidence_pages == (1,)
    assert asked[corrected, "q1"].evidence_pages == (1, 2)
    assert [key for key, record in asked.items() if record.corrected] == [(corrected, "q1")]
    found = read_by_key(folder, RetrievalRecord)
    without, having = (found[name, "q1", "embedded", "oracle"] for name in (published, corrected))
    assert set(without.pages) >= {1}
    assert set(having.pages) >= {1, 2}
    same: list[Any] = [
        found[name, "q1", "embedded", "visar"].seconds for name in (published, corrected)
    ]
    assert same[0] == same[1], "results of uncorrected questions are reused"


def test_a_run_with_a_visual_encoder(
    visar: Visar, data: Path, tmp_path: Path, checkpoint: Callable[[str], Path]
) -> None:
    colpali = checkpoint("colpali")
    ran = visar(
        *("eval", "run", tmp_path / "run", "--data", data, "--method", "main", "--json"),
        *("--encoder", colpali, "--ocr", "never"),
    )
    assert ran.code == 0, ran.err
    found = read_by_key(tmp_path / "run", RetrievalRecord).values()
    assert {record.encoder for record in found} == {str(colpali)}
    assert {record.method for record in found} >= {"visar", "top-k", "oracle"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('datum = ["x"]', "'datum'"),
        ('data = "x"', "plan.toml: data must be a list, not 'x'"),
        ('data = ["x"]\nmax_k = ["5"]', "max_k, item 1 must be a valid integer, not '5'"),
        ('data = ["x"]\nmax_k = [0]', "max_k, item 1 must be greater than or equal to 1, not 0"),
        ('data = ["x"]\nmax_k = 5', "plan.toml: max_k must be a list, not 5"),
        ('data = ["x"]\ndetails = [7]', "details, item 1 must be a valid string, not 7"),
        ('data = ["x"]\nocr = "maybe"', "ocr must be 'auto', 'always' or 'never', not 'maybe'"),
        ('data = ["x"]\nshare = [3, 2]', "share 3 of 2"),
        ("data = [", "TOML"),
        ('data = ["x"]\nmethods = ["magic"]', "There is no method 'magic'"),
        ("", "--data"),
    ],
)
def test_an_invalid_plan_is_an_error(visar: Visar, tmp_path: Path, config: str, said: str) -> None:
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
    answers = {key[0]: record.text for key, record in read_by_key(folder, AnswerRecord).items()}
    assert "April" in answers["one"]
    assert "October" in answers["two"]


def test_fixed_top_k_stores_as_many_pages_as_the_largest_budget(
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
    found = read_by_key(folder, RetrievalRecord)
    assert (first["retrieved"], first["answered"]) == (7, 5)
    assert len(found["questions", "q0", "embedded", "top-k"].pages) == 10
    # Only retrievals with too few pages are computed again.
    more = json.loads(visar(*call, "--max-k", "20").out)
    assert (more["retrieved"], more["answered"]) == (2, 5)
    deep = read_by_key(folder, RetrievalRecord)["questions", "q0", "embedded", "top-k"]
    assert len(deep.pages) == 20
    answers = read_by_key(folder, AnswerRecord)
    given = answers["questions", "q0", "embedded", "top-k", "extractive", 20, "default"]
    assert given.pages == deep.pages
    again = json.loads(visar(*call, "--max-k", "20").out)
    assert (again["retrieved"], again["answered"]) == (0, 0)
