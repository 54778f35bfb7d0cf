"""Tables of questions and of the pages that are chosen: 1, 2, S1 and the first half of S10."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

from visar.evaluation import metrics
from visar.evaluation.findings import (
    Findings,
    invalid_pages,
    questions_with_pages_outside,
    skipped_documents,
)
from visar.evaluation.report.markup import Cell, Row, Table, make_key
from visar.evaluation.report.paper import Comparison
from visar.evaluation.report.scope import (
    LATE,
    Pairs,
    evidence_counts,
    is_adaptive,
    is_main,
    is_other,
    label,
    retrieval_notes,
    with_evidence,
)

RANKS = (5, 10)
RankMetric = Callable[[Sequence[int], Collection[int], int], float]
_RANKERS = (LATE, "single-vector", "visar", "visar-approx")
_WEIGHTINGS = ("visar", "visar w_i=1", "visar w_p=1", "visar w_i=w_p=1")


def overview_table(findings: Findings) -> Table:
    """Return the first table: what was asked of each data set, and what was not."""
    rows: list[Row] = []
    for dataset, by_id in findings.questions.items():
        asked = by_id.values()
        sizes = {one.document: one.pages for one in asked}
        rows.append(
            {
                "Data set": dataset,
                "Documents": len(sizes),
                "Pages": sum(sizes.values()),
                "Largest": max(sizes.values()),
                "Questions": len(asked),
                "With evidence": sum(bool(one.evidence_pages) for one in asked),
                "Answerable": sum(one.answerable for one in asked),
                "Corrected": sum(one.corrected for one in asked),
                "Skipped documents": len(skipped_documents(findings, dataset)),
            }
        )
    return Table.of("questions", "Questions", rows, _overview_notes(findings))


def _overview_notes(findings: Findings) -> list[str]:
    notes = []
    for dataset in findings.datasets:
        if skipped := skipped_documents(findings, dataset):
            listed = "; ".join(f"{document} ({reason})" for document, reason in skipped.items())
            notes.append(f"{dataset}: skipped {listed}.")
        if outside := questions_with_pages_outside(findings, dataset):
            notes.append(
                f"{dataset}: {len(outside)} questions name evidence pages that their document does "
                f"not have; only those it has count ({', '.join(outside)})."
            )
    notes += [
        f"{encoder}: {count} pages could not be encoded."
        for encoder, count in sorted(invalid_pages(findings).items())
    ]
    if findings.unreadable:
        notes.append(
            "Left out, for they are no whole records (a writer was interrupted): "
            f"{'; '.join(findings.unreadable)}."
        )
    if findings.strays:
        notes.append(f"Left out: {findings.strays} records of questions that the run did not ask.")
    return notes


@dataclass(frozen=True, slots=True)
class _Measure:
    """A column of a table."""

    name: str
    """As the paper's numbers name it."""
    heading: str
    digits: int
    value: Callable[[Pairs], float]


def mean_recall(pairs: Pairs) -> float:
    """Return the mean recall of the chosen pages in per cent."""
    return 100 * fmean(metrics.recall(one.pages, asked.evidence_pages) for asked, one in pairs)


def mean_precision(pairs: Pairs) -> float:
    """Return the mean precision of the chosen pages in per cent."""
    return 100 * fmean(metrics.precision(one.pages, asked.evidence_pages) for asked, one in pairs)


def f1(pairs: Pairs) -> float:
    """Return the harmonic mean of mean precision and mean recall in per cent."""
    recalls = [metrics.recall(one.pages, asked.evidence_pages) for asked, one in pairs]
    precisions = [metrics.precision(one.pages, asked.evidence_pages) for asked, one in pairs]
    return 100 * metrics.f1_of_means(precisions, recalls)


_ADAPTIVE = (
    _Measure("mean_k", "Mean k", 1, lambda pairs: fmean(one.k for _, one in pairs)),
    _Measure("median_k", "Median k", 1, lambda pairs: median(one.k for _, one in pairs)),
    _Measure("recall", "R@k* %", 2, mean_recall),
    _Measure("precision", "P@k* %", 2, mean_precision),
    _Measure("f1", "F1@k* %", 2, f1),
)


