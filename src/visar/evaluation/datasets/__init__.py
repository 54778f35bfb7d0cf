"""Open, check and correct data sets for evaluation."""

from visar.evaluation.datasets.beir import CORPUS_LIMITS
from visar.evaluation.datasets.corrections import Correction, correct, read_corrections
from visar.evaluation.datasets.hub import find_revision, published_edition
from visar.evaluation.datasets.registry import dataset_names, open_dataset

__all__ = [
    "CORPUS_LIMITS",
    "Correction",
    "correct",
    "dataset_names",
    "find_revision",
    "open_dataset",
    "published_edition",
    "read_corrections",
]
