"""Options for reading documents: OCR, password, and limits on time and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias, get_args

from visar.errors import InvalidOption

Ocr: TypeAlias = Literal["auto", "always", "never"]
OcrEngine: TypeAlias = Literal["rapidocr", "tesseract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for reading a document. Exceeding a limit raises a DocumentError.

    >>> Limits(max_pages=0)
    Traceback (most recent call last):
    ...
    visar.errors.InvalidOption: The limit max_pages must be above 0, not 0.
    """

    max_bytes: int = 500_000_000
    """Maximum size of the file, or of all page images in a folder."""
    max_pages: int = 5_000
    """Maximum number of pages."""
    max_pixels: int = 100_000_000
    """Maximum pixels of a page. Larger PDF pages are scaled down, larger images raise an error."""
    seconds_per_page: float = 30.0
    """Timeout for opening the file, and for reading or rendering a page."""
    seconds_per_document: float = math.inf
    """Timeout for adding the whole document to an index, checked after each page."""
    worker_memory: int = 2_000_000_000
    """Maximum address space of the process that reads the file, in bytes (Linux only)."""
    conversion_seconds: float = 180.0
    """Timeout for converting a file to PDF with LibreOffice."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise InvalidOption(f"The limit {limit.name} must be above 0, not {value!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading a document. An invalid value raises InvalidOption.

    >>> ReadOptions(password="secret").ocr
    'auto'
    """

    password: str | None = field(default=None, repr=False)
    """Password for an encrypted PDF."""
    ocr: Ocr = "auto"
    """When to use OCR: ``"auto"`` for pages without a usable text layer and for pictures large
    enough for words, ``"always"`` for every page, or ``"never"``."""
    ocr_engine: OcrEngine = "rapidocr"
    """OCR engine: ``"rapidocr"`` (``pip install 'visar-rag[ocr]'``) or ``"tesseract"`` (a separate
    program)."""
    ocr_threads: int | None = None
    """Number of OCR threads per page; None leaves it to the engine. If several processes run OCR,
    1 is fastest. Tesseract always uses one."""
    limits: Limits = field(default_factory=Limits)
    """Limits on size, time and memory."""

    def __post_init__(self) -> None:
        if self.ocr not in get_args(Ocr):
            raise InvalidOption(f'ocr must be "auto", "always" or "never", not {self.ocr!r}.')
        if self.ocr_engine not in get_args(OcrEngine):
            raise InvalidOption(
                f'ocr_engine must be "rapidocr" or "tesseract", not {self.ocr_engine!r}.'
            )
        if self.ocr_threads is not None and self.ocr_threads < 1:
            raise InvalidOption(f"ocr_threads must be above 0, not {self.ocr_threads!r}.")
