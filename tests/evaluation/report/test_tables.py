"""The numbers in tables, compared with independent loops over the raw records."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.report.cells import report_with, row
from tests.evaluation.synthetic import DATASETS, ENCODERS, write_run
from visar.evaluation.frames import Results, make_results, read_results
from visar.evaluation.methods import METHODS
from visar.evaluation.records import AnswerRecord, QuestionRecord, RetrievalRecord, VerdictRecord
from visar.evaluation.report import make_tables
from visar.evaluation.report.markup import Cell, Table, to_html, to_markdown
from visar.evaluation.report.methods import LATE
from visar.evaluation.report.retrieval_tables import fixed_k_curve

DATASET, ENCODER, GENERATOR = DATASETS[0], ENCODERS[1], "extractive"
Raw = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("run"),
        datasets=DATASETS[:2],
        encoders=(ENCODER,),
        generators=(GENERATOR,),
    )


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, Table]:
    tables = make_tables(read_results(folder))
    by_key = {table.key: table for table in tables}
    assert len(by_key) == len(tables)
    return by_key


def raw_lines(folder: Path, kind: str) -> list[Raw]:
    return [
        json.loads(line)
        for path in sorted(folder.glob(f"{kind}*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def evidence(folder: Path) -> dict[str, list[int]]:
    """Return the evidence pages of questions that count for retrieval."""
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
    assert cells["All evidence %"].value == pytest.approx(100 * recalls.count(1) / len(recalls))
    last = row(tables["table-1-mmlongbench"], "", "evidence pages")
    assert last["Mean k"].value == pytest.approx(statistics.mean(map(len, pages.values())))
    assert last["R@k* %"].text == "—"


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
        # The paper's NDCG ignores evidence that wasn't found.
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
    cells = row(tables["accuracy-mmlongbench-extractive-rules"], ENCODER, "ViSAR")
    accuracy = cells[f"Max-{max_k} %"]
    assert accuracy.value == pytest.approx(100 * sum(visar.values()) / 40)
    assert accuracy.interval is not None
    # The normal approximation is accurate enough to detect a wrong interval.
    share = sum(visar.values()) / 40
    wide = 196 * math.sqrt(share * (1 - share) / 40)
    assert accuracy.interval == pytest.approx((100 * share - wide, 100 * share + wide), abs=3)
    only = (
        sum(visar[q] and not fixed[q] for q in visar),
        sum(fixed[q] and not visar[q] for q in fixed),
    )
    tail = sum(math.comb(sum(only), i) for i in range(min(only) + 1)) / 2 ** sum(only)
    assert cells[f"p, Max-{max_k}"].value == pytest.approx(min(1, 2 * tail))
    fixed_cells = row(tables["accuracy-mmlongbench-extractive-rules"], ENCODER, "Late-Interaction")
    assert fixed_cells[f"p, Max-{max_k}"].value is None


def judge_all(
    right: dict[str, list[bool]], **changes: Any
) -> tuple[list[QuestionRecord], list[VerdictRecord]]:
    """Return records with the given verdicts on the methods' answers for a data set D."""
    count = len(next(iter(right.values())))
    asked = [QuestionRecord(f"q{n:02}", "D", "a", 9, (1,), answerable=True) for n in range(count)]
    judged = [
        VerdictRecord("D", one.question, "e", method, "g", 5, "rules", correct=is_right)
        for method, verdicts in right.items()
        for one, is_right in zip(asked, verdicts, strict=True)
    ]
    return asked, [replace(one, **changes) for one in judged]


def judged_run(right: dict[str, list[bool]], **changes: Any) -> Results:
    asked, judged = judge_all(right, **changes)
    return make_results(asked, judged=judged)


def table_of(results: Results, key: str) -> Table:
    return next(table for table in make_tables(results) if table.key.startswith(key))


