"""Runs side by side: a row for each encoder and method, with paired tests between rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from visar.errors import InvalidOption
from visar.evaluation import metrics
from visar.evaluation.frames import Results, read_results
from visar.evaluation.methods import METHODS
from visar.evaluation.report import InvalidPages, apply_invalid_pages, markup, with_own_keys
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

FIXED_K = (5, 10)
"""Methods that do not decide k by themselves stand with the paper's two budgets."""
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
    """Write ``leaderboard.html`` with the same numbers as .md, .json and .csv.

    ``leaderboard-retrievals.csv`` and ``leaderboard-verdicts.csv`` hold a line for each question.

    Parameters
    ----------
    folders
        The folders of runs; each run is shown under the name of its folder.
    out
        The folder for the files.
    baseline
        The row that the others are tested against: ``RUN/ENCODER/METHOD``, or the end of it if
        no other row ends so. By default the best row, Oracle aside.
    invalid_pages
        What becomes of questions about documents with pages that an encoder failed on, as in
        `write_report`.
    allow_different
        Compare runs even if the same name means different data, models or code in them; the page
        then says what differs.

    Returns
    -------
    Path
        The HTML page.

    Raises
    ------
    NotARun
        If a folder holds no run, or damaged records.
    InvalidOption
        If a folder is named twice, ``baseline`` is not the name of one row, or a name means
        different things in two runs.
    MissingExtra
        If Jinja is not installed.
    """
    runs = {
        name: apply_invalid_pages(read_results(folder), invalid_pages)
        for name, folder in _named(folders).items()
    }
    different = _different_definitions(runs)
    if different and not allow_different:
        raise InvalidOption(
            f"These runs were not computed in the same way: {'; '.join(different)}. Run them again "
            "with the same versions, or pass --allow-different to compare them anyway."
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
        ),
        "leaderboard-verdicts.csv": verdicts.drop(columns="same"),
    }
    for name, frame in records.items():
        lines = frame.rename(columns={"name": "method"}).to_csv(index=False)
        write_whole(Path(out) / name, lines.encode())
    report = Report(
        "ViSAR leaderboard",
        (*_introduction(runs), *(f"Not the same in all runs: {one}." for one in different)),
        with_own_keys(tables),
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


def _different_definitions(runs: Mapping[str, Results]) -> list[str]:
    """Return the names that mean something else in one run than in another."""
    meanings: dict[str, dict[str, set[str]]] = {}
    for run, results in runs.items():
        for manifest in results.manifests[-1:]:
            definitions = manifest.get("definitions", {})
            named = {
                "ViSAR": definitions.get("code", ""),
                "the authors' definitions (--as-authors)": manifest.get("plan", {}).get(
                    "as_authors", False
                ),
                **{f"data set {k}": v.get("digest") for k, v in manifest.get("data", {}).items()},
                **{f"encoder {k}": v for k, v in definitions.get("encoders", {}).items()},
                **{f"generator {k}": v for k, v in definitions.get("generators", {}).items()},
                **{f"judge {k}": v for k, v in definitions.get("judges", {}).items()},
            }
            for name, meaning in named.items():
                meanings.setdefault(name, {}).setdefault(str(meaning), set()).add(run)
    return [
        f"{name} differs between {' and '.join(min(one) for one in by_meaning.values())}"
        for name, by_meaning in meanings.items()
        if len(by_meaning) > 1
    ]


def _retrieval_rows(run: str, results: Results) -> pd.DataFrame:
    """Return the main methods' retrievals; those with a fixed k once for each of `FIXED_K`."""
    names = ["dataset", "encoder", "method", "question", "document", "document_pages", "pages"]
    names += ["text_digest", "evidence_pages", "k", *_F1, "perfect_recall", "ndcg@5", "ranking"]
    frame = where(results.counted, is_main)[names]
    parts = [where(frame, is_adaptive).assign(name=lambda part: part.method)]
    for k in FIXED_K:
        fixed = where(frame, lambda method: not is_adaptive(method))
        fixed = fixed.assign(name=fixed.method + f"@{k}", pages=fixed.pages.str[:k])
        pairs = list(zip(fixed.pages, fixed.evidence_pages, strict=True))
        recall = [100 * metrics.recall(*pair) for pair in pairs]
        parts.append(
            fixed.assign(
                k=fixed.pages.map(len),
                precision=[100 * metrics.precision(*pair) for pair in pairs],
                recall=recall,
                perfect_recall=[100.0 * (one == 100) for one in recall],
            )
        )
    frame = pd.concat(parts)
    frame.insert(0, "run", run)
    return frame.assign(same=_identity(frame)).drop(columns="method")


def _verdict_rows(run: str, results: Results) -> pd.DataFrame:
    """Return the verdicts on the main methods' answers, with what their questions are about."""
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
    """Name each question by its id, text, document and evidence: runs may mean different ones."""
    names = ["question", "text_digest", "document", "document_pages", "evidence_pages"]
    return [
        json.dumps([*about, sorted({*evidence})])
        for *about, evidence in frame[names].itertuples(index=False)
    ]


def _introduction(runs: Mapping[str, Results]) -> Iterator[str]:
    yield (
        "Rows are sorted, the best first; click on a column to sort by it. Intervals hold 95% of "
        "the values of resampled questions. Every row is tested against one other on the questions "
        "that both have."
    )
    everywhere = set.intersection(*(set(results.datasets) for results in runs.values()))
    for name, results in runs.items():
        if alone := sorted(set(results.datasets) - everywhere):
            yield f"Not in every run: {', '.join(alone)} of {name}."
        if results.stale or results.missing:
            yield (
                f"{name}: {results.stale} stale records are left out, and {results.missing} are "
                "missing."
            )
        for (dataset, encoder), questions in results.left_out.items():
            yield (
                f"{name}, {dataset}, {encoder}: {len(questions)} questions are left out, as in the "
                "paper, because a page of their document could not be encoded."
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
                "Started": str(last.get("started", markup.NOTHING))[:10],
                "As the authors": "yes" if last.get("plan", {}).get("as_authors") else "no",
                "Encoders": ", ".join(encoders) or markup.NOTHING,
                "Data sets": ", ".join(results.datasets),
                "Questions": len(results.questions),
            }
        )
    return Table.of("runs", "Runs", rows)


