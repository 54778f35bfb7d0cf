"""The records of a run: one for each question and setting, in files of JSON lines.

Each process writes its own files, so that several processes or machines can work on one run: put
their files into one folder, and the run is complete. After a crash the last line may be cut off; it
is skipped, and its work is done again.

A record carries ``inputs``, a digest of everything it was computed from (`visar.evaluation.inputs`
makes it). A record whose digest differs from the one its inputs have now is stale.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from visar.errors import NotARun
from visar.generation.prompts import NOT_ANSWERABLE


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of the run, without its words: enough to compute every table and figure."""

    question: str
    """Its id."""
    dataset: str
    document: str
    pages: int
    """Of the document."""
    evidence_pages: tuple[int, ...]
    """Those within the document; empty where it does not count for retrieval."""
    answerable: bool
    corrected: bool = False
    """Whether the corrections file changed what the data set says of it."""
    text_digest: str = ""
    """Digest of the question's text."""
    document_digest: str = ""
    """Digest of the document's file and of the words read from it."""
    answers_digest: str = ""
    """Digest of the reference answers and their kind; empty if there are none to judge by."""
    dropped: bool = False
    """Whether the data set no longer has the question."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The pages that a method chose for a question."""

    dataset: str
    question: str
    encoder: str
    """The encoder's own name, wherever it runs."""
    method: str
    """A name of ``visar.evaluation.methods``, such as "visar" or "visar gamma=1000"."""
    k: int
    """Pages it asks for, before any budget."""
    pages: tuple[int, ...]
    """The chosen pages, best first, 1 is the first. Methods that do not decide k by themselves
    take 10, or as many as the largest budget of the run."""
    ranking: tuple[int, ...]
    """The first pages of the ranking it chooses from, as many as those methods take."""
    sparsity: FiniteFloat | None
    """Share of inactive pages, for ViSAR's variants."""
    seconds: dict[str, FiniteFloat] = field(default_factory=dict)
    """By stage; their sum is the retrieval's latency, without encoding the question. Stages of
    ViSAR: "query to page" and "page to query" (the paper's weights), "self-similarity" and
    "page to page" (its matrix), "ranking" (with the cut)."""
    invalid_pages: int = 0
    """Pages of the document that the encoder gave no usable vectors for (NaN or infinite)."""
    alone: bool = False
    """Whether the seconds were taken with all cores, while no other question was searched for."""
    paper_sparsity: FiniteFloat | None = None
    """Share of pages whose s_p, rescaled to [0, 1], is at most 0.01."""
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a generator from the pages that a method chose."""

    dataset: str
    question: str
    encoder: str
    method: str
    generator: str
    max_k: int
    pages: tuple[int, ...]
    """Those it was given."""
    text: str
    """Empty for "not answerable", where the prompt offers that."""
    raw: str
    input_tokens: int | None
    output_tokens: int | None
    seconds: FiniteFloat
    model: str | None = None
    """What wrote it, as exactly as the generator tells; None for quotations."""
    prompt: str = "default"
    """The prompt it was asked with: "default", or "paper"."""
    concurrency: int = 1
    """How many questions the generator was asked at a time: with more than one, its seconds are
    those of a busy server, or of a whole batch."""
    note: str | None = None
    """What was left out of the prompt to fit the model's context."""
    inputs: str = ""

    @property
    def said(self) -> str:
        """What a judge is shown.

        The paper's prompt offers no "not answerable": what was written stands, even if it is "".
        """
        return self.text or (NOT_ANSWERABLE if self.prompt == "default" else "")


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether an answer is right."""

    dataset: str
    question: str
    encoder: str
    method: str
    generator: str
    max_k: int
    judge: str
    correct: bool
    prompt: str = "default"
    """The prompt that the generator was asked with."""
    reason: str = ""
    """The rule that decided, or the judge model's reply."""
    model: str | None = None
    """The judge's model, as exactly as it tells; None for a judge without one."""
    inputs: str = ""


Record = TypeVar("Record", Asked, Retrieved, Answered, Judged)

_ANSWER = ("dataset", "question", "encoder", "method", "generator", "max_k", "prompt")
KEYS: dict[type[Any], tuple[str, ...]] = {
    Asked: ("dataset", "question"),
    Retrieved: ("dataset", "question", "encoder", "method"),
    Answered: _ANSWER,
    Judged: (*_ANSWER, "judge"),
}
"""The fields that name the setting of a record."""
_SCHEMAS: dict[type[Any], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in KEYS}
_GETTERS = {kind: attrgetter(*names) for kind, names in KEYS.items()}


def key_of(record: Asked | Retrieved | Answered | Judged) -> tuple[Any, ...]:
    """Return the setting of a record."""
    key: tuple[Any, ...] = _GETTERS[type(record)](record)
    return key


def writer_name() -> str:
    """Return a name for the files of one writer: no other has it, and later ones sort after it."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{host}-{uuid.uuid4().hex[:8]}"


class RecordWriter(Generic[Record]):
    """Appends records of one kind to a file of a run's folder."""

    def __init__(self, folder: Path, kind: type[Record], name: str | None = None) -> None:
        self._path = folder / f"{_stem(kind)}.{name or writer_name()}.jsonl"
        self._schema = _SCHEMAS[kind]
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, records: Iterable[Record]) -> None:
        """Write records so that they are there even if the process ends right after."""
        lines = b"".join(self._schema.dump_json(record) + b"\n" for record in records)
        if not lines:
            return
        if self._file is None:
            self._file = self._path.open("ab")
        self._file.write(lines)
        self._file.flush()


def read_by_key(folder: Path, kind: type[Record]) -> dict[tuple[Any, ...], Record]:
    """Read the last record of each setting, whether it is stale or not."""
    return {key_of(record): record for record in read_lines(folder, kind)[0]}


def read_lines(folder: Path, kind: type[Record]) -> tuple[list[Record], list[str]]:
    """Read records of a kind, and the positions of complete lines that are not JSON.

    Of records with the same setting and inputs the last one counts, in the order of the files'
    names and their lines. A line that a crashed writer left unfinished is skipped. Raises NotARun
    if a line is JSON but not such a record.
    """
    schema = _SCHEMAS[kind]
    found: dict[tuple[Any, ...], Record] = {}
    unreadable: list[str] = []
    for path in sorted(folder.glob(f"{_stem(kind)}*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    record: Record = schema.validate_json(line, strict=True)
                except ValidationError as error:
                    if error.errors(include_input=False)[0]["type"] != "json_invalid":
                        raise NotARun(
                            f"{path.name}, line {number}: {describe_problem(error)} "
                            "Was it written by another version?"
                        ) from None
                    if line.strip() and line.endswith(b"\n"):
                        unreadable.append(f"{path.name}, line {number}")
                else:
                    key = (*key_of(record), getattr(record, "inputs", ""))
                    found.pop(key, None)
                    found[key] = record
    return list(found.values()), unreadable


def describe_problem(error: ValidationError) -> str:
    """Return one sentence about the first value that does not fit a schema, with that value."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Exception):
        return str(cause)
    where = ", ".join(f"item {i + 1}" if isinstance(i, int) else i for i in first["loc"])
    if first["type"] == "missing":
        return f"there is no {where!r}."
    expected = first["msg"].removeprefix("Input should be ").replace("a valid tuple", "a list")
    if expected == first["msg"]:
        return f"{where}{': ' if where else ''}{expected}."
    return f"{where or 'it'} must be {expected}, not {repr(first['input'])[:40]}."


def _stem(kind: type[Any]) -> str:
    """How the names of the files with records of a kind begin."""
    return kind.__name__.lower()
