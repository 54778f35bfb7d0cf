"""OCR in processes of its own: pictures in, words out, on as many cores as there are.

The processes are shared by all threads of the program, started when a picture needs one, and end
after a while without work, or with the program. They are no children of ``multiprocessing``, which
would run the user's script again in each: ``python -m visar.ingest.ocr_processes`` is one.
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
from visar.errors import MissingExtra
from visar.models.devices import usable_cores

if TYPE_CHECKING:
    from PIL.Image import Image

Request: TypeAlias = tuple[dict[str, Any], bytes]

# As long as Tesseract may take for a picture.
_LONGEST_SECONDS = 120.0
_IDLE_SECONDS = 30.0
_LARGEST_PICTURE = 1 << 30


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
        self._using: set[ChildProcess] = set()

    def read_image(
        self, image: Image, engine: OcrEngine, threads: int | None = None
    ) -> list[Piece]:
        """The words of a picture, as `visar.documents.ocr.read_image` gives them."""
        # Tesseract is a process already, and what is not installed is refused here as anywhere.
        if engine != "rapidocr" or not ocr.installed(engine):
            return ocr.read_image(image, engine, threads)
        threads = threads or self._threads
        request = {"size": image.size, "engine": engine, "threads": threads}
        answer = self._ask(request, image.tobytes())
        if "missing" in answer:
            # Raises the same error here.
            return ocr.read_image(image, engine, threads)
        if "failed" in answer:
            raise OcrFailed(str(answer["failed"]))
        return [Piece(*values) for values in answer["words"]]

    def _ask(self, request: dict[str, Any], pixels: bytes) -> dict[str, Any]:
        while True:
            with OCR_PROCESSES.process() as process:
                self._using.add(process)
                try:
                    if self._stopped:
                        raise OcrFailed("was not read to the end: it was interrupted")
                    return process.ask(request, pixels, seconds=_LONGEST_SECONDS)[0]
                except ChildDied as death:
                    if death.code == 0:  # it ended for lack of work just when there was some again
                        continue
                    raise OcrFailed(
                        f"made the OCR process stop ({death}): it took longer than "
                        f"{_LONGEST_SECONDS:g} seconds, needed too much memory, or was interrupted"
                    ) from death
                finally:
                    self._using.discard(process)

    def stop(self) -> None:
        """End what is under way, and refuse more."""
        self._stopped = True
        for process in list(self._using):
            process.kill()


class OcrProcesses:
    """The processes of this program: at most one for each core."""

    def __init__(self) -> None:
        self._idle: list[ChildProcess] = []
        self._places = threading.BoundedSemaphore(usable_cores())

    @contextlib.contextmanager
    def process(self) -> Iterator[ChildProcess]:
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

    def _take(self) -> ChildProcess:
        while True:
            try:
                # The one used last: the others may end.
                process = self._idle.pop()
            except IndexError:
                return ChildProcess("visar.ingest.ocr_processes")
            if process.alive:
                return process
            process.end()

    def close(self) -> None:
        """End the processes without work; those at work end with the program."""
        while self._idle:
            self._idle.pop().end()


OCR_PROCESSES = OcrProcesses()


def main() -> None:
    """Answer requests until the other side is gone, or has had none for a while."""
    # The program that started it decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = answer_stream()
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
        # Even in the middle of a picture: nobody waits for it.
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
