"""Test adding documents and evaluating on a real Ray cluster of two local nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_pdf
from tests.ingest.slow_encoder import SlowWords
from tests.storage import bucket as bucket
from tests.storage import free_port
from visar.evaluation.records import RetrievalRecord, read_by_key
from visar.ingest.pipeline import add_document
from visar.results import EncoderRef
from visar.store import Store, open_store

pytest.importorskip("ray", reason="the extra ray is not installed")

PAGES = 20
ROOT = Path(__file__).parents[2]
# Ray may require a token that isn't available here.
NO_TOKEN = {"RAY_AUTH_MODE": "disabled"}
SLOW_WORDS = "tests.ingest.slow_encoder:SlowWords"


@dataclass
class Cluster:
    address: str
    second_node: subprocess.Popen[bytes]


@contextlib.contextmanager
def node(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``ray start``, and kill its whole process group at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
         "--node-ip-address=127.0.0.1", "--num-cpus=2", "--object-store-memory=100000000",
         *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            **NO_TOKEN,
            # Detect a lost node after 2 seconds instead of 15.
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
            "RAY_health_check_initial_delay_ms": "500",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a node, as in a power loss."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def cluster(bucket: str) -> Iterator[Cluster]:
    """A cluster of two nodes with two CPUs each, which can access the bucket."""
    assert bucket
    port = free_port()
    # pytest's temporary paths are too long for sockets.
    folder = tempfile.mkdtemp(prefix="ray")
    head = node("--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false")
    try:
        with head, node(f"--address=127.0.0.1:{port}") as second:
            yield Cluster(f"127.0.0.1:{port}", second)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def visar(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "visar", *map(str, words)],
        env={
            **os.environ,
            **NO_TOKEN,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Return the output of a command; fail if it has an error."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("documents")
    return [
        write_pdf(folder / f"{name}.pdf", *(f"{name}{'x' * page} ends." for page in range(PAGES)))
        for name in ("anchor", "bell", "cable", "dock", "ebb")
    ]


def test_losing_a_node_loses_no_pages(
    cluster: Cluster, bucket: str, documents: list[Path], tmp_path: Path
) -> None:
    location = f"{bucket}/index"
    words = ["add", documents[0].parent, "--ray", cluster.address, "--index", location,
             "--encoder", SLOW_WORDS, "--collection", "sea", "--json"]  # fmt: skip
    adding = visar(*words, "--set", "year=2024", "--set", "kind=report")
    store = open_store(location)
    wait_for_first(store, adding)
    kill(cluster.second_node)
    assert len(store.documents()) < len(documents), "the node was lost after the end"
    result = json.loads(finish(adding))
    assert not result["refused"]
    assert len(result["added"]) == len(documents)
    here = open_store(tmp_path / "index")
    encoder = SlowWords()
    reference = EncoderRef.of(encoder)
    for path in documents:
        local = add_document(here, path, encoder)
        stored = store.get(local.id)
        assert (stored.name, stored.source, stored.pages) == (path.name, local.source, PAGES)
        assert stored.metadata == {**local.metadata, "year": 2024, "kind": "report"}
        assert stored.collections == ("sea",)
        assert store.pages(local.id) == here.pages(local.id)
        ours, theirs = (one.vectors(local.id, reference) for one in (here, store))
        np.testing.assert_array_equal(ours.vectors, theirs.vectors)
        np.testing.assert_array_equal(ours.offsets, theirs.offsets)
    assert len(store.documents()) == len(documents)
    assert store.verify() == []
    # A second run only changes metadata.
    again = json.loads(finish(visar(*words, "--set", "year=2025")))
    assert {one["id"] for one in again["added"]} == {one["id"] for one in result["added"]}
    listed = finish(visar("list", "--where", 'year = 2025 and kind = "report"', "--json",
                          "--collection", "sea", "--index", location))  # fmt: skip
    assert [one["added"] for one in json.loads(listed)] == [
        stored.added.isoformat() for stored in store.documents()
    ]


def wait_for_first(store: Store, adding: subprocess.Popen[str]) -> None:
    for _ in range(2400):
        if store.documents():
            return
        assert adding.poll() is None, adding.communicate()
        time.sleep(0.05)
    raise AssertionError("no document was added")


def test_evaluation_on_a_cluster_has_the_same_results(
    cluster: Cluster, bucket: str, tmp_path: Path
) -> None:
    nouns = ("anchor", "bell", "cable", "dock", "ebb")
    for name in ("one", "two"):
        write_pdf(tmp_path / f"{name}.pdf", *(f"The {noun} of {name} is red." for noun in nouns))
    questions = tmp_path / "questions.jsonl"
    with questions.open("w") as lines:
        for name in ("one", "two"):
            for page, noun in enumerate(nouns, start=1):
                row = {"question": f"Which color has the {noun}?", "document": f"{name}.pdf"}
                print(json.dumps({**row, "evidence_pages": [page], "answers": []}), file=lines)
    words = ["eval", "run", "--data", questions, "--method", "visar", "--method", "top-k", "--json"]
    shared = ["--ray", cluster.address, "--index", f"{bucket}/evaluation"]
    there = json.loads(finish(visar(*words, tmp_path / "there", *shared)))
    here = json.loads(finish(visar(*words, tmp_path / "here")))
    assert there == here
    assert there["retrieved"] >= 2 * 2 * len(nouns)
    found = [read_by_key(tmp_path / name, RetrievalRecord) for name in ("there", "here")]
    chosen = [{key: (one.k, one.pages, one.ranking) for key, one in run.items()} for run in found]
    assert chosen[0] == chosen[1]


def test_missing_cluster(documents: list[Path], tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = visar("add", documents[0], "--ray", address, "--index", tmp_path / "index")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert address in errors
    assert "Traceback" not in errors
