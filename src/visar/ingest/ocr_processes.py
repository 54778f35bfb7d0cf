"""OCR in processes of its own: pictures in, words out, on as many cores as there are.

The processes are shared by all threads of the program, started when a picture needs one, and end
after a while without work, or with the program. They are no children of ``multiprocessing``, which
would run the user's script again in each.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from visar.documents import OcrEngine, ocr
from visar.documents.layout import Piece
from visar.documents.ocr import OcrFailed
from visar.documents.worker import child_environment, receive, send
from visar.models.devices import usable_cores

if TYPE_CHECKING:
    from PIL.Image import Image

# As long as Tesseract may take for a picture.
_LONGEST_SECONDS = 120.0


class OcrClient:
    """Reads pictures of one document in the shared processes; can be stopped at once.

    Parameters
    ----------
    threads
        How many threads each process computes with.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._stopped = False
        self._using: set[_Process] = set()

    def read_image(
        self, image: Image, engine: OcrEngine, threads: int | None = None
    ) -> list[Piece]:
        """The words of a picture, as :func:`visar.documents.ocr.read_image` gives them."""
        # Tesseract is a process already, and what is not installed is refused here as anywhere.
        if engine != "rapidocr" or not ocr.installed(engine):
            return ocr.read_image(image, engine, threads)
        while True:
            with OCR_PROCESSES.process() as process:
                self._using.add(process)
                try:
                    if self._stopped:
                        raise OcrFailed("was not read to the end: it was interrupted")
                    return process.read_image(image, engine, threads or self._threads)
                except _Idle:
                    continue
                finally:
                    self._using.discard(process)

    def stop(self) -> None:
        """End what is under way, and refuse more."""
        self._stopped = True
        for process in list(self._using):
            process.kill()


class _Idle(Exception):
    """The process ended for lack of work just when there was some again."""


class _Process:
    def __init__(self) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "visar.ingest.ocr_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment() | {"PYTHONPATH": path},
        )
        self._pipes = _pipe(self._popen.stdin), _pipe(self._popen.stdout)

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def read_image(self, image: Image, engine: OcrEngine, threads: int) -> list[Piece]:
        timer = threading.Timer(_LONGEST_SECONDS, self.kill)
        timer.daemon = True
        timer.start()
        try:
            answer = self._ask(image, engine, threads)
        finally:
            timer.cancel()
        if "missing" in answer:
            # Raises the same error here.
            return ocr.read_image(image, engine, threads)
        if "failed" in answer:
            raise OcrFailed(str(answer["failed"]))
        return [Piece(*values) for values in answer["words"]]

    def _ask(self, image: Image, engine: OcrEngine, threads: int) -> dict[str, Any]:
        requests, answers = self._pipes
        request = {"size": image.size, "engine": engine, "threads": threads}
        try:
            send(requests, request, image.tobytes())
            return receive(answers, 0)[0]
        except (EOFError, OSError, ValueError) as error:
            self.kill()
            code = self._popen.wait()
            if code == 0:
                raise _Idle from error
            raise OcrFailed(
                f"made the OCR process stop (exit code {code}): it took longer than "
                f"{_LONGEST_SECONDS:g} seconds, needed too much memory, or was interrupted"
            ) from error
        except BaseException:
            # Its answer would be taken for that of the next request.
            self.end()
            raise

    def kill(self) -> None:
        self._popen.kill()

    def end(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        self.kill()
        self._popen.wait()


class OcrProcesses:
    """The processes of this program: at most one for each core."""

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._places = threading.BoundedSemaphore(usable_cores())

    @contextlib.contextmanager
    def process(self) -> Iterator[_Process]:
        """A process that nobody else uses meanwhile."""
        with self._places:
            process = self._take()
            try:
                yield process
            finally:
                if process.alive:
                    self._idle.append(process)
                else:
                    process.end()

    def _take(self) -> _Process:
        while True:
            try:
                # The one used last: the others may end.
                process = self._idle.pop()
            except IndexError:
                return _Process()
            if process.alive:
                return process
            process.end()

    def close(self) -> None:
        """End the processes without work; those at work end with the program."""
        while self._idle:
            self._idle.pop().end()


OCR_PROCESSES = OcrProcesses()
atexit.register(OCR_PROCESSES.close)


def _pipe(stream: IO[bytes] | None) -> Any:
    assert stream is not None  # noqa: S101 - both were asked for
    return stream
