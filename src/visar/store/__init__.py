"""The index on disk: documents, their pages with words, and their vectors, in LanceDB."""

from visar.store.records import (
    Compaction,
    DocumentVectors,
    EncoderRef,
    NewDocument,
    Problem,
    StoredDocument,
)
from visar.store.store import Store

__all__ = [
    "Compaction",
    "DocumentVectors",
    "EncoderRef",
    "NewDocument",
    "Problem",
    "Store",
    "StoredDocument",
]
