"""Tables of questions and retrieval: 1, 2, S1 and S10 (a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from visar.evaluation import metrics
from visar.evaluation.frames import CHOICE_METRICS, RANKS, Results
from visar.evaluation.methods import DEPTH
from visar.evaluation.report.markup import Cell, Row, Table, make_key, mark_best
from visar.evaluation.report.methods import (
    LATE,
    PAPER_METHODS,
    is_compared,
    is_main,
    is_other,
    label,
    where,
)
from visar.evaluation.report.notes import INTERVALS, SIGNIFICANT, retrieval_notes
from visar.evaluation.report.paper import Comparison, the_paper
from visar.evaluation.statistics import Statistic, bootstrap, compare, f1_of_means, first_mean

_PAPER_RANKERS = (LATE, "single-vector", "visar", "visar-approx")
_WEIGHTINGS = ("visar", "visar w_i=1", "visar w_p=1", "visar w_i=w_p=1")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with a statistic of the means of measures."""

    heading: str
    digits: int
    measures: tuple[str, ...]
    paper: str | None = None
    """The measure's name in the paper's numbers, if the definition is the same."""
    statistic: Statistic = first_mean
    compared: bool = False
    """True if it has an interval and a test against the reference."""


_F1 = _Column("F1@k* %", 2, ("precision", "recall"), "f1", f1_of_means, compared=True)
_ADAPTIVE = (
    _Column("Mean k", 1, ("k",), "mean_k", compared=True),
    _Column("Median k", 1, (), "median_k"),
    _Column("R@k* %", 2, ("recall",), "recall"),
    _Column("P@k* %", 2, ("precision",), "precision"),
    _F1,
    _Column("All evidence %", 2, ("perfect_recall",)),
)


def _at_ranks(heading: str, digits: int, measure: str, paper: str | None) -> list[_Column]:
    """Return a column for each rank."""
    return [
        _Column(
            heading.format(rank),
            digits,
            (f"{measure}@{rank}",),
            None if paper is None else f"{paper}@{rank}",
            compared=measure == "ndcg",
        )
        for rank in RANKS
    ]


_RECALL = _at_ranks("Recall@{} %", 2, "recall", "recall")
_NDCG = [
    *_at_ranks("NDCG@{}", 3, "ndcg", None),
    *_at_ranks("paper's NDCG@{}", 3, "paper_ndcg", "ndcg"),
]
_HITS = [*_at_ranks("Hits@{} %", 2, "hits", "hits"), *_at_ranks("MRR@{}", 3, "mrr", "mrr")]
_NDCG_NOTE = (
    "NDCG divides by the gain of all evidence pages at the top. The paper's NDCG divides by that "
    "of the evidence pages that were found: it is never lower, and only it is comparable to the "
    "paper's numbers."
)


def overview_table(results: Results) -> Table:
    """Return the table of data sets, with what was skipped."""
    rows: list[Row] = []
    notes = []
    paper = the_paper()
    for dataset, asked in results.questions.groupby("dataset"):
        sizes = asked.groupby("document").pages.first()
        with_evidence = int((asked.evidence_pages.map(len) > 0).sum())
        skipped = results.skipped_documents(dataset)
        rows.append(
            {
                "Data set": dataset,
                "Documents": len(sizes),
                "Pages": int(sizes.sum()),
                "Largest": int(sizes.max()),
                "Questions": Cell(len(asked), paper=paper.questions.get(dataset)),
                "With evidence": Cell(
                    with_evidence, paper=paper.questions_with_evidence.get(dataset)
                ),
                "Answerable": int(asked.answerable.sum()),
                "Corrected": int(asked.corrected.sum()),
                "Skipped documents": len(skipped),
            }
        )
        if skipped:
            listed = "; ".join(f"{document} ({reason})" for document, reason in skipped.items())
            notes.append(f"{dataset}: skipped {listed}.")
        if lost := results.lost_documents(dataset):
            notes.append(
                f"{dataset}: the last call couldn't read {', '.join(lost)}. Their earlier results "
                "are counted."
            )
        outside = {one for call in results.skipped for one in call.pages_outside.get(dataset, ())}
        if affected := sorted(outside & {*asked.question}):
            notes.append(
                f"{dataset}: {len(affected)} questions have evidence pages outside their document, "
                f"which don't count ({', '.join(affected)})."
            )
    invalid: dict[str, int] = {}
    for call in results.skipped:
        invalid |= call.invalid_pages
    notes += [f"{name}: {count} pages couldn't be encoded." for name, count in invalid.items()]
    if results.unreadable:
        lines = "; ".join(results.unreadable)
        notes.append(f"Left out incomplete lines of interrupted writers: {lines}.")
    return Table.of("questions", "Questions", rows, notes)


