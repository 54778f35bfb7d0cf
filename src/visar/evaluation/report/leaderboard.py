"""Runs side by side: a row for each encoder and method, with paired tests between rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.errors import InvalidOption
from visar.evaluation import metrics
from visar.evaluation.findings import Findings, read_findings
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Asked
from visar.evaluation.report import InvalidPages, apply_invalid_pages, markup, with_own_keys
from visar.evaluation.report.markup import Cell, Report, Row, Table, make_key
from visar.evaluation.report.scope import (
    SIGNIFICANT,
    is_adaptive,
    is_main,
    label,
    with_evidence,
)
from visar.evaluation.statistics import (
    PairedSamples,
    Statistic,
    bootstrap,
    f1_of_means,
    mcnemar,
)

# Methods that do not decide k by themselves stand with the paper's two budgets.
FIXED_K = (5, 10)

Values: TypeAlias = NDArray[np.float64]
_MEASURES: tuple[tuple[str, int, float, Statistic], ...] = (
    ("Mean k", 1, 1, lambda means: means[:, 2]),
    ("R@k* %", 2, 100, lambda means: means[:, 1]),
    ("P@k* %", 2, 100, lambda means: means[:, 0]),
    ("F1@k* %", 2, 100, f1_of_means),
    ("NDCG@5", 3, 1, lambda means: means[:, 3]),
)
"""Heading, digits, factor and statistic of precision, recall, k and NDCG@5 of each question."""


@dataclass(frozen=True)
class _Entry:
    """A row: what a method of a run reaches on the questions of a data set."""

    names: tuple[str, ...]
    """Run, encoder and method; of answers also generator and budget."""
    shown: tuple[str, ...]
    """The names as the table shows them."""
    values: Mapping[str, tuple[float, ...]]
    """By question: precision, recall, k, NDCG@5; of answers, 1 if the answer is right."""
    questions: Mapping[str, Asked]
    knows_evidence: bool = False

    @property
    def key(self) -> str:
        return "/".join(self.names)


def write_leaderboard(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    baseline: str | None = None,
    invalid_pages: InvalidPages = "auto",
) -> Path:
    """Write ``leaderboard.html``, ``leaderboard.md`` and ``leaderboard.json``.

    Parameters
    ----------
    folders
        Of runs; each is shown under the name of its folder.
    out
        The folder for the files.
    baseline
        The row that the others are tested against: ``RUN/ENCODER/METHOD``, or the end of it if
        no other row ends so. By default the best row, Oracle aside.
    invalid_pages
        What becomes of questions about documents with pages that an encoder failed on, as in
        `write_report`.

    Returns
    -------
    Path
        The HTML page.

    Raises
    ------
    NotARun
        If a folder holds no run, or damaged records.
    InvalidOption
        If a folder is named twice, or ``baseline`` is not the name of one row.
    MissingExtra
        If Jinja is not installed.
    """
    runs = {
        name: apply_invalid_pages(read_findings(folder), invalid_pages)
        for name, folder in _named(folders).items()
    }
    report = Report(
        "ViSAR leaderboard",
        tuple(_introduction(runs)),
        with_own_keys(_tables(runs, baseline)),
        (),
        json.dumps(
            {name: list(findings.manifests) for name, findings in runs.items()},
            indent=2,
            sort_keys=True,
            ensure_ascii=False,
        ),
    )
    return markup.write_files(report, Path(out), "leaderboard")


def _named(folders: Sequence[Path | str]) -> dict[str, Path]:
    """Name each run by its folder, and by the path where several folders have the same name."""
    paths = [Path(folder) for folder in folders]
    times = Counter(path.resolve().name for path in paths)
    named: dict[str, Path] = {}
    for path in paths:
        last = path.resolve().name
        name = last if times[last] == 1 else str(path)
        if name in named:
            raise InvalidOption(f"The run {path} is named twice.")
        named[name] = path
    return named


def _introduction(runs: Mapping[str, Findings]) -> Iterator[str]:
    yield (
        "Rows are sorted, the best first. Intervals hold 95 % of the values of resampled "
        "questions. Every row is tested against one other on the questions that both have."
    )
    everywhere = set.intersection(*(set(findings.datasets) for findings in runs.values()))
    for name, findings in runs.items():
        if alone := sorted(set(findings.datasets) - everywhere):
            yield f"Not in every run: {', '.join(alone)} of {name}."
        for (dataset, encoder), questions in findings.left_out.items():
            yield (
                f"{name}, {dataset}, {encoder}: {len(questions)} questions are left out, as in the "
                "paper, because a page of their document could not be encoded."
            )


def _tables(runs: Mapping[str, Findings], baseline: str | None) -> Iterator[Table]:
    yield _runs_table(runs)
    datasets = sorted({dataset for findings in runs.values() for dataset in findings.datasets})
    retrieved = {dataset: _retrieval_entries(runs, dataset) for dataset in datasets}
    chosen = _find_baseline(retrieved, baseline)
    for dataset, entries in retrieved.items():
        if entries:
            yield _retrieval_table(dataset, entries, chosen)
        for judge, answered in _answer_entries(runs, dataset).items():
            yield _answer_table(dataset, judge, answered, chosen)


def _runs_table(runs: Mapping[str, Findings]) -> Table:
    rows: list[Row] = []
    for name, findings in runs.items():
        last = findings.manifests[-1] if findings.manifests else {}
        rows.append(
            {
                "Run": name,
                "ViSAR": str(last.get("visar", markup.NOTHING)),
                "Started": str(last.get("started", markup.NOTHING))[:10],
                "Encoders": ", ".join(_with_versions(findings)) or markup.NOTHING,
                "Data sets": ", ".join(findings.datasets),
                "Questions": len(findings.asked),
            }
        )
    return Table.of("runs", "Runs", rows)


def _with_versions(findings: Findings) -> list[str]:
    versions: dict[str, str] = {}
    for manifest in findings.manifests:
        versions |= manifest.get("encoders", {})
    return [f"{name} {versions.get(name, '')}".rstrip() for name in findings.encoders]


def _retrieval_entries(runs: Mapping[str, Findings], dataset: str) -> list[_Entry]:
    return [
        entry
        for run, findings in runs.items()
        for (of, encoder), by_method in findings.choices.items()
        if of == dataset
        for method in filter(is_main, by_method)
        for entry in _entries_of(findings, dataset, (run, encoder, method))
    ]


def _entries_of(findings: Findings, dataset: str, names: tuple[str, str, str]) -> Iterator[_Entry]:
    """One entry, or one for each fixed k; none where no question has evidence."""
    run, encoder, method = names
    pairs = with_evidence(findings, dataset, findings.choices[dataset, encoder][method])
    budgets: tuple[int | None, ...] = (None,) if is_adaptive(method) else FIXED_K
    for budget in budgets if pairs else ():
        values = {}
        for asked, one in pairs:
            pages, evidence = one.pages[:budget], asked.evidence_pages
            values[asked.question] = (
                metrics.precision(pages, evidence),
                metrics.recall(pages, evidence),
                float(one.k if budget is None else len(pages)),
                metrics.ndcg_at(one.ranking, evidence, 5),
            )
        yield _Entry(
            (run, encoder, method if budget is None else f"{method}@{budget}"),
            (run, encoder, label(method) if budget is None else f"{label(method)}, k = {budget}"),
            values,
            {asked.question: asked for asked, _ in pairs},
            knows_evidence=method in METHODS and METHODS[method].needs_evidence,
        )


def _answer_entries(runs: Mapping[str, Findings], dataset: str) -> dict[str, list[_Entry]]:
    """By judge: verdicts of different judges are no scale to compare by."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, tuple[float, ...]]] = {}
    for run, findings in runs.items():
        asked = findings.questions.get(dataset, {})
        for one in findings.judged:
            if one.dataset == dataset and one.question in asked and is_main(one.method):
                prompt = "" if one.prompt == "default" else f" (prompt: {one.prompt})"
                setting = (one.generator + prompt, str(one.max_k))
                row = (run, one.encoder, one.method, *setting)
                verdicts = found.setdefault((one.judge, row), {})
                verdicts[one.question] = (float(one.correct),)
    entries: dict[str, list[_Entry]] = {}
    for (judge, names), verdicts in sorted(found.items()):
        asked = runs[names[0]].questions[dataset]
        shown = (*names[:2], label(names[2]), *names[3:])
        questions = {question: asked[question] for question in verdicts}
        entries.setdefault(judge, []).append(_Entry(names, shown, verdicts, questions))
    return entries


