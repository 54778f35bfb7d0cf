"""The worker process that reads a file, and what it answers.

It reads files nobody vouches for, so what it answers is checked like any other input.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from visar.documents.layout import WordTable
from visar.documents.options import Limits
from visar.documents.page import Box
from visar.documents.processes import ChildDied, ChildProcess
from visar.errors import DocumentError, EncryptedDocument, PageError
from visar.text import clean_line

Reads: TypeAlias = Literal["pdf", "images"]
Reason: TypeAlias = Literal["password", "broken", "limit", "memory"]

# Importing its libraries is no fault of the document's.
_START_SECONDS = 60.0
_LONGEST_LABEL = 20
_COLUMNS = np.dtype("<i4")


class Refused(Exception):
    """Raised in the worker: a file or page that cannot be read, for a known reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PageContent:
    """What a page holds without OCR."""

    width: float
    height: float
    rotation: int
    blank: bool
    """Nothing is drawn on it."""
    figures: tuple[Box, ...]
    words: WordTable
    """Empty if there is no text layer, or none that can be trusted."""
    label: str = ""
    """The number printed on it, as the file says; "" if it does not."""

    def to_message(self) -> tuple[dict[str, Any], bytes]:
        """The message and the bytes that `from_message` takes."""
        message = {
            "size": (self.width, self.height),
            "rotation": self.rotation,
            "blank": self.blank,
            "figures": self.figures,
            "texts": self.words.texts,
            "label": self.label,
        }
        words = self.words
        columns = np.column_stack([words.boxes, words.lines, words.sizes, words.turns])
        return message, columns.astype(_COLUMNS).tobytes()

    @classmethod
    def from_message(cls, message: dict[str, Any], payload: bytes) -> PageContent:
        """Rebuild the content; KeyError, TypeError or ValueError if it is not as it must be."""
        texts = message["texts"]
        joined = "".join(texts)
        if not isinstance(texts, list):
            raise TypeError("no list of words")
        if not joined.isprintable() and clean_line(joined) != joined:
            raise ValueError("words with spaces, or with characters that a terminal obeys")
        columns = np.frombuffer(payload, _COLUMNS).reshape(len(texts), 7)
        if columns.size and (columns.min() < 0 or columns[:, :4].max() > WordTable.SCALE):
            raise ValueError("a word outside of the page")
        if columns.size and columns[:, 6].max() > 4:
            raise ValueError("a word in an impossible direction")
        width, height = map(float, message["size"])
        figures = tuple(_box(figure) for figure in message["figures"])
        if not (0 < width < math.inf and 0 < height < math.inf):
            raise ValueError("a page without a size")
        return cls(
            width=width,
            height=height,
            rotation=int(message["rotation"]),
            blank=bool(message["blank"]),
            figures=figures,
            words=WordTable(texts, columns[:, :4], *columns.T[4:]),
            label=clean_line(message["label"], _LONGEST_LABEL),
        )


@dataclass(frozen=True, slots=True)
class Raster:
    """A page as pixels, three bytes each, row by row."""

    width: int
    height: int
    pixels: bytes


def _box(values: Any) -> Box:
    left, top, right, bottom = map(float, values)
    if not 0 <= left <= right <= 1 or not 0 <= top <= bottom <= 1:
        raise ValueError("a figure outside of the page")
    return left, top, right, bottom


