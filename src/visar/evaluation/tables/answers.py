"""Tables of answers: accuracy (3, 4, S2 to S7, S10 b) and sparsity given accuracy (S9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean

from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.statistics import bootstrap, mcnemar, summarize
from visar.evaluation.tables.scope import Beside, answer_notes, label, with_evidence
from visar.evaluation.tables.table import Cell, Table, make_key

SIGNIFICANT = 0.05
_FIXED = "top-k"
_TESTED = ("visar", "visar-approx")
_MAIN = tuple(key for key, method in METHODS.items() if method.group == "main")
_OBJECTIVES = ("visar", "visar top-k", "visar largest-gap", "visar score-cluster")
_ANSWER_TYPES = ("Correct", "Wrong", "All")

_Verdicts = Mapping[str, bool]
# By encoder, method and budget.
_Judged = dict[str, dict[str, dict[int, _Verdicts]]]


def accuracy_tables(findings: Findings) -> list[Table]:
    """Tables 3, 4 and S2 to S7: which answers are right, for each generator."""
    tables = []
    for dataset, generator, judge, judged, budgets in _settings(findings):
        rows, counts = [], dict[str, int]()
        for encoder, by_method in judged.items():
            for method in [one for one in by_method if one in _MAIN]:
                row, counted = _accuracy_row(
                    findings, (dataset, generator, encoder, method), by_method, budgets
                )
                rows.append(row)
                counts |= counted
        if not rows:
            continue
        tables.append(
            Table(
                make_key("table-3-4", dataset, generator, judge),
                f"Tables 3, 4 and S2–S7. Accuracy: {dataset}, {generator}, judged by {judge}",
                (
                    "Encoder",
                    "Retrieval",
                    *(name for k in budgets for name in (f"Max-{k} %", f"p, Max-{k}")),
                ),
                tuple(rows),
                (
                    "In parentheses 95 % of 10,000 bootstrap samples over questions. p is that of "
                    "McNemar's exact test of ViSAR against fixed top-k late interaction on the "
                    f"questions both answered; bold where p < {SIGNIFICANT}.",
                    *answer_notes(findings, dataset, counts),
                    *Beside.of(findings, dataset).notes(judged, generator, judge),
                ),
            )
        )
    return tables


def _accuracy_row(
    findings: Findings,
    setting: tuple[str, str, str, str],
    by_method: Mapping[str, Mapping[int, _Verdicts]],
    budgets: Collection[int],
) -> tuple[tuple[Cell, ...], dict[str, int]]:
    _, _, encoder, method = setting
    cells = [Cell(encoder), Cell(label(method))]
    counts = {}
    for k in budgets:
        verdicts = by_method[method].get(k, {})
        questions = sorted(verdicts)
        counts[f"{label(method)} ({encoder}, Max-{k})"] = len(questions)
        p_value = None
        if method in _TESTED:
            fixed = by_method.get(_FIXED, {}).get(k, {})
            both = [one for one in questions if one in fixed]
            if both:
                p_value = mcnemar([verdicts[q] for q in both], [fixed[q] for q in both]).p_value
        is_significant = p_value is not None and p_value < SIGNIFICANT
        cells.append(_accuracy_cell(findings, setting, k, verdicts, is_significant))
        cells.append(Cell(p_value, 3, marked=is_significant))
    return tuple(cells), counts


def _accuracy_cell(
    findings: Findings,
    setting: tuple[str, str, str, str],
    k: int,
    verdicts: _Verdicts,
    is_marked: bool = False,
) -> Cell:
    dataset, generator, encoder, method = setting
    questions = sorted(verdicts)
    if not questions:
        return Cell(None)
    interval = bootstrap([float(verdicts[question]) for question in questions])
    return Cell(
        100 * interval.mean,
        2,
        interval=(100 * interval.low, 100 * interval.high),
        paper=Beside.of(findings, dataset).value("accuracy", encoder, method, generator, k),
        marked=is_marked,
    )


def objective_tables(findings: Findings) -> list[Table]:
    """Table S10 (b): other ways to cut ViSAR's ranking."""
    tables = []
    for dataset, generator, judge, judged, budgets in _settings(findings):
        beside = Beside.of(findings, dataset)
        rows, counts, has_variant = [], dict[str, int](), False
        for encoder, by_method in judged.items():
            for method in [one for one in _OBJECTIVES if one in by_method]:
                setting = (dataset, generator, encoder, method)
                has_variant |= method != "visar"
                cells = [Cell(encoder), Cell(label(method)), _mean_k(findings, beside, setting)]
                for k in budgets:
                    verdicts = by_method[method].get(k, {})
                    cells.append(_accuracy_cell(findings, setting, k, verdicts))
                    row = f"{label(method)} ({encoder}, Max-{k})"
                    counts[row] = len(verdicts)
                rows.append(tuple(cells))
        if not has_variant:
            continue
        tables.append(
            Table(
                make_key("table-s10-b", dataset, generator, judge),
                f"Table S10 (b). Other cuts of ViSAR's ranking: {dataset}, {generator}, "
                f"judged by {judge}",
                ("Encoder", "Variant", "Mean k*", *(f"Max-{k} %" for k in budgets)),
                tuple(rows),
                (
                    "Mean k* is that of the questions with evidence pages, as in Table 1.",
                    *answer_notes(findings, dataset, counts),
                    *beside.notes(judged, generator, judge),
                ),
            )
        )
    return tables


