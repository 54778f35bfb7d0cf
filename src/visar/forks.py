"""Objects that can't be used after a fork: in the child they raise an error instead of hanging.

Locks that other threads hold during the fork are never released in the child, and the threads of
models don't exist there.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from visar.errors import StoreError

# Timeout of a fork that waits for threads in SQLite. If SQLite's own locks were held during the
# fork, the child couldn't open any index.
_LONGEST_WAIT = 5.0
_open: weakref.WeakKeyDictionary[object, Any] = weakref.WeakKeyDictionary()
OPENING = threading.RLock()
"""Lock of threads that open an index, which a fork waits for."""
_held = threading.local()
# First process that called `keep_to_one_process`.
_process: int | None = None
# Keeps the attributes of the parent's objects alive in a child, because freeing them could hang.
_parent_state: list[object] = []


def disable_after_fork(item: object, lock: Any = None) -> None:
    """Make an object raise StoreError in forked processes.

    A fork waits until no other thread holds the lock.
    """
    _open[item] = lock


def keep_to_one_process(item: str) -> None:
    """Raise StoreError in a child of a process that has called this; ``item`` is for the message.

    For libraries with threads and locks of their own, which a child can't replace.
    """
    global _process
    if _process not in (None, os.getpid()):
        raise StoreError(
            f"Can't open {item}: process {os.getpid()} was forked after an index in object storage "
            "was opened. Fork before that, or use the spawn start method."
        )
    _process = os.getpid()


class ForkedIndex:
    """The replacement of an index of the parent in a forked child."""

    def __getattr__(self, name: str) -> Any:
        raise StoreError(
            f"Can't use {name}: the index was opened before process {os.getpid()} was forked. Open "
            "it in the child process, or use the spawn start method."
        )

    def __enter__(self) -> None:
        self.__getattr__("__enter__")

    def __exit__(self, *_: object) -> None:
        """Do nothing, because the parent closes the index."""

    def close(self) -> None:
        """Do nothing, because the parent closes the index."""


def _before() -> None:
    _held.locks = []
    for lock in (OPENING, *list(_open.values())):
        if lock is not None and lock.acquire(timeout=_LONGEST_WAIT):
            _held.locks.append(lock)


def _release() -> None:
    for lock in _held.locks:
        lock.release()


def _in_child() -> None:
    _release()
    for item in list(_open):
        _parent_state.append(vars(item))
        item.__class__ = ForkedIndex
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
