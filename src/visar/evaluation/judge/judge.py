"""The protocol of judges, which compare an answer with reference answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from visar.errors import InvalidOption

CORRECT_FROM = 0.9
"""The minimum score of a correct answer; docs/evaluation-reference.md explains why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's decision on one answer."""

    score: float
    """The score from 0 to 1; binary judges return 1 or 0."""
    judge: str
    """The judge's name, including its version and its model's name."""
    reason: str
    """The rule that applied, or the model's verbatim reply."""
    model: str | None = None
    """The model that replied, as precisely as known; None for a judge without a model."""
    prompt_digest: str | None = None
    """The sha256 of the prompt."""
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def correct(self) -> bool:
        """True if the score is at least ``CORRECT_FROM``."""
        return self.score >= CORRECT_FROM

    def __str__(self) -> str:
        return f"{'correct' if self.correct else 'incorrect'} ({self.judge}: {self.reason})"


class Case(NamedTuple):
    """A case to judge."""

    question: str
    references: Sequence[str]
    answer: str
    kind: str | None = None


class Judge(Protocol):
    """A judge of answers. Judges are thread-safe, and deterministic if their model is.

    If a judge can't decide, it raises an exception of ``visar.errors``.
    """

    @property
    def name(self) -> str:
        """The kind, version and model. Judges with the same name give the same verdicts."""
        ...

    def judge(
        self, question: str, references: Sequence[str], answer: str, *, kind: str | None = None
    ) -> Verdict:
        """Compare an answer with reference answers; agreeing with one of them is enough.

        ``kind`` is the type of the references, as in ``Question.kind``. Raises InvalidOption if all
        references are blank, and GenerationError if the judge's model gives no verdict.
        """
        ...


def usable_references(question: str, references: Sequence[str]) -> list[str]:
    """Return the references that aren't blank; raises InvalidOption if there are none."""
    if isinstance(references, str):
        raise InvalidOption(
            f"The references of {question!r} are a string, {references!r}: pass a list of strings."
        )
    usable = [reference for reference in references if reference.strip()]
    if not usable:
        raise InvalidOption(
            f"The question {question!r} has no reference answer: add one, or 'Not answerable' if "
            "the question has no answer."
        )
    return usable
