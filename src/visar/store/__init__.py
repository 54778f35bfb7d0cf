"""The index: documents, their pages with words, and their vectors, in a folder or the cloud."""

from visar.store.opening import default_location, open_store, storage_options
from visar.store.records import Backup, Compaction, DocumentVectors, Problem
from visar.store.store import Addition, Store

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
