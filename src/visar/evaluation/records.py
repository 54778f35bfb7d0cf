"""Records of a run: one for each question and setting, stored in JSON Lines files.

Each process writes its own files, so several processes or machines can work on one run. Copy their
files into one folder to combine them. After a crash, an incomplete last line is skipped and its
work repeated.

The ``inputs`` of a record are a digest of everything it was computed from, created by
`visar.evaluation.inputs`. A record is stale if the current digest differs.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from visar.errors import NotARun
from visar.generation.prompts import NOT_ANSWERABLE


class Record:
    """Base class of records."""

    __slots__ = ()
    FILE: ClassVar[str]
    """The prefix of the names of its files."""
    KEY: ClassVar[tuple[str, ...]]
    """The fields that identify it."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of `KEY`."""
        return tuple([getattr(self, name) for name in self.KEY])


@dataclass(frozen=True, slots=True)
class QuestionRecord(Record):
    """A question of the run without its text, sufficient to compute all tables and figures."""

    FILE = "asked"
    KEY = ("dataset", "question")

    question: str
    """The question's id."""
    dataset: str
    document: str
    pages: int
    """The number of pages of the document."""
    evidence_pages: tuple[int, ...]
    """Evidence pages within the document; empty if the question doesn't count for retrieval."""
    answerable: bool
    corrected: bool = False
    """True if the corrections file changed the question."""
    text_digest: str = ""
    """A digest of the question's text."""
    document_digest: str = ""
    """A digest of the document's file and words."""
    answers_digest: str = ""
    """A digest of the reference answers and their kind; empty if there are none."""
    boxes_digest: str = ""
    """A digest of the boxes that annotators marked; empty if there are none."""
    dropped: bool = False
    """True if the data set no longer has the question."""


@dataclass(frozen=True, slots=True)
class RetrievalRecord(Record):
    """The pages that a method chose for a question."""

    FILE = "retrieved"
    KEY = (*QuestionRecord.KEY, "encoder", "method")

    dataset: str
    question: str
    encoder: str
    """The encoder's own name, even if it runs remotely."""
    method: str
    """The method's name in ``visar.evaluation.methods``, such as "visar" or "visar gamma=1000"."""
    k: int
    """The number of pages the method requests, before any budget."""
    pages: tuple[int, ...]
    """The chosen pages, best first, numbered from 1. Methods with a fixed k choose 10, or as many
    as the largest budget of the run."""
    ranking: tuple[int, ...]
    """The top of the ranking that the method chooses from, as many as methods with a fixed k."""
    sparsity: FiniteFloat | None
    """The share of inactive pages, for ViSAR and its variants."""
    seconds: dict[str, FiniteFloat] = field(default_factory=dict)
    """Seconds by stage; their sum is the latency of retrieval without encoding the question.
    ViSAR's stages are "query to page" and "page to query" (the paper's weights), "self-similarity"
    and "page to page" (its matrix), and "ranking" (with the cut)."""
    invalid_pages: int = 0
    """The number of pages without usable vectors, because they were NaN or infinite."""
    alone: bool = False
    """True if timed with all cores and no concurrent searches."""
    paper_sparsity: FiniteFloat | None = None
    """The share of pages whose s_p, rescaled to [0, 1], is at most 0.01."""
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class AnswerRecord(Record):
    """A generator's answer from the pages that a method chose."""

    FILE = "answered"
    KEY = (*RetrievalRecord.KEY, "generator", "max_k", "prompt")

    dataset: str
    question: str
    encoder: str
    method: str
    generator: str
    max_k: int
    pages: tuple[int, ...]
    """The pages given to the generator."""
    text: str
    """The answer; empty for "not answerable" if the prompt allows that."""
    raw: str
    input_tokens: int | None
    output_tokens: int | None
    seconds: FiniteFloat
    model: str | None = None
    """The model, as precisely as the generator reports it; None for quotes."""
    prompt: str = "default"
    """The prompt: "default" or "paper"."""
    concurrency: int = 1
    """The number of concurrent questions. If it is above 1, the seconds are those of a busy server
    or a whole batch."""
    note: str | None = None
    """A note on what was omitted to fit the prompt into the model's context."""
    box_f1: FiniteFloat | None = None
    """The F1 of the boxes of quotes, if annotators marked boxes."""
    inputs: str = ""

    @property
    def judged_text(self) -> str:
        """The answer as shown to judges.

        The paper's prompt doesn't allow "not answerable", so its answers are unchanged, even "".
        """
        return self.text or (NOT_ANSWERABLE if self.prompt == "default" else "")


