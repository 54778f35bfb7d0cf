"""The paper's tables, from what a run has found out."""

from __future__ import annotations

from visar.evaluation.findings import Findings
from visar.evaluation.tables.agreement import agreement_tables
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
        *agreement_tables(findings),
        *latency_tables(findings),
        *sparsity_tables(findings),
        *weighting_tables(findings),
        *objective_tables(findings),
    ]
