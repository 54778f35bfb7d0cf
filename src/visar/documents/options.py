"""How documents are read: OCR, password, and limits on what one document may cost."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias, get_args

from visar.errors import InvalidOption

Ocr: TypeAlias = Literal["auto", "always", "never"]
OcrEngine: TypeAlias = Literal["rapidocr", "tesseract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a document may cost. A page or a file beyond a limit is refused with a clear error.

    >>> Limits(max_pages=0)
    Traceback (most recent call last):
    ...
    visar.errors.InvalidOption: The limit max_pages must be above 0, not 0.
    """

    max_bytes: int = 500_000_000
    """Of the file, or of all files of a folder of page images."""
    max_pages: int = 5_000
    max_pixels: int = 100_000_000
    """Of one page: larger PDF pages are rendered smaller, larger images are refused."""
    seconds_per_page: float = 30.0
    """For opening the file, and for each reading or rendering of a page."""
    worker_memory: int = 2_000_000_000
    """Bytes of address space of the process that reads the file (enforced on Linux)."""
    conversion_seconds: float = 180.0
    """For LibreOffice to turn a whole file into a PDF."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise InvalidOption(f"The limit {limit.name} must be above 0, not {value!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a document is read.

    Raises
    ------
    InvalidOption
        An option has a value that does not exist.

    >>> ReadOptions(password="secret").ocr
    'auto'
    """

    password: str | None = field(default=None, repr=False)
    """Of an encrypted PDF."""
    ocr: Ocr = "auto"
    """``"auto"`` reads pages without a usable text layer, and pictures large enough to hold words,
    with OCR; ``"always"`` every page, whatever text it has; ``"never"`` none."""
    ocr_engine: OcrEngine = "rapidocr"
    """``"rapidocr"`` (``pip install 'visar-rag[ocr]'``) or ``"tesseract"`` (the program)."""
    ocr_threads: int | None = None
    """Threads that OCR of one page uses; None leaves it to the engine. Where several processes run
    OCR, 1 is fastest. Tesseract always uses one."""
    limits: Limits = field(default_factory=Limits)
    """What the document may cost."""

    def __post_init__(self) -> None:
        if self.ocr not in get_args(Ocr):
            raise InvalidOption(f'ocr must be "auto", "always" or "never", not {self.ocr!r}.')
        if self.ocr_engine not in get_args(OcrEngine):
            raise InvalidOption(
                f'ocr_engine must be "rapidocr" or "tesseract", not {self.ocr_engine!r}.'
            )
        if self.ocr_threads is not None and self.ocr_threads < 1:
            raise InvalidOption(f"ocr_threads must be above 0, not {self.ocr_threads!r}.")
