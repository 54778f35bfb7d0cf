"""The types of the page's modules, as the TypeScript compiler sees their JSDoc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPESCRIPT = "typescript@5.9.3"


def test_the_types_of_the_page_hold() -> None:
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx, of Node.js, is not installed")
    there = [npx, "--yes", "--package", TYPESCRIPT, "--", "tsc"]
    if subprocess.run([*there, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("TypeScript cannot be had from the npm registry")
    checked = subprocess.run(
        [*there, "--project", str(ROOT / "jsconfig.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_modules_stay_short() -> None:
    modules = list(ROOT.glob("src/visar/*/static/*.js"))
    assert modules
    for module in modules:
        assert len(module.read_text(encoding="utf-8").splitlines()) < 300, module.name
