"""Adding documents to an index: read pages, encode them, commit them."""

from typing import TYPE_CHECKING

from visar.lazy import lazy_names

if TYPE_CHECKING:
    from visar.ingest.pipeline import (
        EncodedPage,
        Progress,
        ReadPage,
        Stage,
        add_document,
        encode_pages,
        read_pages,
    )
    from visar.ingest.sources import SourcePool, file_source, open_source, source_path, source_text

__all__ = [
    "EncodedPage",
    "Progress",
    "ReadPage",
    "SourcePool",
    "Stage",
    "add_document",
    "encode_pages",
    "file_source",
    "open_source",
    "read_pages",
    "source_path",
    "source_text",
]

_MODULES = {
    "visar.ingest.pipeline": (
        "EncodedPage",
        "Progress",
        "ReadPage",
        "Stage",
        "add_document",
        "encode_pages",
        "read_pages",
    ),
    "visar.ingest.sources": (
        "SourcePool",
        "file_source",
        "open_source",
        "source_path",
        "source_text",
    ),
}
__getattr__ = lazy_names(__name__, _MODULES)
