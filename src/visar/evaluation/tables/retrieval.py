"""Tables of the pages that are chosen: Table 1, Tables 2 and S1, and the first half of S10."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean

from visar.evaluation import metrics
from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Asked, Retrieved
from visar.evaluation.tables.scope import Beside, label, retrieval_notes, with_evidence
from visar.evaluation.tables.table import Cell, Table, make_key

RANKS = (5, 10)
_AtRank = Callable[[Sequence[int], Collection[int], int], float]
# Measure, heading, function, factor and decimals, as the paper shows them.
_RANKING: tuple[tuple[str, str, _AtRank, int, int], ...] = (
    ("recall", "Recall@{} %", metrics.recall_at, 100, 2),
    ("ndcg", "NDCG@{}", metrics.ndcg_at, 1, 3),
    ("hits", "Hits@{} %", metrics.hit_at, 100, 2),
    ("mrr", "MRR@{}", metrics.reciprocal_rank_at, 1, 3),
)
_WEIGHTINGS = ("visar", "visar w_i=1", "visar w_p=1", "visar w_i=w_p=1")
_RANKERS = ("top-k", "single-vector", "visar", "visar-approx")

_Pairs = list[tuple[Asked, Retrieved]]


def adaptive_tables(findings: Findings) -> list[Table]:
    """Table 1: how many pages the adaptive methods take, and how good these are."""
    adaptive = [
        key for key, method in METHODS.items() if method.group == "main" and method.adaptive
    ]
    return [
        table
        for dataset in findings.datasets
        if (table := _adaptive_table(findings, dataset, adaptive)) is not None
    ]


def _adaptive_table(findings: Findings, dataset: str, methods: Collection[str]) -> Table | None:
    beside = Beside.of(findings, dataset)
    rows, chosen = [], {}
    for encoder, method, by_question in _rows(findings, dataset, methods):
        pairs = with_evidence(findings, dataset, by_question)
        chosen[f"{label(method)} ({encoder})"] = by_question
        rows.append(_adaptive_row(beside, encoder, method, pairs))
    if not rows:
        return None
    evidence = [
        len(set(one.evidence_pages))
        for one in findings.questions[dataset].values()
        if one.evidence_pages
    ]
    rows.append(_evidence_row(beside, evidence))
    return Table(
        make_key("table-1", dataset),
        f"Table 1. Adaptive-k retrieval: {dataset}",
        ("Encoder", "Retrieval", "Questions", "Mean k", "Median k", "R@k* %", "P@k* %", "F1@k* %"),
        tuple(rows),
        (
            "k before any budget. R@k* and P@k* are means over questions, F1@k* is the harmonic "
            "mean of these two.",
            *retrieval_notes(findings, dataset, chosen),
            *beside.notes(_encoders(findings, dataset)),
        ),
    )


def _adaptive_row(beside: Beside, encoder: str, method: str, pairs: _Pairs) -> tuple[Cell, ...]:
    def paper(measure: str) -> float | None:
        return beside.value(measure, encoder, method)

    start = (Cell(encoder), Cell(label(method)), Cell(len(pairs)))
    if not pairs:
        return (*start, *[Cell(None)] * 5)
    ks = [one.k for _, one in pairs]
    recalls = [metrics.recall(one.pages, asked.evidence_pages) for asked, one in pairs]
    precisions = [metrics.precision(one.pages, asked.evidence_pages) for asked, one in pairs]
    f1 = metrics.f1_of_means(precisions, recalls)
    return (
        *start,
        Cell(metrics.mean_k(ks), 1, paper=paper("mean_k")),
        Cell(metrics.median_k(ks), 1, paper=paper("median_k")),
        Cell(100 * fmean(recalls), 2, paper=paper("recall")),
        Cell(100 * fmean(precisions), 2, paper=paper("precision")),
        Cell(100 * f1, 2, paper=paper("f1")),
    )


def _evidence_row(beside: Beside, evidence: Sequence[int]) -> tuple[Cell, ...]:
    nothing = Cell(None)
    start = (Cell(""), Cell("evidence pages"), Cell(len(evidence)))
    if not evidence:
        return (*start, *[nothing] * 5)
    return (
        *start,
        Cell(metrics.mean_k(evidence), 1, paper=beside.value("mean_k", None, "evidence")),
        Cell(metrics.median_k(evidence), 1, paper=beside.value("median_k", None, "evidence")),
        nothing,
        nothing,
        nothing,
    )


def ranking_tables(findings: Findings) -> list[Table]:
    """Tables 2 and S1: how well pages are ranked."""
    return _ranking_tables(
        findings, "table-2-s1", "Tables 2 and S1. Page ranking", _RANKERS, _RANKING
    )


def weighting_tables(findings: Findings) -> list[Table]:
    """Table S10 (a): the ranking without some of the weights."""
    return _ranking_tables(
        findings,
        "table-s10-a",
        "Table S10 (a). Ranking without weights",
        _WEIGHTINGS,
        (_RANKING[1], _RANKING[0]),
        needs_one_of=_WEIGHTINGS[1:],
        notes=(
            "Without the patches' weights (w_pj = 1) every self-similarity is 1 and there is no "
            "ranking: the paper calls it degenerate.",
        ),
    )


def _ranking_tables(
    findings: Findings,
    key: str,
    title: str,
    methods: Collection[str],
    measures: Sequence[tuple[str, str, _AtRank, int, int]],
    needs_one_of: Collection[str] | None = None,
    notes: tuple[str, ...] = (),
) -> list[Table]:
    columns = [
        (f"{measure}@{rank}", heading.format(rank), function, rank, factor, digits)
        for measure, heading, function, factor, digits in measures
        for rank in RANKS
    ]
    tables = []
    for dataset in findings.datasets:
        beside = Beside.of(findings, dataset)
        rows, chosen = [], {}
        for encoder, method, by_question in _rows(findings, dataset, methods):
            pairs = with_evidence(findings, dataset, by_question)
            chosen[f"{label(method)} ({encoder})"] = by_question
            cells = [Cell(encoder), Cell(label(method)), Cell(len(pairs))]
            for measure, _, function, rank, factor, digits in columns:
                values = [function(one.ranking, asked.evidence_pages, rank) for asked, one in pairs]
                cells.append(
                    Cell(
                        factor * fmean(values) if values else None,
                        digits,
                        paper=beside.value(measure, encoder, method),
                    )
                )
            rows.append((method, tuple(cells)))
        if not any(needs_one_of is None or method in needs_one_of for method, _ in rows):
            continue
        tables.append(
            Table(
                make_key(key, dataset),
                f"{title}: {dataset}",
                ("Encoder", "Ranking", "Questions", *(heading for _, heading, *_ in columns)),
                tuple(cells for _, cells in rows),
                (
                    *notes,
                    *retrieval_notes(findings, dataset, chosen),
                    *beside.notes(_encoders(findings, dataset)),
                ),
            )
        )
    return tables


def _rows(
    findings: Findings, dataset: str, methods: Collection[str]
) -> list[tuple[str, str, Mapping[str, Retrieved]]]:
    return [
        (encoder, method, by_question)
        for (of, encoder), by_method in findings.choices.items()
        if of == dataset
        for method, by_question in by_method.items()
        if method in methods
    ]


def _encoders(findings: Findings, dataset: str) -> list[str]:
    return [encoder for of, encoder in findings.choices if of == dataset]
