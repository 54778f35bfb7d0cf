"""Runs with the paper's prompt, judge and page handling, and their records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.datasets.layouts import MMLONGBENCH, write_samples
from tests.evaluation.plugin import CountingEncoder, CountingGenerator
from tests.evaluation.small_run import PAGES, QUESTIONS, MakePdf, evaluate, write_questions
from tests.evaluation.small_run import data as data
from tests.evaluation.small_run import models as models
from tests.generation.smollm import SmolLM
from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding, page_without_vectors
from visar.evaluation.datasets import published_edition
from visar.evaluation.manifest import read_manifests
from visar.evaluation.records import (
    AnswerRecord,
    QuestionRecord,
    RetrievalRecord,
    VerdictRecord,
    read_by_key,
)


def test_a_run_with_both_prompts_and_all_judges(
    visar: Visar, data: Path, tmp_path: Path, smollm: SmolLM
) -> None:
    """A real small model answers with both prompts in one folder, and judges with both."""
    model = f"openai-text:{smollm.model}"
    folder = tmp_path / "run"
    write_questions(data, QUESTIONS[:2])
    call = (
        *("eval", "run", folder, "--data", data, "--method", "visar", "--max-k", "2"),
        *("--generator", model, "--generator", "extractive", "--base-url", smollm.base_url),
        "--json",
    )
    assert json.loads(visar(*call).out)["answered"] == 2 * 2
    papers = (*call, "--prompt", "paper", "--judge", f"paper:{model}", "--judge", model)
    ran = visar(*papers)
    assert ran.code == 0, ran.err
    # Quotes have no prompt and exist already. Both judges get all answers.
    assert (json.loads(ran.out)["answered"], json.loads(ran.out)["judged"]) == (2, 2 * 2 * 3)
    answers = read_by_key(folder, AnswerRecord).values()
    by_prompt = {
        prompt: [a for a in answers if a.prompt == prompt] for prompt in ("default", "paper")
    }
    assert [len(by_prompt["default"]), len(by_prompt["paper"])] == [4, 2]
    assert {answer.generator for answer in by_prompt["paper"]} == {model}
    assert {answer.model for answer in by_prompt["paper"]} == {smollm.model}
    assert all(answer.raw and answer.input_tokens for answer in by_prompt["paper"])
    judged = read_by_key(folder, VerdictRecord).values()
    by_paper = [verdict for verdict in judged if verdict.judge.startswith("paper ")]
    assert {verdict.judge.rpartition(" ")[2] for verdict in by_paper} == {model}
    assert sorted(verdict.prompt for verdict in by_paper) == ["default"] * 4 + ["paper"] * 2
    again = json.loads(visar(*papers).out)
    assert (again["answered"], again["judged"]) == (0, 0)
    assert read_manifests(folder)[-1]["plan"]["prompt"] == "paper"
    assert visar("eval", "report", folder).code == 0
    assert "Agreement of judges" in (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("prompt", "text", "judged"),
    [("default", "", "Not answerable"), ("paper", "", ""), ("paper", "April", "April")],
)
def test_the_answer_shown_to_judges(prompt: str, text: str, judged: str) -> None:
    """Only our own prompt allows "not answerable", which is stored as empty text."""
    answered = AnswerRecord(
        "d", "q", "e", "m", "g", 5, (1,), text, "", None, None, 0.0, prompt=prompt
    )
    assert answered.judged_text == judged


def test_an_unreadable_verdict_is_incorrect_but_not_a_failure(
    data: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    models["grader"] = lambda name: CountingGenerator(name, [])
    settings: dict[str, Any] = {"methods": ["visar"], "generators": ["extractive"], "max_k": [5]}
    outcome = evaluate(tmp_path / "run", data=[str(data)], judges=["paper:grader"], **settings)
    assert (outcome.judged, outcome.failures) == (4, {})
    assert not any(
        verdict.correct for verdict in read_by_key(tmp_path / "run", VerdictRecord).values()
    )


class PartlyFailingEncoder(CountingEncoder):
    """An encoder that fails on pages about tax, like encoders that return NaN for some pages."""

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        found = super().encode_pages(pages, images)
        return [
            page_without_vectors(self.dimension, "no numbers")
            if any(word.text == "tax" for word in page.words)
            else embedding
            for page, embedding in zip(pages, found, strict=True)
        ]


def test_records_have_the_number_of_failed_pages(
    data: Path, make_pdf: MakePdf, tmp_path: Path, models: dict[str, Any]
) -> None:
    # notes.pdf and more.pdf have one page about tax each; dry.pdf has none.
    make_pdf("dry.pdf", PAGES[0], PAGES[2])
    write_questions(data, [*QUESTIONS, ("When was it built?", "dry.pdf", [2], ["1898"])])
    models |= {"half-blind": lambda name: PartlyFailingEncoder(name, [])}
    outcome = evaluate(
        tmp_path / "run", data=[str(data)], encoders=["half-blind"], methods=["visar", "top-k"]
    )
    assert outcome.skipped.invalid_pages == {"half-blind": 2}
    invalid = {
        (question, found.invalid_pages)
        for (_, question, *_), found in read_by_key(tmp_path / "run", RetrievalRecord).items()
    }
    assert invalid == {("q0", 1), ("q1", 1), ("q2", 1), ("q4", 1), ("q5", 0)}


def test_evidence_outside_a_document_is_ignored_and_the_edition_recorded(
    visar: Visar, tmp_path: Path
) -> None:
    # ferries.pdf has 3 pages. Of [2, 3], both count; of [0, 7], 0 is page 1 and 7 is past the end.
    # lost.pdf is missing.
    folder = write_samples(tmp_path / "bench", MMLONGBENCH)
    ran = visar(*("eval", "run", tmp_path / "run", "--data", folder, "--method", "visar", "--json"))
    assert ran.code == 0, ran.err
    evidence = [
        asked.evidence_pages for asked in read_by_key(tmp_path / "run", QuestionRecord).values()
    ]
    assert evidence == [(2, 3), (1,)]
    assert list(json.loads(ran.out)["skipped"]["pages_outside"]) == ["MMLongBench"]
    read = read_manifests(tmp_path / "run")[0]["data"]["MMLongBench"]
    assert (read["source"], read["questions"], read["edition"]) == (str(folder), 3, None)
    # With the collection's number of questions, the manifest would name it.
    assert published_edition("MMLongBench", 1073) == "Lillianwei/Mdocagent-dataset, the paper's"
