"""What a run's folder holds, read back: the records of every step, and its manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from visar.errors import NotARun
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Asked, Judged, Retrieved

Record = TypeVar("Record", Asked, Retrieved, Answered, Judged)

MANIFEST = "manifest.json"

# What tells two records of a kind apart. A corrected question has a second record.
_KEYS: dict[type[Any], tuple[str, ...]] = {
    Asked: ("dataset", "question", "corrected"),
    Retrieved: ("dataset", "question", "encoder", "method"),
    Answered: ("dataset", "question", "encoder", "method", "generator", "max_k"),
    Judged: ("dataset", "question", "encoder", "method", "generator", "max_k", "judge"),
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """Questions of a data set that the run could not ask."""

    dataset: str
    reason: str
    questions: int


@dataclass(frozen=True)
class Findings:
    """All that a run has found out."""

    asked: tuple[Asked, ...]
    retrieved: tuple[Retrieved, ...] = ()
    answered: tuple[Answered, ...] = ()
    judged: tuple[Judged, ...] = ()
    manifest: Mapping[str, Any] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Lines that are no JSON: what a crashed writer left in the middle of a file."""

    @cached_property
    def questions(self) -> dict[str, dict[str, Asked]]:
        """By data set and id, corrected where there are corrections."""
        found: dict[str, dict[str, Asked]] = {}
        for one in sorted(self.asked, key=lambda one: one.corrected):
            found.setdefault(one.dataset, {})[one.question] = one
        return {dataset: found[dataset] for dataset in sorted(found)}

    @cached_property
    def choices(self) -> dict[tuple[str, str], dict[str, dict[str, Retrieved]]]:
        """By (data set, encoder), method and question."""
        found: dict[tuple[str, str], dict[str, dict[str, Retrieved]]] = {}
        for one in self.retrieved:
            by_method = found.setdefault((one.dataset, one.encoder), {})
            by_method.setdefault(one.method, {})[one.question] = one
        return {key: _in_order(found[key]) for key in sorted(found)}

    @cached_property
    def answers(self) -> dict[tuple[str, str, str, int], dict[str, dict[str, Answered]]]:
        """By (data set, generator, encoder, budget), method and question."""
        found: dict[tuple[str, str, str, int], dict[str, dict[str, Answered]]] = {}
        for one in self.answered:
            key = (one.dataset, one.generator, one.encoder, one.max_k)
            found.setdefault(key, {}).setdefault(one.method, {})[one.question] = one
        return {key: _in_order(found[key]) for key in sorted(found)}

    @cached_property
    def verdicts(self) -> dict[tuple[str, str, str, str, int], dict[str, dict[str, bool]]]:
        """By (data set, generator, judge, encoder, budget), method and question."""
        found: dict[tuple[str, str, str, str, int], dict[str, dict[str, bool]]] = {}
        for one in self.judged:
            key = (one.dataset, one.generator, one.judge, one.encoder, one.max_k)
            found.setdefault(key, {}).setdefault(one.method, {})[one.question] = one.correct
        return {key: _in_order(found[key]) for key in sorted(found)}

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.questions)

    @cached_property
    def encoders(self) -> tuple[str, ...]:
        return tuple(sorted({encoder for _, encoder in self.choices}))

    @cached_property
    def skipped(self) -> tuple[Skipped, ...]:
        """From the manifest's ``skipped``: a list of {dataset, reason, questions}."""
        listed = self.manifest.get("skipped", [])
        return tuple(
            Skipped(str(one["dataset"]), str(one["reason"]), int(one.get("questions", 1)))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, dict) and {"dataset", "reason"} <= one.keys()
        )

    @cached_property
    def has_corrections(self) -> bool:
        return any(one.corrected for one in self.asked)

    def as_published(self) -> Findings:
        """The same without corrections.

        A question of which only the corrected form is known is left out, and so is what Oracle
        chose for a corrected question: it was chosen for the corrected pages.
        """
        changed = {(one.dataset, one.question) for one in self.asked if one.corrected}
        return Findings(
            asked=tuple(one for one in self.asked if not one.corrected),
            retrieved=tuple(
                one
                for one in self.retrieved
                if (one.dataset, one.question) not in changed
                or one.method not in METHODS
                or METHODS[one.method].rule != "oracle"
            ),
            manifest=self.manifest,
        )


def read_findings(folder: Path) -> Findings:
    """All records of a run's folder and its manifest."""
    if not folder.is_dir():
        raise NotARun(f"{folder} is not a folder: give the folder of `visar eval run`.")
    read = {kind: _read(folder, kind) for kind in _KEYS}
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
        manifest=_read_manifest(folder / MANIFEST),
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
    key = _KEYS[kind]
    found: dict[tuple[Any, ...], Any] = {}
    unreadable: list[str] = []
    for path in sorted(folder.glob(f"{kind.__name__.lower()}*.jsonl")):
        for number, line, is_complete in _lines(path):
            where = f"{path.name}, line {number}"
            try:
                raw = json.loads(line)
            except ValueError:
                if is_complete:
                    unreadable.append(where)
                continue
            record = _record(kind, raw, where)
            found[tuple(getattr(record, name) for name in key)] = record
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
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise NotARun(f"{path} is no JSON ({error}): restore it or take it away.") from None
    if not isinstance(manifest, dict):
        raise NotARun(f"{path} must hold a JSON object, not {type(manifest).__name__}.")
    return manifest


_ORDER = {key: place for place, key in enumerate(METHODS)}

Value = TypeVar("Value")


def _in_order(by_method: dict[str, Value]) -> dict[str, Value]:
    """Methods in the order of METHODS; those that this version does not know come last."""
    return {key: by_method[key] for key in method_order(by_method)}


def method_order(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (_ORDER.get(key, len(_ORDER)), key))
