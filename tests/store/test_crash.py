"""Kill −9 at any moment leaves the old or the new state of each document, never a mix."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.store.crash_child import PAGES, SCENARIOS, write_in_small_steps
from tests.store.samples import TEXT, State, document, items, state
from visar.errors import StoreError
from visar.store import Store
from visar.store import writing as store_writing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with two documents, and half of a third whose adding was interrupted."""
    place = tmp_path_factory.mktemp("crash") / "base"
    store = Store.open(place)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLUSH_BYTES", "BLOCK_BYTES"):
            patch.setattr(store_writing, name, getattr(store_writing, name))
        write_in_small_steps()
        for id_ in ("a", "b"):
            store.add(document(id_, PAGES), TEXT, items(id_, PAGES, TEXT))
        with pytest.raises(StoreError, match="were not given"):
            store.add(document("half", PAGES), TEXT, items("half", PAGES, TEXT, [1, 2]))
    return place


def run_child(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "tests.store.crash_child", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_and_clean(place: Path, states: list[State]) -> State:
    """The index must be in one of the states, and stay in it when it is cleaned up."""
    store = Store.open(place, create=False)
    found = state(store)
    assert found in states
    assert [problem for problem in store.verify() if problem.kind != "orphan"] == []
    time.sleep(0.002)
    store.compact(grace=timedelta(milliseconds=1))
    assert store.verify() == []
    assert state(store) == found
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_and_after_every_write(scenario: str, base: Path, tmp_path: Path) -> None:
    run_child(scenario, base, tmp_path)
    runs = sorted(tmp_path.iterdir(), key=lambda place: int(place.name))
    old, new = state(Store.open(base)), state(Store.open(runs[-1]))
    assert (old == new) == (scenario == "compacted")
    found = [check_and_clean(place, [old, new]) for place in runs]
    # Once the new state is there it stays; the first run died before anything was written.
    turning_point = found.index(new)
    assert found == [old] * turning_point + [new] * (len(runs) - turning_point)
    assert turning_point > 0 or scenario == "compacted"


@pytest.mark.parametrize("scenario", ["changed", "compacted"])
def test_killed_at_any_time(scenario: str, base: Path, tmp_path: Path) -> None:
    run_child("timed", scenario, base, tmp_path)
    old, new = state(Store.open(base)), state(Store.open(tmp_path / "whole"))
    for place in tmp_path.iterdir():
        check_and_clean(place, [old, new])


def test_the_work_before_the_kill_is_not_lost(base: Path, tmp_path: Path) -> None:
    run_child("new", base, tmp_path)
    given = items("new", PAGES, TEXT)
    kept = []
    for place in sorted(tmp_path.iterdir(), key=lambda place: int(place.name)):
        store = Store.open(place)
        unfinished = store.unfinished("new", TEXT)
        kept.append(len(unfinished))
        rest = [item for item in given if item[0].number not in unfinished]
        if store.documents()[-1].id != "new":
            store.add(document("new", PAGES), TEXT, rest)
        assert store.pages("new") == tuple(page for page, _ in given)
        assert {problem.kind for problem in store.verify()} <= {"orphan"}
    assert max(kept) == PAGES
