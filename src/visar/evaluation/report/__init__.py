"""From a run's folder to a report: a page to look at, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from visar.evaluation.findings import Findings, read_findings
from visar.evaluation.report import answer_tables, markup, retrieval_figures, retrieval_tables
from visar.evaluation.report.fixed_k import fixed_k_tables
from visar.evaluation.report.latency_figures import latency_figures
from visar.evaluation.report.markup import Picture, Report, Table
from visar.files import write_whole


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write ``report.html``, ``report.md`` with ``figures/*.svg``, and ``report.json``.

    The files hold ids and numbers only, no question, answer or page. The same run gives the same
    files.

    Parameters
    ----------
    folder
        The folder of a run.
    out
        Where the files go; by default the run's folder.

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
    findings = read_findings(folder)
    report = Report(
        "ViSAR evaluation",
        tuple(_introduction(findings)),
        with_own_keys(make_tables(findings)),
        with_own_keys(make_figures(findings, folder)),
        json.dumps(list(findings.manifests), indent=2, sort_keys=True, ensure_ascii=False),
    )
    files = {f"figures/{picture.key}.svg": picture.svg for picture in report.figures} | {
        "report.md": markup.to_markdown(report),
        "report.json": markup.to_json(report),
        "report.html": markup.to_html(report),
    }
    out = folder if out is None else Path(out)
    for name, text in files.items():
        write_whole(out / name, text.encode())
    return out / "report.html"


def make_tables(findings: Findings) -> list[Table]:
    """Return every table that the run's records suffice for, in the paper's order."""
    return [
        retrieval_tables.overview_table(findings),
        *retrieval_tables.adaptive_tables(findings),
        *fixed_k_tables(findings),
        *retrieval_tables.ranking_tables(findings),
        *answer_tables.accuracy_tables(findings),
        *answer_tables.agreement_tables(findings),
        *answer_tables.latency_tables(findings),
        *answer_tables.sparsity_tables(findings),
        *retrieval_tables.weighting_tables(findings),
        *answer_tables.objective_tables(findings),
    ]


def make_figures(findings: Findings, folder: Path) -> list[Picture]:
    """Return every figure that the run's records and its folder's ``details`` suffice for."""
    return [
        *retrieval_figures.distribution_figures(findings),
        *retrieval_figures.oracle_figures(findings),
        *retrieval_figures.top_t_figures(findings),
        *retrieval_figures.gamma_figures(findings),
        *latency_figures(findings),
        *retrieval_figures.matrix_figures(retrieval_figures.read_details(folder)),
        *retrieval_figures.sparsity_figures(findings),
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
    sentences = [
        f"Data sets: {_listed(findings.datasets)}. Encoders: {_listed(findings.encoders)}. "
        f"Generators: {_listed(sorted({one.generator for one in findings.judged}))}. "
        f"Judges: {_listed(sorted({one.judge for one in findings.judged}))}.",
        "A number after “paper” is the paper's own, for the same data set, encoder, generator, "
        "budget and method; a note under each table says why there is none. “—” stands where there "
        "is nothing to show. Tables and figures are numbered as in the paper.",
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
        sentences.append(f"Some answers could not be had from {_listed(sorted(failures))}.")
    return sentences


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
