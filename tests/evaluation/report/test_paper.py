"""Consistency checks of the paper's numbers.

Each test lists the rows where the paper contradicts itself. They are copied as printed.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from visar.evaluation.authors import encoder_of_authors, paper_generator
from visar.evaluation.methods import METHODS
from visar.evaluation.report.paper import Comparison, PaperRow, the_paper

ROWS = the_paper().rows


def table(*names: str) -> list[PaperRow]:
    return [row for row in ROWS if row.table in names]


def name(row: PaperRow) -> str:
    parts = (row.table, row.dataset, row.encoder, row.method, row.generator, row.max_k)
    return " ".join(str(part) for part in parts if part is not None)


def test_all_tables_are_complete() -> None:
    counts: dict[str, int] = {}
    for row in ROWS:
        counts[row.table] = counts.get(row.table, 0) + len(row.values)
    assert counts == {
        "1": 124,
        "2": 24,
        "3": 24,
        "4": 24,
        "S1": 96,
        "S2": 48,
        "S3": 24,
        "S4": 24,
        "S5": 24,
        "S6": 24,
        "S7": 24,
        "S8": 64,
        "S9": 144,
        "S10": 46,
    }


def test_every_method_is_one_of_ours() -> None:
    labels = {method.label for method in METHODS.values()}
    assert {row.method for row in ROWS} <= labels | {"evidence"}


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    wrong = []
    for row in table("1"):
        if "f1" not in row.values:
            continue
        recall, precision = row.values["recall"], row.values["precision"]
        ends = [
            2 * (recall + a) * (precision + a) / (recall + precision + 2 * a)
            for a in (-0.005, 0.005)
        ]
        if not ends[0] - 0.005 <= row.values["f1"] <= ends[1] + 0.005:
            wrong.append(name(row))
    # 74.07 and 34.43 give 47.01, not 46.99.
    assert wrong == ["1 MMLongBench colmodernvbert ViSAR"]


def test_tables_agree_on_the_same_setting() -> None:
    seen: dict[tuple[object, ...], tuple[float, str]] = {}
    differ = []
    for row in ROWS:
        for measure, value in row.values.items():
            key = (measure, row.dataset, row.encoder, row.method, row.generator, row.max_k)
            first, where = seen.setdefault(key, (value, row.table))
            if first != value:
                differ.append(f"{name(row)}: {value}, but {first} in {where}")
    assert differ == [
        "S3 LongDocURL colqwen2.5 ViSAR qwen2.5-vl 5: 60.86, but 61.06 in 3",
        "S3 LongDocURL colqwen2.5 ViSAR qwen2.5-vl 10: 60.77, but 60.97 in 3",
        "S3 MMLongBench colpali Late-Interaction qwen2.5-vl 10: 34.86, but 35.08 in 3",
        "S3 MMLongBench colmodernvbert Late-Interaction qwen2.5-vl 5: 34.79, but 34.75 in 4",
        "S3 MMLongBench colmodernvbert ViSAR qwen2.5-vl 5: 33.94, but 34.01 in 4",
        "S3 MMLongBench colmodernvbert ViSAR qwen2.5-vl 10: 34.26, but 34.28 in 4",
    ]


def test_recall_and_hits_increase_with_the_rank() -> None:
    for row in table("2", "S1", "S10"):
        for measure in ("recall", "hits", "mrr"):
            if f"{measure}@5" in row.values:
                assert row.values[f"{measure}@5"] <= row.values[f"{measure}@10"], name(row)


def shares(
    rows: Iterable[PaperRow], dataset: str, encoder: str | None, *measures: str
) -> list[float]:
    """Return numbers for LongDocURL with or without ColModernVBERT, which has fewer questions."""
    return [
        row.values[measure]
        for row in rows
        for measure in measures
        if measure in row.values
        and row.dataset == dataset
        and (dataset == "MMLongBench" or (row.encoder == "colmodernvbert") == (encoder is not None))
    ]


@pytest.mark.parametrize(
    ("dataset", "encoder", "questions", "misfits"),
    [
        ("MMLongBench", None, 1073, 17),
        ("LongDocURL", None, 2325, 16),
        ("LongDocURL", "colmodernvbert", 2155, 1),
    ],
)
def test_accuracies_are_shares_of_the_number_of_questions(
    dataset: str, encoder: str | None, questions: int, misfits: int
) -> None:
    """The paper doesn't state the number of questions, but almost all its accuracies imply it."""
    accuracies = shares(ROWS, dataset, encoder, "accuracy")

    def count_misfits(number: int) -> int:
        shares = [(100 * round(one / 100 * number) / number, one) for one in accuracies]
        return sum(abs(share - one) > 0.00501 for share, one in shares)

    assert count_misfits(questions) == misfits
    # Twice the number also has all these shares.
    others = [n for n in range(900, 2600) if n not in (questions, 2 * questions)]
    assert min(map(count_misfits, others)) > 3 * misfits / 2 + 5
    paper = the_paper()
    left_out = paper.questions_left_out.get(dataset, {}).get(encoder or "", 0)
    assert paper.questions[dataset] - left_out == questions


