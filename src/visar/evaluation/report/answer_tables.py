"""Tables of answers: accuracy (3, 4, S2 to S7, S10 b), judges, latency (S8) and sparsity (S9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

from visar.evaluation.findings import Findings
from visar.evaluation.judge.agreement import Agreement, count_agreement
from visar.evaluation.records import Answered, Retrieved, key_of
from visar.evaluation.report.markup import Cell, Row, Table, make_key
from visar.evaluation.report.paper import Comparison
from visar.evaluation.report.scope import (
    LATE,
    answer_notes,
    is_adaptive,
    is_main,
    is_timed,
    label,
    with_evidence,
)
from visar.evaluation.statistics import bootstrap, mcnemar, summarize

SIGNIFICANT = 0.05
_TESTED = ("visar", "visar-approx")
_OBJECTIVES = ("visar", "visar top-k", "visar largest-gap", "visar score-cluster")
_ANSWER_TYPES = ("Correct", "Wrong", "All")

_Verdicts = Mapping[str, bool]


@dataclass(frozen=True)
class _Setting:
    """What a judge says of a generator's answers to the questions of a data set."""

    findings: Findings
    dataset: str
    generator: str
    judge: str

    @cached_property
    def verdicts(self) -> dict[str, dict[str, dict[int, _Verdicts]]]:
        """By encoder, method and budget."""
        found: dict[str, dict[str, dict[int, _Verdicts]]] = {}
        for (*setting, encoder, k), by_method in self.findings.verdicts.items():
            if setting == [self.dataset, self.generator, self.judge]:
                for method, verdicts in by_method.items():
                    found.setdefault(encoder, {}).setdefault(method, {})[k] = verdicts
        return found

    @cached_property
    def budgets(self) -> list[int]:
        found = self.verdicts.values()
        return sorted({k for by_method in found for by_k in by_method.values() for k in by_k})

    @cached_property
    def paper(self) -> Comparison:
        return Comparison.of(self.findings, self.dataset)

    def accuracy(self, encoder: str, method: str, k: int, *, marked: bool = False) -> Cell:
        verdicts = self.verdicts[encoder][method].get(k, {})
        if not verdicts:
            return Cell(None)
        interval = bootstrap([float(verdicts[question]) for question in sorted(verdicts)])
        return Cell(
            100 * interval.mean,
            2,
            interval=(100 * interval.low, 100 * interval.high),
            paper=self.paper.value("accuracy", encoder, method, self.generator, k),
            marked=marked,
        )


def accuracy_tables(findings: Findings) -> list[Table]:
    """Tables 3, 4 and S2 to S7: which answers are right, for each generator."""
    return _tables(
        findings,
        ("table-3-4", "Tables 3, 4 and S2–S7. Accuracy"),
        _accuracy_rows,
        "In parentheses 95 % of 10,000 bootstrap samples over questions. p is that of McNemar's "
        "exact test of ViSAR against fixed top-k late interaction on the questions both answered; "
        f"bold where p < {SIGNIFICANT}.",
    )


def _accuracy_rows(setting: _Setting, counts: dict[str, int]) -> Iterator[Row]:
    for encoder, by_method in setting.verdicts.items():
        for method in filter(is_main, by_method):
            row: Row = {"Encoder": encoder, "Retrieval": label(method)}
            for k in setting.budgets:
                verdicts = by_method[method].get(k, {})
                counts[f"{label(method)} ({encoder}, Max-{k})"] = len(verdicts)
                fixed = by_method.get(LATE, {}).get(k, {}) if method in _TESTED else {}
                p_value = _p_value(verdicts, fixed)
                is_significant = p_value is not None and p_value < SIGNIFICANT
                row[f"Max-{k} %"] = setting.accuracy(encoder, method, k, marked=is_significant)
                row[f"p, Max-{k}"] = Cell(p_value, 3, marked=is_significant)
            yield row


