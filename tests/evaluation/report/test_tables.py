"""The tables' numbers against sums that share nothing with ours: loops over the raw lines."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.synthetic import DATASETS, ENCODERS, write_run
from visar.evaluation.findings import Findings, read_findings
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Asked, Judged, Retrieved
from visar.evaluation.report import InvalidPages, apply_invalid_pages, make_tables
from visar.evaluation.report.markup import Cell, Report, Table, to_html, to_json, to_markdown
from visar.evaluation.report.scope import LATE

DATASET, ENCODER, GENERATOR = DATASETS[0], ENCODERS[1], "extractive"
Raw = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, Table]:
    made = make_tables(read_findings(folder))
    by_key = {table.key: table for table in made}
    assert len(by_key) == len(made)
    return by_key


def raw_lines(folder: Path, kind: str) -> list[Raw]:
    return [
        json.loads(line)
        for path in sorted(folder.glob(f"{kind}*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def evidence(folder: Path) -> dict[str, list[int]]:
    """Of the questions that count for retrieval."""
    return {
        one["question"]: one["evidence_pages"]
        for one in raw_lines(folder, "asked")
        if one["dataset"] == DATASET and one["evidence_pages"]
    }


def chosen(folder: Path, method: str) -> list[Raw]:
    return [
        one
        for one in raw_lines(folder, "retrieved")
        if (one["dataset"], one["encoder"], one["method"]) == (DATASET, ENCODER, method)
    ]


def alone(table: Table) -> Report:
    return Report("Title", (), (table,), (), "[]")


def row(table: Table, *start: str) -> dict[str, Cell]:
    for cells in table.rows:
        if tuple(cell.value for cell in cells[: len(start)]) == start:
            return dict(zip(table.columns, cells, strict=True))
    raise AssertionError(f"{start} is not in {table.title}")


@pytest.mark.parametrize("method", ["visar", "largest-gap", "score-cluster"])
def test_table_1(folder: Path, tables: dict[str, Table], method: str) -> None:
    pages = evidence(folder)
    ks, recalls, precisions = [], [], []
    for one in chosen(folder, method):
        if one["question"] in pages:
            found = sum(page in pages[one["question"]] for page in one["pages"])
            ks.append(one["k"])
            recalls.append(found / len(pages[one["question"]]))
            precisions.append(found / len(one["pages"]))
    r, p = 100 * statistics.mean(recalls), 100 * statistics.mean(precisions)
    cells = row(tables["table-1-mmlongbench"], ENCODER, METHODS[method].label)
    assert cells["Questions"].value == len(ks) == 32
    assert cells["Mean k"].value == pytest.approx(statistics.mean(ks))
    assert cells["Median k"].value == statistics.median(ks)
    assert cells["R@k* %"].value == pytest.approx(r)
    assert cells["P@k* %"].value == pytest.approx(p)
    assert cells["F1@k* %"].value == pytest.approx(2 * r * p / (r + p))


def test_table_1_ends_with_the_evidence(folder: Path, tables: dict[str, Table]) -> None:
    counts = [len(pages) for pages in evidence(folder).values()]
    cells = row(tables["table-1-mmlongbench"], "", "evidence pages")
    assert cells["Mean k"].value == pytest.approx(statistics.mean(counts))
    assert cells["R@k* %"].text == "—"


@pytest.mark.parametrize("method", [LATE, "single-vector", "visar"])
@pytest.mark.parametrize("rank", [5, 10])
def test_tables_2_and_s1(folder: Path, tables: dict[str, Table], method: str, rank: int) -> None:
    pages = evidence(folder)
    recalls, gains, paper_gains, hits, reciprocals = [], [], [], [], []
    for one in chosen(folder, method):
        if one["question"] not in pages:
            continue
        right = pages[one["question"]]
        ranks = [
            place
            for place in range(rank)
            if one["ranking"][place : place + 1] and one["ranking"][place] in right
        ]
        recalls.append(100 * len(ranks) / len(right))
        ideal = sum(1 / math.log2(place + 2) for place in range(min(rank, len(right))))
        gains.append(sum(1 / math.log2(place + 2) for place in ranks) / ideal)
        # The paper's: as if the evidence that was not found did not exist.
        found = sum(1 / math.log2(place + 2) for place in range(len(ranks)))
        paper_gains.append(gains[-1] * ideal / found if ranks else 0.0)
        hits.append(100.0 if ranks else 0.0)
        reciprocals.append(1 / (ranks[0] + 1) if ranks else 0.0)
    cells = row(tables["table-2-s1-mmlongbench"], ENCODER, METHODS[method].label)
    assert cells[f"paper's NDCG@{rank}"].value == pytest.approx(statistics.mean(paper_gains))
    assert cells[f"Recall@{rank} %"].value == pytest.approx(statistics.mean(recalls))
    assert cells[f"NDCG@{rank}"].value == pytest.approx(statistics.mean(gains))
    assert cells[f"Hits@{rank} %"].value == pytest.approx(statistics.mean(hits))
    assert cells[f"MRR@{rank}"].value == pytest.approx(statistics.mean(reciprocals))


def verdicts(folder: Path, method: str, max_k: int) -> dict[str, bool]:
    wanted = (DATASET, ENCODER, method, GENERATOR, max_k)
    return {
        one["question"]: one["correct"]
        for one in raw_lines(folder, "judged")
        if (one["dataset"], one["encoder"], one["method"], one["generator"], one["max_k"]) == wanted
    }


@pytest.mark.parametrize("max_k", [5, 10])
def test_tables_3_and_4(folder: Path, tables: dict[str, Table], max_k: int) -> None:
    visar, fixed = (verdicts(folder, name, max_k) for name in ("visar", LATE))
    cells = row(tables["table-3-s2-mmlongbench-extractive-rules"], ENCODER, "ViSAR")
    accuracy = cells[f"Max-{max_k} %"]
    assert accuracy.value == pytest.approx(100 * sum(visar.values()) / 40)
    assert accuracy.interval is not None
    # The normal approximation is near enough to tell a wrong interval from a right one.
    share = sum(visar.values()) / 40
    wide = 196 * math.sqrt(share * (1 - share) / 40)
    assert accuracy.interval == pytest.approx((100 * share - wide, 100 * share + wide), abs=3)
    only = (
        sum(visar[q] and not fixed[q] for q in visar),
        sum(fixed[q] and not visar[q] for q in fixed),
    )
    tail = sum(math.comb(sum(only), i) for i in range(min(only) + 1)) / 2 ** sum(only)
    assert cells[f"p, Max-{max_k}"].value == pytest.approx(min(1, 2 * tail))
    fixed_cells = row(
        tables["table-3-s2-mmlongbench-extractive-rules"], ENCODER, "Late-Interaction"
    )
    assert fixed_cells[f"p, Max-{max_k}"].value is None


def judged_run(right: dict[str, list[bool]], **changes: Any) -> Findings:
    """Answers of methods to the questions of a data set D, in order."""
    count = len(next(iter(right.values())))
    asked = [Asked(f"q{n}", "D", "a", 9, (1,), answerable=True) for n in range(count)]
    judged = [
        Judged("D", one.question, "e", method, "g", 5, "rules", correct=is_right)
        for method, verdicts in right.items()
        for one, is_right in zip(asked, verdicts, strict=True)
    ]
    return Findings(tuple(asked), judged=tuple(replace(one, **changes) for one in judged))


def table_of(findings: Findings, key: str) -> Table:
    return next(table for table in make_tables(findings) if table.key.startswith(key))


def test_table_4_tells_better_from_equal_and_worse() -> None:
    findings = judged_run(
        {
            LATE: [False] * 12,
            "visar": [True] * 12,
            # 5 of 12 more are right: p = 2 / 2^5 = 0.0625, which does not tell.
            "largest-gap": [True] * 5 + [False] * 7,
            "their:method": [False] * 12,
        }
    )
    table = table_of(findings, "table-4")
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["p"].value == 2 / 2**12
    assert (cells["Only ViSAR right"].value, cells["Only fixed right"].value) == (12, 0)
    assert cells["Difference"] == Cell(100.0, 2, interval=(100.0, 100.0), marked=True)
    assert cells["ViSAR is"].value == "better"
    assert "**100.00 (100.00–100.00)**" in to_markdown(alone(table))
    assert "<strong>100.00" in to_html(alone(table))
    outcomes = {
        cells[0].value: tuple(cell.value for cell in cells[1:])
        for cells in table_of(findings, "outcomes").rows
    }
    # Settings, better, equal, worse: here one setting.
    assert outcomes == {
        "ViSAR": (1, 1, 0, 0),
        "Largest-Gap": (1, 0, 1, 0),
        "their:method": (1, 0, 1, 0),
    }
    worse = judged_run({LATE: [True] * 12, "visar": [False] * 12})
    assert [cell.value for cell in table_of(worse, "outcomes").rows[0]] == ["ViSAR", 1, 0, 0, 1]


def test_in_table_3_the_highest_accuracy_is_bold() -> None:
    findings = judged_run({LATE: [True, True, False], "visar": [True] * 3})
    table = table_of(findings, "table-3")
    assert row(table, "e", "ViSAR")["Max-5 %"].marked
    assert not row(table, "e", "Late-Interaction")["Max-5 %"].marked


def test_a_text_model_joins_the_table_of_the_model_that_sees_pages() -> None:
    """As the paper's Table 3 has ColBERTv2 with Qwen2.5-7B-Instruct."""
    judged = [
        Judged("D", "q0", encoder, LATE, generator, 5, "rules", correct=True)
        for encoder, generator in (("colbertv2", "qwen2.5-7b"), ("colpali", "qwen2.5-vl"))
    ]
    asked = Asked("q0", "D", "a", 9, (1,), answerable=True)
    findings = Findings((asked,), judged=tuple(judged))
    tables = [table for table in make_tables(findings) if table.key.startswith("table-3")]
    assert [table.key for table in tables] == ["table-3-s2-d-qwen2-5-vl-rules"]
    assert [[cell.value for cell in cells[:4]] for cells in tables[0].rows] == [
        ["colbertv2", "Late-Interaction", "fixed", "qwen2.5-7b"],
        ["colpali", "Late-Interaction (M3DocRAG)", "fixed", "qwen2.5-vl"],
    ]


