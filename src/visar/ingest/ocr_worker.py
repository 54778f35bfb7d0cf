"""An OCR process: ``python -m visar.ingest.ocr_worker`` answers requests on its pipes."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO, TypeAlias

from visar.documents import ocr
from visar.documents.ocr import OcrFailed
from visar.documents.worker import receive, send
from visar.errors import MissingExtra

Request: TypeAlias = tuple[dict[str, Any], bytes]

_IDLE_SECONDS = 30.0
_LARGEST_PICTURE = 1 << 30


def main() -> None:
    """Answer requests until the other side is gone, or has had none for a while."""
    # The program that started it decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print must not get into the answers.
    os.dup2(2, 1)
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
