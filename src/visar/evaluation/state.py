"""The state of a run: which results are done, stale or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from visar.errors import NotARun
from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import Manifest, read_manifests
from visar.evaluation.records import (
    FILE_NAMES,
    AnswerRecord,
    QuestionRecord,
    RetrievalRecord,
    VerdictRecord,
    key_of,
    read_lines,
)

CORRECTED = ", corrected"
"""Suffix of a data set's name with corrections. It shares the documents of the published one."""

Result = TypeVar("Result", RetrievalRecord, AnswerRecord, VerdictRecord)
Setting = tuple[Any, ...]


@dataclass
class RunState:
    """The questions of a run, its current results, and the number of stale ones."""

    asked: dict[tuple[str, str], QuestionRecord]
    """The questions by data set and id."""
    calls: tuple[Manifest, ...]
    """The manifests of all calls of the run, in order."""
    definitions: Definitions
    """The current definitions, each from the last call that used it."""
    retrieved: dict[Setting, RetrievalRecord] = field(default_factory=dict)
    answered: dict[Setting, AnswerRecord] = field(default_factory=dict)
    judged: dict[Setting, VerdictRecord] = field(default_factory=dict)
    stale: Counter[str] = field(default_factory=Counter)
    """The number of stale results by kind."""
    unreadable: tuple[str, ...] = ()
    """Locations of lines that aren't JSON, left by crashed writers."""
    known: dict[str, RetrievalRecord | AnswerRecord | VerdictRecord] = field(default_factory=dict)
    """One result for each digest of inputs, regardless of its setting."""

    def inputs(self, record: RetrievalRecord | AnswerRecord | VerdictRecord) -> str | None:
        """Return the current digest of a record's inputs.

        Returns None if the question no longer exists or a result it depends on is missing.
        """
        asked = self.asked.get((record.dataset, record.question))
        if asked is None:
            return None
        if isinstance(record, RetrievalRecord):
            return self.definitions.retrieval(asked, record.encoder, record.method)
        if isinstance(record, AnswerRecord):
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

    def keep(self, results: Iterable[RetrievalRecord | AnswerRecord | VerdictRecord]) -> None:
        """Add current results."""
        for one in results:
            self.known[one.inputs] = one
            if isinstance(one, RetrievalRecord):
                self.retrieved[key_of(one)] = one
            elif isinstance(one, AnswerRecord):
                self.answered[key_of(one)] = one
            else:
                self.judged[key_of(one)] = one

    def read(self, folder: Path, kind: type[Result]) -> None:
        """Read the results of a kind, keeping those whose inputs haven't changed."""
        found, unreadable = read_lines(folder, kind)
        self.unreadable += tuple(unreadable)
        current = [one for one in found if self.inputs(one) == one.inputs]
        for one in found:
            self.known.setdefault(one.inputs, one)
        self.keep(current)
        self.stale[FILE_NAMES[kind]] += len(found) - len(current)


def read_state(folder: Path) -> RunState:
    """Read the records and manifests of a run's folder.

    Raises NotARun if the folder doesn't contain a run, or a file in it is invalid.
    """
    if not folder.is_dir():
        raise NotARun(f"{folder} isn't a folder. Pass the folder of a `visar eval run`.")
    asked, unreadable = read_lines(folder, QuestionRecord)
    if not asked:
        raise NotARun(
            f"No run in {folder}: no questions in asked*.jsonl. Start one with `visar eval run` or "
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
    # The order matters: answers depend on retrievals, and verdicts on answers.
    state.read(folder, RetrievalRecord)
    state.read(folder, AnswerRecord)
    state.read(folder, VerdictRecord)
    return state


def questions_of(call: Manifest, asked: Iterable[QuestionRecord]) -> list[QuestionRecord]:
    """Return the questions of a call's data sets, with or without corrections."""
    return [one for one in asked if one.dataset.removesuffix(CORRECTED) in call.data]


def planned_retrievals(call: Manifest, asked: Iterable[QuestionRecord]) -> Iterator[Setting]:
    """Yield the settings of all retrievals that a call plans."""
    for one in questions_of(call, asked):
        for encoder in call.definitions.encoders:
            for name, method in call.definitions.methods.items():
                if method.needs_evidence and not one.evidence_pages:
                    continue
                if method.max_pages is not None and one.pages > method.max_pages:
                    continue
                yield (*key_of(one), encoder, name)


def planned_answers(call: Manifest, asked: Iterable[QuestionRecord]) -> Iterator[Setting]:
    """Yield the settings of all answers that a call plans."""
    methods = call.definitions.methods
    for setting in planned_retrievals(call, asked):
        if methods[setting[-1]].answered:
            for generator, prompts in call.definitions.generators.items():
                for max_k in call.plan["max_k"]:
                    yield from ((*setting, generator, max_k, prompt) for prompt in prompts)


def planned_verdicts(call: Manifest, asked: Iterable[QuestionRecord]) -> Iterator[Setting]:
    """Yield the settings of all verdicts that a call plans."""
    # Questions without a reference answer can't be judged.
    with_reference = [one for one in asked if one.answers_digest]
    for setting in planned_answers(call, with_reference):
        yield from ((*setting, judge) for judge in call.definitions.judges)


@dataclass(frozen=True)
class Progress:
    """The progress of one kind of result."""

    done: int
    stale: int
    """The number of stale results, which don't count as done."""
    missing_by_setting: Mapping[str, int]
    """The number of planned results that are missing, by setting."""

    @property
    def missing(self) -> int:
        """The number of missing results."""
        return sum(self.missing_by_setting.values())


def progress(state: RunState) -> dict[str, Progress]:
    """Return the progress of each kind of result."""
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