@dataclass(frozen=True, slots=True)
class VerdictRecord(Record):
    """A judge's verdict on an answer."""

    FILE = "judged"
    KEY = (*AnswerRecord.KEY, "judge")

    dataset: str
    question: str
    encoder: str
    method: str
    generator: str
    max_k: int
    judge: str
    correct: bool
    prompt: str = "default"
    """The prompt of the generator."""
    reason: str = ""
    """The rule that applied, or the judge model's reply."""
    model: str | None = None
    """The judge's model, as precisely as it is reported; None for a judge without a model."""
    inputs: str = ""


AnyResult: TypeAlias = RetrievalRecord | AnswerRecord | VerdictRecord
RESULTS: tuple[type[AnyResult], ...] = (RetrievalRecord, AnswerRecord, VerdictRecord)
"""The kinds of results. Answers depend on retrievals, and verdicts on answers."""
Result = TypeVar("Result", RetrievalRecord, AnswerRecord, VerdictRecord)
AnyRecord = TypeVar("AnyRecord", bound=Record)
_SCHEMAS: dict[type[Record], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (QuestionRecord, *RESULTS)
}


def writer_name() -> str:
    """Return a unique name for a writer's files that sorts after earlier ones."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{host}-{uuid.uuid4().hex[:8]}"


def write_records(folder: Path, records: Sequence[AnyRecord], writer: str) -> None:
    """Append records of one kind to a writer's file, so that they survive a crash."""
    if records:
        with (folder / f"{records[0].FILE}.{writer}.jsonl").open("ab") as file:
            schema = _SCHEMAS[type(records[0])]
            file.write(b"".join(schema.dump_json(record) + b"\n" for record in records))


def read_by_key(folder: Path, kind: type[AnyRecord]) -> dict[tuple[Any, ...], AnyRecord]:
    """Read the last record for each key, including stale ones."""
    return {record.key: record for record in read_lines(folder, kind)[0]}


def read_lines(folder: Path, kind: type[AnyRecord]) -> tuple[list[AnyRecord], list[str]]:
    """Read the records of a kind, and the locations of complete lines that aren't JSON.

    Of records with the same key and inputs, the last one counts, in the order of file names and
    lines. An incomplete last line is skipped. Raises NotARun if a line is JSON but not a valid
    record.
    """
    found: dict[tuple[Any, ...], AnyRecord] = {}
    unreadable: list[str] = []
    for path in sorted(folder.glob(f"{kind.FILE}*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    record: AnyRecord = _SCHEMAS[kind].validate_json(line, strict=True)
                except ValidationError as error:
                    if error.errors(include_input=False)[0]["type"] != "json_invalid":
                        raise NotARun(
                            f"{path.name}, line {number}: {describe_problem(error)} "
                            "Was it written by a different version?"
                        ) from None
                    if line.strip() and line.endswith(b"\n"):
                        unreadable.append(f"{path.name}, line {number}")
                else:
                    key = (*record.key, getattr(record, "inputs", ""))
                    found.pop(key, None)
                    found[key] = record
    return list(found.values()), unreadable


def describe_problem(error: ValidationError) -> str:
    """Describe the first validation error in one sentence, quoting the value."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Exception):
        return str(cause)
    location = ", ".join(f"item {i + 1}" if isinstance(i, int) else i for i in first["loc"])
    if first["type"] == "missing":
        return f"{location!r} is missing."
    expected = first["msg"].removeprefix("Input should be ").replace("a valid tuple", "a list")
    if expected == first["msg"]:
        return f"{location}{': ' if location else ''}{expected}."
    return f"{location or 'the value'} must be {expected}, not {repr(first['input'])[:40]}."
