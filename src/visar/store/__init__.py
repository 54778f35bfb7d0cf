"""The index: documents, their pages with words, and their vectors, in a folder or in the cloud."""

from visar.store.opening import default_location, open_store, storage_options
from visar.store.protocol import Addition, Store
from visar.store.records import Compaction, DocumentVectors, Problem

__all__ = [
    "Addition",
    "Compaction",
    "DocumentVectors",
    "Problem",
    "Store",
    "default_location",
    "open_store",
    "storage_options",
]