def _find_baseline(
    retrieved: Mapping[str, Sequence[_Entry]], baseline: str | None
) -> tuple[str, ...] | None:
    """The names of the row that a user means; the same row can be of several data sets."""
    if baseline is None:
        return None
    names = dict.fromkeys(entry.names for entries in retrieved.values() for entry in entries)
    found = [one for one in names if f"/{'/'.join(one)}".endswith(f"/{baseline}")]
    if len(found) != 1:
        which = found or list(names)
        problem = "There is no row" if not found else "Several rows are called"
        listed = ", ".join("/".join(one) for one in which)
        raise InvalidOption(f"{problem} {baseline!r}: name one of {listed}.")
    return found[0]


def _retrieval_table(
    dataset: str, entries: Sequence[_Entry], chosen: tuple[str, ...] | None
) -> Table:
    samples = {entry.key: _samples(entry) for entry in entries}
    f1 = {key: one.interval(key, f1_of_means).mean for key, one in samples.items()}
    ranked = sorted(entries, key=lambda entry: (-f1[entry.key], entry.key))
    best = next((entry for entry in ranked if not entry.knows_evidence), ranked[0])
    reference = next((entry for entry in ranked if entry.names == chosen), best)
    rows, chances = [], []
    for entry in ranked:
        row: Row = dict(zip(("Run", "Encoder", "Method"), entry.shown, strict=True))
        row["Questions"] = len(entry.values)
        for heading, digits, factor, statistic in _MEASURES:
            one = samples[entry.key].interval(entry.key, statistic)
            interval = (factor * one.low, factor * one.high)
            row[heading] = Cell(factor * one.mean, digits, interval=interval)
        shared = _shared(entry, reference)
        row["Shared"] = len(shared)
        row["Δ F1"] = row["p"] = None
        if entry is not reference and shared:
            pair = PairedSamples(
                {one.key: _array(one, shared) for one in (entry, reference)}
            ).difference(entry.key, reference.key, f1_of_means)
            row["Δ F1"] = Cell(100 * pair.value, 2, interval=(100 * pair.low, 100 * pair.high))
            chances.append((row, pair.p))
        rows.append(row)
    adjust_chances(chances)
    notes = [
        "k before any budget, or a fixed k. R@k* and P@k* are means over questions, F1@k* is the "
        "harmonic mean of these two; NDCG@5 is the standard one.",
        f"Δ F1: the row's F1@k* less that of {' · '.join(reference.shown)}, on the questions that "
        "both have (Shared), with its paired bootstrap interval. p: of the paired randomization "
        f"test, adjusted for the number of rows (Holm); bold below {SIGNIFICANT}.",
        *_question_notes(entries),
    ]
    if any(entry.knows_evidence for entry in entries):
        notes.append("Oracle knows the evidence: it is the end of the scale, not a method.")
    return Table.of(make_key("retrieval", dataset), f"Retrieval: {dataset}", rows, notes)


