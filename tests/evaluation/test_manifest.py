"""Manifests of several calls of a run."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

import pytest

from visar.evaluation.manifest import (
    Manifest,
    Skipped,
    describe_machine,
    now,
    read_manifests,
    write_manifest,
)
from visar.evaluation.records import writer_name


def _write_manifests(folder: Path, share: int) -> None:
    for _ in range(20):
        manifest = Manifest(plan={"share": [share, 2]})
        writer = writer_name()
        write_manifest(folder, writer, manifest)
        ended = {"finished": now(), "skipped": Skipped(missing={"D": [f"{share}.pdf"]})}
        write_manifest(folder, writer, manifest.model_copy(update=ended))


def test_concurrent_processes_keep_each_others_manifests(tmp_path: Path) -> None:
    context = get_context("spawn")
    writers = [context.Process(target=_write_manifests, args=(tmp_path, n)) for n in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_manifests(tmp_path)
    assert len(found) == 40
    assert all(manifest["finished"] for manifest in found)
    assert {manifest["skipped"]["missing"]["D"][0] for manifest in found} == {"1.pdf", "2.pdf"}


def test_a_machine_without_sysconf_has_an_unknown_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sysconf", raising=False)
    assert describe_machine()["memory_gib"] == "unknown"
