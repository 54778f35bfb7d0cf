"""ViSAR: decide per question how many pages of a document are needed, from its embeddings."""

from typing import TYPE_CHECKING, Any

from visar.core import PageVectors, Selection, maxsim, prepare, select

if TYPE_CHECKING:
    from visar.index import Index

__all__ = ["Index", "PageVectors", "Selection", "__version__", "maxsim", "prepare", "select"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the index when it is asked for: the method alone needs numpy and nothing else."""
    if name == "Index":
        from visar.index import Index

        return Index
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
