"""What fixed top-k reaches with each k, from the ranking that a run has kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from visar.evaluation import metrics
from visar.evaluation.findings import Findings
from visar.evaluation.methods import DEPTH
from visar.evaluation.report.markup import Cell, Row, Table, make_key
from visar.evaluation.report.scope import LATE, Pairs, label, retrieval_notes, with_evidence


@dataclass(frozen=True, slots=True)
class FixedK:
    """Fixed top-k with one k, in per cent."""

    k: int
    recall: float
    precision: float
    f1: float
    """The harmonic mean of mean recall and mean precision."""


def fixed_k_curve(pairs: Pairs) -> list[FixedK]:
    """Return recall, precision and F1 of the first k pages of a ranking, for k = 1 … 10."""
    curve = []
    for k in range(1, DEPTH + 1):
        recalls = [metrics.recall(one.ranking[:k], of.evidence_pages) for of, one in pairs]
        precisions = [metrics.precision(one.ranking[:k], of.evidence_pages) for of, one in pairs]
        f1 = metrics.f1_of_means(precisions, recalls)
        curve.append(FixedK(k, 100 * fmean(recalls), 100 * fmean(precisions), 100 * f1))
    return curve


def fixed_k_tables(findings: Findings) -> list[Table]:
    """A table for each data set: every k of fixed top-k by late interaction, the best F1 bold."""
    tables = []
    for dataset in findings.datasets:
        rows: list[Row] = []
        counts = {}
        for (of, encoder), by_method in findings.choices.items():
            chosen = by_method.get(LATE, {}) if of == dataset else {}
            pairs = with_evidence(findings, dataset, chosen)
            if not pairs:
                continue
            counts[label(LATE), encoder] = len(pairs)
            curve = fixed_k_curve(pairs)
            best = max(curve, key=lambda point: point.f1)
            rows += [
                {
                    "Encoder": encoder,
                    "k": point.k,
                    "Questions": len(pairs),
                    "R@k %": Cell(point.recall, 2),
                    "P@k %": Cell(point.precision, 2),
                    "F1@k %": Cell(point.f1, 2, marked=point is best),
                }
                for point in curve
            ]
        if rows:
            notes = (
                "Bold: the best k of an encoder, which nobody knows without the evidence.",
                *retrieval_notes(findings, dataset, counts),
            )
            title = f"Fixed k. Late interaction with k = 1 … {DEPTH}: {dataset}"
            tables.append(Table.of(make_key("fixed-k", dataset), title, rows, notes))
    return tables