def test_prompts_are_told_apart() -> None:
    default = judged_run({"visar": [True, True]})
    paper = judged_run({"visar": [False, True]}, prompt="paper")
    tables = make_tables(replace(default, judged=(*default.judged, *paper.judged)))
    accuracy = {
        table.title: row(table, "e", "ViSAR")["Max-5 %"].value
        for table in tables
        if table.key.startswith("table-3")
    }
    assert accuracy == {
        "Tables 3 and S2. Accuracy: D, g, judged by rules": 100.0,
        "Tables 3 and S2. Accuracy: D, g (the paper's prompt), judged by rules": 50.0,
    }


def test_table_s8(folder: Path, tables: dict[str, Table]) -> None:
    table = tables["table-s8-mmlongbench-embedded-extractive"]
    means = {}
    for method in (LATE, "visar"):
        retrieval = {
            one["question"]: sum(one["seconds"].values()) for one in chosen(folder, method)
        }
        generation = {
            one["question"]: one["seconds"]
            for one in raw_lines(folder, "answered")
            if (one["dataset"], one["encoder"], one["method"]) == (DATASET, ENCODER, method)
            and (one["generator"], one["max_k"]) == (GENERATOR, 10)
        }
        means[method] = statistics.mean(retrieval[q] + generation[q] for q in generation)
        cells = row(table, METHODS[method].label)
        assert cells["Retrieval s"].value == pytest.approx(statistics.mean(retrieval.values()))
        assert cells["Generation, Max-10 s"].value == pytest.approx(
            statistics.mean(generation.values())
        )
        assert cells["End to end, Max-10 s"].value == pytest.approx(means[method])
    change = 100 * (means["visar"] / means[LATE] - 1)
    cells = row(table, "ViSAR")
    assert cells["End to end, Max-10 s"].remark == f"−{-change:.1f} %"


