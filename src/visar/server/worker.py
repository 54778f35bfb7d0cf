"""The process of a job: reads a task as JSON from stdin, writes progress as JSON lines to stdout.

It exits as soon as its stdin is closed, which happens even if the server is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visar.documents import Limits, ReadOptions
from visar.errors import DocumentError, EncryptedDocument, VisarError
from visar.serialization import to_plain

# A lower priority than the server, which answers questions on the same cores.
_NICENESS = 10
# Each line is a write to the queue.
_SECONDS_PER_LINE = 0.5


def main() -> None:
    """Run the task that is on stdin."""
    task = json.loads(sys.stdin.readline())
    # Redirect the prints of libraries to stderr: stdout is for progress only.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        output.write(json.dumps(message) + "\n")
        output.flush()

    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    with contextlib.suppress(AttributeError, OSError):  # Windows has no niceness
        os.nice(_NICENESS)
    try:
        send(_add(task, send))
    except VisarError as error:
        code = error.code if isinstance(error, DocumentError) else VisarError.code
        send({"code": code, "reason": _reason(error, task)})


def _add(task: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    from visar.index import Index

    values = task["options"]
    options = ReadOptions(**{**values, "limits": Limits(**values["limits"])})
    last = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _SECONDS_PER_LINE:
            last = time.monotonic()
            send({"stage": stage, "pages_done": done, "pages": total})

    with Index.open(
        task["location"], options=options, storage_options=task["storage_options"]
    ) as index:
        arguments = {name: task[name] for name in ("name", "encoder", "metadata", "collection")}
        document = index.add(task["path"], progress=progress, **arguments)
    return {
        "document": document.id,
        "pages": document.pages,
        "invalid": to_plain(document.failed_pages()),
    }


def _reason(error: VisarError, task: dict[str, Any]) -> str:
    """Return the message of an error, without local paths."""
    path, name = Path(task["path"]), task["name"]
    message = str(error).replace(str(path), name).replace(str(path.parent), "").strip()
    message = message.replace(EncryptedDocument.HINT, "Try again with its password")
    # Errors of documents start with the name of the file, which is the id of the job.
    return re.sub(rf"^{re.escape(path.name)}\b", lambda _: name, message)


def _exit_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
