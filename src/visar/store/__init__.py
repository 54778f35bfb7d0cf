"""The index: documents, their pages with words, and their vectors, in a folder or the cloud."""

from visar.store.store import (
    Addition,
    Backup,
    Compaction,
    DocumentVectors,
    Problem,
    Store,
    default_location,
    open_store,
    storage_options,
)

__all__ = [
    "Addition",
    "Backup",
    "Compaction",
    "DocumentVectors",
    "Problem",
    "Store",
    "default_location",
    "open_store",
    "storage_options",
]
