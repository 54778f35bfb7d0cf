"""A leaderboard of runs, with a row for each encoder and method and paired tests between rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from visar.errors import InvalidOption
from visar.evaluation.frames import Results, measure_choices, read_results
from visar.evaluation.methods import METHODS
from visar.evaluation.report import InvalidPages, apply_invalid_pages, markup
from visar.evaluation.report.columns import ACCURACY, CHOICES, F1, SIGNIFICANT, Column
from visar.evaluation.report.markup import Cell, Report, Row, Table
from visar.evaluation.report.methods import is_adaptive, is_main, label, name_generator, where
from visar.evaluation.statistics import adjust
from visar.files import write_whole
from visar.generation import extractive
from visar.text import counted

FIXED_K = (5, 10)
"""Values of k for methods with a fixed k: the paper's two budgets."""
_COLUMNS = (
    F1,
    Column("R@k* %", 2, ("recall",)),
    Column("P@k* %", 2, ("precision",)),
    Column("All evidence %", 2, ("perfect_recall",)),
    Column("Mean k", 1, ("k",)),
    Column("NDCG@5", 3, ("ndcg@5",)),
)
_ROW = {"run": "Run", "encoder": "Encoder", "name": "Method"}
_ANSWER_ROW = _ROW | {"generator": "Generator", "max_k": "Max-k"}
_Key = tuple[Any, ...]


def write_leaderboard(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    baseline: str | None = None,
    invalid_pages: InvalidPages = "auto",
    allow_different: bool = False,
) -> Path:
    """Write ``leaderboard.html``, .md, .json and .csv; return the HTML page.

    ``leaderboard-retrievals.csv`` and ``leaderboard-verdicts.csv`` have a line for each question.
    Runs are named by their folders. Other rows are tested against ``baseline``, which is
    ``RUN/ENCODER/METHOD`` or a unique end of it; by default against the best row except Oracle.

    Raises NotARun if a folder doesn't contain a run or records are damaged, and InvalidOption if a
    folder is given twice, ``baseline`` doesn't match exactly one row, or runs have different
    definitions. With ``allow_different``, the page lists the differences instead.
    """
    runs = {
        name: apply_invalid_pages(read_results(folder), invalid_pages)
        for name, folder in _name_runs(folders).items()
    }
    different = _different_definitions(runs)
    if different and not allow_different:
        raise InvalidOption(
            f"The runs have different definitions: {'; '.join(different)}. Run them again with the "
            "same versions, or use --allow-different to compare them anyway."
        )
    chosen = pd.concat([_retrieval_rows(name, results) for name, results in runs.items()])
    verdicts = pd.concat([_verdict_rows(name, results) for name, results in runs.items()])
    reference = _find_baseline(chosen, baseline)
    tables = [_runs_table(runs)]
    for dataset in sorted({name for results in runs.values() for name in results.datasets}):
        of_dataset = chosen[chosen.dataset == dataset]
        if len(of_dataset):
            tables.append(_retrieval_table(dataset, of_dataset, reference))
        for judge, frame in verdicts[verdicts.dataset == dataset].groupby("judge"):
            tables.append(_answer_table(dataset, judge, frame, reference))
    records = {
        "leaderboard-retrievals.csv": chosen.assign(pages=chosen.pages.map(json.dumps)),
        "leaderboard-verdicts.csv": verdicts.drop(columns="accuracy"),
    }
    for name, frame in records.items():
        lines = frame.drop(columns="same").rename(columns={"name": "method"}).to_csv(index=False)
        write_whole(Path(out) / name, lines.encode())
    report = Report(
        "ViSAR leaderboard",
        (*_introduction(runs), *(f"Different between runs: {one}." for one in different)),
        tuple(tables),
        (),
        {name: results.manifests for name, results in runs.items()},
        downloads=("leaderboard.csv", "leaderboard.json", "leaderboard.md", *records),
    )
    return markup.write_files(report, Path(out), "leaderboard")


