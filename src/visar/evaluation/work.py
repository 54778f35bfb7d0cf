"""What the stages of one call of a run share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from visar.core.vectors import Float32
from visar.encoders.protocol import Encoder
from visar.errors import EmptyQuestion
from visar.evaluation.calls import ModelCalls
from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import Manifest, Skipped
from visar.evaluation.plan import Plan
from visar.evaluation.questions import Question
from visar.evaluation.records import (
    Answered,
    Asked,
    Judged,
    Record,
    RecordWriter,
    Retrieved,
)
from visar.evaluation.state import RunState
from visar.index import Index
from visar.ingest.pipeline import Progress as PageProgress
from visar.results import Document


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """Callbacks that receive the progress of a run."""

    document: Callable[[Path], PageProgress]
    """Called with a document's path; returns the callback for its pages."""
    step: Callable[[str, int, int], None]
    """Called with a stage, how much of it is done, and how much there is."""


@dataclass(slots=True)
class Outcome:
    """What one call of a run did."""

    questions: int = 0
    documents: int = 0
    retrieved: int = 0
    answered: int = 0
    judged: int = 0
    stale: int = 0
    """Results found in the folder whose inputs have changed."""
    skipped: Skipped = field(default_factory=Skipped)
    failures: dict[str, str] = field(default_factory=dict)
    """By encoder, generator or judge: how often it failed, and the last reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """A question of the run."""

    question: Question
    asked: Asked
    document: tuple[str, str]
    """The document's data set and name."""

    @property
    def search_order(self) -> tuple[int, str]:
        """Long documents first, so that no core waits for the last; questions of one together."""
        return -self.asked.pages, self.asked.document


@dataclass(slots=True)
class Work:
    """One call of a run, with the questions it asks and the results there are."""

    folder: Path
    writer_name: str
    plan: Plan
    manifest: Manifest
    index: Index
    addresses: dict[str, str]
    """Names or addresses that the index knows the encoders by."""
    listener: ProgressListener
    ray: str | None
    calls: ModelCalls
    outcome: Outcome = field(default_factory=Outcome)
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    """Documents that are in the index, by data set and name."""
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    """Questions whose documents are in the index, by data set and id."""
    state: RunState = field(default_factory=lambda: RunState({}, (), Definitions()))
    _queries: dict[tuple[str, str], Float32 | None] = field(default_factory=dict)

    @property
    def asked(self) -> list[Asked]:
        return [row.asked for row in self.rows.values()]

    def document(self, row: Row) -> Document:
        """Return the document that a question is about."""
        return self.documents[row.document]

    def writer(self, kind: type[Record]) -> RecordWriter[Record]:
        """Return the writer of this call's records of a kind."""
        return RecordWriter(self.folder, kind, self.writer_name)

    def keep(
        self,
        writer: RecordWriter[Retrieved] | RecordWriter[Answered] | RecordWriter[Judged],
        results: list[Retrieved] | list[Answered] | list[Judged],
    ) -> None:
        """Write results and count them as current."""
        writer.write(results)  # type: ignore[arg-type]
        self.state.keep(results)

    def encode(self, encoder: Encoder, question: Question) -> Float32 | None:
        """Return the vectors of a question, encoded once; None if it has no words to encode."""
        key = encoder.name, question.text
        if key not in self._queries:
            self._queries[key] = None
            with self.calls.caught(encoder.name, question.id, EmptyQuestion):
                self._queries[key] = encoder.encode_query(question.text)
        return self._queries[key]
