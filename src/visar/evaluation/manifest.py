"""Manifests of the calls of a run: settings, versions, machine, and what was skipped."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from visar._version import __version__
from visar.errors import NotARun
from visar.evaluation.inputs import Definitions
from visar.evaluation.records import describe_problem
from visar.files import write_whole
from visar.models.devices import usable_cores
from visar.models.machine import memory_bytes

_PACKAGES = (
    "numpy",
    "onnxruntime",
    "pypdfium2",
    "rapidocr",
    "pandas",
    "scikit-learn",
    "scipy",
    "statsmodels",
    "torch",
    "transformers",
    "colpali-engine",
    "sentence-transformers",
    "openai",
)


class DataRead(BaseModel):
    """A data set as read, before corrections."""

    source: str
    """The name or path, as given."""
    questions: int
    """The number of questions, including those whose documents are missing."""
    edition: str | None = None
    """The known published edition of the benchmark with this number of questions."""
    revision: str | None = None
    """The commit of the data on the hub, if downloaded."""
    digest: str = ""
    """A digest of all questions, evidence pages and reference answers."""


class Skipped(BaseModel):
    """What a run skipped, and why."""

    missing: dict[str, list[str]] = Field(default_factory=dict)
    """Missing documents, by data set."""
    refused: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Unreadable documents with the reason, by data set."""
    pages_outside: dict[str, list[str]] = Field(default_factory=dict)
    """Questions with evidence on pages outside their document, by data set."""
    invalid_pages: dict[str, int] = Field(default_factory=dict)
    """The number of pages that couldn't be encoded, by encoder."""


def _packages() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    """Return the time for manifests."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def describe_machine() -> dict[str, str | int | float | None]:
    """Return the facts about this machine that affect times and reproducibility."""
    memory = memory_bytes()
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": "unknown" if memory is None else round(memory / 2**30, 1),
        "gpu": _gpu(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


class Manifest(BaseModel):
    """The manifest of a call of a run."""

    # Other versions may have written additional fields.
    model_config = ConfigDict(extra="allow")

    visar: str = __version__
    commit: str | None = Field(default_factory=lambda: _commit())
    """The commit of the source tree; None for an installed package."""
    started: str = Field(default_factory=now)
    finished: str | None = None
    """The time it finished; None if it is running or was interrupted."""
    plan: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, DataRead] = Field(default_factory=dict)
    """The data that was read, by data set."""
    definitions: Definitions = Field(default_factory=Definitions)
    """The definitions that its results were computed with."""
    models: dict[str, str] = Field(default_factory=dict)
    """Checkpoints of encoders and generators, with their commits if any."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """Addresses of remote encoders, by name."""
    dtype: str = "float16 in the index, float32 products, float64 sums"
    workers: int = Field(default_factory=usable_cores)
    machine: dict[str, Any] = Field(default_factory=describe_machine)
    packages: dict[str, str] = Field(default_factory=_packages)
    skipped: Skipped = Field(default_factory=Skipped)
    failures: dict[str, str] = Field(default_factory=dict)
    """The number of failures and the last reason, by generator, judge or encoder."""


def write_manifest(folder: Path, writer: str, manifest: Manifest) -> None:
    """Write the manifest of a call; ``writer`` is the name of its record files."""
    content = manifest.model_dump_json(indent=2) + "\n"
    write_whole(folder / f"manifest.{writer}.json", content.encode())


def read_manifests(folder: Path) -> tuple[dict[str, Any], ...]:
    """Read the manifests of all calls of a run as plain values, in order.

    Raises NotARun if a file ``manifest*.json`` isn't a valid manifest.
    """
    found = []
    for path in sorted(folder.glob("manifest*.json")):
        try:
            read = Manifest.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise NotARun(
                f"{path} isn't a valid manifest: {describe_problem(error)} Restore or delete it."
            ) from None
        # Exclude defaults, because they describe this machine and not the original one.
        found.append(read.model_dump(mode="json", exclude_unset=True))
    return tuple(sorted(found, key=lambda manifest: str(manifest.get("started", ""))))


def _commit() -> str | None:
    """Return the commit of this package's source tree, marked if there are changes."""
    root = Path(__file__).parents[3]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None

    def run_git(*arguments: str) -> str:
        command = [git, "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603

    commit = run_git("rev-parse", "HEAD")
    changed = run_git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return f"{commit} with changes" if commit and changed else commit or None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    """Return the name of the GPU; None if torch isn't loaded or has no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))
