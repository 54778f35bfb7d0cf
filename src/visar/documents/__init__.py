"""Files to pages: PDF, images, OCR, and limits on hostile input."""

from visar.documents.document import Document, Ocr
from visar.documents.finding import find_documents
from visar.documents.kinds import Kind
from visar.documents.limits import Limits
from visar.documents.ocr import OcrEngine
from visar.documents.opening import open_document
from visar.documents.page import Box, Page, TextSource, Word

__all__ = [
    "Box",
    "Document",
    "Kind",
    "Limits",
    "Ocr",
    "OcrEngine",
    "Page",
    "TextSource",
    "Word",
    "find_documents",
    "open_document",
]
