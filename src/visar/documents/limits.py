"""How much one document may cost before it is refused."""

from __future__ import annotations

from dataclasses import dataclass, fields

from visar.errors import InvalidOption


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
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InvalidOption(f"The limit {field.name} must be above 0, not {value!r}.")
