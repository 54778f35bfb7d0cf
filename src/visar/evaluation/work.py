"""The context shared by the stages of a call of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from visar.core.vectors import Float32
from visar.encoders.encoder import Encoder
from visar.errors import EmptyQuestion
from visar.evaluation.calls import ModelCalls
from visar.evaluation.manifest import Manifest, Skipped
from visar.evaluation.plan import Plan
from visar.evaluation.questions import Question
from visar.evaluation.records import QuestionRecord, Result, write_records
from visar.evaluation.state import RunState, Setting
from visar.index import Index
from visar.results import Document


@dataclass(frozen=True, slots=True)
class Row:
    """A question of the run."""

    question: Question
    asked: QuestionRecord
    document: tuple[str, str]
    """The document's data set and name."""

    @property
    def search_order(self) -> tuple[int, str]:
        """A sort key: long documents first for load balancing, grouped by document."""
        return -self.asked.pages, self.asked.document


@dataclass(slots=True)
class Work:
    """A call of a run, with its questions and results."""

    folder: Path
    writer: str
    """The name of this call's files."""
    plan: Plan
    manifest: Manifest
    index: Index
    addresses: dict[str, str]
    """The names or addresses of the encoders in the index."""
    step: Callable[[str, int, int], None]
    """A callback for progress: stage, number of steps done, and total number of steps."""
    ray: str | None
    calls: ModelCalls
    skipped: Skipped = field(default_factory=Skipped)
    stored: Counter[str] = field(default_factory=Counter)
    """The number of new results by kind."""
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    """The indexed documents, by data set and name."""
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    """The questions about indexed documents, by data set and id."""
    state: RunState = field(default_factory=RunState)
    _queries: dict[tuple[str, str], Float32 | None] = field(default_factory=dict)

    @property
    def asked(self) -> list[QuestionRecord]:
        return [row.asked for row in self.rows.values()]

    def document(self, row: Row) -> Document:
        """Return the document that a question is about."""
        return self.documents[row.document]

    def reuse(
        self,
        kind: type[Result],
        settings: Iterable[Setting],
        is_sufficient: Callable[[Result, Setting], bool] = lambda _, __: True,
    ) -> list[list[Setting]]:
        """Store known results for missing ones with the same inputs.

        Returns the settings of all others that can be computed, grouped by their inputs.
        """
        groups: dict[str, list[Setting]] = {}
        for setting in settings:
            if (inputs := self.state.inputs(kind, setting)) is not None:
                groups.setdefault(inputs, []).append(setting)
        missing = []
        for inputs, group in groups.items():
            known = self.state.known.get(inputs)
            if isinstance(known, kind) and is_sufficient(known, group[0]):
                self.keep(known, group)
            else:
                missing.append(group)
        return missing

    def keep(self, result: Result, settings: Sequence[Setting]) -> None:
        """Write a result for all settings with its inputs, and add it to the state."""
        inputs = self.state.inputs(type(result), settings[0]) or ""
        found = [
            replace(result, inputs=inputs, **dict(zip(result.KEY, setting, strict=True)))
            for setting in settings
        ]
        write_records(self.folder, found, self.writer)
        self.state.keep(found)
        self.stored[result.FILE] += len(found)

    def encode(self, encoder: Encoder, question: Question) -> Float32 | None:
        """Return a question's vectors, cached; None if it has no words to encode."""
        key = encoder.name, question.text
        if key not in self._queries:
            self._queries[key] = None
            with self.calls.caught(encoder.name, question.id, EmptyQuestion):
                self._queries[key] = encoder.encode_query(question.text)
        return self._queries[key]
