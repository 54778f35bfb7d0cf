"""The worker process that reads a file: starting it, asking it, and what crosses the pipes.

Messages are JSON and raw bytes, nothing else. The worker reads files nobody vouches for, so what
it answers is checked like any other input.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TypeAlias

import numpy as np

from visar.documents.layout import WordTable
from visar.documents.options import Limits
from visar.documents.page import Box
from visar.errors import DocumentError, EncryptedDocument, PageError
from visar.text import clean_line

Reads: TypeAlias = Literal["pdf", "images"]
Reason: TypeAlias = Literal["password", "broken", "limit", "memory"]

# The only variables that programs which read files are given: paths and languages, no secrets.
_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TMP", "TEMP", "TZ", "LANG", "LANGUAGE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
        *("PYTHONHOME", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE"),
        *("TESSDATA_PREFIX", "FONTCONFIG_FILE", "FONTCONFIG_PATH"),
        # Windows: without these no program starts or finds its files.
        *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROGRAMDATA"),
        *("PROGRAMFILES", "PROGRAMFILES(X86)", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    }
)
# These programs compute on one core, and numerical libraries reserve memory for each thread.
_SINGLE_THREADED = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"), "1"
)
# Importing its libraries is no fault of the document's.
_START_SECONDS = 60.0
# A process that has closed its pipe is about to end.
_DYING_SECONDS = 2.0
_HEADER = struct.Struct(">IQ")
_LONGEST_MESSAGE = 256_000_000
_LONGEST_LABEL = 20
_COLUMNS = np.dtype("<i4")


def child_environment() -> dict[str, str]:
    """The environment for a program that reads documents: no keys, tokens or passwords.

    Variables are passed on by name, so that a secret under any other name stays here.
    """
    passed = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _PASSED_ON or name.upper().startswith("LC_")
    }
    return passed | _SINGLE_THREADED


def last_line(complaint: str) -> str:
    """What a program says in the end, where most name the cause, fit for a message."""
    lines = complaint.strip().splitlines()
    return clean_line(lines[-1], 200) if lines else ""


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
        """The message and the bytes that :meth:`from_message` takes."""
        message = {
            "size": (self.width, self.height),
            "rotation": self.rotation,
            "blank": self.blank,
            "figures": self.figures,
            "texts": self.words.texts,
            "label": self.label,
        }
        columns = np.column_stack([self.words.boxes, self.words.lines])
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
        columns = np.frombuffer(payload, _COLUMNS).reshape(len(texts), 5)
        if columns.size and (columns.min() < 0 or columns[:, :4].max() > WordTable.SCALE):
            raise ValueError("a word outside of the page")
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
            words=WordTable(texts, columns[:, :4], columns[:, 4]),
            label=clean_line(message["label"], _LONGEST_LABEL),
        )


@dataclass(frozen=True, slots=True)
class Raster:
    """A page as pixels, three bytes each, row by row."""

    width: int
    height: int
    pixels: bytes


def send(stream: BinaryIO, message: dict[str, Any], payload: bytes = b"") -> None:
    """Write a message, and bytes that go with it."""
    text = json.dumps(message).encode()
    stream.write(_HEADER.pack(len(text), len(payload)) + text)
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO, max_payload: int) -> tuple[dict[str, Any], bytes]:
    """Read what :func:`send` wrote; EOFError when the other side is gone."""
    text_length, payload_length = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if text_length > _LONGEST_MESSAGE or payload_length > max_payload:
        raise EOFError(f"a message of {text_length} + {payload_length} bytes")
    message = json.loads(_exactly(stream, text_length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")  # noqa: TRY004 - of the other side's making
    return message, _exactly(stream, payload_length)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


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
        self._process: _Process | None = None
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
        """Which office format a file has, as :func:`visar.documents.office.office_format`."""
        with self._lock:
            answer, _ = self._answer(self._running(), {"do": "format", "path": str(path)}, None)
        found = answer.get("format")
        return found if isinstance(found, str) else None

    def count_pages(self) -> int:
        """Open the files, and count their pages."""
        with self._lock:
            return self._open(self._running())

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

    def _running(self) -> _Process:
        """The process, or a new one if it has ended."""
        if self._process is None or not self._process.alive:
            self._end()
            if not self._closed:
                try:
                    self._process = _Process(self._reads, self._limits)
                except _Died as death:
                    raise DocumentError(self._name, str(death)) from death
        # It may have been closed while the process was starting.
        if self._closed or self._process is None:
            self._end()
            raise DocumentError(self._name, "is closed: open it again")
        return self._process

    def _open(self, process: _Process) -> int:
        answer, _ = self._answer(process, self._source, None)
        self._opened = True
        try:
            return int(answer["pages"])
        except (KeyError, TypeError, ValueError) as error:
            raise DocumentError(self._name, "could not be read") from error

    def _end(self) -> None:
        self._opened = False
        if self._process is not None:
            self._process.end()
            self._process = None

    def _answer(
        self, process: _Process, request: dict[str, Any], number: int | None
    ) -> tuple[dict[str, Any], bytes]:
        try:
            # A page drawn at max_pixels may be a row and a column larger by rounding.
            answer, payload = process.ask(
                request, 4 * self._limits.max_pixels + 1_000_000, self._limits.seconds_per_page
            )
        except _Died as death:
            self._end()
            raise self._error(number, str(death)) from death
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
            message = f"needs more memory than {_memory(self._limits)}"
        return self._error(number, message)

    def _error(self, number: int | None, reason: str) -> DocumentError:
        if number is None:
            return DocumentError(self._name, reason)
        return PageError(self._name, number, reason)


class _Died(Exception):
    """The process has ended; the message says why, to follow the name of the document."""


class _Process:
    def __init__(self, reads: Reads, limits: Limits) -> None:
        self._limits = limits
        # -P and the path: the worker imports what this program imports, and nothing from the
        # folder it happens to run in.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "visar.documents.reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment() | {"PYTHONPATH": path},
        )
        self._pipes = _pipe(self._popen.stdin), _pipe(self._popen.stdout)
        self._finalizer = weakref.finalize(self, _end, self._popen)
        self.ask(
            {
                "reads": reads,
                "memory": limits.worker_memory,
                "seconds": limits.seconds_per_page,
            },
            0,
            _START_SECONDS,
        )

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(
        self, request: dict[str, Any], max_payload: int, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        requests, answers = self._pipes
        late = threading.Event()
        timer = threading.Timer(seconds, self._kill, [late])
        timer.daemon = True
        timer.start()
        try:
            send(requests, request)
            return receive(answers, max_payload)
        except (EOFError, OSError, ValueError) as error:
            raise _Died(self._cause(late)) from error
        except BaseException:
            # Interrupted: its answer would be taken for that of the next request.
            self._popen.kill()
            self._popen.wait()
            raise
        finally:
            timer.cancel()

    def kill(self) -> None:
        self._popen.kill()

    def end(self) -> None:
        self._finalizer()

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._popen.kill()

    def _cause(self, late: threading.Event) -> str:
        try:
            code = self._popen.wait(_DYING_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        if late.is_set():
            seconds = self._limits.seconds_per_page
            return f"took longer than {seconds:g} seconds (Limits.seconds_per_page)"
        what = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return (
            f"made the process that reads it stop ({what}): it is broken, or needs more memory "
            f"than {_memory(self._limits)}"
        )


def _memory(limits: Limits) -> str:
    return f"{limits.worker_memory / 1e9:g} GB (Limits.worker_memory)"


def _pipe(stream: IO[bytes] | None) -> Any:
    assert stream is not None  # noqa: S101 - both were asked for
    return stream


def _end(popen: subprocess.Popen[bytes]) -> None:
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            # What was not sent to a dead process cannot be sent.
            with contextlib.suppress(OSError):
                pipe.close()
    popen.kill()
    popen.wait()