def _mean_k(findings: Findings, beside: Beside, setting: tuple[str, str, str, str]) -> Cell:
    dataset, _, encoder, method = setting
    if method in METHODS and not METHODS[method].adaptive:
        return Cell(None)
    chosen = findings.choices.get((dataset, encoder), {}).get(method, {})
    ks = [one.k for _, one in with_evidence(findings, dataset, chosen)]
    if not ks:
        return Cell(None)
    return Cell(fmean(ks), 1, paper=beside.value("mean_k", encoder, method))


def sparsity_tables(findings: Findings) -> list[Table]:
    """Table S9: how sparse the similarity matrix is where the answer is right, and where wrong."""
    tables = []
    for dataset, generator, judge, judged, budgets in _settings(findings):
        beside = Beside.of(findings, dataset)
        rows, counts = [], dict[str, int]()
        for encoder, by_method in judged.items():
            if "visar" not in by_method:
                continue
            known = _sparsities(findings, dataset, encoder)
            for answer_type in _ANSWER_TYPES:
                cells = [Cell(encoder), Cell(answer_type)]
                for k in budgets:
                    verdicts = by_method["visar"].get(k, {})
                    values = [
                        100 * sparsity
                        for question, sparsity in known.items()
                        if question in verdicts and _is_of_type(verdicts[question], answer_type)
                    ]
                    measure = f"sparsity_{answer_type.lower()}_mean"
                    paper = beside.value(measure, encoder, "visar", generator, k)
                    cells += [Cell(len(values)), _spread_cell(values, paper)]
                    if answer_type == "All":
                        counts[f"{encoder}, Max-{k}"] = len(values)
                rows.append(tuple(cells))
        if not rows:
            continue
        tables.append(
            Table(
                make_key("table-s9", dataset, generator, judge),
                f"Table S9. Sparsity given the answer: {dataset}, {generator}, judged by {judge}",
                (
                    "Encoder",
                    "Answers",
                    *(name for k in budgets for name in (f"n, Max-{k}", f"Sparsity, Max-{k} %")),
                ),
                tuple(rows),
                (
                    "Share of pages without any weight, of ViSAR: mean ± standard deviation, "
                    "smallest–largest in parentheses.",
                    *answer_notes(findings, dataset, counts),
                    *beside.notes(judged, generator, judge),
                ),
            )
        )
    return tables


def _sparsities(findings: Findings, dataset: str, encoder: str) -> dict[str, float]:
    chosen = findings.choices.get((dataset, encoder), {}).get("visar", {})
    return {
        question: sparsity
        for question in sorted(chosen)
        if (sparsity := chosen[question].sparsity) is not None
    }


def _is_of_type(is_correct: bool, answer_type: str) -> bool:
    return answer_type == "All" or is_correct == (answer_type == "Correct")


def _spread_cell(values: list[float], paper: float | None) -> Cell:
    if not values:
        return Cell(None)
    summary = summarize(values)
    return Cell(
        summary.mean,
        2,
        spread=summary.std,
        remark=f"{min(values):.2f}–{max(values):.2f}",
        paper=paper,
    )


def _settings(findings: Findings) -> list[tuple[str, str, str, _Judged, tuple[int, ...]]]:
    """Data set, generator, judge, what it found by encoder, method and budget; and the budgets."""
    found: dict[tuple[str, str, str], _Judged] = {}
    for (dataset, generator, judge, encoder, k), by_method in findings.verdicts.items():
        judged = found.setdefault((dataset, generator, judge), {})
        for method, verdicts in by_method.items():
            judged.setdefault(encoder, {}).setdefault(method, {})[k] = verdicts
    return [
        (
            *key,
            judged,
            tuple(sorted({k for by in judged.values() for ks in by.values() for k in ks})),
        )
        for key, judged in found.items()
    ]
