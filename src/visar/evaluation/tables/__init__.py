"""The paper's tables, from what a run has found out."""

from __future__ import annotations

from dataclasses import replace

from visar.evaluation.findings import Findings
from visar.evaluation.tables.answers import accuracy_tables, objective_tables, sparsity_tables
from visar.evaluation.tables.latency import latency_tables
from visar.evaluation.tables.overview import overview_table
from visar.evaluation.tables.retrieval import adaptive_tables, ranking_tables, weighting_tables
from visar.evaluation.tables.table import Cell, Table, to_html, to_json, to_markdown

__all__ = ["Cell", "Table", "make_tables", "to_html", "to_json", "to_markdown"]


def make_tables(findings: Findings) -> list[Table]:
    """Every table that the run's records suffice for, in the paper's order."""
    return [
        overview_table(findings),
        *adaptive_tables(findings),
        *ranking_tables(findings),
        *accuracy_tables(findings),
        *latency_tables(findings),
        *sparsity_tables(findings),
        *weighting_tables(findings),
        *objective_tables(findings),
        *_as_published(findings),
    ]


def _as_published(findings: Findings) -> list[Table]:
    """The tables that depend on evidence pages once more, without the corrections."""
    if not findings.has_corrections:
        return []
    published = findings.as_published()
    tables = [
        *adaptive_tables(published),
        *ranking_tables(published),
        *weighting_tables(published),
    ]
    return [
        replace(
            table,
            key=f"{table.key}-as-published",
            title=f"{table.title}, without corrections",
            notes=(
                "As the data set was published. What Oracle chose for corrected questions is left "
                "out: it was chosen for the corrected pages.",
                *table.notes,
            ),
        )
        for table in tables
    ]
