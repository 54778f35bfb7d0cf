"""Test the worker process, which may die at any time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documents.conftest import SECRETS, lines_of, text_at, write_pdf
from tests.documents.test_hostile import exponential_pdf
from visar.documents import Limits, OpenedDocument, ReadOptions, Word, open_document
from visar.documents.worker import PageContent
from visar.errors import DocumentError, PageError


def pid_of(document: OpenedDocument) -> int:
    process = document._worker._process
    assert process is not None
    return process.pid


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; zombies have."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return state.rpartition(")")[2].split()[0] == "Z"


def test_worker_that_died_between_pages_is_restarted(tmp_path: Path, opened: Any) -> None:
    document = opened(write_pdf(tmp_path / "a.pdf", *[text_at(50, 500, name) for name in "ab"]))
    first = pid_of(document)
    os.kill(first, signal.SIGSEGV)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert lines_of(document.page(2)) == ["b"]
    assert pid_of(document) != first


def test_crash_during_a_page_raises_page_error(tmp_path: Path, opened: Any) -> None:
    document = opened(exponential_pdf(tmp_path / "a.pdf"), limits=Limits(seconds_per_page=20))
    pid = pid_of(document)

    def crash() -> None:
        time.sleep(0.3)  # the page takes minutes
        os.kill(pid, signal.SIGSEGV)

    thread = threading.Thread(target=crash)
    thread.start()
    with pytest.raises(PageError, match=r"^a.pdf, page 1, .*\(SIG"):
        document.page(1)
    thread.join()
    assert document.image(2).size == (800, 800)


def test_interrupted_page_does_not_mix_up_answers(tmp_path: Path, opened: Any) -> None:
    """After Ctrl-C in a notebook, the next request must get its own answer."""
    document = opened(exponential_pdf(tmp_path / "a.pdf"), limits=Limits(seconds_per_page=20))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            document.page(1)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert document.image(2).size == (800, 800)


def test_worker_without_a_parent_ends(tmp_path: Path) -> None:
    """If the parent process is killed during a page, the worker must end by itself."""
    path = exponential_pdf(tmp_path / "a.pdf")
    program = f"""
from visar.documents import Limits, ReadOptions, open_document
document = open_document({str(path)!r}, ReadOptions(limits=Limits(seconds_per_page=1.0)))
print(document._worker._process.pid, flush=True)
document._worker._process._kill = lambda late: None
document.page(1)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    assert not has_ended(worker)
    for _ in range(600):
        if has_ended(worker):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker still runs")


def test_memory_limit(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    with pytest.raises(DocumentError, match=r"^a.pdf .*0.02 GB \(Limits.worker_memory"):
        open_document(path, ReadOptions(limits=Limits(worker_memory=20_000_000)))


def test_close_ends_the_worker(tmp_path: Path) -> None:
    with open_document(write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))) as document:
        pid = pid_of(document)
        assert not has_ended(pid)
    assert has_ended(pid)


def test_failed_open_leaves_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from visar.documents.processes import ChildProcess

    started = []
    real = ChildProcess.__init__

    def remember(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        started.append(self.pid)

    monkeypatch.setattr(ChildProcess, "__init__", remember)
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"), text_at(50, 500, "b"))
    with pytest.raises(DocumentError):
        open_document(path, ReadOptions(limits=Limits(max_pages=1)))
    path.write_bytes(b"%PDF-1.4 nothing more")
    with pytest.raises(DocumentError):
        open_document(path)
    assert len(started) == 2
    assert all(map(has_ended, started))


def test_threads_take_turns(tmp_path: Path, opened: Any) -> None:
    names = [f"page{number}" for number in range(12)]
    document = opened(write_pdf(tmp_path / "a.pdf", *[text_at(50, 500, n) for n in names]))
    found: dict[int, list[str]] = {}

    def read(numbers: range) -> None:
        for number in numbers:
            found[number] = lines_of(document.page(number))

    threads = [threading.Thread(target=read, args=(range(start, 13, 3),)) for start in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number + 1: [name] for number, name in enumerate(names)}


def test_modules_in_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder may be that of an untrusted document."""
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    with open_document(write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))) as document:
        assert len(document) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_worker_gets_no_secrets(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS | {"PYTHONSTARTUP", "LC_TIME"}:
        monkeypatch.setenv(name, "s3cret")
    document = opened(write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a")))
    content = Path(f"/proc/{pid_of(document)}/environ").read_bytes()
    names = {pair.partition(b"=")[0].decode() for pair in content.split(b"\0")}
    assert {"PATH", "PYTHONPATH", "OMP_NUM_THREADS", "LC_TIME"} <= names
    assert not (SECRETS | {"PYTHONSTARTUP"}) & names


@pytest.mark.parametrize(
    "change",
    [
        {"texts": ["a", "b"]},
        {"texts": "a"},
        {"texts": [7]},
        {"texts": ["\x1b"]},
        {"texts": ["a\nb"]},
        {"texts": ["\ud800"]},
        {"size": [0, 5]},
        {"size": ["nan", 5]},
        {"size": None},
        {"figures": [[0, 0, 2, 1]]},
        {"rotation": "x"},
        {"columns": [[-1, 0, 0, 0, 0, 0, 0]]},
        {"columns": [[0, 0, 0, 100_001, 0, 0, 0]]},
        {"columns": [[1, 2, 3, 4, 0, 900, 5]]},
        {"columns": [[1, 2, 3, 4, 0, 0, 0]]},
        {"columns": []},
        {"tables": [[0, []]]},
        {"tables": [[0, [[0, 0, [1]]]]]},
        {"tables": [[0, [[0, 0, [0]], [0, 1, [0]]]]]},
        {"tables": [[0, [[0, -1, [0]]]]]},
        {"tables": [[7, [[0, 0, [0]]]]]},
        {"tables": [["x", 5]]},
    ],
)
def test_invalid_answers_are_rejected(change: dict[str, Any]) -> None:
    """A worker that was taken over by a hostile file could send any answer."""
    columns = np.array(change.pop("columns", [[1, 2, 3, 4, 0, 900, 0]]), "<i4").tobytes()
    message = {"size": [10, 10], "rotation": 0, "blank": False, "figures": [], "texts": ["é"]}
    message |= {"label": "1", "tables": [[0, [[0, 0, [0]]]]]}
    good = PageContent.from_message(message, np.array([1, 2, 3, 4, 0, 900, 0], "<i4").tobytes())
    assert good.words.words() == (Word("é", (1e-5, 2e-5, 3e-5, 4e-5), 0),)
    with pytest.raises((KeyError, TypeError, ValueError)):
        PageContent.from_message(message | change, columns)
