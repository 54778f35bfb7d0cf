"""What a run was made with: enough to make it again, or to see why another one differs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from visar._version import __version__
from visar.evaluation.findings import MANIFEST, read_manifests
from visar.evaluation.machine import describe_machine
from visar.evaluation.plan import Plan
from visar.evaluation.preparing import Skipped
from visar.files import write_whole
from visar.models.devices import usable_cores
from visar.results import to_plain

_PACKAGES = (
    "numpy",
    "onnxruntime",
    "lancedb",
    "pypdfium2",
    "rapidocr",
    "scikit-learn",
    "torch",
    "transformers",
    "colpali-engine",
    "sentence-transformers",
    "openai",
)


def new_manifest(plan: Plan, encoders: dict[str, str]) -> dict[str, Any]:
    """The beginning of a run; ``encoders`` are their versions by name."""
    return {
        "visar": __version__,
        "started": _now(),
        "finished": None,
        "plan": to_plain(plan),
        "encoders": encoders,
        "seed": 0,
        "pages_at_a_time": _pages_at_a_time(),
        "dtype": "float16 in the index, float32 products, float64 sums",
        "workers": usable_cores(),
        "machine": describe_machine(),
        "packages": _versions(_PACKAGES),
        "skipped": {},
        "failures": {},
    }


def finish(manifest: dict[str, Any], skipped: Skipped, failures: dict[str, str]) -> dict[str, Any]:
    """The manifest of a run that has come to its end."""
    return manifest | {
        "finished": _now(),
        "skipped": to_plain(skipped),
        "failures": failures,
    }


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Keep a manifest; those of earlier calls of the run stay in it."""
    earlier = [
        made for made in read_manifests(folder) if made.get("started") != manifest["started"]
    ]
    content = json.dumps([*earlier, manifest], ensure_ascii=False, indent=2)
    write_whole(folder / MANIFEST, (content + "\n").encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _pages_at_a_time() -> int:
    from visar.index import PAGES_AT_A_TIME

    return PAGES_AT_A_TIME


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
