"""What each call of a run was made with, and what it left out: one file for each call."""

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
    """A data set as it was read, before any correction."""

    source: str
    """Its name or path, as it was given."""
    questions: int
    """All of them, with those whose documents are missing."""
    edition: str | None = None
    """The published edition of a benchmark with this number of questions, if it is known."""
    revision: str | None = None
    """Commit of the data at the hub, if they came from there."""
    digest: str = ""
    """Digest of all questions, evidence pages and reference answers."""


class Skipped(BaseModel):
    """What takes no part in a run, and why."""

    missing: dict[str, list[str]] = Field(default_factory=dict)
    """By data set: documents that are not there."""
    refused: dict[str, dict[str, str]] = Field(default_factory=dict)
    """By data set: documents that cannot be read, with the reason."""
    pages_outside: dict[str, list[str]] = Field(default_factory=dict)
    """By data set: questions with evidence on pages that their document does not have."""
    invalid_pages: dict[str, int] = Field(default_factory=dict)
    """By encoder: pages it could make nothing of."""


def _packages() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def describe_machine() -> dict[str, str | int | float | None]:
    """Return what of this machine matters for times, and for getting the same numbers again."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": _memory_gib(),
        "gpu": _gpu(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


class Manifest(BaseModel):
    """One call of a run."""

    # Another version may have written more.
    model_config = ConfigDict(extra="allow")

    visar: str = __version__
    commit: str | None = Field(default_factory=lambda: _commit())
    """Commit of the source tree that ran; None for an installed package."""
    started: str = Field(default_factory=_now)
    finished: str | None = None
    """None while it runs, and for good if it was interrupted."""
    plan: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, DataRead] = Field(default_factory=dict)
    """By data set."""
    definitions: Definitions = Field(default_factory=Definitions)
    """How its results were computed."""
    models: dict[str, str] = Field(default_factory=dict)
    """Checkpoints of the encoders and generators, with their commits where they have one."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """Where encoders that run elsewhere were reached, by name."""
    dtype: str = "float16 in the index, float32 products, float64 sums"
    workers: int = Field(default_factory=usable_cores)
    machine: dict[str, Any] = Field(default_factory=describe_machine)
    packages: dict[str, str] = Field(default_factory=_packages)
    skipped: Skipped = Field(default_factory=Skipped)
    failures: dict[str, str] = Field(default_factory=dict)
    """By generator, judge or encoder: how often it failed, and the last reason."""


def write_manifest(folder: Path, writer: str, manifest: Manifest) -> None:
    """Write the manifest of a call; ``writer`` is the name its records are written under."""
    content = manifest.model_dump_json(indent=2) + "\n"
    write_whole(folder / f"manifest.{writer}.json", content.encode())


def finish(
    manifest: Manifest, skipped: Skipped, failures: dict[str, str], *, interrupted: bool = False
) -> Manifest:
    """Return the manifest of a call that has come to its end, or was interrupted."""
    finished = None if interrupted else _now()
    return manifest.model_copy(
        update={"finished": finished, "skipped": skipped, "failures": failures}
    )


def read_manifests(folder: Path) -> tuple[dict[str, Any], ...]:
    """Read the manifests of all calls of a run, as plain values, the last one last.

    Raises NotARun if a file ``manifest*.json`` does not hold a manifest.
    """
    found = []
    for path in sorted(folder.glob("manifest*.json")):
        try:
            read = Manifest.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise NotARun(
                f"{path} is no manifest: {describe_problem(error)} Restore it or take it away."
            ) from None
        # What is not in the file is unknown, not as it is here and now.
        found.append(read.model_dump(mode="json", exclude_unset=True))
    return tuple(sorted(found, key=lambda manifest: str(manifest.get("started", ""))))


def _commit() -> str | None:
    """Return the commit of the source tree this package runs from, marked if it has changes."""
    root = Path(__file__).parents[3]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None

    def ask(*arguments: str) -> str:
        command = [git, "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603

    commit = ask("rev-parse", "HEAD")
    changed = ask("status", "--porcelain", "--untracked-files=no", "--", "src")
    return f"{commit} with changes" if commit and changed else commit or None


def _memory_gib() -> float | str:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return "unknown"
    return round(memory / 2**30, 1)


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
