"""Tables of questions and of the pages that are chosen: 1, 2, S1 and the first half of S10."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from visar.evaluation import metrics
from visar.evaluation.findings import (
    Findings,
    invalid_pages,
    questions_with_pages_outside,
    skipped_documents,
)
from visar.evaluation.records import Retrieved
from visar.evaluation.report.drawing import group
from visar.evaluation.report.markup import Cell, Row, Table, make_key, mark_best
from visar.evaluation.report.paper import Comparison, the_paper
from visar.evaluation.report.scope import (
    LATE,
    PAPER_METHODS,
    SIGNIFICANT,
    Pair,
    Pairs,
    evidence_counts,
    is_adaptive,
    is_main,
    is_other,
    label,
    retrieval_notes,
    with_evidence,
)
from visar.evaluation.statistics import (
    Difference,
    Interval,
    Means,
    PairedSamples,
    Statistic,
    f1_of_means,
    first_mean,
)

RANKS = (5, 10)
RankMetric = Callable[[Sequence[int], Collection[int], int], float]
_PAPER_RANKERS = (LATE, "single-vector", "visar", "visar-approx")
_WEIGHTINGS = ("visar", "visar w_i=1", "visar w_p=1", "visar w_i=w_p=1")


def overview_table(findings: Findings) -> Table:
    """Return the first table: what was asked of each data set, and what was not."""
    rows: list[Row] = []
    for dataset, by_id in findings.questions.items():
        asked = by_id.values()
        sizes = {one.document: one.pages for one in asked}
        paper = the_paper()
        with_pages = sum(bool(one.evidence_pages) for one in asked)
        rows.append(
            {
                "Data set": dataset,
                "Documents": len(sizes),
                "Pages": sum(sizes.values()),
                "Largest": max(sizes.values()),
                "Questions": Cell(len(asked), paper=paper.questions.get(dataset)),
                "With evidence": Cell(with_pages, paper=paper.questions_with_evidence.get(dataset)),
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


Measure = Callable[[Pair], float]
"""A number of one question."""


def k_of(pair: Pair) -> float:
    """Return how many pages are asked for."""
    return pair[1].k


def recall_of(pair: Pair) -> float:
    """Return the recall of the chosen pages in per cent."""
    return 100 * metrics.recall(pair[1].pages, pair[0].evidence_pages)


def precision_of(pair: Pair) -> float:
    """Return the precision of the chosen pages in per cent."""
    return 100 * metrics.precision(pair[1].pages, pair[0].evidence_pages)


def f1_of(pair: Pair) -> float:
    """Return the F1 of the pages chosen for one question in per cent."""
    return 100 * metrics.f1(pair[1].pages, pair[0].evidence_pages)


def at_rank(metric: RankMetric, rank: int, factor: float = 1) -> Measure:
    """Return a metric of the first pages of a ranking; factor 100 gives per cent."""

    def measure(pair: Pair) -> float:
        return factor * metric(pair[1].ranking, pair[0].evidence_pages, rank)

    return measure


@dataclass(frozen=True, slots=True)
class _Column:
    """A number of the questions that count."""

    heading: str
    digits: int
    measures: tuple[Measure, ...]
    """Numbers of a question, over whose means ``statistic`` is taken."""
    paper: str | None = None
    """Its name among the paper's numbers, if the paper computes it so."""
    statistic: Statistic = first_mean
    compared: bool = False
    """Whether it has an interval, and a test against the reference."""
    is_median: bool = False

    def values(self, pairs: Pairs) -> NDArray[np.float64]:
        """A row for each question."""
        return np.array([[measure(pair) for measure in self.measures] for pair in pairs])

    def value(self, pairs: Pairs) -> float:
        values = self.values(pairs)
        if self.is_median:
            return float(np.median(values))
        return float(self.statistic(values.mean(axis=0, keepdims=True))[0])


_ADAPTIVE = (
    _Column("Mean k", 1, (k_of,), "mean_k", compared=True),
    _Column("Median k", 1, (k_of,), "median_k", is_median=True),
    _Column("R@k* %", 2, (recall_of,), "recall"),
    _Column("P@k* %", 2, (precision_of,), "precision"),
    _Column("F1@k* %", 2, (precision_of, recall_of), "f1", f1_of_means, compared=True),
)


