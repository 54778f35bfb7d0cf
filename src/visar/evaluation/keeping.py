"""A run's folder: records are written as they are made, and found again.

Each process writes files of its own, so that several, on one machine or more, can work on one run:
put their files into one folder, and the run is complete. A line is written whole or, by a crash,
cut off; a cut-off line is passed over, and its work done again.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from visar.evaluation.records import Answered, Asked, Judged, Retrieved
from visar.results import to_plain

Record = TypeVar("Record", Asked, Retrieved, Answered, Judged)

_FILES: dict[type, str] = {
    Asked: "asked",
    Retrieved: "retrieved",
    Answered: "answered",
    Judged: "judged",
}
KEYS: dict[type, tuple[str, ...]] = {
    Asked: ("dataset", "question"),
    Retrieved: ("dataset", "question", "encoder", "method"),
    Answered: ("dataset", "question", "encoder", "method", "generator", "max_k"),
    Judged: ("dataset", "question", "encoder", "method", "generator", "max_k", "judge"),
}
"""What tells records of a kind apart."""


def key_of(record: Asked | Retrieved | Answered | Judged) -> tuple[Any, ...]:
    """What a record is kept under; a later one under the same key replaces it."""
    return tuple(getattr(record, name) for name in KEYS[type(record)])


def read_records(folder: Path, kind: type[Record]) -> dict[tuple[Any, ...], Record]:
    """All records of a kind in a run's folder, by their keys."""
    found: dict[tuple[Any, ...], Record] = {}
    for path in sorted(folder.glob(f"{_FILES[kind]}*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                record = kind(**_values(json.loads(line)))
            except (ValueError, TypeError):
                continue
            found[key_of(record)] = record
    return found


def _values(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict):
        raise TypeError
    return {key: tuple(v) if isinstance(v, list) else v for key, v in line.items()}


class Keeper(Generic[Record]):
    """Writes records of one kind, each at once."""

    def __init__(self, folder: Path, kind: type[Record]) -> None:
        self._path = folder / f"{_FILES[kind]}.{_writer()}.jsonl"
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def keep(self, records: Iterable[Record]) -> None:
        """Write records so that they are there even if the process ends right after."""
        lines = "".join(
            json.dumps(to_plain(record), ensure_ascii=False) + "\n" for record in records
        )
        if not lines:
            return
        if self._file is None:
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(lines)
        self._file.flush()


def _writer() -> str:
    """A name that no other process writes under."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())
    return f"{host}-{os.getpid()}-{time.time_ns():x}"
