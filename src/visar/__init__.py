"""ViSAR: decide per question how many pages of a document are needed, from its embeddings."""

from visar.core import PageVectors, Selection, maxsim, prepare, select

__all__ = ["PageVectors", "Selection", "__version__", "maxsim", "prepare", "select"]

__version__ = "0.1.0"
