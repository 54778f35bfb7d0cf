"""The tracked files of the repository, and uv, which creates environments quickly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def tracked_files() -> list[Path]:
    """Return the paths of all tracked files that exist."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - any git will do
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def uv_program() -> str:
    """Return the path of uv; skip the test if uv is missing or can't install packages."""
    if _UV is None:
        pytest.skip("uv is not installed: pip install uv")
    if not _reaches_packages(_UV):
        pytest.skip("PyPI can't be reached")
    return _UV


@cache
def _reaches_packages(uv: str) -> bool:
    command = [uv, "pip", "install", "--dry-run", "--python", sys.executable, "--refresh", "pip"]
    return not subprocess.run(command, check=False, capture_output=True).returncode
