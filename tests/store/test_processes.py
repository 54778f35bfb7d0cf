"""Several processes use one index at the same time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.store.samples import TEXT, items
from tests.store.worker import ROUNDS, SOURCE
from visar.store import EncoderRef, Store

ROOT = Path(__file__).parents[2]


def run_together(index: Path, *tasks: list[str]) -> list[str]:
    """Start a process for each task, let them begin at once, and give what they print."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.worker", task[0], str(index), *task[1:]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in tasks
    ]
    while len(list(index.parent.glob(f"{index.name}.ready-*"))) < len(tasks):
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        time.sleep(0.01)
    index.with_name(f"{index.name}.start").touch()
    results = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, results, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in results]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    place = tmp_path / "index"
    Store.open(place)
    return place


def test_writers_do_not_lose_each_others_documents(index: Path) -> None:
    run_together(index, ["write", "a"], ["write", "b"], ["write", "c"])
    store = Store.open(index)
    expected = {f"{name}-{number}" for name in "abc" for number in range(ROUNDS)}
    assert {stored.id for stored in store.documents()} == expected
    assert store.verify() == []


def test_readers_see_whole_versions_while_a_file_changes_and_is_compacted(index: Path) -> None:
    *_, first, second = run_together(index, ["replace"], ["compact"], ["read"], ["read"])
    assert int(first) >= 1
    assert int(second) >= 1
    store = Store.open(index)
    assert [(d.id, d.source) for d in store.documents()] == [(f"version-{ROUNDS - 1}", SOURCE)]
    assert store.verify() == []


def test_two_encoders_at_once_on_the_same_new_documents(index: Path) -> None:
    # Each brings the pages, but only one can; the other's vectors must not be lost.
    run_together(index, ["same", "x"], ["same", "y"], ["same", "y"])
    store = Store.open(index)
    encoders = (EncoderRef("x", "1", 4), EncoderRef("y", "1", 4))
    assert len(store.documents()) == ROUNDS
    for stored in store.documents():
        assert stored.encoders == encoders
        assert store.pages(stored.id) == tuple(p for p, _ in items("same", 3, TEXT))
    assert [problem for problem in store.verify() if problem.kind == "damage"] == []


def test_two_processes_make_the_index(tmp_path: Path) -> None:
    index = tmp_path / "index"
    run_together(index, ["create"], ["create"], ["create"])
    assert len(Store.open(index).documents()) == 3
