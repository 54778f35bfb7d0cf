"""The worker process: ``python -m visar.documents.reader`` answers requests on its pipes.

It reads files that may be hostile, with a limit on its memory and, should the program that
started it be gone, on its time.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from visar.documents.office import office_format
from visar.documents.processes import answer_stream, receive, send
from visar.documents.worker import Reads, Refused

if TYPE_CHECKING:
    from visar.documents.images import ImageSource
    from visar.documents.pdf import PdfSource

    Source: TypeAlias = PdfSource | ImageSource


def main() -> None:
    """Answer requests until the other side closes the pipe."""
    answers = answer_stream()
    requests = sys.stdin.buffer
    settings, _ = receive(requests, 0)
    _limit_memory(int(settings["memory"]))
    open_source = _opener(settings["reads"])
    try:
        send(answers, {"ready": True})
        _serve(requests, answers, open_source, float(settings["seconds"]))
    except (EOFError, BrokenPipeError):
        return


def _opener(reads: Reads) -> Callable[[dict[str, Any]], Source]:
    """What opens a source. Its libraries are imported now: their time is not the document's."""
    if reads == "pdf":
        from visar.documents.pdf import PdfSource

        return lambda request: PdfSource(Path(request["paths"][0]), request["password"])
    from visar.documents.images import ImageSource

    return lambda request: ImageSource(
        [Path(path) for path in request["paths"]], int(request["max_pages"])
    )


def _serve(
    requests: BinaryIO,
    answers: BinaryIO,
    open_source: Callable[[dict[str, Any]], Source],
    seconds: float,
) -> None:
    source: Source | None = None
    while True:
        request, _ = receive(requests, 0)
        _limit_seconds(seconds)
        payload = b""
        answer: dict[str, Any]
        try:
            if request["do"] == "format":
                answer = {"format": office_format(Path(request["path"]))}
            elif request["do"] == "open":
                source = open_source(request)
                answer = {"pages": len(source), "metadata": source.metadata()}
            else:
                answer, payload = _page(source, request)
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


def _page(source: Source | None, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    if source is None:
        raise Refused("broken", "was not opened")
    number = int(request["page"])
    if request["do"] == "read":
        return source.read(number).to_message()
    raster = source.render(number, float(request["dpi"]), int(request["max_pixels"]))
    return {"width": raster.width, "height": raster.height}, raster.pixels


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
