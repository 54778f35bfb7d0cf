"""A process that works on copies of an index and dies by SIGKILL at every possible moment.

``python -m tests.store.crash_child SCENARIO BASE OUT`` copies the index BASE to OUT/0, OUT/1, …
and runs the scenario on each in a process of its own, the first of which dies before its first
write, the second after it, the third before the second write and so on, until one survives.
With ``timed`` before the scenario, processes are killed from outside at moments spread over the
whole run instead, so that they also die in the middle of a write.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import lancedb  # noqa: F401  (once here rather than in every process made below)

from tests.store.samples import IMAGE, TEXT, TEXT_2, document, items
from visar.store import Store
from visar.store import writing as store_writing
from visar.store.tables import LanceTable

PAGES = 3
TIMED_RUNS = 6

SCENARIOS: dict[str, Callable[[Store], object]] = {
    "new": lambda store: store.add(document("new", PAGES), TEXT, items("new", PAGES, TEXT)),
    "changed": lambda store: store.add(
        document("changed", PAGES, "/files/a.pdf"), TEXT, items("changed", PAGES, TEXT)
    ),
    "encoder": lambda store: store.add(document("a", PAGES), IMAGE, items("a", PAGES, IMAGE)),
    "version": lambda store: store.add(document("a", PAGES), TEXT_2, items("a", PAGES, TEXT_2)),
    "resumed": lambda store: store.add(
        document("half", PAGES), TEXT, items("half", PAGES, TEXT, [3])
    ),
    "moved": lambda store: store.add(document("a", PAGES, "/files/b.pdf"), TEXT, []),
    "removed": lambda store: store.remove("a"),
    "compacted": lambda store: store.compact(grace=timedelta(milliseconds=1)),
}


def write_in_small_steps() -> None:
    """A page or two a write, a page a block: so that there is more than one of each."""
    store_writing.FLUSH_BYTES = 100
    store_writing.BLOCK_BYTES = 1


def die_at(step: int) -> None:
    """Kill this process before (even steps) or after (odd ones) one of its writes."""
    steps = count()

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            result = write(*args)
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapper

    for name in ("append", "delete", "compact"):
        setattr(LanceTable, name, dying(getattr(LanceTable, name)))


def run_apart(scenario: str, index: Path, step: int | None = None) -> int:
    """Start the scenario in a process of its own."""
    process = os.fork()
    if process:
        return process
    write_in_small_steps()
    if step is not None:
        die_at(step)
    SCENARIOS[scenario](Store.open(index))
    os._exit(0)


def killed(process: int) -> bool:
    status = os.waitpid(process, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit(f"the scenario failed with {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


def at_every_write(scenario: str, base: Path, out: Path) -> None:
    for step in count():
        shutil.copytree(base, out / str(step))
        if not killed(run_apart(scenario, out / str(step), step)):
            return


def at_any_time(scenario: str, base: Path, out: Path) -> None:
    shutil.copytree(base, out / "whole")
    start = time.monotonic()
    killed(run_apart(scenario, out / "whole"))
    whole = time.monotonic() - start
    for run in range(TIMED_RUNS):
        shutil.copytree(base, out / str(run))
        process = run_apart(scenario, out / str(run))
        time.sleep(whole * run / TIMED_RUNS)
        os.kill(process, signal.SIGKILL)
        killed(process)


if __name__ == "__main__":
    # LanceDB warns that a fork may find it at work; here nothing has been done before.
    warnings.simplefilter("ignore", RuntimeWarning)
    *timed, scenario, base, out = sys.argv[1:]
    kill = at_any_time if timed == ["timed"] else at_every_write
    kill(scenario, Path(base), Path(out))