def _answer_table(
    dataset: str, judge: str, entries: Sequence[_Entry], chosen: tuple[str, ...] | None
) -> Table:
    means = {entry.key: bootstrap(one for (one,) in entry.values.values()) for entry in entries}
    ranked = sorted(entries, key=lambda entry: (-means[entry.key].mean, entry.key))
    rows, chances = [], []
    for entry in ranked:
        row: Row = dict(
            zip(("Run", "Encoder", "Method", "Generator", "Max-k"), entry.shown, strict=True)
        )
        mean = means[entry.key]
        row["Questions"] = mean.count
        row["Accuracy %"] = Cell(100 * mean.mean, 2, interval=(100 * mean.low, 100 * mean.high))
        reference = _answer_reference(entry, ranked, chosen)
        shared = [] if reference is None else _shared(entry, reference)
        row["Shared"] = len(shared)
        row["Δ"] = row["p"] = None
        if reference is not None and entry is not reference and shared:
            first, second = _array(entry, shared)[:, 0], _array(reference, shared)[:, 0]
            gain = bootstrap(first - second)
            row["Δ"] = Cell(100 * gain.mean, 2, interval=(100 * gain.low, 100 * gain.high))
            chances.append((row, mcnemar(list(first > 0), list(second > 0))))
        rows.append(row)
    adjust_chances(chances)
    against = (
        " · ".join(ranked[0].shown)
        if chosen is None
        else f"{'/'.join(chosen)} with the same generator and budget"
    )
    notes = (
        f"Δ: the row's accuracy less that of {against}, on the questions that both have (Shared), "
        "with its paired bootstrap interval. p: of McNemar's exact test, adjusted for the number "
        f"of rows (Holm); bold below {SIGNIFICANT}.",
        *_question_notes(entries),
    )
    key, title = make_key("answers", dataset, judge), f"Answers: {dataset}, judged by {judge}"
    return Table.of(key, title, rows, notes)


