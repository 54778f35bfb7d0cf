"""Reading files to pages: PDF, images, office documents, OCR, and limits on hostile input."""

from typing import TYPE_CHECKING

from visar.lazy import lazy_names

if TYPE_CHECKING:
    from visar.documents.document import OpenedDocument, open_document
    from visar.documents.finding import FoundDocuments, Identity, Kind, find_documents, identify
    from visar.documents.options import Limits, Ocr, OcrEngine, ReadOptions
    from visar.documents.page import Block, Box, Cell, Page, TextSource, Word

__all__ = [
    "Block",
    "Box",
    "Cell",
    "FoundDocuments",
    "Identity",
    "Kind",
    "Limits",
    "Ocr",
    "OcrEngine",
    "OpenedDocument",
    "Page",
    "ReadOptions",
    "TextSource",
    "Word",
    "find_documents",
    "identify",
    "open_document",
]

_MODULES = {
    "visar.documents.document": ("OpenedDocument", "open_document"),
    "visar.documents.finding": ("FoundDocuments", "Identity", "Kind", "find_documents", "identify"),
    "visar.documents.options": ("Limits", "Ocr", "OcrEngine", "ReadOptions"),
    "visar.documents.page": ("Block", "Box", "Cell", "Page", "TextSource", "Word"),
}
__getattr__ = lazy_names(__name__, _MODULES)
