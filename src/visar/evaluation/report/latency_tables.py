"""Table S8: how long retrieval and generation take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from visar.evaluation.findings import Findings
from visar.evaluation.records import Answered, Retrieved
from visar.evaluation.report.markup import Cell, Row, Table, make_key, mark_best
from visar.evaluation.report.paper import Comparison, the_paper
from visar.evaluation.report.scope import (
    LATE,
    answer_notes,
    answers_of,
    how_timed,
    is_timed,
    label,
    name_generator,
    seconds_of,
)

_ByBudget = dict[int, dict[str, dict[str, Answered]]]


def latency_tables(findings: Findings) -> list[Table]:
    """Table S8 for each data set, encoder and generator; without answers, of retrieval alone."""
    tables = []
    for (dataset, encoder), by_method in findings.choices.items():
        timed = {method: by_method[method] for method in filter(is_timed, by_method)}
        answers: dict[tuple[str, str], _ByBudget] = {}
        for key, answered in findings.answers.items():
            if (key.dataset, key.encoder) == (dataset, encoder):
                answers.setdefault((key.generator, key.prompt), {})[key.max_k] = answered
        if timed and not answers:
            tables.append(_table(findings, (dataset, encoder), None, timed, {}))
        elif timed:
            tables += [
                _table(findings, (dataset, encoder), generator, timed, by_budget)
                for generator, by_budget in answers.items()
            ]
    return tables


def _table(
    findings: Findings,
    setting: tuple[str, str],
    generator: tuple[str, str] | None,
    timed: Mapping[str, Mapping[str, Retrieved]],
    answers: _ByBudget,
) -> Table:
    """``setting`` is data set and encoder, ``generator`` its name and prompt."""
    dataset, encoder = setting
    paper = Comparison.of_latency(findings, dataset, encoder, generator)
    budgets = sorted(answers)
    retrieval: dict[str, list[float]] = {}
    generation: dict[tuple[str, int], list[float]] = {}
    both: dict[tuple[str, int], list[float]] = {}
    counts = {}
    for method, chosen in timed.items():
        measured = {question: seconds_of(one) for question, one in chosen.items() if one.seconds}
        retrieval[method] = [measured[question] for question in sorted(measured)]
        counts[label(method), encoder] = len(measured)
        for k in budgets:
            answered = answers_of(answers[k], method)
            shared = sorted(chosen.keys() & answered.keys())
            if shared:
                counts[f"{label(method)}, Max-{k}", encoder] = len(shared)
            generation[method, k] = [answered[question].seconds for question in shared]
            both[method, k] = [measured[q] + answered[q].seconds for q in shared if q in measured]
    rows: list[Row] = []
    for method in timed:
        seconds = retrieval[method]
        beside = paper.value("retrieval_seconds", None, method, len(seconds))
        row: Row = {"Method": label(method), "Retrieval s": _cell(seconds, 4, None, beside)}
        for heading, measure, values in (
            ("Generation", "generation_seconds", generation),
            ("End to end", "end_to_end_seconds", both),
        ):
            for k in budgets:
                seconds = values[method, k]
                fixed = values.get((LATE, k)) if method != LATE else None
                beside = paper.value(measure, None, method, len(seconds), k)
                row[f"{heading}, Max-{k} s"] = _cell(seconds, 3, fixed, beside)
        rows.append(row)
    mark_best(rows, [heading for heading in rows[0] if "Max-" in heading], least=True)
    notes = [
        "Means in seconds, without encoding the question; in parentheses the change against late "
        "interaction with the same budget. Bold: the least of a column. “—” where a method's pages "
        "were not given to the generator.",
        "ViSAR (Approx.) has ViSAR's times of generation, as in the paper, and its own of "
        "retrieval.",
        how_timed(one for chosen in timed.values() for one in chosen.values() if one.seconds),
        *_busy_notes(answers),
        *answer_notes(findings, dataset, counts),
    ]
    if paper.obstacles:
        notes.append(f"No number of the paper stands here: {'; '.join(paper.obstacles)}.")
    else:
        notes.append(
            f"The paper's times are those of an {the_paper().machine}; its Table S8 does not say "
            f"with which encoder. They stand where all {paper.expected(None)} questions count."
        )
    names = (*setting, *(() if generator is None else (name_generator(*generator),)))
    title = f"Table S8. Latency: {', '.join(names)}"
    return Table.of(make_key("table-s8", *names), title, rows, notes)


def _busy_notes(answers: _ByBudget) -> Iterator[str]:
    most = max(
        (
            one.concurrency
            for by_method in answers.values()
            for by_question in by_method.values()
            for one in by_question.values()
        ),
        default=1,
    )
    if most > 1:
        yield (
            f"The generator was asked up to {most} questions at a time: its seconds are no "
            "latencies of single questions. --concurrency 1 measures those."
        )


def _cell(
    values: Sequence[float], digits: int, fixed: Sequence[float] | None, paper: float | None
) -> Cell:
    """The mean, with its change against fixed top-k."""
    if not values:
        return Cell(None)
    mean = fmean(values)
    change = None
    if fixed and fmean(fixed) > 0:
        change = f"{100 * (mean / fmean(fixed) - 1):+.1f} %".replace("-", "−")
    return Cell(mean, digits, remark=change, paper=paper)
