"""The paper's method: numpy arrays in, a `Selection` out, without files or models."""

from visar.core.selection import Relevance, Selection, maxsim, score_pages, select
from visar.core.vectors import PageVectors, prepare
from visar.core.weights import Products

__all__ = [
    "PageVectors",
    "Products",
    "Relevance",
    "Selection",
    "maxsim",
    "prepare",
    "score_pages",
    "select",
]
