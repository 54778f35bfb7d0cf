"""Processes that change copies of an index and are killed by SIGKILL at any moment."""

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
    open_kind,
    put,
    with_layout,
)
from visar.store import Store

PAGES = 3
TIMED_RUNS = 4


def add_(store: Store, id_: str, encoder: Any = TEXT, source: str | None = None) -> None:
    original = Path(store.location).parent / "original"
    put(store, document(id_, PAGES, source), encoder, items(id_, PAGES, encoder), original)


# SQL statements and Python audit events.
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
    "laid out": lambda store: store.set_blocks("a", [with_layout(p) for p in store.pages("a")]),
    "compacted": compact_now,
}


def fork(work: Callable[[], object]) -> int:
    """Run a function in a forked process, whose exit code is 1 if the function raises."""
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
    """Flush every page, so that there is more than one write of each kind."""
    from visar.store import sqlite_addition
    from visar.store.lance import addition

    sqlite_addition.FLUSH_BYTES = addition.FLUSH_BYTES = 0


def die_before(step: int) -> None:
    """Kill this process before its n-th write to SQLite, a file or LanceDB."""
    from visar.store.arrays import PartWriter
    from visar.store.lance.tables import LanceTable

    steps = count()

    def kill_at_step(write: str) -> None:
        if write.startswith(WRITES) and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def with_step(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            kill_at_step(WRITES[0])
            return write(*args, **kwargs)

        return wrapper

    sys.addaudithook(lambda event, _: kill_at_step(event))

    def traced_connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(kill_at_step)
        return connection

    connect: Any = sqlite3.connect
    sqlite3.connect = traced_connect  # type: ignore[assignment]
    for name in ("append", "sync", "_seal"):
        setattr(PartWriter, name, with_step(getattr(PartWriter, name)))
    for name in ("append", "delete", "set_blocks", "compact"):
        setattr(LanceTable, name, with_step(getattr(LanceTable, name)))


def run(kind: str, scenario: str, index: Path, step: int | None = None) -> int:
    """Start a scenario in a forked process, which dies before a step if one is given."""

    def work() -> None:
        write_in_small_steps()
        if step is not None:
            die_before(step)
        SCENARIOS[scenario](open_kind(kind, index, create=False))

    return fork(work)


def was_killed(child: int) -> bool:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status > 0:
        raise RuntimeError(f"the scenario failed with {status}")
    return status == -signal.SIGKILL


def kill_before_every_write(kind: str, scenario: str, base: str, out: str) -> bool:
    """Run a scenario on copies of an index, killing each process one write later.

    The copies are OUT/0, OUT/1 and so on; the last process isn't killed.
    """
    for step in count():
        index = Path(out) / str(step)
        shutil.copytree(base, index)
        if not was_killed(run(kind, scenario, index, step)):
            return True
    raise AssertionError


def kill_at_any_time(kind: str, scenario: str, base: str, out: str) -> bool:
    """Run a scenario on copies of an index, killing the processes at evenly spaced times."""
    shutil.copytree(base, Path(out) / "whole")
    start = time.monotonic()
    was_killed(run(kind, scenario, Path(out) / "whole"))
    whole = time.monotonic() - start
    for number in range(TIMED_RUNS):
        index = Path(out) / str(number)
        shutil.copytree(base, index)
        child = run(kind, scenario, index)
        time.sleep(whole * number / TIMED_RUNS)
        os.kill(child, signal.SIGKILL)
        was_killed(child)
    return True