def _ranked(heading: str, digits: int, metric: RankMetric, paper: str | None) -> list[_Column]:
    """One column for each rank; those with two digits are in per cent."""
    return [
        _Column(
            heading.format(rank),
            digits,
            (at_rank(metric, rank, 100 if digits == 2 else 1),),
            None if paper is None else f"{paper}@{rank}",
            compared=metric is metrics.ndcg_at,
        )
        for rank in RANKS
    ]


_RECALL = _ranked("Recall@{} %", 2, metrics.recall_at, "recall")
_NDCG = [
    *_ranked("NDCG@{}", 3, metrics.ndcg_at, None),
    *_ranked("paper's NDCG@{}", 3, metrics.paper_ndcg_at, "ndcg"),
]
_RANKING = (
    *_RECALL,
    *_NDCG,
    *_ranked("Hits@{} %", 2, metrics.hit_at, "hits"),
    *_ranked("MRR@{}", 3, metrics.reciprocal_rank_at, "mrr"),
)
_NDCG_NOTE = (
    "NDCG divides by the gain of all evidence pages at the top. The paper's NDCG divides by that "
    "of the evidence pages that were found: it is never lower, and it alone can stand beside the "
    "paper's numbers."
)


@dataclass(frozen=True, slots=True)
class _Spec:
    """Which rows and columns a table has."""

    key: str
    title: str
    columns: Sequence[_Column]
    reference: str
    """The key of the method that others are compared with."""
    notes: tuple[str, ...] = ()
    marks_best: bool = False
    """Whether the best number of each encoder is bold."""


def adaptive_tables(findings: Findings) -> list[Table]:
    """Table 1: how many pages the adaptive methods take, and how good these are."""
    spec = _Spec(
        "table-1",
        "Table 1. Adaptive-k retrieval",
        _ADAPTIVE,
        "visar",
        (
            "k before any budget. R@k* and P@k* are means over questions, F1@k* is the harmonic "
            "mean of these two.",
        ),
    )
    tables = []
    for dataset in findings.datasets:
        rows = {
            encoder: [one for one in by_method if is_main(one) and is_adaptive(one)]
            for encoder, by_method in _by_encoder(findings, dataset).items()
        }
        tables += _table(findings, dataset, spec, rows, _evidence_row(findings, dataset))
    return tables


def _evidence_row(findings: Findings, dataset: str) -> Row:
    counts = evidence_counts(findings, dataset)
    paper = Comparison.of_retrieval(findings, dataset)
    row: Row = {"Encoder": "", "Method": "evidence pages", "Questions": len(counts)}
    if counts:
        for name, heading, of in (
            ("mean_k", "Mean k", fmean),
            ("median_k", "Median k", median),
        ):
            beside = paper.value(name, None, "evidence", len(counts))
            row[heading] = Cell(of(counts), 1, paper=beside)
    return row


def ranking_tables(findings: Findings) -> list[Table]:
    """Tables 2 and S1: how well pages are ranked."""
    spec = _Spec(
        "table-2-s1",
        "Tables 2 and S1. Page ranking",
        _RANKING,
        LATE,
        (_NDCG_NOTE,),
        marks_best=True,
    )
    tables = []
    for dataset in findings.datasets:
        rows = {
            encoder: [one for one in by_method if _ranks(one, by_method)]
            for encoder, by_method in _by_encoder(findings, dataset).items()
        }
        tables += _table(findings, dataset, spec, rows)
    return tables


def _ranks(method: str, by_method: Mapping[str, Mapping[str, Retrieved]]) -> bool:
    """Whether a method has a ranking of its own, and not that of late interaction."""
    if method in PAPER_METHODS or not is_main(method):
        return method in _PAPER_RANKERS
    late = by_method.get(LATE, {})
    return is_other(method) or any(
        one.ranking != late[question].ranking
        for question, one in by_method[method].items()
        if question in late
    )


def weighting_tables(findings: Findings) -> list[Table]:
    """Table S10 (a): the ranking without some of the weights."""
    spec = _Spec(
        "table-s10-a",
        "Table S10 (a). Ranking without weights",
        (*_NDCG, *_RECALL),
        "visar",
        (
            _NDCG_NOTE,
            "Without the patches' weights (w_pj = 1) every self-similarity is 1 and there is no "
            "ranking: the paper calls it degenerate.",
        ),
        marks_best=True,
    )
    tables = []
    for dataset in findings.datasets:
        rows = {
            encoder: [one for one in _WEIGHTINGS if one in by_method]
            for encoder, by_method in _by_encoder(findings, dataset).items()
        }
        if any(set(methods) - {"visar"} for methods in rows.values()):
            tables += _table(findings, dataset, spec, rows)
    return tables


