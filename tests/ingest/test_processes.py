"""Test several processes that add the same document, and the end of child processes."""

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
from visar.documents import ReadOptions
from visar.index import Index
from visar.ingest.pipeline import Stage, add_document
from visar.results import EncoderRef
from visar.store import Store, open_store

MakePdf = Callable[..., Path]
MakeScan = Callable[..., Path]

# Like scripts of users, without "if __name__ ...". It must not run again in other processes.
PROGRAM = """
import sys
from tests.ingest.conftest import FirstWord
from visar.ingest.pipeline import add_document
from visar.store import Store, open_store

def report(stage, done, total):
    print(stage, done, flush=True)

added = add_document(open_store(sys.argv[1]), sys.argv[2], FirstWord(), progress=report)
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
        # In a terminal all processes get Ctrl-C; here only the program does.
        start_new_session=True,
    )


def descendants(pid: int) -> set[int]:
    """Return the direct and indirect child processes of a process."""
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
    """Return the parent of a process, or None if it has ended or is a zombie."""
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
    raise AssertionError(f"still running: {[pid for pid in pids if parent_of(pid) is not None]}")


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_program(
    tmp_path: Path, make_scan: MakeScan, how: signal.Signals
) -> None:
    deck = make_scan("deck", *(f"PAGE {number}" for number in range(20)))
    child = start(tmp_path / "index", deck)
    assert child.stdout is not None
    assert child.stdout.readline() == "ocr 1\n"
    started = descendants(child.pid)
    # One reads the files, and at least one runs OCR.
    assert len(started) >= 2
    child.send_signal(how)
    _, errors = child.communicate(timeout=60)
    if how == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
    wait_until_gone(started)


def test_processes_add_the_same_document(tmp_path: Path, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", *(f"Page {number}." for number in range(40)))
    index = tmp_path / "index"
    open_store(index)
    children = [start(index, path) for _ in range(3)]
    results = [child.communicate(timeout=120) for child in children]
    assert [output.splitlines()[-1] for output, _ in results] == ["added 40"] * 3, results
    store = open_store(index)
    assert len(store.documents()) == 1
    assert not [problem for problem in store.verify() if problem.kind == "damage"]


def test_resumed_addition_that_is_overtaken(store: Store, make_pdf: MakePdf) -> None:
    """Another process completes the addition that this one has resumed."""
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


def test_closing_an_index_ends_its_ocr_processes(tmp_path: Path, make_scan: MakeScan) -> None:
    pytest.importorskip("rapidocr")
    with Index.open(tmp_path / "closed") as index:
        index.add(make_scan("scan", "WARRANTY"), options=ReadOptions(ocr_engine="rapidocr"))
        started = ocr_children()
        assert started
    assert not ocr_children() & started


def ocr_children() -> set[int]:
    """Return the OCR processes of this process."""
    listing = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(maxsplit=2) for line in listing.stdout.splitlines()[1:]]
    ours = str(os.getpid())
    return {int(row[0]) for row in rows if row[1] == ours and "ocr_processes" in row[2]}
