"""Verdicts kept in files, so that no case is judged twice.

Each verdict is a small JSON file, written beside and renamed into place: readers see it whole or
not at all, and several machines can share a network folder, where a SQLite database in WAL mode
does not work.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from visar.errors import InvalidOption, VisarError
from visar.evaluation.judge.protocol import BatchJudge, Case, Judge, Verdict, judge_each
from visar.files import write_whole


class CachedJudge(BatchJudge):
    """A judge that first looks in a folder for a kept verdict of the same judge on the same case.

    Threads never judge a case twice; processes that come to it at the same time may, and the last
    verdict stays. An entry that is damaged is judged again and replaced.
    """

    def __init__(self, judge: Judge, folder: Path | str) -> None:
        self._judge = judge
        self._folder = Path(folder)
        # One for each first byte of a key.
        self._locks = [Lock() for _ in range(256)]

    @property
    def name(self) -> str:
        return self._judge.name

    def judge_batch(self, cases: Sequence[Case]) -> list[Verdict | VisarError]:
        """Give the kept verdict on each case, or a new one and keep it.

        Raises InvalidOption if the folder cannot be used.
        """
        keys = [
            # Without blank references; where all are blank, the judge refuses the case.
            case_key(self.name, one.question, list(filter(str.strip, one.references)), *one[2:])
            for one in cases
        ]
        verdicts: dict[str, Verdict | VisarError] = {}
        with ExitStack() as held:
            # In order: two threads never wait for each other.
            for place in sorted({int(key[:2], 16) for key in keys}):
                held.enter_context(self._locks[place])
            with self._usable_folder():
                for key in keys:
                    if kept := _read(self._path(key), key):
                        verdicts[key] = kept
            new = {key: case for key, case in zip(keys, cases, strict=True) if key not in verdicts}
            if new:
                judged = judge_each(self._judge, list(new.values()))
                verdicts.update(zip(new, judged, strict=True))
            with self._usable_folder():
                for key in new:
                    verdict = verdicts[key]
                    if isinstance(verdict, Verdict):
                        _write(self._path(key), key, verdict)
        return [verdicts[key] for key in keys]

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"

    @contextmanager
    def _usable_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InvalidOption(
                f"Verdicts cannot be kept in {self._folder}: {error}. Choose another folder."
            ) from error


def case_key(
    judge: str, question: str, references: Sequence[str], answer: str, kind: str | None = None
) -> str:
    """The sha256 of everything a verdict depends on."""
    return _sha256([judge, question, list(references), answer, kind])


def _write(path: Path, key: str, verdict: Verdict) -> None:
    plain = dataclasses.asdict(verdict)
    entry = {"verdict": plain, "sha256": _sha256([key, plain])}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(entry, indent=1).encode("ascii"))


def _read(path: Path, key: str) -> Verdict | None:
    """The verdict in a file; None if there is none, it is not whole, or of another case."""
    try:
        entry = json.loads(path.read_bytes())
        if entry["sha256"] == _sha256([key, entry["verdict"]]):
            return Verdict(**entry["verdict"])
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return None


def _sha256(value: Any) -> str:
    # As ASCII: a lone surrogate in a text cannot be written as UTF-8.
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()