def _find_baseline(chosen: pd.DataFrame, baseline: str | None) -> tuple[str, ...] | None:
    """Return run, encoder and method of the row that a user means."""
    if baseline is None:
        return None
    names: list[tuple[str, ...]] = [*chosen.groupby(_ROW, sort=False).groups]
    found = [one for one in names if f"/{'/'.join(one)}".endswith(f"/{baseline}")]
    if len(found) != 1:
        problem = "There is no row" if not found else "Several rows are called"
        listed = ", ".join("/".join(one) for one in found or names)
        raise InvalidOption(f"{problem} {baseline!r}: name one of {listed}.")
    return found[0]


def _show(name: str) -> str:
    """The label of a method, with its fixed k."""
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
    chances = {}
    for place, key in enumerate(ranked):
        group = groups[key]
        row: Row = {"Run": key[0], "Encoder": key[1], "Method": _show(key[2])}
        row["Questions"] = len(group)
        for heading, digits, measures, statistic in _MEASURES:
            one = bootstrap(group[measures], statistic)
            row[heading] = Cell(one.mean, digits, interval=(one.low, one.high))
        own, other = on_shared_questions(group, groups[reference], _F1, "same")
        row |= {"Shared": len(own), "Δ F1": None, "p": None}
        if key != reference and len(own):
            pair = compare(own, other, f1_of_means)
            row["Δ F1"] = Cell(pair.value, 2, interval=(pair.low, pair.high))
            chances[place] = pair.p
        rows.append(row)
    _write_chances(rows, chances)
    shown = f"{reference[0]} · {reference[1]} · {_show(reference[2])}"
    notes = [
        "k before any budget, or a fixed k. R@k* and P@k* are means over questions, F1@k* is the "
        "harmonic mean of these two. All evidence: the share of questions with every evidence page "
        "among the pages taken. NDCG@5 is the standard one.",
        f"Δ F1: the row's F1@k* less that of {shown}, on the questions that both have (Shared), "
        "with its paired bootstrap interval. p: of the paired permutation test, adjusted for the "
        f"number of rows (Holm); bold below {SIGNIFICANT}.",
        *_question_notes(frame),
    ]
    if oracles:
        notes.append("Oracle knows the evidence: it is the end of the scale, not a method.")
    return Table.of(make_key("retrieval", dataset), f"Retrieval: {dataset}", rows, notes)


def _answer_table(
    dataset: str, judge: str, frame: pd.DataFrame, chosen: tuple[str, ...] | None
) -> Table:
    groups = dict(iter(frame.groupby(_ANSWER_ROW)))
    ranked = sorted(groups, key=lambda key: (-groups[key].correct.mean(), key))
    rows: list[Row] = []
    chances = {}
    for place, key in enumerate(ranked):
        run, encoder, name, generator, max_k = key
        row: Row = {"Run": run, "Encoder": encoder, "Method": label(name)}
        row |= {"Generator": generator, "Max-k": int(max_k), "Questions": len(groups[key])}
        mean = bootstrap(100 * groups[key].correct.astype(float))
        row["Accuracy %"] = Cell(mean.mean, 2, interval=(mean.low, mean.high))
        reference = ranked[0]
        if chosen is not None:
            # A fixed k of the baseline is the budget here.
            reference = (*chosen[:2], chosen[2].partition("@")[0], generator, max_k)
        row |= {"Shared": 0, "Δ": None, "p": None}
        if reference in groups:
            own, other = on_shared_questions(groups[key], groups[reference], ["correct"], "same")
            row["Shared"] = len(own)
            if key != reference and len(own):
                gain = bootstrap(100 * (own.correct.astype(float) - other.correct.astype(float)))
                row["Δ"] = Cell(gain.mean, 2, interval=(gain.low, gain.high))
                chances[place] = mcnemar(own.correct, other.correct)
        rows.append(row)
    _write_chances(rows, chances)
    if chosen is None:
        against = " · ".join(map(str, (*ranked[0][:2], label(ranked[0][2]), *ranked[0][3:])))
    else:
        against = f"{'/'.join(chosen)} with the same generator and budget"
    notes = (
        f"Δ: the row's accuracy less that of {against}, on the questions that both have (Shared), "
        "with its paired bootstrap interval. p: of McNemar's exact test, adjusted for the number "
        f"of rows (Holm); bold below {SIGNIFICANT}.",
        *_question_notes(frame),
    )
    key, title = make_key("answers", dataset, judge), f"Answers: {dataset}, judged by {judge}"
    return Table.of(key, title, rows, notes)


def _write_chances(rows: list[Row], chances: Mapping[int, float]) -> None:
    """Write p-values into their rows, adjusted for their number."""
    for place, p in zip(chances, adjust([*chances.values()]), strict=True):
        rows[place]["p"] = Cell(p, 4, marked=p < SIGNIFICANT)


def _question_notes(frame: pd.DataFrame) -> Iterator[str]:
    """Say where runs do not ask the same."""
    asked = {run: dict(zip(of.question, of.same, strict=True)) for run, of in frame.groupby("run")}
    first, *others = frame.run.unique()
    for other in others:
        common = asked[first].keys() & asked[other].keys()
        changed = sum(asked[first][question] != asked[other][question] for question in common)
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
