"""Dependencies point one way: no room imports from a room to its right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import visar

PACKAGE = Path(visar.__file__).parent
ROOMS = [
    # Small modules that everything may use.
    {"_version", "errors", "files", "lazy", "text", "network", "plugins", "samples", "serving"},
    {"query", "serialization"},
    {"core"},
    {"trace"},
    {"documents"},
    {"models"},
    {"encoders"},
    {"results", "notebook"},
    {"store"},
    {"ingest"},
    {"quotes"},
    {"retrieval"},
    {"generation"},
    {"library", "public"},
    {"explain"},
    {"index"},
    {"evaluation"},
    {"requests"},
    {"server", "client"},
    {"integrations"},
    {"cli"},
    {"__init__", "__main__"},
]
PLACE = {room: place for place, rooms in enumerate(ROOMS) for room in rooms}


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports, at its top, in functions, or for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    _, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return name if name in PLACE else "__init__"


def test_no_room_imports_from_a_room_to_its_right() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for module in imported(ast.parse(path.read_text(encoding="utf-8")))
        if module.partition(".")[0] == "visar"
        and PLACE[room_of(module)] > PLACE[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    ]
    assert not wrong


def test_every_room_has_its_place() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__pycache__", "py"} <= set(PLACE)
