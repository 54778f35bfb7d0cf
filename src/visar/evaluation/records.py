"""What an evaluation has found out: one record for each question and setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar


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


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The pages that a method chose for a question."""

    dataset: str
    question: str
    encoder: str
    method: str
    """A key of ``visar.evaluation.methods``, such as "visar" or "visar gamma=1000"."""
    k: int
    """Pages it asks for, before any budget."""
    pages: tuple[int, ...]
    """The chosen pages, best first, 1 is the first; of fixed top-k methods the first 10."""
    ranking: tuple[int, ...]
    """The first 10 pages of the ranking it chooses from."""
    sparsity: float | None
    """Share of inactive pages, for ViSAR's variants."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage; their sum is the retrieval's latency, without encoding the question."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a generator made of the pages that a method chose."""

    dataset: str
    question: str
    encoder: str
    method: str
    generator: str
    max_k: int
    pages: tuple[int, ...]
    """Those it was given."""
    text: str
    """Empty for "not answerable"."""
    raw: str
    input_tokens: int | None
    output_tokens: int | None
    seconds: float
    model: str | None = None
    """What wrote it, as exactly as the generator tells; None for quotations."""


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


Record = TypeVar("Record", Asked, Retrieved, Answered, Judged)

_ANSWER = ("dataset", "question", "encoder", "method", "generator", "max_k")
KEYS: dict[type[Any], tuple[str, ...]] = {
    Asked: ("dataset", "question"),
    Retrieved: ("dataset", "question", "encoder", "method"),
    Answered: _ANSWER,
    Judged: (*_ANSWER, "judge"),
}
"""What tells records of a kind apart."""


def key_of(record: Asked | Retrieved | Answered | Judged) -> tuple[Any, ...]:
    """What a record is kept under; a later one under the same key replaces it."""
    return tuple(getattr(record, name) for name in KEYS[type(record)])


def file_stem(kind: type[Any]) -> str:
    """How the names of the files with records of a kind begin."""
    return kind.__name__.lower()
