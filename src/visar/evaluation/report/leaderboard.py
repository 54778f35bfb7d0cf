"""A leaderboard of runs, with a row for each encoder and method and paired tests between rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from visar.errors import InvalidOption
from visar.evaluation.frames import CHOICE_METRICS, Results, read_results
from visar.evaluation.methods import METHODS
from visar.evaluation.report import InvalidPages, apply_invalid_pages, markup, with_unique_keys
from visar.evaluation.report.markup import Cell, Report, Row, Table, make_key
from visar.evaluation.report.methods import is_adaptive, is_main, label, name_generator, where
from visar.evaluation.report.notes import SIGNIFICANT
from visar.evaluation.report.retrieval_tables import on_shared_questions
from visar.evaluation.statistics import (
    Statistic,
    adjust,
    bootstrap,
    compare,
    f1_of_means,
    first_mean,
    mcnemar,
)
from visar.files import write_whole
from visar.generation import extractive
from visar.text import counted

FIXED_K = (5, 10)
"""Values of k for methods with a fixed k: the paper's two budgets."""
_F1 = ["precision", "recall"]
_MEASURES: tuple[tuple[str, int, list[str], Statistic], ...] = (
    ("F1@k* %", 2, _F1, f1_of_means),
    ("R@k* %", 2, ["recall"], first_mean),
    ("P@k* %", 2, ["precision"], first_mean),
    ("All evidence %", 2, ["perfect_recall"], first_mean),
    ("Mean k", 1, ["k"], first_mean),
    ("NDCG@5", 3, ["ndcg@5"], first_mean),
)
_ROW = ["run", "encoder", "name"]
_ANSWER_ROW = [*_ROW, "generator", "max_k"]


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
        "leaderboard-retrievals.csv": chosen.drop(
            columns=["same", "text_digest", "ranking", "evidence_pages"]
        ).assign(pages=[json.dumps(pages) for pages in chosen.pages]),
        "leaderboard-verdicts.csv": verdicts.drop(columns="same"),
    }
    for name, frame in records.items():
        lines = frame.rename(columns={"name": "method"}).to_csv(index=False)
        write_whole(Path(out) / name, lines.encode())
    report = Report(
        "ViSAR leaderboard",
        (*_introduction(runs), *(f"Different between runs: {one}." for one in different)),
        with_unique_keys(tables),
        (),
        json.dumps(
            {name: list(results.manifests) for name, results in runs.items()},
            indent=2,
            sort_keys=True,
            ensure_ascii=False,
        ),
        is_sortable=True,
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
    names = ["dataset", "encoder", "method", "question", "document", "document_pages", "pages"]
    names += ["text_digest", "evidence_pages", "k", *_F1, "perfect_recall", "ndcg@5", "ranking"]
    frame = where(results.counted, is_main)[names]
    parts = [where(frame, is_adaptive).assign(name=lambda part: part.method)]
    for k in FIXED_K:
        fixed = where(frame, lambda method: not is_adaptive(method))
        fixed = fixed.assign(name=fixed.method + f"@{k}", pages=fixed.pages.str[:k])
        pairs = list(zip(fixed.pages, fixed.evidence_pages, strict=True))
        measured = {
            name: [100 * CHOICE_METRICS[name](*pair) for pair in pairs]
            for name in (*_F1, "perfect_recall")
        }
        parts.append(fixed.assign(k=fixed.pages.map(len), **measured))
    frame = pd.concat(parts)
    frame.insert(0, "run", run)
    return frame.assign(same=_identity(frame)).drop(columns="method")


def _verdict_rows(run: str, results: Results) -> pd.DataFrame:
    """Return the verdicts on the main methods' answers, with their questions' columns."""
    about = results.questions.rename(columns={"pages": "document_pages"})
    names = ["dataset", "question", "text_digest", "document", "document_pages", "evidence_pages"]
    about = about[names]
    frame = where(results.verdicts, is_main).merge(about, on=["dataset", "question"])
    asked = zip(frame.generator, frame.prompt, strict=True)
    frame = frame.assign(generator=[name_generator(*one) for one in asked], name=frame.method)
    names = ["dataset", "judge", "encoder", "name", "generator", "max_k", "question", "correct"]
    same = _identity(frame)
    frame = frame[names].astype({"correct": bool})
    frame.insert(0, "run", run)
    return frame.assign(same=same)


def _identity(frame: pd.DataFrame) -> list[str]:
    """Identify each question by id, text, document and evidence, because runs may differ."""
    names = ["question", "text_digest", "document", "document_pages", "evidence_pages"]
    return [
        json.dumps([*about, sorted({*evidence})])
        for *about, evidence in frame[names].itertuples(index=False)
    ]


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


def _find_baseline(chosen: pd.DataFrame, baseline: str | None) -> tuple[str, ...] | None:
    """Return the run, encoder and method of the baseline row."""
    if baseline is None:
        return None
    names: list[tuple[str, ...]] = [*chosen.groupby(_ROW, sort=False).groups]
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


def _retrieval_table(dataset: str, frame: pd.DataFrame, chosen: tuple[str, ...] | None) -> Table:
    groups = dict(iter(frame.groupby(_ROW)))
    f1 = {key: float(f1_of_means(group[_F1].mean().to_numpy())) for key, group in groups.items()}
    ranked = sorted(groups, key=lambda key: (-f1[key], key))
    oracles = [key for key in ranked if key[2] in METHODS and METHODS[key[2]].needs_evidence]
    best = next((key for key in ranked if key not in oracles), ranked[0])
    reference = best if chosen is None or chosen not in groups else chosen
    rows: list[Row] = []
    p_values = {}
    for place, key in enumerate(ranked):
        group = groups[key]
        row: Row = {"Run": key[0], "Encoder": key[1], "Method": _row_label(key[2])}
        row["Questions"] = len(group)
        for heading, digits, measures, statistic in _MEASURES:
            one = bootstrap(group[measures], statistic)
            row[heading] = Cell(one.mean, digits, interval=(one.low, one.high))
        own, other = on_shared_questions(group, groups[reference], _F1, "same")
        row |= {"Shared": len(own), "Δ F1": None, "p": None}
        if key != reference and len(own):
            pair = compare(own, other, f1_of_means)
            row["Δ F1"] = Cell(pair.value, 2, interval=(pair.low, pair.high))
            p_values[place] = pair.p
        rows.append(row)
    _write_p_values(rows, p_values)
    shown = f"{reference[0]} · {reference[1]} · {_row_label(reference[2])}"
    notes = [
        "k is before any budget, or fixed. R@k* and P@k* are means over questions, F1@k* is their "
        "harmonic mean. All evidence: the share of questions with all evidence pages among the "
        "chosen pages. NDCG@5 is the standard definition.",
        f"Δ F1: the row's F1@k* minus that of {shown}, on the questions that both have (Shared), "
        "with paired bootstrap interval. p: paired permutation test, adjusted for the number of "
        f"rows (Holm); bold below {SIGNIFICANT}.",
        *_question_notes(frame),
    ]
    if oracles:
        notes.append("Oracle knows the evidence: it is an upper bound, not a method.")
    return Table.of(make_key("retrieval", dataset), f"Retrieval: {dataset}", rows, notes)


def _answer_table(
    dataset: str, judge: str, frame: pd.DataFrame, chosen: tuple[str, ...] | None
) -> Table:
    groups = dict(iter(frame.groupby(_ANSWER_ROW)))
    ranked = sorted(groups, key=lambda key: (-groups[key].correct.mean(), key))
    rows: list[Row] = []
    p_values = {}
    for place, key in enumerate(ranked):
        run, encoder, name, generator, max_k = key
        row: Row = {"Run": run, "Encoder": encoder, "Method": label(name)}
        row |= {"Generator": generator, "Max-k": int(max_k), "Questions": len(groups[key])}
        mean = bootstrap(100 * groups[key].correct.astype(float))
        row["Accuracy %"] = Cell(mean.mean, 2, interval=(mean.low, mean.high))
        reference = ranked[0]
        if chosen is not None:
            # Ignore the baseline's fixed k, because answers have a budget.
            reference = (*chosen[:2], chosen[2].partition("@")[0], generator, max_k)
        row |= {"Shared": 0, "Δ": None, "p": None}
        if reference in groups:
            own, other = on_shared_questions(groups[key], groups[reference], ["correct"], "same")
            row["Shared"] = len(own)
            if key != reference and len(own):
                gain = bootstrap(100 * (own.correct.astype(float) - other.correct.astype(float)))
                row["Δ"] = Cell(gain.mean, 2, interval=(gain.low, gain.high))
                p_values[place] = mcnemar(own.correct, other.correct)
        rows.append(row)
    _write_p_values(rows, p_values)
    if chosen is None:
        against = " · ".join(map(str, (*ranked[0][:2], label(ranked[0][2]), *ranked[0][3:])))
    else:
        against = f"{'/'.join(chosen)} with the same generator and budget"
    notes = (
        f"Δ: the row's accuracy minus that of {against}, on the questions that both have (Shared), "
        "with paired bootstrap interval. p: McNemar's exact test, adjusted for the number of rows "
        f"(Holm); bold below {SIGNIFICANT}.",
        *_question_notes(frame),
    )
    key, title = make_key("answers", dataset, judge), f"Answers: {dataset}, judged by {judge}"
    return Table.of(key, title, rows, notes)


def _write_p_values(rows: list[Row], p_values: Mapping[int, float]) -> None:
    """Write adjusted p-values into their rows."""
    for place, p in zip(p_values, adjust([*p_values.values()]), strict=True):
        rows[place]["p"] = Cell(p, 4, marked=p < SIGNIFICANT)


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
