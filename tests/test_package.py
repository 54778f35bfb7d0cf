"""The installed package without extras."""

from __future__ import annotations

import subprocess
import sys

import visar


def test_importing_visar_only_imports_numpy() -> None:
    """Even if other packages are installed."""
    program = (
        "import sys, visar; visar.select; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} "
        "- set(sys.stdlib_module_names)))"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(run.stdout.split()) - {"__main__"} == {"numpy", "visar"}


def test_notebooks_complete_every_public_name() -> None:
    assert {"Client", "Index", "Library", "select"} <= set(visar.__all__) <= set(dir(visar))