def _p_value(verdicts: _Verdicts, fixed: _Verdicts) -> float | None:
    both = sorted(verdicts.keys() & fixed.keys())
    return mcnemar([verdicts[q] for q in both], [fixed[q] for q in both]) if both else None


def objective_tables(findings: Findings) -> list[Table]:
    """Table S10 (b): other ways to cut ViSAR's ranking."""
    return _tables(
        findings,
        ("table-s10-b", "Table S10 (b). Other cuts of ViSAR's ranking"),
        _objective_rows,
        "Mean k* is that of the questions with evidence pages, as in Table 1.",
    )


def _objective_rows(setting: _Setting, counts: dict[str, int]) -> Iterator[Row]:
    if not any(method in by for by in setting.verdicts.values() for method in _OBJECTIVES[1:]):
        return
    for encoder, by_method in setting.verdicts.items():
        for method in [one for one in _OBJECTIVES if one in by_method]:
            row: Row = {"Encoder": encoder, "Variant": label(method)}
            row["Mean k*"] = _mean_k(setting, encoder, method)
            for k in setting.budgets:
                counts[f"{label(method)} ({encoder}, Max-{k})"] = len(by_method[method].get(k, {}))
                row[f"Max-{k} %"] = setting.accuracy(encoder, method, k)
            yield row


def _mean_k(setting: _Setting, encoder: str, method: str) -> Cell:
    chosen = setting.findings.choices.get((setting.dataset, encoder), {}).get(method, {})
    ks = [one.k for _, one in with_evidence(setting.findings, setting.dataset, chosen)]
    if not ks or not is_adaptive(method):
        return Cell(None)
    return Cell(fmean(ks), 1, paper=setting.paper.value("mean_k", encoder, method))


def sparsity_tables(findings: Findings) -> list[Table]:
    """Table S9: how sparse the similarity matrix is where the answer is right, and where wrong."""
    return _tables(
        findings,
        ("table-s9", "Table S9. Sparsity given the answer"),
        _sparsity_rows,
        "Share of pages without any weight, of ViSAR: mean ± standard deviation, smallest–largest "
        "in parentheses.",
    )


def _sparsity_rows(setting: _Setting, counts: dict[str, int]) -> Iterator[Row]:
    for encoder, by_method in setting.verdicts.items():
        if "visar" not in by_method:
            continue
        chosen = setting.findings.choices.get((setting.dataset, encoder), {}).get("visar", {})
        for answer_type in _ANSWER_TYPES:
            row: Row = {"Encoder": encoder, "Answers": answer_type}
            for k in setting.budgets:
                verdicts = by_method["visar"].get(k, {})
                values = [
                    100 * sparsity
                    for question in sorted(chosen.keys() & verdicts.keys())
                    if (sparsity := chosen[question].sparsity) is not None
                    and answer_type in ("All", "Correct" if verdicts[question] else "Wrong")
                ]
                measure = f"sparsity_{answer_type.lower()}_mean"
                paper = setting.paper.value(measure, encoder, "visar", setting.generator, k)
                row[f"n, Max-{k}"] = len(values)
                row[f"Sparsity, Max-{k} %"] = _spread_cell(values, paper)
                if answer_type == "All":
                    counts[f"{encoder}, Max-{k}"] = len(values)
            yield row


def _spread_cell(values: list[float], paper: float | None) -> Cell:
    if not values:
        return Cell(None)
    summary, remark = summarize(values), f"{min(values):.2f}–{max(values):.2f}"
    return Cell(summary.mean, 2, spread=summary.std, remark=remark, paper=paper)


