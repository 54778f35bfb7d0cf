"""Benchmarks and questions of one's own, checked, and corrections to them."""

from visar.evaluation.datasets.checks import (
    Doubt,
    doubtful,
    incomplete_documents,
    missing_documents,
)
from visar.evaluation.datasets.corrections import (
    Corrected,
    Correction,
    correct,
    read_corrections,
)
from visar.evaluation.datasets.longdocurl import Incomplete
from visar.evaluation.datasets.opening import open_dataset

__all__ = [
    "Corrected",
    "Correction",
    "Doubt",
    "Incomplete",
    "correct",
    "doubtful",
    "incomplete_documents",
    "missing_documents",
    "open_dataset",
    "read_corrections",
]
