"""Hardware detection, with a fake nvidia-smi."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from visar.models.devices import usable_cores
from visar.models.machine import this_machine

# Without torch, which takes precedence over nvidia-smi if it is installed.
LOOK = """
import sys
sys.modules["torch"] = None
from visar.models.machine import this_machine
print(this_machine().card)
"""


@pytest.mark.parametrize(
    ("script", "card"),
    [
        (
            'echo "NVIDIA GeForce RTX 4060, 8188"; echo "Another, 1024"',
            f"GraphicsCard(name='NVIDIA GeForce RTX 4060', memory={8188 * 2**20})",
        ),
        ("echo No devices were found; exit 6", "None"),
        ("echo [N/A]", "None"),
        ("true", "None"),
        (None, "None"),
    ],
)
def test_the_card_is_read_from_nvidia_smi(tmp_path: Path, script: str | None, card: str) -> None:
    if script is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    process = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=os.environ | {"PATH": str(tmp_path) + (":/bin" if script else "")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == f"{card}\n"


def test_this_machine_has_cores_and_memory() -> None:
    found = this_machine()
    assert found.cores == usable_cores()
    assert found.memory is None or found.memory > 2**29
    assert f"{found.cores} cores" in found.summary
