"""When reports show the paper's numbers, and when they must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.evaluation.report.cells import report_with, row
from visar.evaluation.frames import Results, make_results
from visar.evaluation.records import QuestionRecord, RetrievalRecord, VerdictRecord
from visar.evaluation.report import InvalidPages, apply_invalid_pages, make_tables
from visar.evaluation.report.markup import to_json, to_markdown

PAPER_JUDGE = "paper 1-abc openai:Qwen/Qwen2.5-14B-Instruct"


def paper_run(
    questions: int = 1073, with_evidence: int = 842, *, encoder: str = "colpali", **changes: Any
) -> Results:
    """Return a run with as many questions as the paper's for MMLongBench, and correct answers."""
    asked = [
        QuestionRecord(
            f"q{n:04}",
            changes.get("dataset", "MMLongBench"),
            f"d{n}",
            9,
            (1,) if n < with_evidence else (),
            answerable=True,
            corrected=changes.get("corrected", False),
        )
        for n in range(questions)
    ]
    invalid = changes.get("invalid", 0)
    return make_results(
        asked,
        [
            RetrievalRecord(
                one.dataset,
                one.question,
                encoder,
                "visar",
                1,
                (1,),
                (1, 2),
                0.5,
                {"all": 0.5},
                invalid_pages=int(n < invalid),
                paper_sparsity=0.5,
            )
            for n, one in enumerate(asked)
        ],
        judged=[
            VerdictRecord(
                one.dataset,
                one.question,
                encoder,
                "visar",
                changes.get("generator", "qwen2.5-vl"),
                5,
                changes.get("judge", PAPER_JUDGE),
                correct=True,
                prompt=changes.get("prompt", "paper"),
            )
            for one in asked
        ],
    )


def paper_numbers(results: Results) -> set[str]:
    """Return the tables with the paper's numbers other than numbers of questions."""
    return {
        table.key.partition("-mmlongbench")[0].partition("-longdocurl")[0]
        for table in make_tables(results)[1:]
        if any(cell.paper is not None for cells in table.rows for cell in cells)
    }


RETRIEVAL = {"table-1", "table-2-s1"}
ANSWERS = {"table-3-s2", "accuracy", "table-s9"}
LATENCY = {"table-s8"}


def test_the_papers_numbers_are_shown_in_the_same_setting() -> None:
    tables = {table.key: table for table in make_tables(paper_run())}
    cells = row(tables["table-1-mmlongbench"], "colpali", "ViSAR")
    assert (cells["Mean k"].paper, cells["F1@k* %"].paper) == (5.3, 56.69)
    assert row(tables["table-1-mmlongbench"], "", "evidence pages")["Mean k"].paper == 1.9
    ranking = row(tables["table-2-s1-mmlongbench"], "colpali", "ViSAR")
    # The paper's NDCG is only compared with the same definition.
    assert (ranking["NDCG@5"].paper, ranking["paper's NDCG@5"].paper) == (None, 0.734)
    accuracy = tables[
        "table-3-s2-mmlongbench-qwen2-5-vl-paper-prompt-"
        "paper-1-abc-openai-qwen-qwen2-5-14b-instruct"
    ]
    assert row(accuracy, "colpali", "ViSAR")["Max-5 %"].paper == 35.42
    assert "| 1073 / 1073 | 100.00 (100.00–100.00) · paper 35.42 |" in to_markdown(
        report_with(accuracy)
    )
    place = accuracy.columns.index("Max-5 %")
    assert (
        json.loads(to_json(report_with(accuracy)))["tables"][0]["rows"][0][place]["paper"] == 35.42
    )
    assert row(tables["table-s8-mmlongbench-colpali"], "ViSAR")["Retrieval s"].paper == 0.05
    questions = row(tables["questions"], "MMLongBench")
    assert (questions["Questions"].paper, questions["With evidence"].paper) == (1073, 842)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, RETRIEVAL | ANSWERS | LATENCY),
        # Other editions of the benchmark have different questions, so both numbers are shown.
        ({"questions": 1082, "with_evidence": 841}, RETRIEVAL | ANSWERS | LATENCY),
        ({"prompt": "default"}, RETRIEVAL | LATENCY),
        ({"judge": "rules 1"}, RETRIEVAL | LATENCY),
        ({"judge": "llm 1-abc qwen2.5-14b"}, RETRIEVAL | LATENCY),
        ({"judge": "paper 1-abc qwen2.5-7b"}, RETRIEVAL | LATENCY),
        # The paper's InternVL is OpenGVLab/InternVL3_5-8B-Instruct.
        ({"generator": "OpenGVLab/InternVL3_5-8B-HF"}, RETRIEVAL | LATENCY),
        (
            {"generator": "openai:OpenGVLab/InternVL3_5-8B-Instruct"},
            RETRIEVAL | LATENCY | {"accuracy"},
        ),
        ({"corrected": True}, set()),
        ({"dataset": "Other"}, set()),
        ({"encoder": "embedded"}, {"table-1"}),
    ],
    # The order of sets differs between processes.
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
def test_definitions_prompt_judge_and_weights_must_be_the_same(
    changes: dict[str, Any], shown: set[str]
) -> None:
    assert paper_numbers(paper_run(**changes)) == shown


