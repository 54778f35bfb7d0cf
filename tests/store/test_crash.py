"""Test that kill −9 at any moment leaves the old or the new state, never a mix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conftest import Workers
from tests.store.crash import PAGES, SCENARIOS
from tests.store.samples import (
    TEXT,
    State,
    compact_now,
    damage,
    document,
    interrupt,
    items,
    open_kind,
    put,
    state,
)

# All scenarios would take too long with LanceDB, and they make the same few kinds of writes.
LANCE_SCENARIOS = ("new", "changed", "version", "removed", "laid out", "compacted")


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory if possible, which also survives the death of a process."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        (Path(folder) / "original").write_bytes(b"the original" * 1000)
        yield Path(folder)


@pytest.fixture
def base(kind: str, memory: Path) -> Path:
    """An index with two documents and an interrupted addition."""
    path = memory / kind
    if not path.exists():
        store = open_kind(kind, path)
        for id_ in ("a", "b"):
            given = items(id_, PAGES, TEXT)
            put(store, document(id_, PAGES), TEXT, given, memory / "original")
        interrupt(store, "half", [1, 2], pages=PAGES)
        store.close()
    return path


@pytest.fixture
def copies(memory: Path) -> Iterator[Path]:
    """A folder for copies of the index, with the original file next to them."""
    folder = memory / "copies"
    folder.mkdir()
    shutil.copy(memory / "original", folder)
    yield folder
    shutil.rmtree(folder)


def check_and_clean(kind: str, path: Path, states: list[State]) -> State:
    """Check that the index is in one of the states before and after compacting; return it."""
    store = open_kind(kind, path, create=False)
    actual = state(store)
    assert actual in states
    assert damage(store) == []
    compact_now(store)
    assert store.verify() == []
    assert state(store) == actual
    store.close()
    return actual


def read(kind: str, path: Path) -> State:
    store = open_kind(kind, path, create=False)
    result = state(store)
    store.close()
    return result


def runs_in(copies: Path) -> list[Path]:
    runs = [path for path in copies.iterdir() if path.name.isdigit()]
    return sorted(runs, key=lambda path: int(path.name))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_every_write(
    scenario: str, kind: str, base: Path, copies: Path, workers: Workers
) -> None:
    if kind == "lance" and scenario not in LANCE_SCENARIOS:
        pytest.skip("takes too long")
    workers.run("kill_before_every_write", kind, scenario, base, copies)
    runs = runs_in(copies)
    old, new = read(kind, base), read(kind, runs[-1])
    assert (old == new) == (scenario == "compacted")
    states = [check_and_clean(kind, path, [old, new]) for path in runs]
    # All later runs have the new state; the first run died before any write.
    turning_point = states.index(new)
    assert states == [old] * turning_point + [new] * (len(runs) - turning_point)
    assert turning_point > 0 or scenario == "compacted"


@pytest.mark.parametrize("scenario", ["changed", "compacted"])
def test_killed_at_any_time(
    scenario: str, kind: str, base: Path, copies: Path, workers: Workers
) -> None:
    workers.run("kill_at_any_time", kind, scenario, base, copies)
    old, new = read(kind, base), read(kind, copies / "whole")
    for path in runs_in(copies):
        check_and_clean(kind, path, [old, new])


def test_pages_before_the_kill_are_not_lost(
    kind: str, base: Path, copies: Path, workers: Workers
) -> None:
    workers.run("kill_before_every_write", kind, "new", base, copies)
    given = items("new", PAGES, TEXT)
    counts = []
    for path in runs_in(copies):
        store = open_kind(kind, path)
        with store.adding(document("new", PAGES), TEXT) as addition:
            counts.append(PAGES if addition.stored else len(addition.written))
            for item in given:
                if addition.stored is None and item[0].number not in addition.written:
                    addition.put(*item)
            addition.commit()
        assert store.pages("new") == tuple(page for page, _ in given)
        assert damage(store) == []
        compact_now(store)
        assert store.verify() == []
        store.close()
    assert set(counts) >= {0, 1, PAGES}


def test_processes_killed_at_random_moments() -> None:
    """Run a few trials of the benchmark in docs/reliability.md, which fails on lost data."""
    command = [sys.executable, "-m", "benchmarks.crash", "--trials", "6", "--seed", "1"]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("Trials: 6; ")