def _by_encoder(findings: Findings, dataset: str) -> dict[str, dict[str, dict[str, Retrieved]]]:
    return {encoder: by for (of, encoder), by in findings.choices.items() if of == dataset}


def _table(
    findings: Findings,
    dataset: str,
    spec: _Spec,
    methods: Mapping[str, Sequence[str]],
    last_row: Row | None = None,
) -> list[Table]:
    """A table of a data set, given the methods of each encoder; none if there are none."""
    paper = Comparison.of_retrieval(findings, dataset)
    compared = [column for column in spec.columns if column.compared]
    rows: list[Row] = []
    counts: dict[tuple[str, str], int] = {}
    for encoder, wanted in methods.items():
        pairs = {
            method: with_evidence(findings, dataset, findings.choices[dataset, encoder][method])
            for method in wanted
        }
        sure = _compare(pairs, compared, spec.reference)
        for method in wanted:
            counts[label(method), encoder] = len(pairs[method])
            row: Row = {"Encoder": encoder, "Method": label(method)}
            row["Questions"] = len(pairs[method])
            for column in spec.columns:
                interval, _ = sure.get((method, column.heading), (None, None))
                beside = None
                if column.paper is not None:
                    beside = paper.value(column.paper, encoder, method, len(pairs[method]))
                row[column.heading] = Cell(
                    column.value(pairs[method]) if pairs[method] else None,
                    column.digits,
                    interval=None if interval is None else (interval.low, interval.high),
                    paper=beside,
                )
            for column in compared:
                _, difference = sure.get((method, column.heading), (None, None))
                row |= _difference_cells(column, difference, spec.reference)
            rows.append(row)
    if not rows:
        return []
    if spec.marks_best:
        mark_best(rows, [column.heading for column in spec.columns], "Encoder")
    if last_row is not None:
        rows.append({heading: last_row.get(heading) for heading in rows[0]})
    notes = (
        *spec.notes,
        "In parentheses 95 % of 10,000 bootstrap samples over questions. "
        f"“− {label(spec.reference)}” is the difference on the questions both have, the same "
        "samples for both; p is that of "
        f"the paired randomization test (10,000 exchanges), bold below {SIGNIFICANT}."
        + (" Otherwise bold: the best of an encoder." if spec.marks_best else ""),
        *retrieval_notes(findings, dataset, counts),
        *paper.notes(counts),
    )
    title = f"{spec.title}: {dataset}"
    return [Table.of(make_key(spec.key, dataset), title, rows, notes)]


def _difference_cells(column: _Column, difference: Difference | None, reference: str) -> Row:
    name = f"{column.heading} − {label(reference)}"
    if difference is None:
        return {name: None, f"p, {column.heading}": None}
    is_significant = difference.p < SIGNIFICANT
    return {
        name: Cell(difference.value, column.digits, interval=(difference.low, difference.high)),
        f"p, {column.heading}": Cell(difference.p, 4, marked=is_significant),
    }


_Sure = dict[tuple[str, str], tuple[Interval, Difference | None]]
"""By method and the heading of a column."""


def _compare(pairs: Mapping[str, Pairs], columns: Sequence[_Column], reference: str) -> _Sure:
    """Intervals, and differences to the reference on the questions that a method shares with it."""
    values = {
        method: {
            pair[0].question: row
            for pair, row in zip(
                of_method, np.hstack([one.values(of_method) for one in columns]), strict=True
            )
        }
        for method, of_method in pairs.items()
        if of_method
    }
    found: _Sure = {}
    known = values.get(reference, {})
    # Methods with the same questions are resampled together: nearly always all of them.
    for questions, methods in group((tuple(of), method) for method, of in values.items()).items():
        together = PairedSamples({one: list(values[one].values()) for one in methods})
        for method in methods:
            shared = [question for question in questions if question in known]
            samples = together
            if reference not in methods and shared:
                samples = PairedSamples(
                    {one: [values[one][q] for q in shared] for one in (method, reference)}
                )
            place = 0
            for column in columns:
                end = place + len(column.measures)
                statistic = partial(_of_part, column.statistic, place, end)
                difference = None
                if shared and method != reference:
                    difference = samples.difference(method, reference, statistic)
                interval = together.interval(method, statistic)
                found[method, column.heading] = (interval, difference)
                place = end
    return found


def _of_part(statistic: Statistic, first: int, end: int, means: Means) -> NDArray[np.float64]:
    return statistic(means[:, first:end])
