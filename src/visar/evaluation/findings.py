"""What a run's folder holds, read back: the records of every step, and its manifest."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from visar.errors import NotARun
from visar.evaluation.methods import METHODS
from visar.evaluation.records import (
    KEYS,
    Answered,
    Asked,
    Judged,
    Record,
    Retrieved,
    file_stem,
    key_of,
)

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Findings:
    """All that a run has found out."""

    asked: tuple[Asked, ...]
    retrieved: tuple[Retrieved, ...] = ()
    answered: tuple[Answered, ...] = ()
    judged: tuple[Judged, ...] = ()
    manifests: tuple[Mapping[str, Any], ...] = ()
    """Of every call of the run, the last one last."""
    unreadable: tuple[str, ...] = ()
    """Lines that are no JSON: what a crashed writer left in the middle of a file."""

    @cached_property
    def questions(self) -> dict[str, dict[str, Asked]]:
        """By data set and id."""
        found: dict[str, dict[str, Asked]] = {}
        for one in self.asked:
            found.setdefault(one.dataset, {})[one.question] = one
        return {dataset: found[dataset] for dataset in sorted(found)}

    @cached_property
    def choices(self) -> dict[tuple[str, str], dict[str, dict[str, Retrieved]]]:
        """By (data set, encoder), method and question."""
        found: dict[tuple[str, str], dict[str, dict[str, Retrieved]]] = {}
        for one in filter(self._is_of_run, self.retrieved):
            by_method = found.setdefault((one.dataset, one.encoder), {})
            by_method.setdefault(one.method, {})[one.question] = one
        return {key: _in_order(found[key]) for key in sorted(found)}

    @cached_property
    def answers(self) -> dict[tuple[str, str, str, int], dict[str, dict[str, Answered]]]:
        """By (data set, generator, encoder, budget), method and question."""
        found: dict[tuple[str, str, str, int], dict[str, dict[str, Answered]]] = {}
        for one in filter(self._is_of_run, self.answered):
            key = (one.dataset, one.generator, one.encoder, one.max_k)
            found.setdefault(key, {}).setdefault(one.method, {})[one.question] = one
        return {key: _in_order(found[key]) for key in sorted(found)}

    @cached_property
    def verdicts(self) -> dict[tuple[str, str, str, str, int], dict[str, dict[str, bool]]]:
        """By (data set, generator, judge, encoder, budget), method and question."""
        found: dict[tuple[str, str, str, str, int], dict[str, dict[str, bool]]] = {}
        for one in filter(self._is_of_run, self.judged):
            key = (one.dataset, one.generator, one.judge, one.encoder, one.max_k)
            found.setdefault(key, {}).setdefault(one.method, {})[one.question] = one.correct
        return {key: _in_order(found[key]) for key in sorted(found)}

    def _is_of_run(self, record: Retrieved | Answered | Judged) -> bool:
        return record.question in self.questions.get(record.dataset, {})

    @cached_property
    def strays(self) -> int:
        """How many records are of questions that the run does not ask: they do not count."""
        kinds = (self.retrieved, self.answered, self.judged)
        return sum(not self._is_of_run(record) for records in kinds for record in records)

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.questions)

    @cached_property
    def encoders(self) -> tuple[str, ...]:
        return tuple(sorted({encoder for _, encoder in self.choices}))


def read_findings(folder: Path) -> Findings:
    """All records of a run's folder and its manifest."""
    if not folder.is_dir():
        raise NotARun(f"{folder} is not a folder: give the folder of `visar eval run`.")
    read = {kind: _read(folder, kind) for kind in KEYS}
    if not read[Asked][0]:
        raise NotARun(
            f"{folder} holds no run: there is no question in asked.jsonl. Start one with "
            "`visar eval run`, or give another folder."
        )
    return Findings(
        asked=tuple(read[Asked][0]),
        retrieved=tuple(read[Retrieved][0]),
        answered=tuple(read[Answered][0]),
        judged=tuple(read[Judged][0]),
        manifests=read_manifests(folder),
        unreadable=tuple(line for _, unreadable in read.values() for line in unreadable),
    )


def read_records(folder: Path, kind: type[Record]) -> list[Record]:
    """The records of a kind in a run's folder, from ``asked*.jsonl``, ``retrieved*.jsonl`` ….

    Of records with the same key the last one counts, by the files' names and then their lines.
    What a crashed writer left of a line is passed over.
    """
    records: list[Record] = _read(folder, kind)[0]
    return records


def _read(folder: Path, kind: type[Any]) -> tuple[list[Any], list[str]]:
    found: dict[tuple[Any, ...], Any] = {}
    unreadable: list[str] = []
    for path in sorted(folder.glob(f"{file_stem(kind)}*.jsonl")):
        for number, line, is_complete in _lines(path):
            where = f"{path.name}, line {number}"
            try:
                raw = json.loads(line)
            except ValueError:
                if is_complete:
                    unreadable.append(where)
                continue
            record = _record(kind, raw, where)
            found[key_of(record)] = record
    return list(found.values()), unreadable


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line, line.endswith(b"\n")


def _record(kind: type[Any], raw: object, where: str) -> Any:
    if not isinstance(raw, dict):
        raise NotARun(f"{where}: a record must be a JSON object, not {type(raw).__name__}.")
    values = {}
    for one in fields(kind):
        if one.name in raw:
            values[one.name] = _value(raw[one.name], str(one.type), f"{where}, {one.name!r}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise NotARun(f"{where}: there is no {one.name!r}. Was it written by another version?")
    return kind(**values)


def _value(value: Any, declared: str, where: str) -> Any:
    """The value of a field as its type says, which is how the records' module writes it."""
    if value is None and declared.endswith("| None"):
        return None
    declared = declared.removesuffix(" | None")
    if declared == "tuple[int, ...]" and isinstance(value, list) and all(map(_is_int, value)):
        return tuple(value)
    if declared == "Mapping[str, float]" and isinstance(value, dict):
        if all(map(_is_number, value.values())):
            return value
    elif (
        (declared == "str" and isinstance(value, str))
        or (declared == "bool" and isinstance(value, bool))
        or (declared == "int" and _is_int(value))
        or (declared == "float" and _is_number(value))
    ):
        return value
    raise NotARun(f"{where} must be {declared}, not {str(value)[:40]!r}.")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def read_manifests(folder: Path) -> tuple[dict[str, Any], ...]:
    """What each call of a run was made with, the last one last."""
    path = folder / MANIFEST
    if not path.exists():
        return ()
    try:
        read = json.loads(path.read_bytes())
    except ValueError as error:
        raise NotARun(f"{path} is no JSON ({error}): restore it or take it away.") from None
    manifests = read if isinstance(read, list) else [read]
    if not all(isinstance(one, dict) for one in manifests):
        raise NotARun(f"{path} must hold JSON objects: restore it or take it away.")
    return tuple(manifests)


_ORDER = {key: place for place, key in enumerate(METHODS)}

Value = TypeVar("Value")


def _in_order(by_method: dict[str, Value]) -> dict[str, Value]:
    """Methods in the order of METHODS; those that this version does not know come last."""
    return {key: by_method[key] for key in method_order(by_method)}


def method_order(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (_ORDER.get(key, len(_ORDER)), key))
