"""The worker process that reads a file, and its answers.

The process reads untrusted files, so its answers are validated like any other input.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from visar.documents.finding import TextFormat
from visar.documents.layout import WordTable
from visar.documents.options import Limits
from visar.documents.page import Box, Cell
from visar.documents.processes import ChildDied, ChildProcess
from visar.documents.tables import Table
from visar.errors import DocumentError, EncryptedDocument, PageError
from visar.text import clean_line

SourceFormat: TypeAlias = Literal["pdf", "images", "workbook"] | TextFormat
Reason: TypeAlias = Literal["password", "broken", "limit", "memory"]
Raster: TypeAlias = tuple[int, int, bytes]
"""A rendered page: width, height, and RGB pixels of three bytes, row by row."""

# Timeout for importing libraries, which doesn't depend on the document.
_START_SECONDS = 60.0
_LONGEST_LABEL = 20
_COLUMNS = np.dtype("<i4")


class ReadError(Exception):
    """An error of the worker process: a file or page can't be read for a known reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page without OCR."""

    width: float
    height: float
    rotation: int
    blank: bool
    """True for an empty page."""
    figures: tuple[Box, ...]
    words: WordTable
    """Words of the text layer; empty if there is no usable one."""
    label: str = ""
    """Printed page number from the file, or ""."""
    tables: tuple[Table, ...] = ()
    """Tables from the file; their words are indices of these words."""

    def to_message(self) -> tuple[dict[str, Any], bytes]:
        """Return the message and the payload for `from_message`."""
        message = {
            "size": (self.width, self.height),
            "rotation": self.rotation,
            "blank": self.blank,
            "figures": self.figures,
            "texts": self.words.texts,
            "label": self.label,
            "tables": [
                (table.header_rows, [(cell.row, cell.column, cell.words) for cell in table.cells])
                for table in self.tables
            ],
        }
        words = self.words
        columns = np.column_stack([words.boxes, words.lines, words.sizes, words.turns])
        return message, columns.astype(_COLUMNS).tobytes()

    @classmethod
    def from_message(cls, message: dict[str, Any], payload: bytes) -> PageContent:
        """Validate a message; raise KeyError, TypeError or ValueError if it is invalid."""
        texts = message["texts"]
        text = "".join(texts)
        if not isinstance(texts, list):
            raise TypeError("the words aren't a list")
        if not text.isprintable() and clean_line(text) != text:
            raise ValueError("a word has spaces or control characters")
        columns = np.frombuffer(payload, _COLUMNS).reshape(len(texts), 7)
        if columns.size and (columns.min() < 0 or columns[:, :4].max() > WordTable.SCALE):
            raise ValueError("a word is outside of the page")
        if columns.size and columns[:, 5].min() < 1:
            raise ValueError("a word has no size")
        if columns.size and columns[:, 6].max() > 4:
            raise ValueError("a word has an invalid direction")
        width, height = map(float, message["size"])
        figures = tuple(_box(figure) for figure in message["figures"])
        if not (0 < width < math.inf and 0 < height < math.inf):
            raise ValueError("the page has no size")
        return cls(
            width=width,
            height=height,
            rotation=int(message["rotation"]),
            blank=bool(message["blank"]),
            figures=figures,
            words=WordTable(texts, columns[:, :4], *columns.T[4:]),
            label=clean_line(message["label"], _LONGEST_LABEL),
            tables=tuple(_tables(message["tables"], len(texts))),
        )


def _box(values: Any) -> Box:
    left, top, right, bottom = map(float, values)
    if not 0 <= left <= right <= 1 or not 0 <= top <= bottom <= 1:
        raise ValueError("a figure is outside of the page")
    return left, top, right, bottom


def _tables(message: Any, words: int) -> Iterator[Table]:
    """Yield the tables of a message; raise ValueError if a word is in more than one cell."""
    unused = set(range(words))
    for header_rows, sent in message:
        cells = tuple(
            Cell(tuple(map(int, indices)), int(row), int(column)) for row, column, indices in sent
        )
        for cell in cells:
            invalid = min(cell.row, cell.column) < 0 or not cell.words
            if invalid or not unused.issuperset(cell.words):
                raise ValueError("a cell has invalid words")
            unused.difference_update(cell.words)
        rows = [cell.row for cell in cells]
        if not rows or rows != sorted(rows) or header_rows not in range(rows[-1] + 2):
            raise ValueError("the rows of a table aren't in order")
        yield Table(cells, int(header_rows))


