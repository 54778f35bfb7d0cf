"""Write the report of a run as HTML, Markdown, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from visar.evaluation.details import Detail, read_details
from visar.evaluation.frames import Results, read_results
from visar.evaluation.report import (
    answer_tables,
    budget,
    latency,
    markup,
    matrix_figures,
    retrieval_figures,
    retrieval_tables,
    sparsity,
    sweep_figures,
)
from visar.evaluation.report.markup import Picture, Report, Table
from visar.evaluation.report.methods import name_generator
from visar.evaluation.report.notes import listed
from visar.evaluation.report.paper import paper_settings
from visar.text import counted

InvalidPages: TypeAlias = Literal["auto", "leave-out", "empty"]
"""How to handle documents with pages that couldn't be encoded: "leave-out" their questions for that
encoder, as in the paper; count the pages as "empty"; or "auto", which leaves questions out only
where results are compared with the paper's."""


def write_report(
    folder: Path | str, out: Path | str | None = None, *, invalid_pages: InvalidPages = "auto"
) -> Path:
    """Write the report of a run to ``out``, by default the run's folder; return the HTML page.

    The files are ``report.html``, ``report.md`` with ``figures/*.svg``, ``report.json`` and
    ``report.csv``. They contain only ids and numbers, no questions, answers or pages. The output is
    deterministic. Raises NotARun if the folder doesn't contain a run, or records are damaged.
    """
    folder = Path(folder)
    results = apply_invalid_pages(read_results(folder), invalid_pages)
    current: list[Detail] = []
    stale: list[Detail] = []
    for detail in read_details(folder):
        (stale if matrix_figures.is_stale(detail, results) else current).append(detail)
    left_out = [
        f"Figure 5 leaves out {one.name}: an input has changed since. Run it again with --detail."
        for one in stale
    ]
    report = Report(
        "ViSAR evaluation",
        (*introduce(results), *left_out),
        tuple(make_tables(results)),
        tuple(make_figures(results, current)),
        results.manifests,
    )
    return markup.write_files(report, folder if out is None else Path(out), "report")


def apply_invalid_pages(results: Results, way: InvalidPages) -> Results:
    """Return the results without the questions to leave out."""
    if way == "empty":
        return results
    every = results.retrievals[["dataset", "encoder"]].drop_duplicates()
    return results.leave_out_invalid(
        [*every.itertuples(index=False, name=None)]
        if way == "leave-out"
        else paper_settings(results)
    )


def make_tables(results: Results) -> list[Table]:
    """Return all tables that the run has records for, in the paper's order."""
    settings = answer_tables.settings_of(results)
    return [
        retrieval_tables.overview_table(results),
        *retrieval_tables.adaptive_tables(results),
        *retrieval_tables.fixed_k_tables(results),
        *retrieval_tables.ranking_tables(results),
        *answer_tables.accuracy_tables(settings),
        *answer_tables.match_tables(settings),
        *budget.budget_tables(settings),
        *answer_tables.box_tables(results),
        *answer_tables.agreement_tables(results),
        *latency.latency_tables(results),
        *sparsity.sparsity_tables(settings),
        *retrieval_tables.weighting_tables(results),
        *answer_tables.objective_tables(settings),
    ]


def make_figures(results: Results, details: Sequence[Detail]) -> list[Picture]:
    """Return all figures that the run has records and details for."""
    settings = answer_tables.settings_of(results)
    return [
        *retrieval_figures.distribution_figures(results),
        *retrieval_figures.oracle_figures(results),
        *retrieval_figures.fixed_figures(results),
        *budget.budget_figures(settings),
        *sweep_figures.top_t_figures(results),
        *sweep_figures.gamma_figures(results),
        *latency.latency_figures(results),
        *matrix_figures.matrix_figures(details),
        *sparsity.sparsity_figures(settings),
    ]


def introduce(results: Results) -> list[str]:
    """Return sentences on what was run, how it was computed, and whether it is complete."""
    verdicts = results.verdicts
    asked = verdicts[["generator", "prompt"]].drop_duplicates().itertuples(index=False)
    generators = sorted({name_generator(*one) for one in asked})
    sentences = [
        f"Data sets: {listed(results.datasets)}. Encoders: {listed(results.encoders)}. "
        f"Generators: {listed(generators)}. Judges: {listed(sorted(verdicts.judge.unique()))}.",
        _definitions(results),
        "A number after “paper”, or the second of two counts as in “841 / 842”, is the paper's "
        "for the same data set, encoder, generator, budget and method. It is only shown if "
        "definitions, prompt and judge are the same as in the paper; otherwise a note below the "
        "table says why. "
        "“—” means no value. Tables and figures are numbered as in the paper.",
    ]
    if results.stale:
        sentences.append(
            f"{_records(results.stale)} stale because an input changed, and not in the tables."
        )
    if results.missing:
        sentences.append(
            f"{_records(results.missing)} missing: `visar eval status` lists them, and re-running "
            "the same command computes them."
        )
    elif results.stale:
        sentences.append("All stale records were computed again: no record is missing.")
    else:
        sentences.append("No records are stale or missing.")
    if results.retrievals.empty:
        sentences.append("No pages have been retrieved yet: the report only has the questions.")
    elif results.answers.empty:
        sentences.append(
            "No answers have been generated, so there are no tables and figures of answers."
        )
    elif verdicts.empty:
        sentences.append("No answers have been judged, so there are no tables of accuracy.")
    if not results.manifests:
        sentences.append("The run has no manifest, so versions, settings and machine are unknown.")
        return sentences
    last = results.manifests[-1]
    if last.get("finished", "") is None:
        sentences.append(
            "The run's last call was interrupted, so results may be missing. Re-run the same "
            "command to resume."
        )
    failures = last.get("failures")
    if isinstance(failures, dict) and failures:
        sentences.append(f"Some calls to {listed(sorted(failures))} failed.")
    return sentences


def _definitions(results: Results) -> str:
    """Return a sentence on whether the run used the definitions of the paper's authors."""
    plans = [one.get("plan", {}) for one in results.manifests]
    ways = {bool(plan.get("as_authors")) for plan in plans}
    if ways == {True}:
        sentence = "This run used the definitions of the paper's authors (--as-authors)"
    elif ways == {True, False}:
        sentence = (
            "Some calls of this run used the definitions of the paper's authors (--as-authors), "
            "others ViSAR's own definitions: see the manifests"
        )
    else:
        return "This run used ViSAR's own definitions, not --as-authors."
    # Explicit settings override the authors'.
    answering = [plan for plan in plans if plan.get("as_authors") and plan.get("generators")]
    others = {f"the prompt {plan['prompt']}" for plan in answering if plan["prompt"] != "paper"}
    judges = {name for plan in answering for name in plan["judges"]}
    others |= {f"the judge {name}" for name in judges if name.partition(":")[0] != "paper"}
    return f"{sentence}, but with {listed(sorted(others))}." if others else f"{sentence}."


def _records(count: int) -> str:
    return f"{counted(count, 'record')} {'is' if count == 1 else 'are'}"
