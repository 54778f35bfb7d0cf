"""The worker process: ``python -m visar.documents.reader`` answers requests on its pipes.

It reads files that may be hostile, with a limit on its memory and, should the program that
started it be gone, on its time.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from visar.documents.wire import receive, send

if TYPE_CHECKING:
    from visar.documents.sources import Source


def main() -> None:
    """Answer requests until the other side closes the pipe."""
    # What libraries print must not get into the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    settings, _ = receive(requests, 0)
    _limit_memory(int(settings["memory"]))
    try:
        _serve(requests, answers, settings)
    except (EOFError, BrokenPipeError):
        return


def _serve(requests: BinaryIO, answers: BinaryIO, settings: dict[str, Any]) -> None:
    from visar.documents.sources import Refused

    send(answers, {"ready": True})
    source: Source | None = None
    while True:
        request, _ = receive(requests, 0)
        _limit_seconds(float(settings["seconds"]))
        payload = b""
        try:
            if source is None:
                source = _open(request)
                answer: dict[str, Any] = {"pages": len(source)}
            elif request["do"] == "read":
                answer = source.read(int(request["page"])).to_json()
            else:
                raster = source.render(
                    int(request["page"]), float(request["dpi"]), int(request["max_pixels"])
                )
                answer = {"width": raster.width, "height": raster.height}
                payload = raster.pixels
        except Refused as refusal:
            answer = {"refused": refusal.reason, "message": str(refusal)}
        except MemoryError:
            answer = {"refused": "memory", "message": ""}
        except Exception as error:
            # Libraries meet damage they did not foresee in every way a program can fail.
            reason = f"cannot be read: it is damaged ({type(error).__name__}: {error})"
            answer = {"refused": "broken", "message": reason}
        _limit_seconds(0)
        send(answers, answer, payload)


def _open(request: dict[str, Any]) -> Source:
    from visar.documents.sources import ImageSource, PdfSource

    paths = [Path(path) for path in request["paths"]]
    if request["kind"] == "pdf":
        return PdfSource(paths[0], request["password"])
    return ImageSource(paths, int(request["max_pages"]))


def _limit_memory(size: int) -> None:
    """Set the limit where it works: macOS knows it but refuses it, Windows has none."""
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        size = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_seconds(seconds: float) -> None:
    """End this process after twice the time allowed: only if nobody is left to do it earlier."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)


if __name__ == "__main__":
    main()
