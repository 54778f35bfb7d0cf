"""The worker process: ``python -m visar.documents.reader`` answers requests on its pipes.

It reads untrusted files in a sandbox, with a memory limit, and a time limit in case the parent
process is gone.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

from visar.documents.finding import TextFormat
from visar.documents.office import office_format
from visar.documents.processes import answer_stream, receive, send
from visar.documents.sandbox import limit_memory, restrict
from visar.documents.worker import ReadError, SourceFormat

if TYPE_CHECKING:
    from visar.documents.images import ImageSource
    from visar.documents.parts import Contents
    from visar.documents.pdf import PdfSource

    Source: TypeAlias = PdfSource | ImageSource


def main() -> None:
    """Answer requests until the parent process closes the pipe."""
    answers = answer_stream()
    requests = sys.stdin.buffer
    settings, _ = receive(requests, 0)
    limit_memory(int(settings["memory"]))
    # Imported before the first request, so that libraries don't count for its timeout.
    images = settings["source_format"] == "images"
    import_module("visar.documents.images" if images else "visar.documents.pdf")
    restrict(settings["readable"])
    try:
        send(answers, {"ready": True})
        _serve(requests, answers, float(settings["seconds"]))
    except (EOFError, BrokenPipeError):
        return


def _open(request: dict[str, Any]) -> Source:
    source_format: SourceFormat = request["source_format"]
    paths = [Path(path) for path in request["paths"]]
    if source_format == "pdf":
        from visar.documents.pdf import PdfSource

        return PdfSource.open(paths[0], request["password"])
    if source_format == "images":
        from visar.documents.images import ImageSource

        return ImageSource(paths, int(request["max_pages"]))
    from visar.documents.typesetting import TypesetSource

    return TypesetSource(_contents(source_format, paths[0]), int(request["max_pages"]))


def _contents(source_format: Literal["workbook"] | TextFormat, path: Path) -> Contents:
    if source_format == "workbook":
        from visar.documents.workbook import read_workbook

        return read_workbook(path)
    from visar.documents.texts import read_text

    return read_text(path, source_format)


def _serve(requests: BinaryIO, answers: BinaryIO, seconds: float) -> None:
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
                source = _open(request)
                answer = {"pages": len(source), "metadata": source.metadata()}
            else:
                answer, payload = _page(source, request)
        except ReadError as error:
            answer = {"error": error.reason, "message": str(error)}
        except MemoryError:
            answer = {"error": "memory", "message": ""}
        except Exception as error:
            # Libraries raise any type of error for unexpected damage.
            reason = f"can't be read: it is damaged ({type(error).__name__}: {error})"
            answer = {"error": "broken", "message": reason}
        _limit_seconds(0)
        send(answers, answer, payload)


def _page(source: Source | None, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    if source is None:
        raise ReadError("broken", "isn't open")
    number = int(request["page"])
    if request["do"] == "read":
        return source.read(number).to_message()
    dpi, max_pixels = float(request["dpi"]), int(request["max_pixels"])
    width, height, pixels = source.render(number, dpi, max_pixels)
    return {"width": width, "height": height}, pixels


def _limit_seconds(seconds: float) -> None:
    """Kill this process after twice its timeout, in case the parent process can't do it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)


if __name__ == "__main__":
    main()
