"""From a run's folder to a report: a page to look at, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from visar.evaluation.frames import Results, read_results
from visar.evaluation.report import (
    answer_figures,
    answer_tables,
    latency,
    markup,
    matrix_figures,
    retrieval_figures,
    retrieval_tables,
    sweep_figures,
)
from visar.evaluation.report.markup import Picture, Report, Table
from visar.evaluation.report.methods import name_generator
from visar.evaluation.report.notes import listed
from visar.evaluation.report.paper import paper_settings

InvalidPages: TypeAlias = Literal["auto", "leave-out", "empty"]
"""What becomes of questions about documents with pages that an encoder gave no usable vectors for:
they are left out for that encoder, as in the paper; the pages count as empty; or ("auto") the
paper's way where its numbers can stand beside, and the other elsewhere."""


def write_report(
    folder: Path | str, out: Path | str | None = None, *, invalid_pages: InvalidPages = "auto"
) -> Path:
    """Write ``report.html``, ``report.md`` with ``figures/*.svg``, and ``report.json``.

    The files hold ids and numbers only, no question, answer or page. The same run gives the same
    files.

    Parameters
    ----------
    folder
        The folder of a run.
    out
        Where the files go; by default the run's folder.
    invalid_pages
        What becomes of questions about documents with pages that an encoder failed on.

    Returns
    -------
    Path
        The HTML page.

    Raises
    ------
    NotARun
        If the folder holds no run, or damaged records.
    MissingExtra
        If matplotlib or Jinja is not installed.
    """
    folder = Path(folder)
    results = apply_invalid_pages(read_results(folder), invalid_pages)
    report = Report(
        "ViSAR evaluation",
        tuple(introduce(results)),
        with_own_keys(make_tables(results)),
        with_own_keys(make_figures(results, folder)),
        json.dumps(list(results.manifests), indent=2, sort_keys=True, ensure_ascii=False),
    )
    return markup.write_files(report, folder if out is None else Path(out), "report")


def apply_invalid_pages(results: Results, way: InvalidPages) -> Results:
    """Return the results without the questions that are to be left out."""
    if way == "empty":
        return results
    every = results.retrievals[["dataset", "encoder"]].drop_duplicates()
    return results.leave_out_invalid(
        [*every.itertuples(index=False, name=None)]
        if way == "leave-out"
        else paper_settings(results)
    )


def make_tables(results: Results) -> list[Table]:
    """Return every table that the run's records suffice for, in the paper's order."""
    return [
        retrieval_tables.overview_table(results),
        *retrieval_tables.adaptive_tables(results),
        *retrieval_tables.fixed_k_tables(results),
        *retrieval_tables.ranking_tables(results),
        *answer_tables.accuracy_tables(results),
        *answer_tables.match_tables(results),
        *answer_tables.budget_tables(results),
        *answer_tables.agreement_tables(results),
        *latency.latency_tables(results),
        *answer_tables.sparsity_tables(results),
        *retrieval_tables.weighting_tables(results),
        *answer_tables.objective_tables(results),
    ]


def make_figures(results: Results, folder: Path) -> list[Picture]:
    """Return every figure that the run's records and its folder's ``details`` suffice for."""
    return [
        *retrieval_figures.distribution_figures(results),
        *retrieval_figures.oracle_figures(results),
        *retrieval_figures.fixed_figures(results),
        *answer_figures.budget_figures(results),
        *sweep_figures.top_t_figures(results),
        *sweep_figures.gamma_figures(results),
        *latency.latency_figures(results),
        *matrix_figures.matrix_figures(matrix_figures.read_details(folder)),
        *answer_figures.sparsity_figures(results),
    ]


_Shown = TypeVar("_Shown", Table, Picture)


def with_own_keys(shown: Iterable[_Shown]) -> tuple[_Shown, ...]:
    """Number keys that names make alike: "A b" and "A-b", or names in other scripts."""
    times: Counter[str] = Counter()
    found = []
    for one in shown:
        times[one.key] += 1
        again = times[one.key]
        found.append(one if again == 1 else replace(one, key=f"{one.key}--{again}"))
    return tuple(found)


def introduce(results: Results) -> list[str]:
    """Return sentences about what was run, how it was computed, and whether it is complete."""
    verdicts = results.verdicts
    asked = verdicts[["generator", "prompt"]].drop_duplicates().itertuples(index=False)
    generators = sorted({name_generator(*one) for one in asked})
    sentences = [
        f"Data sets: {listed(results.datasets)}. Encoders: {listed(results.encoders)}. "
        f"Generators: {listed(generators)}. Judges: {listed(sorted(verdicts.judge.unique()))}.",
        _definitions(results),
        "A number after “paper”, or the second of two counts as in “841 / 842”, is the paper's "
        "own, for the same data set, encoder, generator, budget and method, where definitions, "
        "prompt and judge are the paper's; a note under each table says why there is none. “—” "
        "stands where there is nothing to show. Tables and figures are numbered as in the paper.",
    ]
    if results.stale or results.missing:
        sentences.append(
            f"{results.stale} records are stale, because an input of theirs has changed since, and "
            f"are in no table; {results.missing} records are missing. `visar eval status` lists "
            "them; the run's command computes them."
        )
    else:
        sentences.append("No record is stale, and none is missing.")
    if results.retrievals.empty:
        sentences.append("No pages have been retrieved yet: there is nothing but the questions.")
    elif results.answers.empty:
        sentences.append(
            "No answers have been generated: tables and figures of answers are missing."
        )
    elif verdicts.empty:
        sentences.append("No answers have been judged: tables and figures of accuracy are missing.")
    if not results.manifests:
        sentences.append("The run has no manifest: versions, settings and machine are unknown.")
        return sentences
    last = results.manifests[-1]
    if last.get("finished", "") is None:
        sentences.append(
            "The run's last call was interrupted: results may be missing. Run the same command "
            "again to resume."
        )
    failures = last.get("failures")
    if isinstance(failures, dict) and failures:
        sentences.append(f"Some answers could not be had from {listed(sorted(failures))}.")
    return sentences


def _definitions(results: Results) -> str:
    """Say whether the run computed things as the authors' program did."""
    ways = {bool(one.get("plan", {}).get("as_authors")) for one in results.manifests}
    if ways == {True}:
        return "This run was computed as the authors' program computed it (--as-authors)."
    if ways == {True, False}:
        return (
            "Some calls of this run were computed as the authors' program computed it "
            "(--as-authors), others by ViSAR's own definitions: the manifests say which."
        )
    return "This run was computed by ViSAR's own definitions, not with --as-authors."
