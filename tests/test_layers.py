"""Layers: no module imports from a layer above its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import visar

PACKAGE = Path(visar.__file__).parent
LAYERS = [
    # Small modules that all others may import.
    {"_version", "errors", "files", "lazy", "text", "network", "plugins", "samples", "serving"},
    {"telemetry"},
    {"forks", "query", "serialization"},
    {"core"},
    {"trace"},
    {"documents"},
    {"models"},
    {"encoders"},
    {"results", "notebook"},
    {"store"},
    {"access", "ingest"},
    {"quotes"},
    {"retrieval"},
    {"generation"},
    {"library", "threads"},
    {"explain"},
    {"index"},
    {"evaluation"},
    {"requests"},
    {"server", "client"},
    {"integrations"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports, including those in functions and for type checking."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def level_of_module(module: str) -> int:
    _, _, rest = module.partition(".")
    return LEVELS.get(rest.partition(".")[0], LEVELS["__init__"])


def level_of_file(path: Path) -> int:
    return LEVELS[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]


def test_no_module_imports_from_a_layer_above() -> None:
    violations = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for module in imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if module.partition(".")[0] == "visar" and level_of_module(module) > level_of_file(path)
    ]
    assert not violations


def test_every_module_belongs_to_a_layer() -> None:
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names - {"__pycache__", "py"} <= set(LEVELS)
