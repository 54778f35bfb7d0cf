"""Kill −9 at any moment leaves the old or the new state of each document, never a mix."""

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

# The whole list takes too long with LanceDB; its writes are of the same few kinds in each.
OF_LANCE = ("new", "changed", "version", "removed", "laid out", "compacted")


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory, where there is one: a process that dies loses nothing there either."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=folder) as place:
        (Path(place) / "original").write_bytes(b"the original" * 1000)
        yield Path(place)


@pytest.fixture
def base(kind: str, memory: Path) -> Path:
    """An index with two documents, and half of a third whose adding was interrupted."""
    place = memory / kind
    if not place.exists():
        store = open_kind(kind, place)
        for id_ in ("a", "b"):
            given = items(id_, PAGES, TEXT)
            put(store, document(id_, PAGES), TEXT, given, memory / "original")
        interrupt(store, "half", [1, 2], pages=PAGES)
        store.close()
    return place


@pytest.fixture
def copies(memory: Path) -> Iterator[Path]:
    """Where the copies are; beside them is the original that is kept."""
    place = memory / "copies"
    place.mkdir()
    shutil.copy(memory / "original", place)
    yield place
    shutil.rmtree(place)


def check_and_clean(kind: str, place: Path, states: list[State]) -> State:
    """The index must be in one of the states, and stay in it when it is cleaned up."""
    store = open_kind(kind, place, create=False)
    found = state(store)
    assert found in states
    assert damage(store) == []
    compact_now(store)
    assert store.verify() == []
    assert state(store) == found
    store.close()
    return found


def read(kind: str, place: Path) -> State:
    store = open_kind(kind, place, create=False)
    found = state(store)
    store.close()
    return found


def runs_in(copies: Path) -> list[Path]:
    found = [place for place in copies.iterdir() if place.name.isdigit()]
    return sorted(found, key=lambda place: int(place.name))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_every_write(
    scenario: str, kind: str, base: Path, copies: Path, workers: Workers
) -> None:
    if kind == "lance" and scenario not in OF_LANCE:
        pytest.skip("takes too long")
    workers.run("at_every_write", kind, scenario, base, copies)
    runs = runs_in(copies)
    old, new = read(kind, base), read(kind, runs[-1])
    assert (old == new) == (scenario == "compacted")
    found = [check_and_clean(kind, place, [old, new]) for place in runs]
    # Once the new state is there it stays; the first run died before anything was written.
    turning_point = found.index(new)
    assert found == [old] * turning_point + [new] * (len(runs) - turning_point)
    assert turning_point > 0 or scenario == "compacted"


@pytest.mark.parametrize("scenario", ["changed", "compacted"])
def test_killed_at_any_time(
    scenario: str, kind: str, base: Path, copies: Path, workers: Workers
) -> None:
    workers.run("at_any_time", kind, scenario, base, copies)
    old, new = read(kind, base), read(kind, copies / "whole")
    for place in runs_in(copies):
        check_and_clean(kind, place, [old, new])


def test_the_work_before_the_kill_is_not_lost(
    kind: str, base: Path, copies: Path, workers: Workers
) -> None:
    workers.run("at_every_write", kind, "new", base, copies)
    given = items("new", PAGES, TEXT)
    kept = []
    for place in runs_in(copies):
        store = open_kind(kind, place)
        with store.adding(document("new", PAGES), TEXT) as addition:
            kept.append(PAGES if addition.stored else len(addition.written))
            for item in given:
                if addition.stored is None and item[0].number not in addition.written:
                    addition.put(*item)
            addition.commit()
        assert store.pages("new") == tuple(page for page, _ in given)
        assert damage(store) == []
        compact_now(store)
        assert store.verify() == []
        store.close()
    assert set(kept) >= {0, 1, PAGES}


def test_processes_killed_at_random_moments() -> None:
    """A few of the trials whose figures docs/benchmarks.md shows; it exits with what is wrong."""
    command = [sys.executable, "-m", "benchmarks.crash", "--trials", "15", "--seed", "1"]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("| 15 |")