def test_outcomes_are_better_equal_or_worse() -> None:
    results = judged_run(
        {
            LATE: [False] * 12,
            "visar": [True] * 12,
            # 5 of 12 more are correct: p = 2 / 2^5 = 0.0625, which isn't significant.
            "largest-gap": [True] * 5 + [False] * 7,
            "their:method": [False] * 12,
        }
    )
    table = table_of(results, "match")
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["p"].value == pytest.approx(2 / 2**12)
    assert (cells["Only ViSAR correct"].value, cells["Only fixed correct"].value) == (12, 0)
    assert cells["Difference"] == Cell(100.0, 2, interval=(100.0, 100.0), marked=True)
    assert cells["ViSAR is"].value == "better"
    assert "**100.00 (100.00–100.00)**" in to_markdown(report_with(table))
    assert "<strong>100.00" in to_html(report_with(table))
    summary = table_of(results, "outcomes")
    # A count over all generators, whether they are in the paper's tables or not.
    assert summary.title == "Better, equal or worse than fixed top-k: judged by rules"
    outcomes = {cells[0].value: tuple(cell.value for cell in cells[1:]) for cells in summary.rows}
    # Settings, better, equal, worse, for one setting.
    assert outcomes == {
        "ViSAR": (1, 1, 0, 0),
        "Largest-Gap": (1, 0, 1, 0),
        "their:method": (1, 0, 1, 0),
    }
    worse = judged_run({LATE: [True] * 12, "visar": [False] * 12})
    assert [cell.value for cell in table_of(worse, "outcomes").rows[0]] == ["ViSAR", 1, 0, 0, 1]


def test_each_generator_has_its_table_of_the_paper() -> None:
    """Qwen2.5-VL is in Tables 4 and S3, whose numbers differ: 61.06 and 60.86 for one setting."""
    names = {
        "qwen2.5-vl": ["Table 4", "Table S3"],
        "qwen3-vl": ["Table S4"],
        # The paper's weights, which can only be served.
        "openai:OpenGVLab/InternVL3_5-8B-Instruct": ["Table S5"],
        "idefics3": ["Table S6"],
        "llava-onevision": ["Table S7"],
    }
    right = {LATE: [True], "visar": [True]}
    judge = "paper 1-abc openai:Qwen/Qwen2.5-14B-Instruct"
    setting = {"dataset": "LongDocURL", "encoder": "colqwen2.5", "prompt": "paper", "judge": judge}
    asked = [replace(one, dataset="LongDocURL") for one in judge_all(right)[0]]
    judged = [one for name in names for one in judge_all(right, generator=name, **setting)[1]]
    tables = [
        table
        for table in make_tables(make_results(asked, judged=judged))
        if "ViSAR against fixed" in table.title
    ]
    assert [table.title.partition(".")[0] for table in tables] == [
        name for of in names.values() for name in of
    ]
    place = tables[0].columns.index("ViSAR %")
    assert [table.rows[0][place].paper for table in tables[:2]] == [61.06, 60.86]


def test_tables_3_and_s2_have_the_papers_rows() -> None:
    """The text model is in the same table, like the paper's ColBERTv2 with Qwen2.5-7B-Instruct."""
    judged = [
        VerdictRecord("D", "q0", encoder, method, generator, 5, "rules", correct=method == LATE)
        for encoder, method, generator in (
            ("colbertv2", LATE, "qwen2.5-7b"),
            ("colpali", LATE, "qwen2.5-vl"),
            ("colpali", "visar", "qwen2.5-vl"),
            ("colpali", "their:method", "qwen2.5-vl"),
            ("embedded", "visar", "qwen2.5-vl"),
        )
    ]
    asked = QuestionRecord("q0", "D", "a", 9, (1,), answerable=True)
    made = {table.key: table for table in make_tables(make_results([asked], judged=judged))}
    assert len([key for key in made if key.startswith(("table-3", "accuracy"))]) == 2
    paper = made["table-3-s2-d-qwen2-5-vl-rules"]
    assert [[cell.value for cell in cells[:4]] for cells in paper.rows] == [
        ["colbertv2", "Late-Interaction", "fixed", "qwen2.5-7b"],
        ["colpali", "Late-Interaction (M3DocRAG)", "fixed", "qwen2.5-vl"],
        ["colpali", "ViSAR", "adaptive", "qwen2.5-vl"],
    ]
    assert [row[5].marked for row in paper.rows] == [True, True, False]
    every = made["accuracy-d-qwen2-5-vl-rules"]
    assert [cells[0].value for cells in every.rows] == ["colbertv2", *["colpali"] * 3, "embedded"]


def test_prompts_have_separate_tables() -> None:
    asked, default = judge_all({"visar": [True, True]})
    _, paper = judge_all({"visar": [False, True]}, prompt="paper")
    accuracy = {
        table.title: row(table, "e", "ViSAR")["Max-5 %"].value
        for table in make_tables(make_results(asked, judged=[*default, *paper]))
        if table.key.startswith("accuracy")
    }
    assert accuracy == {
        "Accuracy of every encoder and method: D, g, judged by rules": 100.0,
        "Accuracy of every encoder and method: D, g (the paper's prompt), judged by rules": 50.0,
    }


