"""Fixed top-k with every k, from one ranking."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluation.synthetic import write_run
from visar.evaluation.findings import read_findings
from visar.evaluation.records import Asked, Retrieved
from visar.evaluation.report.fixed_k import fixed_k_curve, fixed_k_tables


def test_the_curve_of_two_questions() -> None:
    """Rankings 3 1 2 with evidence {3, 2}, and 2 1 of two pages with evidence {1}.

    k = 1: recall (1/2 + 0) / 2 = 1/4, precision (1 + 0) / 2 = 1/2, F1 = 2 · 1/8 / (3/4) = 1/3.
    k = 2: recall (1/2 + 1) / 2 = 3/4, precision (1/2 + 1/2) / 2 = 1/2, F1 = 3/4 / (5/4) = 3/5.
    k = 3: recall 1, precision (2/3 + 1/2) / 2 = 7/12, F1 = 14/12 / (19/12) = 14/19. So on to 10.
    """
    pairs = [
        (Asked(name, "d", "a.pdf", len(ranking), evidence, True), choice(name, ranking))
        for name, ranking, evidence in (("a", (3, 1, 2), (2, 3)), ("b", (2, 1), (1,)))
    ]
    curve = fixed_k_curve(pairs)
    assert [point.k for point in curve] == list(range(1, 11))
    assert [point.recall for point in curve[:4]] == pytest.approx([25, 75, 100, 100])
    assert [point.precision for point in curve[:4]] == pytest.approx([50, 50, 700 / 12, 700 / 12])
    assert [point.f1 for point in curve[:3]] == pytest.approx([100 / 3, 60, 1400 / 19])


def choice(question: str, ranking: tuple[int, ...]) -> Retrieved:
    return Retrieved("d", question, "e", "top-k", len(ranking), ranking, ranking, None)


def test_a_table_has_every_k_of_every_encoder(tmp_path: Path) -> None:
    findings = read_findings(write_run(tmp_path, generators=(), groups=("main",)))
    tables = fixed_k_tables(findings)
    assert [table.key for table in tables] == [
        "fixed-k-mmlongbench",
        "fixed-k-mmlongbench-corrected",
        "fixed-k-own-papers-more",
    ]
    for table in tables:
        assert [(row[0].value, row[1].value) for row in table.rows] == [
            (encoder, k) for encoder in ("colpali", "embedded") for k in range(1, 11)
        ]
        by_encoder: dict[object, list[float]] = {}
        for row in table.rows:
            assert isinstance(row[5].value, float)
            by_encoder.setdefault(row[0].value, []).append(row[5].value)
        bold = [row[5].value for row in table.rows if row[5].marked]
        assert bold == [max(values) for values in by_encoder.values()]
