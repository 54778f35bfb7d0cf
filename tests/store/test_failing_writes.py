"""Test full and failing disks: every write fails in turn, and acknowledged changes survive."""

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
# Number of writes to fail, for each kind of failure. VISAR_FAULT_SAMPLES=1000000 tests all writes.
SAMPLES = int(os.environ.get("VISAR_FAULT_SAMPLES", "5"))


@pytest.fixture(scope="module")
def fault_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("fault_library") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "index"
    store = open_store(folder)
    for name in ("a", "b"):
        add(store, name, TEXT)
    store.close()
    return folder


def run(fault_library: Path, index: Path, **faults: object) -> list[list[str]]:
    """Run the child with faults; return its steps and their outcomes."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(fault_library),
        "FAULT_FOLDER": str(index),
        **{f"FAULT_{name}": str(value) for name, value in faults.items()},
    }
    result = subprocess.run(
        [sys.executable, "-m", "tests.store.faulty_child", str(index)],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [line.split(maxsplit=2) for line in result.stdout.splitlines()]


def check_document(store: Store, name: str, encoder: EncoderRef) -> None:
    expected = np.concatenate([embedding.vectors for _, embedding in items(name, 3, encoder)])
    np.testing.assert_array_equal(store.vectors(name, encoder).vectors, expected)
    assert store.pages(name) == tuple(page for page, _ in items(name, 3, encoder))


def check_index(index: Path, steps: dict[str, str]) -> None:
    """Check that acknowledged changes are there, and failed changes are complete or absent."""
    store = open_store(index)
    assert [problem for problem in store.verify() if problem.kind == "damage"] == []
    documents = {document.id: document for document in store.documents()}
    for document in documents.values():
        for encoder in document.encoders:
            check_document(store, document.id, encoder)
    if steps.get("add") == "done":
        assert documents["new"].encoders == (TEXT,)
    if steps.get("encoder") == "done":
        assert IMAGE in documents["a"].encoders
    if steps.get("version") == "done":
        assert TEXT_2 in documents["a"].encoders
    if steps.get("remove") == "done":
        assert "b" not in documents
    # Without faults everything works again.
    add(store, "new", TEXT)
    store.compact()
    assert store.verify() == []
    store.close()


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
@pytest.mark.parametrize("stays", [1, 0], ids=["for good", "once"])
def test_failed_write_loses_no_data(
    fault_library: Path, base: Path, tmp_path: Path, kind: int, stays: int
) -> None:
    shutil.copytree(base, tmp_path / "complete")
    count = tmp_path / "count"
    outcomes = run(fault_library, tmp_path / "complete", COUNT=count)
    assert {outcome for outcome, *_ in outcomes} == {"done"}
    total = int(count.read_text())
    assert total > 50
    failures = 0
    for write in sorted({1 + i * total // SAMPLES for i in range(SAMPLES)}):
        index = tmp_path / str(write)
        shutil.copytree(base, index)
        outcomes = run(fault_library, index, AT=write, ERRNO=kind, STAYS=stays)
        failures += sum(outcome[0] == "failed" for outcome in outcomes)
        check_index(index, {step: outcome for outcome, step, *_ in outcomes})
        shutil.rmtree(index)
    assert failures