def test_table_s9(folder: Path, tables: dict[str, Table]) -> None:
    correct = verdicts(folder, "visar", 5)
    sparsity = {one["question"]: 100 * one["paper_sparsity"] for one in chosen(folder, "visar")}
    table = tables["table-s9-mmlongbench-extractive-rules"]
    for name, values in (
        ("Correct", [sparsity[q] for q in sparsity if correct[q]]),
        ("Wrong", [sparsity[q] for q in sparsity if not correct[q]]),
        ("All", list(sparsity.values())),
    ):
        cell = row(table, ENCODER, name)["Sparsity, Max-5 %"]
        assert cell.value == pytest.approx(statistics.mean(values))
        assert cell.spread == pytest.approx(statistics.pstdev(values))
        assert cell.remark == f"{min(values):.2f}–{max(values):.2f}"


def test_table_s10(folder: Path, tables: dict[str, Table]) -> None:
    cells = row(tables["table-s10-b-mmlongbench-extractive-rules"], ENCODER, "Largest-Gap on s_p")
    ks = [one["k"] for one in chosen(folder, "visar largest-gap")]
    assert len(ks) == 40
    assert cells["Mean k*"].value == pytest.approx(statistics.mean(ks))
    right = verdicts(folder, "visar largest-gap", 10)
    assert cells["Max-10 %"].value == pytest.approx(100 * statistics.mean(right.values()))
    variants = [cells[1].value for cells in tables["table-s10-a-mmlongbench"].rows[:4]]
    assert variants == ["ViSAR", "w_i = 1", "w_p = 1", "w_i = w_p = 1"]


