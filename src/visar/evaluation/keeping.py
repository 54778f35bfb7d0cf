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
from typing import Any, Generic, Self

from visar.evaluation.findings import read_records
from visar.evaluation.records import Record, file_stem, key_of
from visar.results import to_plain


def read_by_key(folder: Path, kind: type[Record]) -> dict[tuple[Any, ...], Record]:
    """All records of a kind in a run's folder, by their keys."""
    return {key_of(record): record for record in read_records(folder, kind)}


class Keeper(Generic[Record]):
    """Writes records of one kind, each at once."""

    def __init__(self, folder: Path, kind: type[Record]) -> None:
        self._path = folder / f"{file_stem(kind)}.{_writer()}.jsonl"
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
