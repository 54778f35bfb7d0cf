"""The state of a run: which of its results are done, stale or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from visar.errors import NotARun
from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import Manifest, read_manifests
from visar.evaluation.records import Answered, Asked, Judged, Retrieved, key_of, read_lines

CORRECTED = ", corrected"
"""Suffix of the name of a data set with corrections; it has the published one's documents."""

Result = TypeVar("Result", Retrieved, Answered, Judged)
Setting = tuple[Any, ...]


@dataclass
class RunState:
    """The questions of a run, the results that count, and the number of those that do not."""

    asked: dict[tuple[str, str], Asked]
    """Questions by data set and id."""
    calls: tuple[Manifest, ...]
    """Manifests of all calls of the run, the last one last."""
    definitions: Definitions
    """How results are computed now: those of the last call that names each."""
    retrieved: dict[Setting, Retrieved] = field(default_factory=dict)
    answered: dict[Setting, Answered] = field(default_factory=dict)
    judged: dict[Setting, Judged] = field(default_factory=dict)
    stale: Counter[str] = field(default_factory=Counter)
    """Number of results by kind whose inputs have changed since."""
    unreadable: tuple[str, ...] = ()
    """Lines that are not JSON: what a crashed writer left in the middle of a file."""
    known: dict[str, Retrieved | Answered | Judged] = field(default_factory=dict)
    """One result for each digest of inputs, whatever setting it was computed for."""

    def inputs(self, record: Retrieved | Answered | Judged) -> str | None:
        """Return the digest of the inputs that a record's setting has now.

        None if the question is gone, or the result that the record depends on is missing.
        """
        asked = self.asked.get((record.dataset, record.question))
        if asked is None:
            return None
        if isinstance(record, Retrieved):
            return self.definitions.retrieval(asked, record.encoder, record.method)
        if isinstance(record, Answered):
            chosen = self.retrieved.get(key_of(record)[:4])
            if chosen is None:
                return None
            pages = chosen.pages[: record.max_k]
            return self.definitions.answer(
                asked, record.encoder, record.generator, record.prompt, pages
            )
        answered = self.answered.get(key_of(record)[:-1])
        if answered is None:
            return None
        return self.definitions.verdict(asked, answered, record.judge)

    def keep(self, results: Iterable[Retrieved | Answered | Judged]) -> None:
        """Count results as current."""
        for one in results:
            self.known[one.inputs] = one
            if isinstance(one, Retrieved):
                self.retrieved[key_of(one)] = one
            elif isinstance(one, Answered):
                self.answered[key_of(one)] = one
            else:
                self.judged[key_of(one)] = one

    def read(self, folder: Path, kind: type[Result]) -> None:
        """Read the results of a kind and keep those whose inputs are what they are now."""
        found, unreadable = read_lines(folder, kind)
        self.unreadable += tuple(unreadable)
        current = [one for one in found if self.inputs(one) == one.inputs]
        for one in found:
            self.known.setdefault(one.inputs, one)
        self.keep(current)
        self.stale[kind.__name__.lower()] += len(found) - len(current)


def read_state(folder: Path) -> RunState:
    """Read the records and manifests of a run's folder.

    Raises NotARun if the folder holds no run, or a file in it is not what it should be.
    """
    if not folder.is_dir():
        raise NotARun(f"{folder} is not a folder. Pass the folder of `visar eval run`.")
    asked, unreadable = read_lines(folder, Asked)
    if not asked:
        raise NotARun(
            f"No run in {folder}: no question in asked*.jsonl. Start one with `visar eval run`, or "
            "pass another folder."
        )
    calls = tuple(Manifest.model_validate(one) for one in read_manifests(folder))
    definitions = Definitions()
    for call in calls:
        definitions = definitions.updated(call.definitions)
    state = RunState(
        asked={(one.dataset, one.question): one for one in asked if not one.dropped},
        calls=calls,
        definitions=definitions,
        unreadable=tuple(unreadable),
    )
    # In this order: an answer depends on pages, a verdict on an answer.
    state.read(folder, Retrieved)
    state.read(folder, Answered)
    state.read(folder, Judged)
    return state


def questions_of(call: Manifest, asked: Iterable[Asked]) -> list[Asked]:
    """Return the questions of a call's data sets, with corrections or without."""
    return [one for one in asked if one.dataset.removesuffix(CORRECTED) in call.data]


def planned_retrievals(call: Manifest, asked: Iterable[Asked]) -> Iterator[Setting]:
    """Yield the settings of the retrievals that a call asks for."""
    for one in questions_of(call, asked):
        for encoder in call.definitions.encoders:
            for name, method in call.definitions.methods.items():
                if method.needs_evidence and not one.evidence_pages:
                    continue
                if method.max_pages is not None and one.pages > method.max_pages:
                    continue
                yield (*key_of(one), encoder, name)


def planned_answers(call: Manifest, asked: Iterable[Asked]) -> Iterator[Setting]:
    """Yield the settings of the answers that a call asks for."""
    methods = call.definitions.methods
    for setting in planned_retrievals(call, asked):
        if methods[setting[-1]].answered:
            for generator, prompts in call.definitions.generators.items():
                for max_k in call.plan["max_k"]:
                    yield from ((*setting, generator, max_k, prompt) for prompt in prompts)


def planned_verdicts(call: Manifest, asked: Iterable[Asked]) -> Iterator[Setting]:
    """Yield the settings of the verdicts that a call asks for."""
    # Where the data set has no answer, there is nothing to judge by.
    answerable = [one for one in asked if one.answers_digest]
    for setting in planned_answers(call, answerable):
        yield from ((*setting, judge) for judge in call.definitions.judges)


@dataclass(frozen=True)
class Progress:
    """How much of a kind of work is done."""

    done: int
    stale: int
    """Results in the folder whose inputs have changed; they are not counted."""
    missing_by_setting: Mapping[str, int]
    """Results that the calls of the run ask for and the folder does not have, by setting."""

    @property
    def missing(self) -> int:
        """Number of missing results."""
        return sum(self.missing_by_setting.values())


def progress(state: RunState) -> dict[str, Progress]:
    """Return what is done, stale and missing, by kind of result."""
    asked = list(state.asked.values())
    kinds = (
        ("retrievals", planned_retrievals, state.retrieved, "retrieved"),
        ("answers", planned_answers, state.answered, "answered"),
        ("verdicts", planned_verdicts, state.judged, "judged"),
    )
    found = {}
    for name, planned, current, stale in kinds:
        settings = {setting for call in state.calls for setting in planned(call, asked)}
        missing = Counter(
            " · ".join(str(part) for part in (setting[0], *setting[2:]))
            for setting in settings - current.keys()
        )
        found[name] = Progress(len(current), state.stale[stale], dict(missing))
    return found
