"""The paper's figures, from what a run has found out."""

from __future__ import annotations

from pathlib import Path

from visar.evaluation.figures.choices import distribution_figures, oracle_figures
from visar.evaluation.figures.drawing import Picture
from visar.evaluation.figures.latency import latency_figures
from visar.evaluation.figures.structure import matrix_figures, read_details, sparsity_figures
from visar.evaluation.figures.sweeps import gamma_figures, top_t_figures
from visar.evaluation.findings import Findings

__all__ = ["Picture", "make_figures"]


def make_figures(findings: Findings, folder: Path) -> list[Picture]:
    """Every figure that the run's records and ``details`` suffice for."""
    return [
        *distribution_figures(findings),
        *oracle_figures(findings),
        *top_t_figures(findings),
        *gamma_figures(findings),
        *latency_figures(findings),
        *matrix_figures(read_details(folder)),
        *sparsity_figures(findings),
    ]
