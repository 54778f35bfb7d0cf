"""Test that using an index in a forked child raises an error instead of hanging."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage import bucket as bucket
from visar import forks
from visar.errors import StoreError
from visar.index import Index

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
CHILDREN = 3
DEADLINE = 60.0
QUESTION = "How long is the warranty?"


@pytest.fixture
def index(
    tmp_path: Path, make_pdf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Index]:
    """An index that threads search and change continuously."""
    # On a busy disk, a thread may stay in SQLite for longer than usual.
    monkeypatch.setattr(forks, "_LONGEST_WAIT", DEADLINE)
    index = Index.open(tmp_path / "index")
    index.add(make_pdf("a.pdf", "The warranty is seven years.", "A storm damaged the mast."))
    ended = threading.Event()

    def search() -> None:
        while not ended.is_set():
            index.search(f"{QUESTION} {time.monotonic()}")

    def write() -> None:
        while not ended.is_set():
            index.collect("some", ["a.pdf"])
            index.uncollect("some")

    def read() -> None:
        with Index.open(tmp_path / "index") as other:
            while not ended.is_set():
                other.pages("a.pdf")
                other.documents()

    threads = [threading.Thread(target=work) for work in (search, write, read)]
    for thread in threads:
        thread.start()
    yield index
    ended.set()
    for thread in threads:
        thread.join()
    index.close()


def in_child(work: Callable[[], object]) -> int:
    """Run a function in a forked child; return 0, 1 if it raises, or -9 if it hangs."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    deadline = time.monotonic() + DEADLINE
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def expect_store_error(work: Callable[[], object]) -> None:
    with pytest.raises(StoreError, match="fork"):
        work()


def test_index_of_the_parent_raises_in_a_child(index: Index) -> None:
    searcher = index.searcher()

    def use() -> None:
        for work in (
            lambda: index.documents(),
            lambda: index.jobs(),
            lambda: index.release(),
            lambda: index.compact(),
            lambda: index.search(QUESTION),
            lambda: index.ask(QUESTION),
            lambda: index.encode_question(QUESTION),
            lambda: index.image("a.pdf", 1),
            lambda: searcher.search(QUESTION),
        ):
            expect_store_error(work)
        index.close()

    assert [in_child(use) for _ in range(CHILDREN)] == [0] * CHILDREN
    assert index.search(QUESTION).pages  # still works in the parent


def test_child_can_open_the_index(index: Index) -> None:
    location = index.location

    def use() -> None:
        with Index.open(location) as own:
            assert own.pages("a.pdf")
            own.vectors("a.pdf")

    assert [in_child(use) for _ in range(CHILDREN)] == [0] * CHILDREN


def test_child_cannot_open_an_index_in_object_storage_after_its_parent(bucket: str) -> None:
    """LanceDB would sometimes hang."""
    location = f"{bucket}/forks"
    with Index.open(location):
        pass
    assert in_child(lambda: expect_store_error(lambda: Index.open(location))) == 0


def test_fork_waits_for_a_short_transaction(index: Index) -> None:
    store, started, ended = index._store, threading.Event(), threading.Event()
    main, finished = threading.get_ident(), []

    def hold() -> None:
        with store._lock:  # type: ignore[attr-defined]
            started.set()
            while not ended.is_set():
                if sys._current_frames()[main].f_code is forks._before.__code__:
                    finished.append("transaction")
                    break

    def check() -> None:
        assert finished

    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    try:
        assert in_child(check) == 0
    finally:
        ended.set()
        thread.join()


def test_fork_does_not_wait_for_a_long_transaction(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_LONGEST_WAIT", 0.1)
    store, started, ended = index._store, threading.Event(), threading.Event()

    def hold() -> None:
        with store._lock:  # type: ignore[attr-defined]
            started.set()
            ended.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    try:
        assert in_child(lambda: expect_store_error(lambda: index.documents())) == 0
    finally:
        ended.set()
        thread.join()
