"""The index on disk: documents, their pages with words, and their vectors, in LanceDB."""

from visar.store.records import (
    Compaction,
    DocumentVectors,
    EncoderRef,
    InvalidPage,
    NewDocument,
    Problem,
    StoredDocument,
)
from visar.store.store import Store

__all__ = [
    "Compaction",
    "DocumentVectors",
    "EncoderRef",
    "InvalidPage",
    "NewDocument",
    "Problem",
    "Store",
    "StoredDocument",
]
