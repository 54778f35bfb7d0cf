"""The JavaScript modules of the web page: their types, checked with TypeScript, and their size."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPESCRIPT = "typescript@5.9.3"


def test_the_types_are_correct() -> None:
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx, of Node.js, is not installed")
    tsc = [npx, "--yes", "--package", TYPESCRIPT, "--", "tsc"]
    if subprocess.run([*tsc, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("TypeScript can't be installed from the npm registry")
    result = subprocess.run(
        [*tsc, "--project", str(ROOT / "jsconfig.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_modules_stay_short() -> None:
    modules = list(ROOT.glob("src/visar/*/static/*.js"))
    assert modules
    for module in modules:
        assert len(module.read_text(encoding="utf-8").splitlines()) < 300, module.name
