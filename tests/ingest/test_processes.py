"""Several processes add the same document, and none outlives the program that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ingest.conftest import FirstWord
from visar.ingest.pipeline import Stage, add_document
from visar.results import EncoderRef
from visar.store import Store, open_store

MakePdf = Callable[..., Path]
MakeScan = Callable[..., Path]

# Without "if __name__ ...": scripts of users have none, and must not run again in other processes.
PROGRAM = """
import sys
from tests.ingest.conftest import FirstWord
from visar.ingest.pipeline import add_document
from visar.store import Store, open_store

def tell(stage, done, total):
    print(stage, done, flush=True)

added = add_document(open_store(sys.argv[1]), sys.argv[2], FirstWord(), progress=tell)
print("added", added.pages, flush=True)
"""

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def start(index: Path, document: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(index), str(document)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # Ctrl-C at a terminal reaches all; here the program alone gets it.
        start_new_session=True,
    )


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, directly or not."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            parent = parent_of(int(entry.name))
            if parent is not None:
                parents.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.update(children)
        waiting.extend(children)
    return found


def parent_of(pid: int) -> int | None:
    """None if it is gone, or a zombie."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return int(parent) if state != "Z" else None


def wait_until_gone(pids: set[int]) -> None:
    for _ in range(300):
        if not any(parent_of(pid) is not None for pid in pids):
            return
        time.sleep(0.1)
    raise AssertionError(f"still there: {[pid for pid in pids if parent_of(pid) is not None]}")


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_program(
    tmp_path: Path, make_scan: MakeScan, how: signal.Signals
) -> None:
    deck = make_scan("deck", *(f"PAGE {number}" for number in range(40)))
    child = start(tmp_path / "index", deck)
    assert child.stdout is not None
    assert child.stdout.readline() == "ocr 1\n"
    started = descendants(child.pid)
    # One that reads the files, and at least one for OCR.
    assert len(started) >= 2
    child.send_signal(how)
    _, errors = child.communicate(timeout=60)
    if how == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
    wait_until_gone(started)


def test_processes_may_add_the_same_document(tmp_path: Path, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", *(f"Page {number}." for number in range(100)))
    index = tmp_path / "index"
    open_store(index)
    children = [start(index, path) for _ in range(3)]
    results = [child.communicate(timeout=120) for child in children]
    assert [output.splitlines()[-1] for output, _ in results] == ["added 100"] * 3, results
    store = open_store(index)
    assert len(store.documents()) == 1
    assert not [problem for problem in store.verify() if problem.kind == "damage"]


def test_who_counts_on_the_work_of_another_does_not_fail_when_that_is_done(
    store: Store, make_pdf: MakePdf
) -> None:
    """It failed: "23 of 60 pages of a.pdf were not given"."""
    path = make_pdf("a.pdf", *(f"Page {number}." for number in range(60)))

    def interrupt(stage: Stage, done: int, _total: int) -> None:
        if (stage, done) == ("encoding", 24):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_document(store, path, FirstWord(), progress=interrupt)
    seen: list[int] = []

    def overtake(stage: Stage, done: int, _total: int) -> None:
        if stage == "encoding":
            seen.append(done)
            if done == 40:
                add_document(open_store(store.location), path, FirstWord())

    stored = add_document(store, path, FirstWord(), progress=overtake)
    assert seen == list(range(25, 61))
    assert len(store.vectors(stored.id, EncoderRef.of(FirstWord())).vectors) == 60
    assert not [problem for problem in store.verify() if problem.kind == "damage"]
