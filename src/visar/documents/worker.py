"""The program's side of the worker process: starts it, asks it, and outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

from visar.documents.limits import Limits
from visar.documents.wire import PageContent, Raster, receive, send
from visar.errors import DocumentError, EncryptedDocument, PageError

# The worker computes on one core, and numerical libraries reserve memory for each thread.
_SINGLE_THREADED = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
# Importing its libraries is no fault of the document's.
_START_SECONDS = 60.0
# A process that has closed its pipe is about to end.
_DYING_SECONDS = 2.0


class Worker:
    """Reads one document in a process of its own; a process that died is replaced when needed.

    Calls from several threads take turns.
    """

    def __init__(
        self,
        name: str,
        kind: Literal["pdf", "images"],
        paths: Sequence[Path],
        password: str | None,
        limits: Limits,
    ) -> None:
        self._name = name
        self._request: dict[str, Any] = {
            "kind": kind,
            "paths": [str(path) for path in paths],
            "password": password,
            "max_pages": limits.max_pages,
        }
        self._limits = limits
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._pages = 0

    def open(self) -> int:
        """Open the document, and count its pages."""
        with self._lock:
            return self._started()[1]

    def read(self, number: int) -> PageContent:
        """Size, words and figures of a page."""
        answer, _ = self._ask({"do": "read", "page": number}, number)
        try:
            return PageContent.from_json(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise PageError(self._name, number, "could not be read") from error

    def render(self, number: int, dpi: float) -> Raster:
        """A page as pixels."""
        request = {"do": "render", "page": number, "dpi": dpi}
        answer, pixels = self._ask({**request, "max_pixels": self._limits.max_pixels}, number)
        raster = Raster(answer.get("width", 0), answer.get("height", 0), pixels)
        if not pixels or len(pixels) != 3 * raster.width * raster.height:
            raise PageError(self._name, number, "could not be drawn")
        return raster

    def close(self) -> None:
        """End the process; another call starts a new one."""
        with self._lock:
            self._end()

    def _ask(self, request: dict[str, Any], number: int) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            process, _ = self._started()
            return self._answer(process, request, number)

    def _started(self) -> tuple[_Process, int]:
        if self._process is not None and self._process.alive:
            return self._process, self._pages
        self._end()
        try:
            self._process = process = _Process(self._limits)
        except _Died as death:
            raise DocumentError(self._name, death.reason) from death
        answer, _ = self._answer(process, self._request, None)
        self._pages = int(answer["pages"])
        return process, self._pages

    def _end(self) -> None:
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
            raise self._error(number, death.reason) from death
        if "refused" in answer:
            if number is None:
                self._end()
            raise self._refusal(str(answer["refused"]), str(answer["message"]), number)
        return answer, payload

    def _refusal(self, reason: str, message: str, number: int | None) -> DocumentError:
        if reason == "password":
            given = self._request["password"] is not None
            return EncryptedDocument(self._name, wrong_password=given)
        if reason == "memory":
            message = f"needs more memory than {_memory(self._limits)}"
        return self._error(number, message)

    def _error(self, number: int | None, reason: str) -> DocumentError:
        if number is None:
            return DocumentError(self._name, reason)
        return PageError(self._name, number, reason)


class _Died(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Process:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # -P and the path: the worker imports what this program imports, and nothing from the
        # folder it happens to run in.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "visar.documents.reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_SINGLE_THREADED, "PYTHONPATH": path},
        )
        self._pipes = _pipe(self._popen.stdin), _pipe(self._popen.stdout)
        self._finalizer = weakref.finalize(self, _end, self._popen)
        settings = {"memory": limits.worker_memory, "seconds": limits.seconds_per_page}
        self.ask(settings, 0, _START_SECONDS)

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