class Worker:
    """Reads one document in a process of its own; a process that died is replaced when needed.

    The process starts with the first call. Calls from several threads take turns.
    """

    def __init__(self, name: str, reads: Reads, limits: Limits) -> None:
        self._name = name
        self._reads = reads
        self._limits = limits
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._source: dict[str, Any] = {}
        self._opened = False
        self._closed = False

    def set_source(self, paths: Sequence[Path], password: str | None) -> None:
        """Say which files are read: one PDF, or images."""
        self._source = {
            "do": "open",
            "paths": [str(path) for path in paths],
            "password": password,
            "max_pages": self._limits.max_pages,
        }

    def office_format(self, path: Path) -> str | None:
        """Which office format a file has, as `visar.documents.office.office_format`."""
        with self._lock:
            answer, _ = self._answer(self._running(), {"do": "format", "path": str(path)}, None)
        found = answer.get("format")
        return found if isinstance(found, str) else None

    def open(self) -> tuple[int, dict[str, str | int]]:
        """Open the files; return how many pages they have, and what they say of themselves."""
        with self._lock:
            answer = self._open(self._running())
        said = answer.get("metadata")
        metadata = said if isinstance(said, dict) else {}
        return answer["pages"], {
            str(name): value for name, value in metadata.items() if isinstance(value, str | int)
        }

    def read(self, number: int) -> PageContent:
        """Size, words and figures of a page."""
        answer, payload = self._ask({"do": "read", "page": number}, number)
        try:
            return PageContent.from_message(answer, payload)
        except (KeyError, TypeError, ValueError) as error:
            raise PageError(self._name, number, "could not be read") from error

    def render(self, number: int, dpi: float) -> Raster:
        """A page as pixels."""
        request = {"do": "render", "page": number, "dpi": dpi}
        answer, pixels = self._ask({**request, "max_pixels": self._limits.max_pixels}, number)
        width, height = answer.get("width"), answer.get("height")
        if not isinstance(width, int) or not isinstance(height, int) or min(width, height) < 1:
            raise PageError(self._name, number, "could not be drawn")
        if len(pixels) != 3 * width * height:
            raise PageError(self._name, number, "could not be drawn")
        return Raster(width, height, pixels)

    def close(self) -> None:
        """End the process for good, also in the middle of a call from another thread."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _ask(self, request: dict[str, Any], number: int) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            process = self._running()
            if not self._opened:
                self._open(process)
            return self._answer(process, request, number)

    # The lock must be held from here on.

    def _running(self) -> ChildProcess:
        """The process, or a new one if it has ended."""
        if self._process is None or not self._process.alive:
            self._end()
            if not self._closed:
                self._process = self._started()
        # It may have been closed while the process was starting.
        if self._closed or self._process is None:
            self._end()
            raise DocumentError(self._name, "is closed: open it again")
        return self._process

    def _started(self) -> ChildProcess:
        process = ChildProcess("visar.documents.reader")
        settings = {
            "reads": self._reads,
            "memory": self._limits.worker_memory,
            "seconds": self._limits.seconds_per_page,
        }
        try:
            process.ask(settings, seconds=_START_SECONDS)
        except ChildDied as death:
            process.end()
            raise self._error(None, self._cause(death)) from death
        return process

    def _open(self, process: ChildProcess) -> dict[str, Any]:
        answer, _ = self._answer(process, self._source, None)
        self._opened = True
        if not isinstance(answer.get("pages"), int):
            raise DocumentError(self._name, "could not be read")
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
            # A page drawn at max_pixels may be a row and a column larger by rounding.
            answer, payload = process.ask(
                request,
                max_answer=4 * self._limits.max_pixels + 1_000_000,
                seconds=self._limits.seconds_per_page,
            )
        except ChildDied as death:
            self._end()
            raise self._error(number, self._cause(death)) from death
        if "refused" in answer:
            if number is None:
                self._end()
            raise self._refusal(str(answer["refused"]), clean_line(answer.get("message")), number)
        return answer, payload

    def _refusal(self, reason: str, message: str, number: int | None) -> DocumentError:
        if reason == "password":
            given = self._source.get("password") is not None
            return EncryptedDocument(self._name, wrong_password=given)
        if reason == "memory":
            message = f"needs more memory than {self._memory}"
        return self._error(number, message)

    def _cause(self, death: ChildDied) -> str:
        if death.late:
            seconds = self._limits.seconds_per_page
            return f"took longer than {seconds:g} seconds (Limits.seconds_per_page)"
        return (
            f"made the process that reads it stop ({death}): it is broken, or needs more memory "
            f"than {self._memory}"
        )

    @property
    def _memory(self) -> str:
        return f"{self._limits.worker_memory / 1e9:g} GB (Limits.worker_memory)"

    def _error(self, number: int | None, reason: str) -> DocumentError:
        if number is None:
            return DocumentError(self._name, reason)
        return PageError(self._name, number, reason)
