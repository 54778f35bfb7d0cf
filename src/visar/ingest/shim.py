"""Stand-ins for what visar.documents is about to provide."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from visar.documents import Document, Limits, Ocr, OcrEngine
from visar.documents import open_document as _open
from visar.documents.opening import _files, _identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a document is read."""

    password: str | None = field(default=None, repr=False)
    ocr: Ocr = "auto"
    ocr_engine: OcrEngine = "rapidocr"
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Identity:
    """A document's id, name and size."""

    id: str
    name: str
    size: int


def identify(path: Path, limits: Limits) -> Identity:
    """Identify a document without opening it."""
    files, folder = _files(path, limits)
    size = sum(file.size for file in files)
    return Identity(_identity(files, named=folder), path.name, size)


def open_document(path: Path, options: ReadOptions) -> Document:
    """Open a document."""
    return _open(
        path,
        password=options.password,
        ocr=options.ocr,
        ocr_engine=options.ocr_engine,
        limits=options.limits,
    )
