"""How far the judges of a run agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from visar.evaluation.findings import Findings
from visar.evaluation.judge.agreement import Agreement, count_agreement
from visar.evaluation.records import key_of
from visar.evaluation.tables.table import Cell, Table

_COLUMNS = (
    "Data set",
    "Generator",
    "Judges",
    "Answers",
    "Both correct",
    "Only the first",
    "Only the second",
    "Both incorrect",
    "Agreement %",
    "Cohen's κ",
)


def agreement_tables(findings: Findings) -> list[Table]:
    """One table where several judges have judged the same answers."""
    rows = tuple(
        (
            Cell(dataset),
            Cell(generator),
            Cell(f"{found.first}; {found.second}"),
            Cell(found.cases),
            Cell(found.both_correct),
            Cell(found.only_first),
            Cell(found.only_second),
            Cell(found.both_incorrect),
            Cell(100 * found.share, 2),
            Cell(found.kappa, 3),
        )
        for dataset, generator, found in _agreements(findings)
    )
    note = "Over all answers that both have judged, of every encoder, method and budget."
    return [Table("agreement", "Agreement of the judges", _COLUMNS, rows, (note,))] if rows else []


def _agreements(findings: Findings) -> Iterator[tuple[str, str, Agreement]]:
    verdicts: dict[tuple[str, str], dict[str, dict[tuple[object, ...], bool]]] = {}
    for one in findings.judged:
        by_judge = verdicts.setdefault((one.dataset, one.generator), {})
        # The judge is the last part of the key.
        by_judge.setdefault(one.judge, {})[key_of(one)[:-1]] = one.correct
    for (dataset, generator), by_judge in sorted(verdicts.items()):
        for first, second in combinations(sorted(by_judge), 2):
            shared = by_judge[first].keys() & by_judge[second].keys()
            if shared:
                pairs = ((by_judge[first][case], by_judge[second][case]) for case in shared)
                yield dataset, generator, count_agreement(first, second, pairs)