def _name_runs(folders: Sequence[Path | str]) -> dict[str, Path]:
    """Name each run by its folder, or by the path if several folders have the same name."""
    paths = [Path(folder) for folder in folders]
    times = Counter(path.resolve().name for path in paths)
    runs: dict[str, Path] = {}
    for path in paths:
        last = path.resolve().name
        name = last if times[last] == 1 else str(path)
        if name in runs:
            raise InvalidOption(f"The run {path} is given twice: remove one.")
        runs[name] = path
    return runs


def _different_definitions(runs: Mapping[str, Results]) -> list[str]:
    """Return descriptions of the definitions that differ between runs."""
    definitions: dict[str, dict[object, str]] = {}
    for run, results in runs.items():
        for name, definition in _definitions(results).items():
            definitions.setdefault(name, {}).setdefault(definition, run)
    different = [
        f"{name} differs between {' and '.join(by_definition.values())}"
        for name, by_definition in definitions.items()
        if len(by_definition) > 1
    ]
    asked = pd.concat([results.questions for results in runs.values()])
    for dataset, of_dataset in asked.groupby("dataset"):
        versions = of_dataset.groupby("document").document_digest.nunique()
        if changed := int((versions > 1).sum()):
            different.append(
                f"{counted(changed, 'document')} of {dataset} with different contents or words"
            )
    return different


def _definitions(results: Results) -> dict[str, object]:
    """Return a run's definitions by name, each from the last call that used it."""
    definitions = results.definitions
    found: dict[str, object] = {
        "ViSAR": definitions.code,
        **{f"encoder {name}": version for name, version in definitions.encoders.items()},
        **{f"method {name}": method.digest for name, method in definitions.methods.items()},
        **{
            f"generator {name_generator(name, prompt)}": digest
            for name, prompts in definitions.generators.items()
            for prompt, digest in prompts.items()
        },
        **{f"judge {name}": digest for name, digest in definitions.judges.items()},
    }
    needs_calibration = any(method.needs_calibration for method in definitions.methods.values())
    if needs_calibration or extractive.NAME in definitions.generators:
        calibrations = definitions.calibrations
        found |= {f"calibration of {name}": digest for name, digest in calibrations.items()}
    for manifest in results.manifests:
        as_authors = manifest.get("plan", {}).get("as_authors", False)
        found["the authors' definitions (--as-authors)"] = as_authors
        found |= {f"data set {k}": v.get("digest") for k, v in manifest.get("data", {}).items()}
    return found


def _retrieval_rows(run: str, results: Results) -> pd.DataFrame:
    """Return the main methods' retrievals, with a fixed k for each value of `FIXED_K`."""
    frame = where(results.counted, is_main)
    parts = [where(frame, is_adaptive).assign(name=lambda part: part.method)]
    for k in FIXED_K:
        fixed = where(frame, lambda method: not is_adaptive(method))
        fixed = fixed.assign(name=fixed.method + f"@{k}", pages=fixed.pages.str[:k])
        measured = measure_choices(fixed.pages, fixed.evidence_pages)
        parts.append(fixed.assign(k=fixed.pages.map(len), **measured))
    names = ["dataset", "encoder", "question", "document", "document_pages", "pages", "k"]
    names += ["precision", "recall", "perfect_recall", "ndcg@5", "name"]
    return _of_run(run, pd.concat(parts), names)


def _verdict_rows(run: str, results: Results) -> pd.DataFrame:
    """Return the verdicts on the main methods' answers."""
    about = results.questions.rename(columns={"pages": "document_pages"})
    frame = where(results.verdicts, is_main).merge(about, on=["dataset", "question"])
    asked = zip(frame.generator, frame.prompt, strict=True)
    frame = frame.assign(generator=[name_generator(*one) for one in asked], name=frame.method)
    names = ["dataset", "judge", "encoder", "name", "generator", "max_k", "question", "correct"]
    return _of_run(run, frame.astype({"correct": bool}), [*names, "accuracy"])