def test_every_table_says_what_was_skipped_and_why(tables: dict[str, Table]) -> None:
    said = "Skipped, with all their questions: 1 missing documents, 1 that cannot be read."
    for table in tables.values():
        if DATASET in table.title:
            assert said in table.notes, table.title
    assert tables["questions"].notes[:2] == (
        "MMLongBench: skipped gone.pdf (missing); locked.pdf (locked.pdf is encrypted).",
        "MMLongBench: 1 questions name evidence pages that their document does not have; only "
        "those it has count (q1).",
    )


def test_results_come_with_and_without_corrections(tables: dict[str, Table]) -> None:
    corrected = tables["table-1-mmlongbench-corrected"]
    assert "8 of them are corrected." in corrected.notes
    assert not any("are corrected" in note for note in tables["table-1-mmlongbench"].notes)
    assert row(tables["questions"], "MMLongBench, corrected")["Corrected"].value == 8


def test_missing_results_are_counted_by_row(folder: Path) -> None:
    findings = read_findings(folder)
    first = next(one for one in findings.asked if one.evidence_pages)
    fewer = [
        one
        for one in findings.retrieved
        if (one.method, one.question, one.encoder) != ("visar", first.question, ENCODER)
    ]
    table = make_tables(Findings(findings.asked, tuple(fewer)))[1]
    assert row(table, ENCODER, "ViSAR")["Questions"].value == 31
    assert any(f"left out of their rows only: ViSAR ({ENCODER}) 1." in note for note in table.notes)


def test_records_of_other_questions_are_no_obstacle(folder: Path) -> None:
    findings = read_findings(folder)
    one = findings.retrieved[0]
    strays = (replace(one, question="gone"), replace(one, dataset="gone"))
    more = (*findings.retrieved, *strays)
    made = make_tables(replace(findings, retrieved=more))
    assert "Left out: 2 records of questions that the run did not ask." in made[0].notes
    assert made[1:] == make_tables(findings)[1:]


PAPER_JUDGE = "paper 1-abc openai:Qwen/Qwen2.5-14B-Instruct"