def test_both_numbers_of_questions_are_shown() -> None:
    table = make_tables(paper_run(with_evidence=841))[1]
    cells = row(table, "colpali", "ViSAR")
    assert (cells["Questions"].value, cells["Questions"].paper) == (841, 842)
    assert "| 841 / 842 |" in to_markdown(report_with(table))
    assert table.notes[-1] == (
        "The paper's number of questions differs: colpali 841 here, 842 in the paper."
    )


def test_the_note_lists_the_differences() -> None:
    tables = make_tables(paper_run(prompt="default", judge="rules 1"))
    accuracy = next(table for table in tables if table.key.startswith("table-3"))
    assert accuracy.notes[-1] == (
        "Not compared with the paper: the answers don't use the paper's prompt (--prompt paper); "
        "the judge is rules 1, but in the paper Qwen2.5-14B-Instruct with its own prompt "
        "(--judge paper)."
    )
    tables = make_tables(paper_run(generator="OpenGVLab/InternVL3_5-8B-HF"))
    accuracy = next(table for table in tables if table.key.startswith("accuracy"))
    assert "InternVL3_5-8B-HF has different weights than the paper's" in accuracy.notes[-1]


@pytest.mark.parametrize(
    ("way", "counted", "has_paper"),
    [("auto", 2153, True), ("leave-out", 2153, True), ("empty", 2323, False)],
)
def test_questions_on_invalid_pages(way: InvalidPages, counted: int, has_paper: bool) -> None:
    """Of 2,325 questions, 2,323 have evidence and 170 are about documents with NaN pages.

    2,323 − 170 = 2,153 for retrieval, 2,325 − 170 = 2,155 for accuracy, as in the paper.
    """
    run = paper_run(2325, 2323, dataset="LongDocURL", encoder="colmodernvbert+authors", invalid=170)
    tables = make_tables(apply_invalid_pages(run, way))
    cells = row(tables[1], "colmodernvbert+authors", "ViSAR")
    assert cells["Questions"].value == counted
    assert cells["Mean k"].paper == (13.5 if has_paper else None)
    accuracy = row(
        next(table for table in tables if table.key.startswith("table-3")),
        "colmodernvbert+authors",
        "ViSAR",
    )
    assert accuracy["n, Max-5"].value == (2155 if has_paper else 2325)
    assert accuracy["Max-5 %"].paper == (58.28 if has_paper else None)
    if has_paper:
        note = "colmodernvbert+authors: 170 questions are left out, as in the paper"
    else:
        note = "colmodernvbert+authors: 170 questions are about documents with pages that"
    assert any(one.startswith(note) for one in tables[1].notes)
    assert not any("Missing results" in one for one in tables[1].notes)