@pytest.mark.parametrize(
    ("dataset", "encoder", "questions"),
    [
        ("MMLongBench", None, 842),
        ("LongDocURL", None, 2323),
        ("LongDocURL", "colmodernvbert", 2153),
    ],
)
def test_hit_rates_are_shares_of_the_number_of_questions_with_evidence(
    dataset: str, encoder: str | None, questions: int
) -> None:
    """The paper doesn't state it, but prints 100 · hits / questions, up to rounding."""
    rates = shares(table("S1"), dataset, encoder, "hits@5", "hits@10")
    assert rates
    for rate in rates:
        assert abs(100 * round(rate / 100 * questions) / questions - rate) < 0.00501
    assert Comparison(dataset).expected(encoder) == questions


def test_intervals_contain_their_mean() -> None:
    wrong = [
        name(row)
        for row in ROWS
        if row.interval and not row.interval[0] < row.values["accuracy"] < row.interval[1]
    ]
    # Printed as 58.56 (56.47 -- 40.60); probably 60.60.
    assert wrong == ["S2 LongDocURL colmodernvbert Score-Cluster qwen2.5-vl 10"]


def test_latency_adds_up() -> None:
    by_row = {
        (row.dataset, row.method, row.max_k, measure): value
        for row in table("S8")
        for measure, value in row.values.items()
    }
    wrong = []
    for (dataset, method, max_k, measure), value in by_row.items():
        if measure == "end_to_end_seconds":
            parts = (
                by_row[dataset, method, None, "retrieval_seconds"]
                + by_row[dataset, method, max_k, "generation_seconds"]
            )
            if abs(parts - value) > 0.0106:
                wrong.append(f"{dataset} {method} {max_k}: {value} is not {parts:.3f}")
        elif measure.endswith("_gain"):
            seconds = measure.replace("_gain", "_seconds")
            own = by_row[dataset, method, max_k, seconds]
            late = by_row[dataset, "Late-Interaction", max_k, seconds]
            ends = [100 * ((own + a) / (late - a) - 1) for a in (-0.005, 0.005)]
            if not ends[0] - 0.05 <= value <= ends[1] + 0.05:
                exact = 100 * (own / late - 1)
                wrong.append(f"{dataset} {method} {max_k} {measure}: {value} is not {exact:.2f}")
    assert wrong == ["MMLongBench Largest-Gap 5 generation_gain: -33.4 is not -32.38"]


def test_mean_sparsity_is_consistent_with_accuracy() -> None:
    wrong = []
    for row in table("S9"):
        paper = Comparison(row.dataset, generator=row.generator, has_answers=True)
        assert row.encoder is not None
        accuracy = paper.value("accuracy", encoder_of_authors(row.encoder), "visar", row.max_k)
        assert accuracy is not None
        share = accuracy / 100
        mixed = (
            share * row.values["sparsity_correct_mean"]
            + (1 - share) * (row.values["sparsity_wrong_mean"])
        )
        if abs(mixed - row.values["sparsity_all_mean"]) > 0.02:
            wrong.append(f"{name(row)}: {row.values['sparsity_all_mean']} is not {mixed:.2f}")
    assert wrong == []


@pytest.mark.parametrize(
    ("encoder", "method", "max_k", "accuracy"),
    [
        ("colpali", "visar", 5, 35.42),
        ("vidore/colpali-v1.2", "visar", 5, 35.42),
        ("colpali@main", "visar", 5, 35.42),
        ("colpali+pool2", "visar", 5, None),
        ("embedded", "visar", 5, None),
        # Only with +authors are questions encoded as in the paper.
        ("colmodernvbert", "visar", 5, None),
        ("colmodernvbert=./mine", "visar", 5, None),
        ("colpali", "visar", 3, None),
        ("colpali", "package:method", 5, None),
    ],
)
def test_only_the_same_setting_has_a_number(
    encoder: str, method: str, max_k: int, accuracy: float | None
) -> None:
    generator = paper_generator("openai:Qwen/Qwen2.5-VL-7B-Instruct")
    paper = Comparison("MMLongBench", generator=generator, has_answers=True)
    assert paper.value("accuracy", encoder, method, max_k) == accuracy