def _tables(
    findings: Findings,
    names: tuple[str, str],
    make_rows: Callable[[_Setting, dict[str, int]], Iterator[Row]],
    note: str,
) -> list[Table]:
    """A table for each data set, generator and judge; none where there are no rows.

    ``make_rows`` fills its second argument: by row, how many questions it counts.
    """
    key, title = names
    tables = []
    for dataset, generator, judge in dict.fromkeys(known[:3] for known in findings.verdicts):
        setting = _Setting(findings, dataset, generator, judge)
        counts: dict[str, int] = {}
        rows = list(make_rows(setting, counts))
        if rows:
            notes = (
                note,
                *answer_notes(findings, dataset, counts),
                *setting.paper.notes(setting.verdicts, generator, judge),
            )
            name = f"{title}: {dataset}, {generator}, judged by {judge}"
            tables.append(Table.of(make_key(key, dataset, generator, judge), name, rows, notes))
    return tables


def agreement_tables(findings: Findings) -> list[Table]:
    """Where several judges have judged the same answers: how far they agree."""
    rows: list[Row] = [
        {
            "Data set": dataset,
            "Generator": generator,
            "Judges": f"{found.first}; {found.second}",
            "Answers": found.cases,
            "Both correct": found.both_correct,
            "Only the first": found.only_first,
            "Only the second": found.only_second,
            "Both incorrect": found.both_incorrect,
            "Agreement %": Cell(100 * found.share, 2),
            "Cohen's κ": Cell(found.kappa, 3),
        }
        for dataset, generator, found in _agreements(findings)
    ]
    note = "Over all answers that both have judged, of every encoder, method and budget."
    return [Table.of("agreement", "Agreement of the judges", rows, [note])] if rows else []


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


_ByBudget = dict[int, dict[str, dict[str, Answered]]]


def latency_tables(findings: Findings) -> list[Table]:
    """Table S8 for each data set, encoder and generator; without answers, of retrieval alone."""
    tables = []
    for (dataset, encoder), by_method in findings.choices.items():
        timed = {method: by_method[method] for method in filter(is_timed, by_method)}
        answers: dict[str, _ByBudget] = {}
        for (of, generator, by, k), answered in findings.answers.items():
            if (of, by) == (dataset, encoder):
                answers.setdefault(generator, {})[k] = answered
        if timed and not answers:
            tables.append(_latency_table(findings, (dataset, encoder), timed, {}))
        elif timed:
            tables += [
                _latency_table(findings, (dataset, encoder, generator), timed, by_budget)
                for generator, by_budget in answers.items()
            ]
    return tables


def seconds_of(retrieved: Retrieved) -> float:
    """Return the latency of a retrieval."""
    return sum(retrieved.seconds.values())


def _latency_table(
    findings: Findings,
    names: tuple[str, ...],
    timed: Mapping[str, Mapping[str, Retrieved]],
    answers: _ByBudget,
) -> Table:
    """``names`` are those of data set, encoder and, where there are answers, generator."""
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
    rows: list[Row] = []
    for method in timed:
        row: Row = {"Method": label(method), "Retrieval s": _mean_cell(retrieval[method], 4)}
        for heading, seconds in (("Generation", generation), ("End to end", both)):
            for k in budgets:
                fixed = seconds.get((LATE, k))
                row[f"{heading}, Max-{k} s"] = _mean_cell(seconds[method, k], 3, fixed)
        rows.append(row)
    notes = (
        "Means in seconds, without encoding the question; in parentheses the change against late "
        "interaction with the same budget. “—” where a method's pages were not given to the "
        "generator.",
        "No number of the paper stands here: its Table S8 does not say with which encoder and "
        "generator, and times are those of a machine.",
        *answer_notes(findings, names[0], counts),
    )
    title = f"Table S8. Latency: {', '.join(names)}"
    return Table.of(make_key("table-s8", *names), title, rows, notes)


def _mean_cell(values: Sequence[float], digits: int, fixed: Sequence[float] | None = None) -> Cell:
    """The mean, with its change against fixed top-k unless these are its own values."""
    if not values:
        return Cell(None)
    mean = fmean(values)
    if not fixed or fixed is values or fmean(fixed) == 0:
        return Cell(mean, digits)
    change = f"{100 * (mean / fmean(fixed) - 1):+.1f} %".replace("-", "−")
    return Cell(mean, digits, remark=change)
