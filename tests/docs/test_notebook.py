"""The example notebook runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "visar.ipynb"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing of the user's Jupyter is read or written.
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "strip its outputs"
    where = {"metadata": {"path": NOTEBOOK.parent}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    shown = ["".join(str(output) for output in cell.outputs) for cell in cells]
    adding, answer, page, counts, report, selection, _ = shown
    assert not any("stderr" in output for output in shown)
    assert "40" in adding
    assert "£47.5 million" in answer
    assert "cost of stopping" in answer
    assert "page 36" in page
    assert "image/png" in page
    assert "1 of 40 pages, match good: How long is the warranty" in counts
    assert "match none: Which vaccines" in counts
    assert "<iframe" in report
    assert "<svg" in selection
