"""Build the bundle that desktop assistants install with a click: ``make mcpb``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from visar._version import __version__

HERE = Path(__file__).parent
ROOT = HERE.parent


def build(target: Path) -> Path:
    """Write the bundle: the manifest, the environment's description and the package's source."""
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    manifest["version"] = __version__
    package = [
        *(ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")),
        *sorted(
            path
            for path in (ROOT / "src" / "visar").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ),
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(target, "w", ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", json.dumps(manifest, indent=2))
        bundle.write(HERE / "pyproject.toml", "pyproject.toml")
        for path in package:
            bundle.write(path, f"visar/{path.relative_to(ROOT).as_posix()}")
    return target


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]))}\n")