def adaptive_tables(results: Results) -> list[Table]:
    """Return Table 1: the number and quality of pages chosen by adaptive methods."""
    tables = []
    for dataset, frame in where(results.counted, is_compared).groupby("dataset"):
        paper = Comparison.of_retrieval(results, dataset)
        rows, notes = _method_rows(results, frame, _ADAPTIVE, "visar", paper)
        counts = results.of(dataset).evidence_pages.map(lambda pages: len(set(pages)))
        counts = counts[counts > 0]
        evidence: Row = {
            "Method": "evidence pages",
            "Questions": paper.count(len(counts), None, "evidence"),
        }
        for heading, measure, value in (
            ("Mean k", "mean_k", counts.mean()),
            ("Median k", "median_k", counts.median()),
        ):
            evidence[heading] = Cell(float(value), 1, paper=paper.value(measure, None, "evidence"))
        rows.append({heading: evidence.get(heading) for heading in rows[0]} | {"Encoder": ""})
        start = (
            "k is before any budget. R@k* and P@k* are means over questions, F1@k* is their "
            "harmonic mean. All evidence: the share of questions with all evidence pages among the "
            "chosen pages."
        )
        notes = [start, *notes, *_calibration_notes(results, frame)]
        title = f"Table 1. Adaptive-k retrieval: {dataset}"
        tables.append(Table.of(make_key("table-1", dataset), title, rows, notes))
    return tables


def _calibration_notes(results: Results, frame: pd.DataFrame) -> Iterator[str]:
    """Yield a note on methods whose calibration may have seen the questions."""
    methods = results.definitions.methods
    fitted = [m for m in frame.method.unique() if m in methods and methods[m].needs_calibration]
    if fitted:
        yield (
            f"{', '.join(map(label, fitted))}: fitted on questions with evidence. If these were "
            "among them, other questions will do worse."
        )


