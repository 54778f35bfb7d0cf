"""The page on the index's format: its example reads a real index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.shown import blocks, read
from visar import Index


def test_the_example_reads_an_index(tmp_path: Path, report: Path) -> None:
    with Index.open(tmp_path / "my-index") as index:
        added = index.add(report)
    (code,) = blocks(read("index-format.md"), "python")
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    arrays, found = run.stdout.splitlines()
    assert arrays.startswith(f"{report.name} embedded {added.pages} (")
    assert arrays.endswith("('box', 'word')")
    assert added.id in found
