"""Tables of questions and retrieval: 1, 2, S1 and S10 (a)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from visar.evaluation import metrics
from visar.evaluation.frames import RANKS, Results, measure_choices
from visar.evaluation.methods import DEPTH
from visar.evaluation.report.columns import (
    ALL_EVIDENCE,
    CHOICES,
    F1,
    INTERVALS,
    SIGNIFICANT,
    Column,
)
from visar.evaluation.report.markup import Cell, Row, Table, mark_best
from visar.evaluation.report.methods import (
    LATE,
    PAPER_METHODS,
    is_compared,
    is_main,
    is_other,
    label,
    where,
)
from visar.evaluation.report.notes import question_notes
from visar.evaluation.report.paper import Comparison, the_paper
from visar.text import counted

_PAPER_RANKERS = (LATE, "single-vector", "visar", "visar-approx")
_WEIGHTINGS = ("visar", "visar w_i=1", "visar w_p=1", "visar w_i=w_p=1")
_ADAPTIVE = (
    Column("Mean k", 1, ("k",), paper="mean_k"),
    Column("Median k", 1, ("k",), paper="median_k", has_interval=False, center="median"),
    Column("R@k* %", 2, ("recall",), paper="recall", has_interval=False),
    Column("P@k* %", 2, ("precision",), paper="precision", has_interval=False),
    F1,
    ALL_EVIDENCE,
)
# Each measure is shown at each rank. Only NDCG has intervals and tests.
_RECALL, _NDCG, _PAPER_NDCG, _HITS, _MRR = (
    [
        Column(
            heading.format(rank),
            digits,
            (f"{measure}@{rank}",),
            paper=paper and f"{paper}@{rank}",
            has_interval=measure == "ndcg",
        )
        for rank in RANKS
    ]
    for heading, digits, measure, paper in (
        ("Recall@{} %", 2, "recall", "recall"),
        ("NDCG@{}", 3, "ndcg", None),
        ("paper's NDCG@{}", 3, "paper_ndcg", "ndcg"),
        ("Hits@{} %", 2, "hits", "hits"),
        ("MRR@{}", 3, "mrr", "mrr"),
    )
)
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
    notes += [
        f"{name}: {counted(count, 'page')} couldn't be encoded." for name, count in invalid.items()
    ]
    if results.unreadable:
        lines = "; ".join(results.unreadable)
        notes.append(f"Left out incomplete lines of interrupted writers: {lines}.")
    return Table.of("questions", "Questions", rows, notes)


def adaptive_tables(results: Results) -> list[Table]:
    """Return Table 1: the number and quality of pages chosen by adaptive methods."""
    tables = []
    for dataset, frame in where(results.counted, is_compared).groupby("dataset"):
        paper = Comparison.of(results, dataset)
        rows, notes = _method_rows(results, frame, _ADAPTIVE, "visar", paper)
        ks = results.of(dataset).evidence_pages.map(lambda pages: len(set(pages)))
        ks = ks[ks > 0]
        evidence: Row = dict.fromkeys(rows[0]) | {"Encoder": "", "Method": "evidence pages"}
        evidence["Questions"] = paper.count(len(ks), None, "evidence")
        for column, value in zip(_ADAPTIVE, (ks.mean(), ks.median()), strict=False):
            known = paper.value(str(column.paper), None, "evidence")
            evidence[column.heading] = Cell(float(value), column.digits, paper=known)
        rows.append(evidence)
        start = f"k is before any budget. {CHOICES}"
        notes = [start, *notes, *_calibration_notes(results, frame)]
        title = f"Table 1. Adaptive-k retrieval: {dataset}"
        tables.append(Table.of(f"table-1 {dataset}", title, rows, notes))
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
        measured = pd.DataFrame(measure_choices(frame.ranking.str[:k], frame.evidence_pages))
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
            *question_notes(results, dataset, counts, has_answers=False),
        )
        title = f"Fixed k. Late interaction with k = 1 … {DEPTH}: {dataset}"
        tables.append(Table.of(f"fixed-k {dataset}", title, rows, notes))
    return tables


def ranking_tables(results: Results) -> list[Table]:
    """Return Tables 2 and S1: the quality of page rankings."""
    columns = (*_RECALL, *_NDCG, *_PAPER_NDCG, *_HITS, *_MRR)
    tables = []
    for dataset, frame in where(results.counted, is_main).groupby("dataset"):
        ranked = frame.groupby("encoder", group_keys=False)[frame.columns].apply(_with_own_ranking)
        paper = Comparison.of(results, dataset)
        rows, notes = _method_rows(results, ranked, columns, LATE, paper)
        if rows:
            mark_best(rows, [column.heading for column in columns], "Encoder")
            title = f"Tables 2 and S1. Page ranking: {dataset}"
            notes = [_NDCG_NOTE, *notes, _BEST_NOTE]
            tables.append(Table.of(f"table-2-s1 {dataset}", title, rows, notes))
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
    columns = (*_NDCG, *_PAPER_NDCG, *_RECALL)
    tables = []
    chosen = results.counted[results.counted.method.isin(_WEIGHTINGS)]
    for dataset, frame in chosen.groupby("dataset"):
        if set(frame.method) == {"visar"}:
            continue
        paper = Comparison.of(results, dataset)
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
        tables.append(Table.of(f"table-s10-a {dataset}", title, rows, notes))
    return tables


_BEST_NOTE = "Bold numbers other than p: the best per encoder."


def _method_rows(
    results: Results,
    frame: pd.DataFrame,
    columns: Sequence[Column],
    reference: str,
    paper: Comparison,
) -> tuple[list[Row], list[str]]:
    """Return a row for each encoder and method, and notes.

    Columns with intervals are followed by the differences from the reference method.
    """
    rows: list[Row] = []
    counts = {}
    groups = dict(iter(frame.groupby(["encoder", "method"], sort=False)))
    for (encoder, method), group in groups.items():
        counts[label(method), encoder] = len(group)
        row: Row = {"Encoder": encoder, "Method": label(method)}
        row["Questions"] = paper.count(len(group), encoder, method)
        for column in columns:
            known = column.paper and paper.value(column.paper, encoder, method)
            row[column.heading] = column.cell(group, paper=known)
        same = None if method == reference else groups.get((encoder, reference))
        for column in columns:
            if column.has_interval:
                found = None if same is None else column.difference(group, same)
                less, p = f"{column.heading} − {label(reference)}", f"p, {column.heading}"
                row |= {less: None, p: None}
                if found is not None and found.p is not None:
                    row[less] = Cell.of(found, column.digits)
                    row[p] = Cell(found.p, 4, marked=found.p < SIGNIFICANT)
        rows.append(row)
    notes = [
        f"{INTERVALS} “− {label(reference)}” is the difference on the questions that both have, "
        "with the same samples for both. p: paired permutation test (10,000 permutations), bold "
        f"below {SIGNIFICANT}.",
        *question_notes(results, paper.dataset, counts, has_answers=False),
        *paper.notes(counts),
    ]
    return rows, notes
