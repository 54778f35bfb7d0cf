"""Table S8: how long retrieval, generation and both take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Retrieved
from visar.evaluation.tables.scope import answer_notes, label
from visar.evaluation.tables.table import Cell, Table, make_key

_FIXED = "top-k"
# Oracle knows the evidence: its time means nothing.
_TIMED = tuple(
    key for key, method in METHODS.items() if method.group == "main" and not method.needs_evidence
)
_NOTES = (
    "Means in seconds, without encoding the question; in parentheses the change against late "
    "interaction with the same budget. “—” where a method's pages were not given to the "
    "generator.",
    "No number of the paper stands here: its Table S8 does not say with which encoder and "
    "generator, and times are those of a machine.",
)


def latency_tables(findings: Findings) -> list[Table]:
    """One table for each data set, encoder and generator; without answers, of retrieval alone."""
    tables = []
    for (dataset, encoder), by_method in findings.choices.items():
        timed = {method: by_method[method] for method in by_method if method in _TIMED}
        if not timed:
            continue
        answers = _answers(findings, dataset, encoder)
        if not answers:
            tables.append(_table(findings, (dataset, encoder, None), timed, {}))
        tables += [
            _table(findings, (dataset, encoder, generator), timed, by_budget)
            for generator, by_budget in answers.items()
        ]
    return tables


def seconds_of(retrieved: Retrieved) -> float:
    """A retrieval's latency."""
    return sum(retrieved.seconds.values())


_ByBudget = dict[int, dict[str, dict[str, Answered]]]


def _answers(findings: Findings, dataset: str, encoder: str) -> dict[str, _ByBudget]:
    """By generator, budget, method and question."""
    found: dict[str, _ByBudget] = {}
    for (of, generator, by, k), by_method in findings.answers.items():
        if (of, by) == (dataset, encoder):
            found.setdefault(generator, {})[k] = by_method
    return found


def _table(
    findings: Findings,
    setting: tuple[str, str, str | None],
    timed: Mapping[str, Mapping[str, Retrieved]],
    answers: _ByBudget,
) -> Table:
    dataset, encoder, generator = setting
    budgets = sorted(answers)
    retrieval, generation, both = {}, {}, {}
    counts = {}
    for method, chosen in timed.items():
        questions = sorted(chosen)
        counts[label(method)] = len(questions)
        retrieval[method] = [seconds_of(chosen[q]) for q in questions if chosen[q].seconds]
        for k in budgets:
            answered = answers[k].get(method, {})
            shared = [q for q in questions if q in answered]
            if shared:
                counts[f"{label(method)} (Max-{k})"] = len(shared)
            generation[method, k] = [answered[q].seconds for q in shared]
            both[method, k] = [
                seconds_of(chosen[q]) + answered[q].seconds for q in shared if chosen[q].seconds
            ]
    rows = tuple(
        (
            Cell(label(method)),
            _mean_cell(retrieval[method], 4),
            *(_mean_cell(generation[method, k], 3, generation.get((_FIXED, k))) for k in budgets),
            *(_mean_cell(both[method, k], 3, both.get((_FIXED, k))) for k in budgets),
        )
        for method in timed
    )
    named = [dataset, encoder, *([] if generator is None else [generator])]
    return Table(
        make_key("table-s8", *named),
        f"Table S8. Latency: {', '.join(named)}",
        (
            "Method",
            "Retrieval s",
            *(f"Generation, Max-{k} s" for k in budgets),
            *(f"End to end, Max-{k} s" for k in budgets),
        ),
        rows,
        (*_NOTES, *answer_notes(findings, dataset, counts)),
    )


def _mean_cell(values: Sequence[float], digits: int, fixed: Sequence[float] | None = None) -> Cell:
    if not values:
        return Cell(None)
    mean = fmean(values)
    if not fixed or fixed is values or fmean(fixed) == 0:
        return Cell(mean, digits)
    gain = f"{100 * (mean / fmean(fixed) - 1):+.1f} %".replace("-", "−")
    return Cell(mean, digits, remark=gain)
