"""Verdicts kept by content, so that no case is judged twice.

One small JSON file a verdict, written beside and renamed into place: a reader sees a whole verdict
or none, whatever is interrupted, and writers on several machines can share a network folder, where
a database in WAL mode cannot live. Verdicts cost seconds each, so that a file each costs nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from visar.errors import InvalidOption
from visar.evaluation.judge.protocol import Judge, Verdict, usable_references
from visar.files import write_whole


class CachedJudge:
    """A judge that looks first whether the same judge was asked the same before.

    Threads of a process never ask the same at once. Processes may: then the last one's verdict
    stays. An entry that is damaged counts as none: it is judged again and replaced.
    """

    def __init__(self, judge: Judge, folder: Path | str) -> None:
        self._judge = judge
        self._folder = Path(folder)
        self._guard = Lock()
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    @property
    def name(self) -> str:
        return self._judge.name

    def judge(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        """The verdict that is kept, or a new one, which is kept from then on."""
        usable = usable_references(question, references)
        key = case_key(self.name, question, usable, answer)
        path = self._folder / key[:2] / f"{key}.json"
        with self._guard:
            lock = self._locks[key]
        with lock:
            kept = self._read(path, key)
            if kept is not None:
                return kept
            verdict = self._judge.judge(question, usable, answer)
            self._write(path, key, verdict)
            return verdict

    def _write(self, path: Path, key: str, verdict: Verdict) -> None:
        plain = dataclasses.asdict(verdict)
        entry = {"key": key, "verdict": plain, "sha256": _checksum(key, plain)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(entry, indent=1).encode("ascii"))
        except OSError as error:
            raise self._unusable(error) from error

    def _read(self, path: Path, key: str) -> Verdict | None:
        try:
            return _verdict(path.read_bytes(), key)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> InvalidOption:
        return InvalidOption(
            f"Verdicts cannot be kept in {self._folder}: {error}. Choose another folder."
        )


def case_key(judge: str, question: str, references: Sequence[str], answer: str) -> str:
    """The sha256 of everything a verdict depends on."""
    return _sha256([judge, question, list(references), answer])


def _sha256(value: Any) -> str:
    # As ASCII: a lone surrogate in a text cannot be written as UTF-8.
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()


def _checksum(key: str, verdict: dict[str, Any]) -> str:
    return _sha256([key, verdict])


def _verdict(content: bytes, key: str) -> Verdict | None:
    """The verdict in a file; None if it is not whole, or not of this case."""
    try:
        entry = json.loads(content)
        if entry["key"] != key or entry["sha256"] != _checksum(key, entry["verdict"]):
            return None
        return Verdict(**entry["verdict"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