def paper_run(
    questions: int = 1073, with_evidence: int = 842, *, encoder: str = "colpali", **changes: Any
) -> Findings:
    """As many questions as the paper asks of MMLongBench, and the best of answers."""
    asked = [
        Asked(
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
    return Findings(
        tuple(asked),
        tuple(
            Retrieved(
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
        ),
        (),
        tuple(
            Judged(
                one.dataset,
                one.question,
                encoder,
                "visar",
                "qwen2.5-vl",
                5,
                changes.get("judge", PAPER_JUDGE),
                correct=True,
                prompt=changes.get("prompt", "paper"),
            )
            for one in asked
        ),
    )


def paper_numbers(findings: Findings) -> set[str]:
    """The tables in which a number of the paper stands, but for that of the questions."""
    return {
        table.key.partition("-mmlongbench")[0].partition("-longdocurl")[0]
        for table in make_tables(findings)[1:]
        if any(cell.paper is not None for cells in table.rows for cell in cells)
    }


RETRIEVAL = {"table-1", "table-2-s1"}
ANSWERS = {"table-3-s2", "table-s9"}
LATENCY = {"table-s8"}


def test_the_papers_number_stands_beside_ours_in_the_same_setting() -> None:
    tables = {table.key: table for table in make_tables(paper_run())}
    cells = row(tables["table-1-mmlongbench"], "colpali", "ViSAR")
    assert (cells["Mean k"].paper, cells["F1@k* %"].paper) == (5.3, 56.69)
    assert row(tables["table-1-mmlongbench"], "", "evidence pages")["Mean k"].paper == 1.9
    ranking = row(tables["table-2-s1-mmlongbench"], "colpali", "ViSAR")
    # It is the paper's own NDCG, and stands beside that alone.
    assert (ranking["NDCG@5"].paper, ranking["paper's NDCG@5"].paper) == (None, 0.734)
    accuracy = tables[
        "table-3-s2-mmlongbench-qwen2-5-vl-paper-prompt-"
        "paper-1-abc-openai-qwen-qwen2-5-14b-instruct"
    ]
    assert row(accuracy, "colpali", "ViSAR")["Max-5 %"].paper == 35.42
    assert "100.00 (100.00–100.00) · paper 35.42" in to_markdown(alone(accuracy))
    place = accuracy.columns.index("Max-5 %")
    assert json.loads(to_json(alone(accuracy)))["tables"][0]["rows"][0][place]["paper"] == 35.42
    assert row(tables["table-s8-mmlongbench-colpali"], "ViSAR")["Retrieval s"].paper == 0.05
    questions = row(tables["questions"], "MMLongBench")
    assert (questions["Questions"].paper, questions["With evidence"].paper) == (1073, 842)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, RETRIEVAL | ANSWERS | LATENCY),
        # The repository's version of the benchmark: other questions for answers only.
        ({"questions": 1082}, RETRIEVAL),
        ({"with_evidence": 841}, ANSWERS | LATENCY),
        ({"prompt": "default"}, RETRIEVAL | LATENCY),
        ({"judge": "rules 1"}, RETRIEVAL | LATENCY),
        ({"judge": "llm 1-abc qwen2.5-14b"}, RETRIEVAL | LATENCY),
        ({"judge": "paper 1-abc qwen2.5-7b"}, RETRIEVAL | LATENCY),
        ({"corrected": True}, set()),
        ({"dataset": "Other"}, set()),
        ({"encoder": "embedded"}, {"table-1"}),
    ],
    # A set prints in another order in each process.
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
def test_denominators_prompt_and_judge_decide(changes: dict[str, Any], shown: set[str]) -> None:
    assert paper_numbers(paper_run(**changes)) == shown


def test_another_number_of_questions_is_said() -> None:
    tables = make_tables(paper_run(with_evidence=841))
    said = (
        "No number of the paper stands here for some or all rows: with colpali 841 questions "
        "count, in the paper 842."
    )
    assert said in tables[1].notes
    tables = make_tables(paper_run(prompt="default", judge="rules 1"))
    accuracy = next(table for table in tables if table.key.startswith("table-3"))
    assert accuracy.notes[-1] == (
        "No number of the paper stands here: the answers are not asked for with the paper's prompt "
        "(--prompt paper); they are judged by rules 1, in the paper by Qwen2.5-14B-Instruct with "
        "its own prompt (--judge paper)."
    )


def longdocurl_run(invalid: int = 170) -> Findings:
    """2,325 questions, 2,323 with evidence; of these, 170 on documents with NaN pages."""
    return paper_run(2325, 2323, dataset="LongDocURL", encoder="colmodernvbert", invalid=invalid)


@pytest.mark.parametrize(
    ("way", "counted", "has_paper"),
    [("auto", 2153, True), ("leave-out", 2153, True), ("empty", 2323, False)],
)
def test_questions_on_invalid_pages(way: InvalidPages, counted: int, has_paper: bool) -> None:
    """2,323 − 170 = 2,153 for retrieval, 2,325 − 170 = 2,155 for accuracy, as in the paper."""
    tables = make_tables(apply_invalid_pages(longdocurl_run(), way))
    cells = row(tables[1], "colmodernvbert", "ViSAR")
    assert cells["Questions"].value == counted
    assert cells["Mean k"].paper == (13.5 if has_paper else None)
    accuracy = row(
        next(table for table in tables if table.key.startswith("table-3")),
        "colmodernvbert",
        "ViSAR",
    )
    assert accuracy["n, Max-5"].value == (2155 if has_paper else 2325)
    assert accuracy["Max-5 %"].paper == (58.28 if has_paper else None)
    if has_paper:
        note = "colmodernvbert: 170 questions are left out, as in the paper"
    else:
        note = "colmodernvbert: 170 questions are about documents with pages that could not be"
    assert any(one.startswith(note) for one in tables[1].notes)
    assert not any("Without a result" in one for one in tables[1].notes)


def test_where_the_papers_numbers_cannot_stand_invalid_pages_are_empty() -> None:
    """171 questions on such documents are not the paper's 170."""
    tables = make_tables(apply_invalid_pages(longdocurl_run(171), "auto"))
    assert row(tables[1], "colmodernvbert", "ViSAR")["Questions"].value == 2323


def test_another_setting_is_said_to_be_another(tables: dict[str, Table]) -> None:
    notes = tables["table-3-s2-mmlongbench-extractive-rules"].notes
    assert any(
        note.startswith(
            "No number of the paper stands here: the paper does not use the generator extractive; "
            "the answers are not asked for with the paper's prompt"
        )
        and note.endswith("the paper does not use the encoder embedded.")
        for note in notes
    )
    for key, table in tables.items():
        if key != "questions":
            assert all(cell.paper is None for cells in table.rows for cell in cells)


def test_the_approximation_has_the_generation_time_of_visar() -> None:
    """0.1 s of its own retrieval + 2 s of ViSAR's generation; fixed top-k 0.2 + 4: −50 %."""
    asked = Asked("q0", "D", "a", 9, (1,), answerable=True)
    retrieved = [
        Retrieved("D", "q0", "e", method, 1, (1,), (1,), None, {"all": seconds})
        for method, seconds in ((LATE, 0.2), ("visar", 1.0), ("visar-approx", 0.1))
    ]
    answered = [
        Answered("D", "q0", "e", method, "g", 5, (1,), "", "", None, None, seconds)
        for method, seconds in ((LATE, 4.0), ("visar", 2.0))
    ]
    table = table_of(Findings((asked,), tuple(retrieved), tuple(answered)), "table-s8")
    cells = row(table, "ViSAR (Approx.)")
    assert cells["Retrieval s"].value == 0.1
    assert cells["Generation, Max-5 s"].value == 2.0
    assert cells["End to end, Max-5 s"].value == pytest.approx(2.1)
    assert cells["End to end, Max-5 s"].remark == "−50.0 %"
    assert cells["End to end, Max-5 s"].marked


def choices(method: str, pages: list[tuple[int, ...]]) -> list[Retrieved]:
    return [
        Retrieved("D", f"q{n}", "e", method, len(of), of, of, None, {})
        for n, of in enumerate(pages)
    ]


def test_differences_are_taken_on_shared_questions() -> None:
    """Evidence is page 1 of four questions. ViSAR takes (1), (1), (1), (2): P = R = ¾, F1 75 %.

    Largest-Gap has the first two: (1, 2) and (2, 1): R = 1, P = ½, F1 = 66.67 %. On these ViSAR
    has F1 100 %: the difference is −33.33, and that of mean k is 2 − 1 = 1.
    """
    asked = tuple(Asked(f"q{n}", "D", "a", 9, (1,), answerable=True) for n in range(4))
    retrieved = (
        *choices("visar", [(1,), (1,), (1,), (2,)]),
        *choices("largest-gap", [(1, 2), (2, 1)]),
    )
    table = table_of(Findings(asked, retrieved), "table-1")
    own, other = (row(table, "e", name) for name in ("ViSAR", "Largest-Gap"))
    assert own["F1@k* %"].value == pytest.approx(75)
    assert own["F1@k* % − ViSAR"].value is None
    assert other["F1@k* %"].value == pytest.approx(200 / 3)
    assert other["F1@k* % − ViSAR"].value == pytest.approx(-100 / 3)
    assert other["Mean k − ViSAR"].value == pytest.approx(1)


def test_names_from_data_do_no_harm() -> None:
    table = Table("k", "<b>|*x*", ("a|b",), ((Cell("<script>&"),), (Cell("`]("),)), ("<i>",))
    html = to_html(alone(table))
    assert not any(tag in html for tag in ("<script", "<b>", "<i>"))
    markdown = to_markdown(alone(table))
    assert r"\<b\>\|\*x\*" in markdown
    assert r"| \<script\>\& |" in markdown
    assert r"| \`\]( |" in markdown
