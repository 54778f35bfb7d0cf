"""A full disk and a failing one: every write fails in turn, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.store.faulty_child import add
from tests.store.samples import IMAGE, TEXT, TEXT_2, items
from visar.results import EncoderRef
from visar.store import Store, open_store

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
# Of all places where a write can fail, this many are tried for each kind of failure; all of them
# with VISAR_FAULT_PLACES=1000000.
PLACES = int(os.environ.get("VISAR_FAULT_PLACES", "5"))


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("shim") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return built


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "index"
    store = open_store(folder)
    for name in ("a", "b"):
        add(store, name, TEXT)
    store.close()
    return folder


def run(shim: Path, index: Path, **faults: object) -> list[list[str]]:
    """The steps of the child with their outcome."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "FAULT_FOLDER": str(index),
        **{f"FAULT_{name}": str(value) for name, value in faults.items()},
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.store.faulty_child", str(index)],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [line.split(maxsplit=2) for line in ran.stdout.splitlines()]


def check_document(store: Store, name: str, encoder: EncoderRef) -> None:
    expected = np.concatenate([embedding.vectors for _, embedding in items(name, 3, encoder)])
    np.testing.assert_array_equal(store.vectors(name, encoder).vectors, expected)
    assert store.pages(name) == tuple(page for page, _ in items(name, 3, encoder))


def check_index(index: Path, steps: dict[str, str]) -> None:
    """What was acknowledged is there; what was refused is there whole or not at all."""
    store = open_store(index)
    assert [problem for problem in store.verify() if problem.kind == "damage"] == []
    there = {document.id: document for document in store.documents()}
    for document in there.values():
        for encoder in document.encoders:
            check_document(store, document.id, encoder)
    if steps.get("add") == "done":
        assert there["new"].encoders == (TEXT,)
    if steps.get("encoder") == "done":
        assert IMAGE in there["a"].encoders
    if steps.get("version") == "done":
        assert TEXT_2 in there["a"].encoders
    if steps.get("remove") == "done":
        assert "b" not in there
    # With the disk in order again everything works.
    add(store, "new", TEXT)
    store.compact()
    assert store.verify() == []
    store.close()


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
@pytest.mark.parametrize("stays", [1, 0], ids=["for good", "once"])
def test_a_write_that_fails_loses_nothing(
    shim: Path, base: Path, tmp_path: Path, kind: int, stays: int
) -> None:
    shutil.copytree(base, tmp_path / "counted")
    count = tmp_path / "count"
    assert {outcome for outcome, *_ in run(shim, tmp_path / "counted", COUNT=count)} == {"done"}
    total = int(count.read_text())
    assert total > 50
    refused = 0
    for place in sorted({1 + i * total // PLACES for i in range(PLACES)}):
        index = tmp_path / str(place)
        shutil.copytree(base, index)
        outcomes = run(shim, index, AT=place, ERRNO=kind, STAYS=stays)
        refused += sum(outcome[0] == "refused" for outcome in outcomes)
        check_index(index, {step: outcome for outcome, step, *_ in outcomes})
        shutil.rmtree(index)
    assert refused
