"""From a run's folder to a report: a page to look at, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from visar.evaluation.findings import Findings, read_findings
from visar.evaluation.report import (
    accuracy_tables,
    markup,
    matrix_figures,
    retrieval_figures,
    retrieval_tables,
    sparsity,
    sweep_figures,
)
from visar.evaluation.report.fixed_k import fixed_k_tables
from visar.evaluation.report.latency_figures import latency_figures
from visar.evaluation.report.latency_tables import latency_tables
from visar.evaluation.report.markup import Picture, Report, Table
from visar.evaluation.report.paper import paper_settings
from visar.evaluation.report.scope import listed, name_generator

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
    findings = apply_invalid_pages(read_findings(folder), invalid_pages)
    report = Report(
        "ViSAR evaluation",
        tuple(_introduction(findings)),
        with_own_keys(make_tables(findings)),
        with_own_keys(make_figures(findings, folder)),
        json.dumps(list(findings.manifests), indent=2, sort_keys=True, ensure_ascii=False),
    )
    return markup.write_files(report, folder if out is None else Path(out), "report")


def apply_invalid_pages(findings: Findings, way: InvalidPages) -> Findings:
    """Return the findings without the questions that are to be left out."""
    if way == "empty":
        return findings
    settings = list(findings.choices) if way == "leave-out" else paper_settings(findings)
    return findings.leave_out_invalid(settings)


def make_tables(findings: Findings) -> list[Table]:
    """Return every table that the run's records suffice for, in the paper's order."""
    return [
        retrieval_tables.overview_table(findings),
        *retrieval_tables.adaptive_tables(findings),
        *fixed_k_tables(findings),
        *retrieval_tables.ranking_tables(findings),
        *accuracy_tables.accuracy_tables(findings),
        *accuracy_tables.match_tables(findings),
        *accuracy_tables.agreement_tables(findings),
        *latency_tables(findings),
        *sparsity.sparsity_tables(findings),
        *retrieval_tables.weighting_tables(findings),
        *accuracy_tables.objective_tables(findings),
    ]


def make_figures(findings: Findings, folder: Path) -> list[Picture]:
    """Return every figure that the run's records and its folder's ``details`` suffice for."""
    return [
        *retrieval_figures.distribution_figures(findings),
        *retrieval_figures.oracle_figures(findings),
        *retrieval_figures.fixed_figures(findings),
        *sweep_figures.top_t_figures(findings),
        *sweep_figures.gamma_figures(findings),
        *latency_figures(findings),
        *matrix_figures.matrix_figures(matrix_figures.read_details(folder)),
        *sparsity.sparsity_figures(findings),
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


def _introduction(findings: Findings) -> list[str]:
    """What was run, how to read it, and whether the run came to its end."""
    generators = {name_generator(one.generator, one.prompt) for one in findings.judged}
    sentences = [
        f"Data sets: {listed(findings.datasets)}. Encoders: {listed(findings.encoders)}. "
        f"Generators: {listed(sorted(generators))}. "
        f"Judges: {listed(sorted({one.judge for one in findings.judged}))}.",
        "A number after “paper” is the paper's own, for the same data set, encoder, generator, "
        "budget and method, where as many questions count and prompt and judge are the paper's; a "
        "note under each table says why there is none. “—” stands where there is nothing to show. "
        "Tables and figures are numbered as in the paper.",
    ]
    if not findings.retrieved:
        sentences.append("No pages have been retrieved yet: there is nothing but the questions.")
    elif not findings.answered:
        sentences.append(
            "No answers have been generated: tables and figures of answers are missing."
        )
    elif not findings.judged:
        sentences.append("No answers have been judged: tables and figures of accuracy are missing.")
    if not findings.manifests:
        sentences.append("The run has no manifest: versions, settings and machine are unknown.")
        return sentences
    last = findings.manifests[-1]
    if last.get("finished", "") is None:
        sentences.append(
            "The run's last call has not come to its end: results may be missing. The same command "
            "goes on with it."
        )
    failures = last.get("failures")
    if isinstance(failures, dict) and failures:
        sentences.append(f"Some answers could not be had from {listed(sorted(failures))}.")
    return sentences
