"""The process of a job: reads a task as JSON from stdin, writes progress as JSON lines to stdout.

It exits as soon as its stdin is closed, which happens however the server ends.
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

# Questions come first: they are answered by another process on the same cores.
_NICENESS = 10
# Each line is a write to the queue.
_SECONDS_PER_LINE = 0.5


def main() -> None:
    """Do the task on stdin."""
    task = json.loads(sys.stdin.readline())
    # What libraries print goes to stderr, where it is not taken for progress.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(what: dict[str, Any]) -> None:
        output.write(json.dumps(what) + "\n")
        output.flush()

    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with contextlib.suppress(AttributeError, OSError):  # Windows has no niceness
        os.nice(_NICENESS)
    try:
        tell(_add(task, tell))
    except EncryptedDocument as error:
        tell({"code": "password", "reason": _reason(error, task)})
    except DocumentError as error:
        tell({"code": "document", "reason": _reason(error, task)})
    except VisarError as error:
        tell({"code": "failed", "reason": _reason(error, task)})


def _add(task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    from visar.index import Index

    values = task["options"]
    options = ReadOptions(**{**values, "limits": Limits(**values["limits"])})
    last = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _SECONDS_PER_LINE:
            last = time.monotonic()
            tell({"stage": stage, "pages_done": done, "pages": total})

    with Index.open(
        task["location"], options=options, storage_options=task["storage_options"]
    ) as index:
        given = {name: task[name] for name in ("name", "encoder", "metadata", "collection")}
        added = index.add(task["path"], progress=progress, **given)
    return {"document": added.id, "pages": added.pages}


def _reason(error: VisarError, task: dict[str, Any]) -> str:
    """Return the message of an error, without paths of this machine."""
    path, name = Path(task["path"]), task["name"]
    said = str(error).replace(str(path), name).replace(str(path.parent), "").strip()
    said = said.replace(EncryptedDocument.HINT, "Try again with its password")
    # Errors of documents begin with the name of the file, which is the id of the job.
    return re.sub(rf"^{re.escape(path.name)}\b", lambda _: name, said)


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
