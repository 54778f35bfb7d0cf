"""The tests can be run by a script, and report which programs are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q")


def run(*command: str, **environment: str) -> str:
    # Don't pass variables of the outer pytest, such as the number of its worker.
    inherited = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("processes", ["0", "1"])
def test_ctrl_c_reaches_programs_if_a_script_ignores_it(processes: str) -> None:
    """A shell without job control ignores SIGINT in background jobs."""
    ignored = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
    test = "tests/cli/test_encoders.py::test_ctrl_c_stops_it"
    assert "1 passed" in run(*ignored, *PYTEST, "-n", processes, test)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_summary_counts_tests_skipped_for_missing_programs(
    processes: str, tmp_path: Path
) -> None:
    arguments = ("-n", processes, "-k", "tesseract", "tests/documents/test_ocr.py")
    out = run(*PYTEST, *arguments, PATH=str(tmp_path))
    skipped, _, counts = out.splitlines()[-2].partition(" tests skipped, not installed: ")
    assert counts == f"Tesseract ({skipped})"
    assert f"{skipped} skipped" in out.splitlines()[-1]