def test_prompts_cut_to_the_context_are_counted() -> None:
    asked = [QuestionRecord(f"q{n}", "D", "d", 9, (1,), answerable=True) for n in (1, 2)]
    key = ("e", "visar", "g", 5)
    answered = [
        AnswerRecord("D", one.question, *key, (1,), "", "", None, None, 1.0, note=note)
        for one, note in zip(asked, ("The pages' text was cut.", None), strict=True)
    ]
    judged = [VerdictRecord("D", one.question, *key, "rules", correct=True) for one in asked]
    tables = {one.key: one for one in make_tables(make_results(asked, [], answered, judged))}
    assert "1 of 2 prompts was cut to the model's context." in tables["accuracy-d-g-rules"].notes


def test_fixed_and_adaptive_k_at_the_same_number_of_pages() -> None:
    """Fixed k: ½ correct with 1 page, all with 3. ViSAR sends 1 and 3 pages, 2 on average.

    In between, fixed k has 75 %; ViSAR has 100 %.
    """
    asked = [QuestionRecord(f"q{n}", "D", "a", 9, (1,), answerable=True) for n in range(2)]
    answered, judged = [], []
    for method, max_k, sent, right in (
        (LATE, 1, (1, 1), (True, False)),
        (LATE, 3, (3, 3), (True, True)),
        ("visar", 3, (1, 3), (True, True)),
    ):
        for one, count, is_right in zip(asked, sent, right, strict=True):
            key = ("D", one.question, "e", method, "g", max_k)
            pages = tuple(range(1, count + 1))
            answered.append(AnswerRecord(*key, pages, "", "", 100 * count, None, 1.0))
            judged.append(VerdictRecord(*key, "rules", correct=is_right))
    table = table_of(make_results(asked, (), answered, judged), "budget")
    cells = row(table, "e", "ViSAR")
    assert (cells["Pages sent"].value, cells["Tokens sent"].value) == (2, 200)
    assert cells["Accuracy %"].value == 100
    assert cells["Fixed k, same pages %"].value == 75
    assert cells["Difference"].value == 25


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
    assert cells["End to end, Max-10 s"].remark == f"−{-change:.1f}%"


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
    variants = [cells[1].value for cells in tables["table-s10-a-mmlongbench"].rows[:5]]
    weights = ["w_i = 1", "w_p = 1", "w_i = w_p = 1", "w_pj = 1: degenerate"]
    assert variants == ["ViSAR", *weights]


def test_notes_are_about_skipped_documents_corrections_and_the_paper(
    tables: dict[str, Table],
) -> None:
    skipped = "Skipped with all their questions: 1 missing documents, 1 unreadable documents."
    for key, table in tables.items():
        if DATASET in table.title and not key.startswith("budget"):
            assert skipped in table.notes, table.title
    assert tables["questions"].notes[:2] == (
        "MMLongBench: skipped gone.pdf (missing); locked.pdf (locked.pdf is encrypted).",
        "MMLongBench: 1 questions have evidence pages outside their document, which don't count "
        "(q1).",
    )
    corrected = "8 of the questions are corrected."
    assert corrected in tables["table-1-mmlongbench-corrected"].notes
    assert corrected not in tables["table-1-mmlongbench"].notes
    assert row(tables["questions"], "MMLongBench, corrected")["Corrected"].value == 8
    accuracy = tables["accuracy-mmlongbench-extractive-rules"]
    (note,) = [one for one in accuracy.notes if one.startswith("Not compared with the paper")]
    for obstacle in ("generator extractive", "the paper's prompt", "the encoder embedded"):
        assert obstacle in note
    assert all(cell.paper is None for row in accuracy.rows for cell in row)


def test_missing_results_are_counted_by_row(folder: Path) -> None:
    results = read_results(folder)
    chosen = results.retrievals
    lost = (chosen.method == "visar") & (chosen.encoder == ENCODER) & (chosen.question == "q1")
    table = make_tables(replace(results, retrievals=chosen[~lost]))[1]
    assert row(table, ENCODER, "ViSAR")["Questions"].value == 31
    assert any(f"left out of their rows: ViSAR ({ENCODER}) 1." in note for note in table.notes)


