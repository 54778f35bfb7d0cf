"""Adding documents to an index: read pages, encode them, commit them."""

from visar.ingest.pipeline import (
    EncodedPage,
    Progress,
    ReadPage,
    Stage,
    add_document,
    encode_pages,
    encoder_ref,
    read_pages,
)
from visar.ingest.sources import file_source, open_source, source_path, source_text

__all__ = [
    "EncodedPage",
    "Progress",
    "ReadPage",
    "Stage",
    "add_document",
    "encode_pages",
    "encoder_ref",
    "file_source",
    "open_source",
    "read_pages",
    "source_path",
    "source_text",
]
