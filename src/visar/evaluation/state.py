"""The state of a run: which results are done, stale or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visar.errors import NotARun
from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import Manifest, read_manifests
from visar.evaluation.records import (
    RESULTS,
    AnswerRecord,
    AnyResult,
    QuestionRecord,
    Record,
    RetrievalRecord,
    VerdictRecord,
    read_lines,
)

CORRECTED = ", corrected"
"""Suffix of a data set's name with corrections. It shares the documents of the published one."""

Setting = tuple[Any, ...]
"""The key of a result."""


@dataclass
class RunState:
    """The questions of a run, its current results, and the number of stale ones."""

    asked: dict[tuple[str, str], QuestionRecord] = field(default_factory=dict)
    """The questions by data set and id."""
    calls: tuple[Manifest, ...] = ()
    """The manifests of all calls of the run, in order."""
    definitions: Definitions = field(default_factory=Definitions)
    """The current definitions, each from the last call that used it."""
    retrieved: dict[Setting, RetrievalRecord] = field(default_factory=dict)
    answered: dict[Setting, AnswerRecord] = field(default_factory=dict)
    judged: dict[Setting, VerdictRecord] = field(default_factory=dict)
    stale: Counter[str] = field(default_factory=Counter)
    """The number of stale results by kind."""
    unreadable: tuple[str, ...] = ()
    """Locations of lines that aren't JSON, left by crashed writers."""
    known: dict[str, AnyResult] = field(default_factory=dict)
    """One result for each digest of inputs, regardless of its setting."""

    def current(self, kind: type[Record]) -> dict[Setting, Any]:
        """Return the current results of a kind."""
        results: dict[Setting, Any] = getattr(self, kind.FILE)
        return results

    def inputs(self, kind: type[Record], setting: Setting) -> str | None:
        """Return the current digest of the inputs of a result.

        Returns None if the question no longer exists or a result it depends on is missing.
        """
        asked = self.asked.get(setting[:2])
        if asked is None:
            return None
        if kind is RetrievalRecord:
            return self.definitions.retrieval(asked, *setting[2:])
        if kind is AnswerRecord:
            encoder, _, generator, max_k, prompt = setting[2:]
            chosen = self.retrieved.get(setting[:4])
            if chosen is None:
                return None
            pages = chosen.pages[:max_k]
            return self.definitions.answer(asked, encoder, generator, prompt, pages)
        answered = self.answered.get(setting[:-1])
        return None if answered is None else self.definitions.verdict(asked, answered, setting[-1])

    def keep(self, results: Iterable[AnyResult]) -> None:
        """Add current results."""
        for one in results:
            self.known[one.inputs] = one
            self.current(type(one))[one.key] = one

    def read(self, folder: Path, kind: type[AnyResult]) -> None:
        """Read the results of a kind, keeping those whose inputs haven't changed."""
        found, unreadable = read_lines(folder, kind)
        self.unreadable += tuple(unreadable)
        current = [one for one in found if self.inputs(kind, one.key) == one.inputs]
        for one in found:
            self.known.setdefault(one.inputs, one)
        self.keep(current)
        self.stale[kind.FILE] += len(found) - len(current)


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
    state = RunState(
        asked={(one.dataset, one.question): one for one in asked if not one.dropped},
        calls=tuple(Manifest.model_validate(one) for one in read_manifests(folder)),
        unreadable=tuple(unreadable),
    )
    for call in state.calls:
        state.definitions = state.definitions.updated(call.definitions)
    for kind in RESULTS:
        state.read(folder, kind)
    return state


def planned(call: Manifest, asked: Iterable[QuestionRecord]) -> dict[str, list[Setting]]:
    """Return the settings of all results that a call plans, by the names of their files."""
    retrievals: list[Setting] = []
    answers: list[Setting] = []
    verdicts: list[Setting] = []
    definitions = call.definitions
    writers = [
        (generator, max_k, prompt)
        for generator, prompts in definitions.generators.items()
        for max_k in call.plan.get("max_k", ())
        for prompt in prompts
    ]
    for one in asked:
        if one.dataset.removesuffix(CORRECTED) not in call.data:
            continue
        for encoder in definitions.encoders:
            for name, method in definitions.methods.items():
                if method.needs_evidence and not one.evidence_pages:
                    continue
                if method.max_pages is not None and one.pages > method.max_pages:
                    continue
                retrievals.append((*one.key, encoder, name))
                if not method.answered:
                    continue
                written = [(*one.key, encoder, name, *writer) for writer in writers]
                answers += written
                # Questions without a reference answer can't be judged.
                if one.answers_digest:
                    verdicts += [(*each, judge) for each in written for judge in definitions.judges]
    return {"retrieved": retrievals, "answered": answers, "judged": verdicts}


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
    plans: dict[str, set[Setting]] = {kind.FILE: set() for kind in RESULTS}
    for call in state.calls:
        for name, settings in planned(call, state.asked.values()).items():
            plans[name].update(settings)
    found = {}
    for name, kind in zip(("retrievals", "answers", "verdicts"), RESULTS, strict=True):
        current = state.current(kind)
        missing = Counter(
            " · ".join(str(part) for part in (setting[0], *setting[2:]))
            for setting in plans[kind.FILE] - current.keys()
        )
        found[name] = Progress(len(current), state.stale[kind.FILE], dict(missing))
    return found
