"""Files to pages: PDF, images, office documents, OCR, and limits on hostile input."""

from visar.documents.document import Document, open_document
from visar.documents.finding import FoundDocuments, Identity, Kind, find_documents, identify
from visar.documents.options import Limits, Ocr, OcrEngine, ReadOptions
from visar.documents.page import Box, Page, TextSource, Word

__all__ = [
    "Box",
    "Document",
    "FoundDocuments",
    "Identity",
    "Kind",
    "Limits",
    "Ocr",
    "OcrEngine",
    "Page",
    "ReadOptions",
    "TextSource",
    "Word",
    "find_documents",
    "identify",
    "open_document",
]
