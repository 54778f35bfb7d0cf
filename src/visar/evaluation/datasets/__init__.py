"""Open, check and correct data sets for evaluation."""

from visar.evaluation.datasets.beir import CORPUS_LIMITS
from visar.evaluation.datasets.corrections import (
    Corrected,
    Correction,
    Doubt,
    correct,
    doubtful,
    incomplete_documents,
    missing_documents,
    read_corrections,
)
from visar.evaluation.datasets.hub import find_revision, published_edition
from visar.evaluation.datasets.registry import dataset_names, open_dataset

__all__ = [
    "CORPUS_LIMITS",
    "Corrected",
    "Correction",
    "Doubt",
    "correct",
    "dataset_names",
    "doubtful",
    "find_revision",
    "incomplete_documents",
    "missing_documents",
    "open_dataset",
    "published_edition",
    "read_corrections",
]