def _answer_reference(
    entry: _Entry, ranked: Sequence[_Entry], chosen: tuple[str, ...] | None
) -> _Entry | None:
    """The best row, or that of the baseline with the same generator and budget."""
    if chosen is None:
        return ranked[0]
    run, encoder, method = chosen
    # A fixed k of the baseline is the budget here.
    names = (run, encoder, method.partition("@")[0], *entry.names[3:])
    return next((one for one in ranked if one.names == names), None)


def _samples(entry: _Entry) -> PairedSamples:
    return PairedSamples({entry.key: _array(entry, entry.values)})


def _array(entry: _Entry, questions: Iterable[str]) -> Values:
    return np.array([entry.values[question] for question in sorted(questions)])


def _shared(first: _Entry, second: _Entry) -> list[str]:
    """The questions of both rows that are the same: also the document and its evidence."""
    return [
        question
        for question in first.values
        if question in second.values and _is_same(first, second, question)
    ]


def _is_same(first: _Entry, second: _Entry, question: str) -> bool:
    one, other = first.questions[question], second.questions[question]
    return (one.document, one.pages, set(one.evidence_pages)) == (
        other.document,
        other.pages,
        set(other.evidence_pages),
    )


def _question_notes(entries: Sequence[_Entry]) -> Iterator[str]:
    """Say where runs do not ask the same."""
    asked: dict[str, dict[str, _Entry]] = {}
    for entry in entries:
        for question in entry.values:
            asked.setdefault(entry.names[0], {}).setdefault(question, entry)
    first, *others = asked
    for other in others:
        common = asked[first].keys() & asked[other].keys()
        changed = sum(
            not _is_same(asked[first][question], asked[other][question], question)
            for question in common
        )
        only_first, only_other = (len(asked[run]) - len(common) for run in (first, other))
        if only_first or only_other:
            yield (
                f"{first} and {other} do not ask the same: {len(common)} questions are in both, "
                f"{only_first} in {first} alone, {only_other} in {other} alone."
            )
        if changed:
            yield (
                f"{changed} questions of {first} and {other} have the same id, but another "
                "document or other evidence pages: they are not compared."
            )


def adjust_chances(chances: Sequence[tuple[Row, float]]) -> None:
    """Write p-values into their rows, adjusted by Holm's method."""
    adjusted = 0.0
    for place, (row, p) in enumerate(sorted(chances, key=lambda chance: chance[1])):
        adjusted = max(adjusted, min(1.0, (len(chances) - place) * p))
        row["p"] = Cell(adjusted, 4, marked=adjusted < SIGNIFICANT)
