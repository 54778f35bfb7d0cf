"""OCR in separate processes, one per core.

All threads of the program share the processes. They are started on demand, and end when they are
idle for a while, or with the program. They don't use ``multiprocessing``, which would run the
user's script again in each process, but run ``python -m visar.ingest.ocr_processes``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from visar.documents import OcrEngine, ocr
from visar.documents.layout import Piece
from visar.documents.ocr import OcrFailed
from visar.documents.processes import ChildDied, ChildProcess, answer_stream, receive, send
from visar.documents.sandbox import restrict
from visar.errors import MissingExtra
from visar.models.devices import usable_cores

if TYPE_CHECKING:
    from PIL.Image import Image

Request: TypeAlias = tuple[dict[str, Any], bytes]

# The same timeout as for Tesseract.
_LONGEST_SECONDS = 120.0
_IDLE_SECONDS = 30.0
_LARGEST_PICTURE = 1 << 30


class OcrClient:
    """A client of the shared processes, with this many threads each, for one document."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._stopped = False
        self._active: set[ChildProcess] = set()

    def read_image(
        self, image: Image, engine: OcrEngine, threads: int | None = None
    ) -> list[Piece]:
        """Return the words of a picture, like `visar.documents.ocr.read_image`."""
        # Tesseract is a separate process anyway, and a missing engine raises its usual error.
        if engine != "rapidocr" or not ocr.is_installed(engine):
            return ocr.read_image(image, engine, threads)
        threads = threads or self._threads
        request = {"size": image.size, "engine": engine, "threads": threads}
        answer = self._request(request, image.tobytes())
        if "missing" in answer:
            # This raises the same error in this process.
            return ocr.read_image(image, engine, threads)
        if "failed" in answer:
            raise OcrFailed(str(answer["failed"]))
        return [Piece(*values) for values in answer["words"]]

    def _request(self, request: dict[str, Any], pixels: bytes) -> dict[str, Any]:
        while True:
            with OCR_PROCESSES.process() as process:
                self._active.add(process)
                try:
                    if self._stopped:
                        raise OcrFailed("wasn't read completely: it was interrupted")
                    return process.ask(request, pixels, seconds=_LONGEST_SECONDS)[0]
                except ChildDied as death:
                    if death.code == 0:  # the process ended because it was idle: retry
                        continue
                    raise OcrFailed(
                        f"crashed the OCR process ({death}): it took longer than "
                        f"{_LONGEST_SECONDS:g} seconds, needed too much memory, or was interrupted"
                    ) from death
                finally:
                    self._active.discard(process)

    def stop(self) -> None:
        """Kill active requests, and reject new ones."""
        self._stopped = True
        for process in list(self._active):
            process.kill()


class OcrProcesses:
    """The OCR processes of this program, at most one per core."""

    def __init__(self) -> None:
        self._idle: list[ChildProcess] = []
        self._slots = threading.BoundedSemaphore(usable_cores())

    @contextlib.contextmanager
    def process(self) -> Iterator[ChildProcess]:
        """Lease a process for exclusive use."""
        with self._slots:
            process = self._get()
            try:
                yield process
            finally:
                if process.alive:
                    self._idle.append(process)
                else:
                    process.end()

    def _get(self) -> ChildProcess:
        while True:
            try:
                # Use the most recent process, so that the others can end.
                process = self._idle.pop()
            except IndexError:
                return ChildProcess("visar.ingest.ocr_processes")
            if process.alive:
                return process
            process.end()

    def close(self) -> None:
        """End the idle processes; busy ones end with the program."""
        while self._idle:
            self._idle.pop().end()

    def disown(self) -> None:
        """Leave the processes to the parent program after a fork."""
        # Keep references, because ending a process could wait for a thread that doesn't exist here.
        self._foreign, self._idle = self._idle, []
        self._slots = threading.BoundedSemaphore(usable_cores())


OCR_PROCESSES = OcrProcesses()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OCR_PROCESSES.disown)


def main() -> None:
    """Answer requests until the parent program ends or the process is idle for a while."""
    # The parent program handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = answer_stream()
    restrict([])
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        try:
            request, pixels = requests.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            os._exit(0)
        send(answers, _answer(request, pixels))


def _listen(stream: BinaryIO, requests: queue.SimpleQueue[Request]) -> None:
    try:
        while True:
            requests.put(receive(stream, _LARGEST_PICTURE))
    except (EOFError, OSError, ValueError):
        # End even during OCR, because the parent program is gone.
        os._exit(1)


def _answer(request: dict[str, Any], pixels: bytes) -> dict[str, Any]:
    from PIL import Image

    image = Image.frombytes("RGB", request["size"], pixels)
    try:
        return {"words": ocr.read_image(image, request["engine"], request["threads"])}
    except OcrFailed as failure:
        return {"failed": str(failure)}
    except MissingExtra:
        return {"missing": True}


if __name__ == "__main__":
    main()