def fixed_k_curve(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics in percent of the top k = 1 … 10 pages of a ranking, by k."""
    points = []
    for k in range(1, DEPTH + 1):
        pairs = [
            (ranking[:k], evidence)
            for ranking, evidence in zip(frame.ranking, frame.evidence_pages, strict=True)
        ]
        measured = pd.DataFrame(
            {
                name: [100 * metric(*pair) for pair in pairs]
                for name, metric in CHOICE_METRICS.items()
            }
        )
        f1 = metrics.f1_of_means(list(measured.precision), list(measured.recall))
        points.append({"k": k, **measured.mean(), "f1": f1})
    return pd.DataFrame(points)


def fixed_k_tables(results: Results) -> list[Table]:
    """Return a table for each data set, with all k of fixed top-k by late interaction."""
    tables = []
    for dataset, frame in results.counted[results.counted.method == LATE].groupby("dataset"):
        rows: list[Row] = []
        counts = {}
        for encoder, group in frame.groupby("encoder"):
            counts[label(LATE), encoder] = len(group)
            rows += [
                {
                    "Encoder": encoder,
                    "k": int(point.k),
                    "Questions": len(group),
                    "R@k %": Cell(point.recall, 2),
                    "P@k %": Cell(point.precision, 2),
                    "F1@k %": Cell(point.f1, 2),
                    "All evidence %": Cell(point.perfect_recall, 2),
                }
                for point in fixed_k_curve(group).itertuples()
            ]
        mark_best(rows, ["F1@k %"], "Encoder")
        notes = (
            "Bold: the best k per encoder, which isn't known without the evidence.",
            *retrieval_notes(results, dataset, counts),
        )
        title = f"Fixed k. Late interaction with k = 1 … {DEPTH}: {dataset}"
        tables.append(Table.of(make_key("fixed-k", dataset), title, rows, notes))
    return tables


def ranking_tables(results: Results) -> list[Table]:
    """Return Tables 2 and S1: the quality of page rankings."""
    columns = (*_RECALL, *_NDCG, *_HITS)
    tables = []
    for dataset, frame in where(results.counted, is_main).groupby("dataset"):
        ranked = frame.groupby("encoder", group_keys=False)[frame.columns].apply(_with_own_ranking)
        paper = Comparison.of_retrieval(results, dataset)
        rows, notes = _method_rows(results, ranked, columns, LATE, paper)
        if rows:
            mark_best(rows, [column.heading for column in columns], "Encoder")
            title = f"Tables 2 and S1. Page ranking: {dataset}"
            key = make_key("table-2-s1", dataset)
            tables.append(Table.of(key, title, rows, [_NDCG_NOTE, *notes, _BEST_NOTE]))
    return tables


def _with_own_ranking(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of methods with a ranking other than late interaction's."""
    late = frame[frame.method == LATE].set_index("question").ranking
    own = [
        method
        for method, group in frame.groupby("method")
        if method in _PAPER_RANKERS
        or is_other(method)
        or (
            method not in PAPER_METHODS
            and any(late.get(q, r) != r for q, r in zip(group.question, group.ranking, strict=True))
        )
    ]
    return frame[frame.method.isin(own)]


def weighting_tables(results: Results) -> list[Table]:
    """Return Table S10 (a): the ranking without some of the weights."""
    columns = (*_NDCG, *_RECALL)
    tables = []
    chosen = results.counted[results.counted.method.isin(_WEIGHTINGS)]
    for dataset, frame in chosen.groupby("dataset"):
        if set(frame.method) == {"visar"}:
            continue
        paper = Comparison.of_retrieval(results, dataset)
        rows, notes = _method_rows(results, frame, columns, "visar", paper)
        mark_best(rows, [column.heading for column in columns], "Encoder")
        for encoder in frame.encoder.unique():
            row: Row = dict.fromkeys(rows[0])
            row |= {"Encoder": encoder, "Method": "w_pj = 1: degenerate"}
            rows.append(row)
        rows.sort(key=lambda row: str(row["Encoder"]))
        degenerate = (
            "Without patch weights (w_pj = 1) all self-similarities are 1, so there is no ranking. "
            "The paper calls this degenerate."
        )
        title = f"Table S10 (a). Ranking without weights: {dataset}"
        notes = [_NDCG_NOTE, degenerate, *notes, _BEST_NOTE]
        tables.append(Table.of(make_key("table-s10-a", dataset), title, rows, notes))
    return tables


_BEST_NOTE = "Bold numbers other than p: the best per encoder."


def _method_rows(
    results: Results,
    frame: pd.DataFrame,
    columns: Sequence[_Column],
    reference: str,
    paper: Comparison,
) -> tuple[list[Row], list[str]]:
    """Return a row for each encoder and method, and notes.

    Each row has the columns' numbers and, for compared columns, the difference from the reference
    method on the questions that both have.
    """
    rows: list[Row] = []
    counts = {}
    for (encoder, method), group in frame.groupby(["encoder", "method"], sort=False):
        counts[label(method), encoder] = len(group)
        row: Row = {"Encoder": encoder, "Method": label(method)}
        row["Questions"] = paper.count(len(group), encoder, method)
        for column in columns:
            known = None if column.paper is None else paper.value(column.paper, encoder, method)
            row[column.heading] = _number(group, column, known)
        same = frame[(frame.encoder == encoder) & (frame.method == reference)]
        for column in columns:
            if column.compared:
                row |= _difference(group, same, column, reference)
        rows.append(row)
    notes = [
        f"{INTERVALS} “− {label(reference)}” is the difference on the questions that both have, "
        "with the same samples for both. p: paired permutation test (10,000 permutations), bold "
        f"below {SIGNIFICANT}.",
        *retrieval_notes(results, paper.dataset, counts),
        *paper.notes(counts),
    ]
    return rows, notes


def _number(group: pd.DataFrame, column: _Column, paper: float | None) -> Cell:
    if not column.measures:
        return Cell(float(group.k.median()), column.digits, paper=paper)
    values = group[list(column.measures)]
    if not column.compared:
        value = float(column.statistic(values.mean().to_numpy()))
        return Cell(value, column.digits, paper=paper)
    found = bootstrap(values, column.statistic)
    return Cell(found.mean, column.digits, interval=(found.low, found.high), paper=paper)


def _difference(group: pd.DataFrame, same: pd.DataFrame, column: _Column, reference: str) -> Row:
    """Return the difference from the reference method and its p; None for that method itself."""
    names = f"{column.heading} − {label(reference)}", f"p, {column.heading}"
    if same.empty or group.method.iloc[0] == reference:
        return dict.fromkeys(names)
    one, other = on_shared_questions(group, same, column.measures)
    if one.empty:
        return dict.fromkeys(names)
    found = compare(one, other, column.statistic)
    return {
        names[0]: Cell(found.value, column.digits, interval=(found.low, found.high)),
        names[1]: Cell(found.p, 4, marked=found.p < SIGNIFICANT),
    }


def on_shared_questions(
    first: pd.DataFrame, second: pd.DataFrame, measures: Iterable[str], key: str = "question"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the measures of two methods on shared questions, in the same order."""
    one, other = (frame.set_index(key)[list(measures)] for frame in (first, second))
    shared = one.index.intersection(other.index).sort_values()
    return one.loc[shared], other.loc[shared]