def _at_ranks(name: str, heading: str, metric: RankMetric, factor: int) -> list[_Measure]:
    """One column for each rank; factor 100 shows per cent."""

    def mean(pairs: Pairs, rank: int) -> float:
        return factor * fmean(
            metric(one.ranking, asked.evidence_pages, rank) for asked, one in pairs
        )

    digits = 2 if factor == 100 else 3
    return [
        _Measure(f"{name}@{rank}", heading.format(rank), digits, partial(mean, rank=rank))
        for rank in RANKS
    ]


_RECALL = _at_ranks("recall", "Recall@{} %", metrics.recall_at, 100)
_NDCG = _at_ranks("ndcg", "NDCG@{}", metrics.ndcg_at, 1)
_RANKING = (
    *_RECALL,
    *_NDCG,
    *_at_ranks("hits", "Hits@{} %", metrics.hit_at, 100),
    *_at_ranks("mrr", "MRR@{}", metrics.reciprocal_rank_at, 1),
)


def adaptive_tables(findings: Findings) -> list[Table]:
    """Table 1: how many pages the adaptive methods take, and how good these are."""
    return _tables(
        findings,
        ("table-1", "Table 1. Adaptive-k retrieval", "Retrieval"),
        lambda method: is_main(method) and is_adaptive(method),
        _ADAPTIVE,
        "k before any budget. R@k* and P@k* are means over questions, F1@k* is the harmonic mean "
        "of these two.",
        last_row=_evidence_row,
    )


def _evidence_row(findings: Findings, dataset: str) -> Row:
    counts = evidence_counts(findings, dataset)
    paper = Comparison.of(findings, dataset)
    row: Row = {"Encoder": "", "Retrieval": "evidence pages", "Questions": len(counts)}
    row |= {measure.heading: None for measure in _ADAPTIVE}
    if counts:
        for name, heading, of in (
            ("mean_k", "Mean k", fmean),
            ("median_k", "Median k", median),
        ):
            row[heading] = Cell(of(counts), 1, paper=paper.value(name, None, "evidence"))
    return row


def ranking_tables(findings: Findings) -> list[Table]:
    """Tables 2 and S1: how well pages are ranked."""
    return _tables(
        findings,
        ("table-2-s1", "Tables 2 and S1. Page ranking", "Ranking"),
        lambda method: method in _RANKERS or is_other(method),
        _RANKING,
    )


def weighting_tables(findings: Findings) -> list[Table]:
    """Table S10 (a): the ranking without some of the weights."""
    return _tables(
        findings,
        ("table-s10-a", "Table S10 (a). Ranking without weights", "Ranking"),
        lambda method: method in _WEIGHTINGS,
        (*_NDCG, *_RECALL),
        "Without the patches' weights (w_pj = 1) every self-similarity is 1 and there is no "
        "ranking: the paper calls it degenerate.",
        needs_one_of=_WEIGHTINGS[1:],
    )


def _tables(
    findings: Findings,
    names: tuple[str, str, str],
    is_wanted: Callable[[str], bool],
    measures: Sequence[_Measure],
    *notes: str,
    needs_one_of: Collection[str] | None = None,
    last_row: Callable[[Findings, str], Row] | None = None,
) -> list[Table]:
    """A table for each data set, with a row for each encoder and each method that is wanted.

    ``names`` are those of the tables' keys, their titles and the column of methods.
    """
    key, title, column = names
    tables = []
    for dataset in findings.datasets:
        paper = Comparison.of(findings, dataset)
        encoders = [encoder for of, encoder in findings.choices if of == dataset]
        rows: list[Row] = []
        counts, shown = {}, set()
        for encoder in encoders:
            by_method = findings.choices[dataset, encoder]
            for method in filter(is_wanted, by_method):
                pairs = with_evidence(findings, dataset, by_method[method])
                counts[f"{label(method)} ({encoder})"] = len(pairs)
                shown.add(method)
                row: Row = {"Encoder": encoder, column: label(method), "Questions": len(pairs)}
                for measure in measures:
                    value = measure.value(pairs) if pairs else None
                    beside = paper.value(measure.name, encoder, method)
                    row[measure.heading] = Cell(value, measure.digits, paper=beside)
                rows.append(row)
        if not (shown if needs_one_of is None else shown.intersection(needs_one_of)):
            continue
        if last_row is not None:
            rows.append(last_row(findings, dataset))
        said = (*notes, *retrieval_notes(findings, dataset, counts), *paper.notes(encoders))
        tables.append(Table.of(make_key(key, dataset), f"{title}: {dataset}", rows, said))
    return tables
