"""What every judge does: a question, its reference answers and an answer in, a verdict out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from visar.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer is correct, who says so, and why."""

    correct: bool
    judge: str
    """The judge's name, which holds its version and its model's name."""
    reason: str
    """The rule that decided, or the model's reply as it was written."""
    model: str | None = None
    """What wrote the reply, as exactly as is known; None for a judge without a model."""
    prompt_digest: str | None = None
    """The sha256 of the prompt."""
    input_tokens: int | None = None
    output_tokens: int | None = None

    def __str__(self) -> str:
        return f"{'correct' if self.correct else 'incorrect'} ({self.judge}: {self.reason})"


class Judge(Protocol):
    """Says whether an answer is correct, always the same to the same case."""

    @property
    def name(self) -> str:
        """Its kind, version and model: two judges of one name give the same verdicts."""
        ...

    def judge(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        """Compare an answer with the reference answers, any one of which is enough."""
        ...


def usable_references(question: str, references: Sequence[str]) -> list[str]:
    """The references with something in them; refuses a question without any."""
    if isinstance(references, str):
        raise InvalidOption(
            f"The references to {question!r} are one text, {references!r}: give a list of texts."
        )
    usable = [reference for reference in references if reference.strip()]
    if not usable:
        raise InvalidOption(
            f"The question {question!r} has no reference answer: nothing to judge against. "
            "For a question that has no answer the reference is 'Not answerable'."
        )
    return usable