def test_the_approximation_has_visars_generation_time() -> None:
    """0.1 s retrieval + 2 s of ViSAR's generation, compared with 0.2 + 4 of fixed top-k: −50 %."""
    asked = QuestionRecord("q0", "D", "a", 9, (1,), answerable=True)
    retrieved = [
        RetrievalRecord("D", "q0", "e", method, 1, (1,), (1,), None, {"all": seconds})
        for method, seconds in ((LATE, 0.2), ("visar", 1.0), ("visar-approx", 0.1))
    ]
    answered = [
        AnswerRecord("D", "q0", "e", method, "g", 5, (1,), "", "", None, None, seconds)
        for method, seconds in ((LATE, 4.0), ("visar", 2.0))
    ]
    table = table_of(make_results([asked], retrieved, answered), "table-s8")
    cells = row(table, "ViSAR (Approx.)")
    assert cells["Retrieval s"].value == 0.1
    assert cells["Generation, Max-5 s"].value == 2.0
    assert cells["End to end, Max-5 s"].value == pytest.approx(2.1)
    assert cells["End to end, Max-5 s"].remark == "−50.0%"
    assert cells["End to end, Max-5 s"].marked


def test_differences_are_on_shared_questions() -> None:
    """Evidence is page 1 of four questions. ViSAR chooses (1), (1), (1), (2): P = R = ¾, F1 75 %.

    Largest-Gap only has the first two: (1, 2) and (2, 1): R = 1, P = ½, F1 = 66.67 %. There ViSAR
    has F1 100 %, so the difference is −33.33, and that of mean k is 2 − 1 = 1.
    """
    asked = [QuestionRecord(f"q{n}", "D", "a", 9, (1,), answerable=True) for n in range(4)]
    retrieved = [
        RetrievalRecord("D", f"q{n}", "e", method, len(pages), pages, pages, None)
        for method, choices in (
            ("visar", ((1,), (1,), (1,), (2,))),
            ("largest-gap", ((1, 2), (2, 1))),
        )
        for n, pages in enumerate(choices)
    ]
    table = table_of(make_results(asked, retrieved), "table-1")
    own, other = (row(table, "e", name) for name in ("ViSAR", "Largest-Gap"))
    assert own["F1@k* %"].value == pytest.approx(75)
    assert own["F1@k* % − ViSAR"].value is None
    assert other["F1@k* %"].value == pytest.approx(200 / 3)
    assert other["F1@k* % − ViSAR"].value == pytest.approx(-100 / 3)
    assert other["Mean k − ViSAR"].value == pytest.approx(1)


def test_names_from_data_are_safe() -> None:
    table = Table.of("k", "<b>|*x*", [{"a|b": "<script>&"}, {"a|b": "`]("}], ["<i>"])
    html = to_html(report_with(table))
    assert not any(tag in html for tag in ("<script", "<b>", "<i>"))
    markdown = to_markdown(report_with(table))
    assert r"\<b\>\|\*x\*" in markdown
    assert r"| \<script\>\& |" in markdown
    assert r"| \`\]( |" in markdown


def test_the_curve_of_fixed_k() -> None:
    """Rankings 3 1 2 with evidence {3, 2}, and 2 1 of two pages with evidence {1}.

    k = 1: recall (1/2 + 0) / 2 = 1/4, precision (1 + 0) / 2 = 1/2, F1 = 2 · 1/8 / (3/4) = 1/3.
    k = 2: recall (1/2 + 1) / 2 = 3/4, precision (1/2 + 1/2) / 2 = 1/2, F1 = 3/4 / (5/4) = 3/5.
    k = 3: recall 1, precision (2/3 + 1/2) / 2 = 7/12, F1 = 14/12 / (19/12) = 14/19, also to 10.
    """
    asked = [
        QuestionRecord("a", "D", "a.pdf", 3, (2, 3), answerable=True),
        QuestionRecord("b", "D", "a.pdf", 2, (1,), answerable=True),
    ]
    retrieved = [
        RetrievalRecord("D", name, "e", LATE, len(ranking), ranking, ranking, None)
        for name, ranking in (("a", (3, 1, 2)), ("b", (2, 1)))
    ]
    results = make_results(asked, retrieved)
    curve = fixed_k_curve(results.counted)
    assert list(curve.k) == list(range(1, 11))
    assert list(curve.recall[:4]) == pytest.approx([25, 75, 100, 100])
    assert list(curve.precision[:4]) == pytest.approx([50, 50, 700 / 12, 700 / 12])
    assert list(curve.f1[:3]) == pytest.approx([100 / 3, 60, 1400 / 19])
    assert list(curve.perfect_recall[:3]) == [0, 50, 100]
    table = table_of(results, "fixed-k")
    assert [row[1].value for row in table.rows] == list(range(1, 11))
    assert [row[1].value for row in table.rows if row[5].marked] == list(range(3, 11))