def _of_run(run: str, frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return columns after that of the run, and what identifies each question in all runs.

    Runs may differ in the text, document and evidence of a question with the same id.
    """
    about = ["question", "text_digest", "document", "document_pages", "evidence_pages"]
    same = [
        json.dumps([*others, sorted({*evidence})])
        for *others, evidence in frame[about].itertuples(index=False)
    ]
    return frame.assign(run=run)[["run", *names]].assign(same=same)


def _introduction(runs: Mapping[str, Results]) -> Iterator[str]:
    yield (
        "Rows are sorted with the best first; click a column to sort by it. Intervals contain 95% "
        "of bootstrap samples over questions. Each row is tested against a reference row on the "
        "questions that both have."
    )
    everywhere = set.intersection(*(set(results.datasets) for results in runs.values()))
    for name, results in runs.items():
        if alone := sorted(set(results.datasets) - everywhere):
            yield f"Not in every run: {', '.join(alone)} of {name}."
        if results.stale or results.missing:
            yield (
                f"{name}: {results.stale} records are stale and left out, {results.missing} are "
                "missing."
            )
        for (dataset, encoder), questions in results.left_out.items():
            yield (
                f"{name}, {dataset}, {encoder}: {len(questions)} questions are left out, as in the "
                "paper, because a page of their document couldn't be encoded."
            )


def _runs_table(runs: Mapping[str, Results]) -> Table:
    rows: list[Row] = []
    for name, results in runs.items():
        last = results.manifests[-1] if results.manifests else {}
        versions: dict[str, str] = {}
        for manifest in results.manifests:
            versions |= manifest.get("definitions", {}).get("encoders", {})
        encoders = [f"{one} {versions.get(one, '')}".rstrip() for one in results.encoders]
        rows.append(
            {
                "Run": name,
                "ViSAR": str(last.get("visar", markup.NOTHING)),
                "Commit": _short(last.get("commit")),
                "Started": str(last.get("started", markup.NOTHING))[:10],
                "As the authors": "yes" if last.get("plan", {}).get("as_authors") else "no",
                "Encoders": ", ".join(encoders) or markup.NOTHING,
                "Data sets": ", ".join(results.datasets),
                "Questions": len(results.questions),
            }
        )
    return Table.of("runs", "Runs", rows)


def _short(commit: str | None) -> str:
    """Return the first digits of a commit, with what it says of changes since."""
    digits, space, rest = (commit or markup.NOTHING).partition(" ")
    return f"{digits[:10]}{space}{rest}"


def _find_baseline(chosen: pd.DataFrame, baseline: str | None) -> _Key | None:
    """Return the run, encoder and method of the baseline row."""
    if baseline is None:
        return None
    names: list[_Key] = [*chosen.groupby([*_ROW], sort=False).groups]
    found = [one for one in names if f"/{'/'.join(one)}".endswith(f"/{baseline}")]
    if len(found) != 1:
        problem = "No row matches" if not found else "Several rows match"
        choices = ", ".join("/".join(one) for one in found or names)
        raise InvalidOption(f"{problem} {baseline!r}: use one of {choices}.")
    return found[0]


def _row_label(name: str) -> str:
    """Return the label of a method, with its fixed k."""
    method, at, k = name.rpartition("@")
    return f"{label(method)}, k = {k}" if at and k in map(str, FIXED_K) else label(name)


def _retrieval_table(dataset: str, frame: pd.DataFrame, chosen: _Key | None) -> Table:
    groups = _ranked(frame, _ROW, F1)
    oracles = [key for key in groups if key[2] in METHODS and METHODS[key[2]].needs_evidence]
    best = next((key for key in groups if key not in oracles), next(iter(groups)))
    reference = best if chosen is None or chosen not in groups else chosen
    rows = _compared_rows(groups, _ROW, _COLUMNS, "Δ F1", lambda _: reference)
    shown = f"{reference[0]} · {reference[1]} · {_row_label(reference[2])}"
    notes = [
        f"k is before any budget, or fixed. {CHOICES} NDCG@5 is the standard definition.",
        f"Δ F1: the row's F1@k* minus that of {shown}, on the questions that both have (Shared), "
        "with paired bootstrap interval. p: paired permutation test, adjusted for the number of "
        f"rows (Holm); bold below {SIGNIFICANT}.",
        *_question_notes(frame),
    ]
    if oracles:
        notes.append("Oracle knows the evidence: it is an upper bound, not a method.")
    return Table.of(f"retrieval {dataset}", f"Retrieval: {dataset}", rows, notes)


def _answer_table(dataset: str, judge: str, frame: pd.DataFrame, chosen: _Key | None) -> Table:
    groups = _ranked(frame, _ANSWER_ROW, ACCURACY)
    best = next(iter(groups))
    if chosen is None:
        rows = _compared_rows(groups, _ANSWER_ROW, [ACCURACY], "Δ", lambda _: best)
        against = " · ".join(map(str, (*best[:2], label(best[2]), *best[3:])))
    else:
        # Ignore the baseline's fixed k, because answers have a budget.
        baseline = (*chosen[:2], chosen[2].partition("@")[0])
        rows = _compared_rows(
            groups, _ANSWER_ROW, [ACCURACY], "Δ", lambda key: (*baseline, *key[3:])
        )
        against = f"{'/'.join(chosen)} with the same generator and budget"
    notes = (
        f"Δ: the row's accuracy minus that of {against}, on the questions that both have (Shared), "
        "with paired bootstrap interval. p: McNemar's exact test, adjusted for the number of rows "
        f"(Holm); bold below {SIGNIFICANT}.",
        *_question_notes(frame),
    )
    title = f"Answers: {dataset}, judged by {judge}"
    return Table.of(f"answers {dataset} {judge}", title, rows, notes)


def _ranked(frame: pd.DataFrame, by: Mapping[str, str], column: Column) -> dict[_Key, pd.DataFrame]:
    """Return the questions of each row, best row first."""
    groups: dict[_Key, pd.DataFrame] = dict(iter(frame.groupby([*by])))
    value = {key: column.value(group) for key, group in groups.items()}
    return {key: groups[key] for key in sorted(groups, key=lambda key: (-value[key], key))}


def _compared_rows(
    groups: Mapping[_Key, pd.DataFrame],
    by: Mapping[str, str],
    columns: Sequence[Column],
    heading: str,
    reference: Callable[[_Key], _Key],
) -> list[Row]:
    """Return rows with columns, the first of which is compared with that of a reference row."""
    rows: list[Row] = []
    tested: list[tuple[Row, float]] = []
    for key, group in groups.items():
        row: Row = dict(zip(by.values(), key, strict=True)) | {"Method": _row_label(key[2])}
        row["Questions"] = len(group)
        row |= {column.heading: column.cell(group) for column in columns}
        other = reference(key)
        row |= {"Shared": len(group) if key == other else 0, heading: None, "p": None}
        if key != other and other in groups:
            found = columns[0].difference(group, groups[other], "same")
            if found is not None and found.p is not None:
                row |= {"Shared": found.count, heading: Cell.of(found, columns[0].digits)}
                tested.append((row, found.p))
        rows.append(row)
    adjusted = adjust([p for _, p in tested])
    for (row, _), p in zip(tested, adjusted, strict=True):
        row["p"] = Cell(p, 4, marked=p < SIGNIFICANT)
    return rows


def _question_notes(frame: pd.DataFrame) -> Iterator[str]:
    """Yield notes on questions that differ between runs."""
    asked = {run: dict(zip(of.question, of.same, strict=True)) for run, of in frame.groupby("run")}
    first, *others = frame.run.unique()
    for other in others:
        common = asked[first].keys() & asked[other].keys()
        changed = sum(asked[first][question] != asked[other][question] for question in common)
        only_first, only_other = (len(asked[run]) - len(common) for run in (first, other))
        if only_first or only_other:
            yield (
                f"{first} and {other} have different questions: {len(common)} are in both, "
                f"{only_first} only in {first}, {only_other} only in {other}."
            )
        if changed:
            yield (
                f"{changed} questions of {first} and {other} have the same id but a different "
                "text, document or evidence: they aren't compared."
            )
