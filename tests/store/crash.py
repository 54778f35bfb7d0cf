"""Processes that work on copies of an index and die by SIGKILL at every possible moment."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from tests.store.samples import (
    IMAGE,
    TEXT,
    TEXT_2,
    compact_now,
    document,
    items,
    laid_out,
    open_kind,
    put,
)
from visar.store import Store

PAGES = 3
TIMED_RUNS = 8


def add_(store: Store, id_: str, encoder: Any = TEXT, source: str | None = None) -> None:
    original = Path(store.location).parent / "original"
    put(store, document(id_, PAGES, source), encoder, items(id_, PAGES, encoder), original)


# Statements of SQL, and what Python tells its audit hooks before it is done.
WRITES = (
    *("INSERT", "UPDATE", "DELETE", "ALTER", "PRAGMA user_version =", "COMMIT", "VACUUM"),
    *("os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.copyfile"),
)

SCENARIOS: dict[str, Callable[[Store], object]] = {
    "new": lambda store: add_(store, "new"),
    "changed": lambda store: add_(store, "changed", source="/files/a.pdf"),
    "encoder": lambda store: add_(store, "a", IMAGE),
    "version": lambda store: add_(store, "a", TEXT_2),
    "resumed": lambda store: add_(store, "half"),
    "moved": lambda store: add_(store, "a", source="/files/b.pdf"),
    "removed": lambda store: store.remove("a"),
    "collected": lambda store: store.collect("some", ["a", "b"]),
    "laid out": lambda store: store.set_blocks("a", [laid_out(p) for p in store.pages("a")]),
    "compacted": compact_now,
}


def fork(work: Callable[[], object]) -> int:
    """Let a process of its own do something; its exit code says whether it went well."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def write_in_small_steps() -> None:
    """Write each page at once, so that there is more than one write of each kind."""
    from visar.store import sqlite_addition
    from visar.store.lance import addition

    sqlite_addition.FLUSH_BYTES = addition.FLUSH_BYTES = 0


def die_before(step: int) -> None:
    """Kill this process before its n-th write: a statement of SQLite, a file, a LanceDB call."""
    from visar.store.arrays import PartWriter
    from visar.store.lance.tables import LanceTable

    steps = count()

    def reached(write: str) -> None:
        if write.startswith(WRITES) and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            reached(WRITES[0])
            return write(*args, **kwargs)

        return wrapper

    sys.addaudithook(lambda event, _: reached(event))

    def connected(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(reached)
        return connection

    connect: Any = sqlite3.connect
    sqlite3.connect = connected  # type: ignore[assignment]
    for name in ("append", "sync", "_seal"):
        setattr(PartWriter, name, dying(getattr(PartWriter, name)))
    for name in ("append", "delete", "set_blocks", "compact"):
        setattr(LanceTable, name, dying(getattr(LanceTable, name)))


def run(kind: str, scenario: str, index: Path, step: int | None = None) -> int:
    """Start a scenario in a process of its own, which dies before a step if one is given."""

    def work() -> None:
        write_in_small_steps()
        if step is not None:
            die_before(step)
        SCENARIOS[scenario](open_kind(kind, index, create=False))

    return fork(work)


def killed(child: int) -> bool:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status > 0:
        raise RuntimeError(f"the scenario failed with {status}")
    return status == -signal.SIGKILL


def at_every_write(kind: str, scenario: str, base: str, out: str) -> bool:
    """Run a scenario on copies of an index, which die one write later each time.

    The copies are OUT/0, OUT/1 and so on; the last one has survived.
    """
    for step in count():
        index = Path(out) / str(step)
        shutil.copytree(base, index)
        if not killed(run(kind, scenario, index, step)):
            return True
    raise AssertionError


def at_any_time(kind: str, scenario: str, base: str, out: str) -> bool:
    """Run a scenario on copies of an index, which are killed at moments spread over the run."""
    shutil.copytree(base, Path(out) / "whole")
    start = time.monotonic()
    killed(run(kind, scenario, Path(out) / "whole"))
    whole = time.monotonic() - start
    for number in range(TIMED_RUNS):
        index = Path(out) / str(number)
        shutil.copytree(base, index)
        child = run(kind, scenario, index)
        time.sleep(whole * number / TIMED_RUNS)
        os.kill(child, signal.SIGKILL)
        killed(child)
    return True
