"""The machine that numbers were measured on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from visar.models.devices import usable_cores


def describe_machine() -> dict[str, str | int | float | None]:
    """What of a machine matters for times, and for who wants to get the same numbers."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": round(memory / 2**30, 1),
        "gpu": _gpu(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    """The graphics processor, if torch is in use anyway."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))
