"""Fixtures that run tests with both stores."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.samples import KINDS, open_kind
from visar.store import Store


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of store that a test runs with."""
    if request.param == "lance":
        pytest.importorskip("lancedb")
    return str(request.param)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Download originals to a temporary folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Path of the index of the test."""
    return tmp_path / "index"


@pytest.fixture
def store(kind: str, index: Path) -> Iterator[Store]:
    """An empty index."""
    store = open_kind(kind, index)
    yield store
    store.close()


@pytest.fixture
def flush_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush every page, so that a small document takes the code path of a long one."""
    for module in ("visar.store.sqlite_addition", "visar.store.lance.addition"):
        monkeypatch.setattr(f"{module}.FLUSH_BYTES", 0)


class Workers:
    """A process that forks workers."""

    def __init__(self, kind: str, errors: Path) -> None:
        self._errors = errors
        self._log = errors.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.worker", kind],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, *command: object) -> None:
        """Run a command of ``tests.store.worker``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(part) for part in command]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "true\n", self._errors.read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


@pytest.fixture(scope="session")
def all_workers() -> Iterator[dict[str, Workers]]:
    """The workers for each kind of store, started on demand."""
    by_kind: dict[str, Workers] = {}
    yield by_kind
    for workers in by_kind.values():
        workers.close()


@pytest.fixture
def workers(
    kind: str, all_workers: dict[str, Workers], tmp_path_factory: pytest.TempPathFactory
) -> Workers:
    """The workers for the kind of store of the test."""
    if kind not in all_workers:
        all_workers[kind] = Workers(kind, tmp_path_factory.mktemp("workers") / "errors")
    return all_workers[kind]
