"""Fixtures: a small document in an index and on a server, and isolated environments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import write_pdf
from tests.server.service import serving
from visar.client import Client
from visar.index import Index
from visar.library import Library

# Read when haystack is first imported.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

# Its tests run in the environment that has the package.
collect_ignore = [] if find_spec("langchain_tests") else ["langchain_standard.py"]

ROOT = Path(__file__).parents[2]
QUESTION = "How long is the warranty of the Aurora lantern?"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("integrations")
    manual = write_pdf(
        folder / "manual.pdf",
        "Lantern manual.\nThis book is about the Aurora lantern.",
        "Warranty. The warranty of the Aurora lantern is seven years.\nKeep the bill.",
        "Cleaning. Wipe the glass with a dry cloth every month.",
        "Repairs. Repairs under the warranty of seven years are free.",
        "Contact. Write to the harbour office in Whitby.",
    )
    with Index.open(folder / "index") as index:
        index.add(manual)
        yield index


@pytest.fixture(scope="session")
def client(index: Index) -> Iterator[Client]:
    with serving(index) as address, Client(address) as client:
        yield client


@pytest.fixture(params=["index", "client"])
def any_library(request: pytest.FixtureRequest) -> Library:
    """Return an index, or a client of a server: adapters accept both."""
    library: Library = request.getfixturevalue(request.param)
    return library


Run = Callable[..., str]


@pytest.fixture(scope="session")
def in_own_environment() -> Run:
    """Return a function that runs Python in a separate environment and returns its output."""
    python = Path(sys.prefix) / "frameworks" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs an environment of its own: make .venv/frameworks/installed")

    def run(*arguments: str, cwd: Path = ROOT, **variables: str) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            **variables,
        }
        ran = subprocess.run(
            [str(python), *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run