class DocumentWorker:
    """A worker process that reads one document, and is restarted on demand if it dies.

    The process starts with the first call. Calls from several threads take turns.
    """

    def __init__(
        self, name: str, source_format: SourceFormat, limits: Limits, readable: Sequence[Path]
    ) -> None:
        """Set up a process that can only open the files and folders in ``readable``."""
        self._name = name
        self._source_format = source_format
        self._limits = limits
        self._readable = [str(path) for path in readable]
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._source: dict[str, Any] = {}
        self._opened = False
        self._closed = False

    def set_source(
        self, paths: Sequence[Path], password: str | None, source_format: SourceFormat
    ) -> None:
        """Set the files to read (one file, or several images) and their format."""
        self._source = {
            "do": "open",
            "source_format": source_format,
            "paths": [str(path) for path in paths],
            "password": password,
            "max_pages": self._limits.max_pages,
        }

    def office_format(self, path: Path) -> str | None:
        """Return the result of `visar.documents.office.office_format` for a file."""
        with self._lock:
            answer, _ = self._answer(
                self._live_process(), {"do": "format", "path": str(path)}, None
            )
        suffix = answer.get("format")
        return suffix if isinstance(suffix, str) else None

    def open(self) -> tuple[int, dict[str, str | int]]:
        """Open the files; return the number of pages and the metadata."""
        with self._lock:
            answer = self._open(self._live_process())
        fields = answer.get("metadata")
        metadata = fields if isinstance(fields, dict) else {}
        return answer["pages"], {
            str(name): value for name, value in metadata.items() if isinstance(value, str | int)
        }

    def read(self, number: int) -> PageContent:
        answer, payload = self._ask({"do": "read", "page": number}, number)
        try:
            return PageContent.from_message(answer, payload)
        except (KeyError, TypeError, ValueError) as error:
            raise PageError(self._name, number, "can't be read") from error

    def render(self, number: int, dpi: float) -> Raster:
        request = {"do": "render", "page": number, "dpi": dpi}
        answer, pixels = self._ask({**request, "max_pixels": self._limits.max_pixels}, number)
        width, height = answer.get("width"), answer.get("height")
        if not isinstance(width, int) or not isinstance(height, int) or min(width, height) < 1:
            raise PageError(self._name, number, "can't be rendered")
        if len(pixels) != 3 * width * height:
            raise PageError(self._name, number, "can't be rendered")
        return width, height, pixels

    def close(self) -> None:
        """End the process permanently, even during a call from another thread."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _ask(self, request: dict[str, Any], number: int) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            process = self._live_process()
            if not self._opened:
                self._open(process)
            return self._answer(process, request, number)

    # All methods below must be called with the lock.

    def _live_process(self) -> ChildProcess:
        """Return the process; start a new one if it has ended."""
        if self._process is None or not self._process.alive:
            self._end()
            if not self._closed:
                self._process = self._start()
        # `close` may have been called while the process was starting.
        if self._closed or self._process is None:
            self._end()
            raise DocumentError(self._name, "is closed: open it again")
        return self._process

    def _start(self) -> ChildProcess:
        process = ChildProcess("visar.documents.reader")
        settings = {
            "source_format": self._source_format,
            "memory": self._limits.worker_memory,
            "seconds": self._limits.seconds_per_page,
            "readable": self._readable,
        }
        try:
            process.ask(settings, seconds=_START_SECONDS)
        except ChildDied as death:
            process.end()
            raise self._error(None, self._death_reason(death)) from death
        return process

    def _open(self, process: ChildProcess) -> dict[str, Any]:
        answer, _ = self._answer(process, self._source, None)
        self._opened = True
        if not isinstance(answer.get("pages"), int):
            raise DocumentError(self._name, "can't be read")
        return answer

    def _end(self) -> None:
        self._opened = False
        if self._process is not None:
            self._process.end()
            self._process = None

    def _answer(
        self, process: ChildProcess, request: dict[str, Any], number: int | None
    ) -> tuple[dict[str, Any], bytes]:
        try:
            # Rounding may add a row and a column to a page rendered at max_pixels.
            answer, payload = process.ask(
                request,
                max_answer=4 * self._limits.max_pixels + 1_000_000,
                seconds=self._limits.seconds_per_page,
            )
        except ChildDied as death:
            self._end()
            raise self._error(number, self._death_reason(death)) from death
        if "error" in answer:
            if number is None:
                self._end()
            raise self._to_document_error(
                str(answer["error"]), clean_line(answer.get("message")), number
            )
        return answer, payload

    def _to_document_error(self, reason: str, message: str, number: int | None) -> DocumentError:
        if reason == "password":
            has_password = self._source.get("password") is not None
            return EncryptedDocument(self._name, wrong_password=has_password)
        if reason == "memory":
            message = f"needs more memory than {self._memory}"
        return self._error(number, message)

    def _death_reason(self, death: ChildDied) -> str:
        if death.late:
            seconds = self._limits.seconds_per_page
            return f"took longer than {seconds:g} seconds (Limits.seconds_per_page)"
        return (
            f"crashed the process that reads it ({death}): it is damaged, or needs more memory "
            f"than {self._memory}"
        )

    @property
    def _memory(self) -> str:
        return f"{self._limits.worker_memory / 1e9:g} GB (Limits.worker_memory)"

    def _error(self, number: int | None, reason: str) -> DocumentError:
        if number is None:
            return DocumentError(self._name, reason)
        return PageError(self._name, number, reason)
