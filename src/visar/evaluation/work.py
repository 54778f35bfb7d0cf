"""The context shared by the stages of a call of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field

from visar.core.vectors import Float32
from visar.encoders.encoder import Encoder
from visar.errors import EmptyQuestion
from visar.evaluation.calls import ModelCalls
from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import Manifest, Skipped
from visar.evaluation.plan import Plan
from visar.evaluation.questions import Question
from visar.evaluation.records import (
    AnswerRecord,
    QuestionRecord,
    Record,
    RecordWriter,
    RetrievalRecord,
    VerdictRecord,
)
from visar.evaluation.state import RunState
from visar.index import Index
from visar.ingest.pipeline import Progress as PageProgress
from visar.results import Document


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """Callbacks for the progress of a run."""

    document: Callable[[Path], PageProgress]
    """A function of a document's path that returns a callback for its pages."""
    step: Callable[[str, int, int], None]
    """A function of stage, number of steps done, and total number of steps."""


class Outcome(BaseModel):
    """The result of a call of a run."""

    questions: int = 0
    documents: int = 0
    retrieved: int = 0
    answered: int = 0
    judged: int = 0
    stale: int = 0
    """The number of stale results in the folder."""
    skipped: Skipped = Field(default_factory=Skipped)
    failures: dict[str, str] = Field(default_factory=dict)
    """The number of failures and the last reason, by encoder, generator or judge."""


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
    writer_name: str
    plan: Plan
    manifest: Manifest
    index: Index
    addresses: dict[str, str]
    """The names or addresses of the encoders in the index."""
    listener: ProgressListener
    ray: str | None
    calls: ModelCalls
    outcome: Outcome = field(default_factory=Outcome)
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    """The indexed documents, by data set and name."""
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    """The questions about indexed documents, by data set and id."""
    state: RunState = field(default_factory=lambda: RunState({}, (), Definitions()))
    _queries: dict[tuple[str, str], Float32 | None] = field(default_factory=dict)

    @property
    def asked(self) -> list[QuestionRecord]:
        return [row.asked for row in self.rows.values()]

    def document(self, row: Row) -> Document:
        """Return the document that a question is about."""
        return self.documents[row.document]

    def writer(self, kind: type[Record]) -> RecordWriter[Record]:
        """Return this call's writer for records of a kind."""
        return RecordWriter(self.folder, kind, self.writer_name)

    def keep(
        self,
        writer: RecordWriter[RetrievalRecord]
        | RecordWriter[AnswerRecord]
        | RecordWriter[VerdictRecord],
        results: list[RetrievalRecord] | list[AnswerRecord] | list[VerdictRecord],
    ) -> None:
        """Write results and add them to the state."""
        writer.write(results)  # type: ignore[arg-type]
        self.state.keep(results)

    def encode(self, encoder: Encoder, question: Question) -> Float32 | None:
        """Return a question's vectors, cached; None if it has no words to encode."""
        key = encoder.name, question.text
        if key not in self._queries:
            self._queries[key] = None
            with self.calls.caught(encoder.name, question.id, EmptyQuestion):
                self._queries[key] = encoder.encode_query(question.text)
        return self._queries[key]
