"""The interface of judges: question, reference answers and answer in, verdict out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from visar.errors import InvalidOption, VisarError

CORRECT_FROM = 0.9
"""The least score of a correct answer; docs/judge.md says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's decision on one answer."""

    score: float
    """From 0 to 1. Judges that only say yes or no give 1 or 0."""
    judge: str
    """The judge's name, which holds its version and its model's name."""
    reason: str
    """The rule that decided, or the model's reply as it was written."""
    model: str | None = None
    """The model that wrote the reply, as exactly as is known; None for a judge without one."""
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
    """What a judge is given."""

    question: str
    references: Sequence[str]
    answer: str
    kind: str | None = None


class Judge(Protocol):
    """Decides whether answers are correct. Safe for several threads; deterministic if its model is.

    What cannot be judged raises an exception of ``visar.errors``, never a made-up verdict.
    """

    @property
    def name(self) -> str:
        """Kind, version and model: judges of the same name give the same verdicts."""
        ...

    def judge(
        self, question: str, references: Sequence[str], answer: str, *, kind: str | None = None
    ) -> Verdict:
        """Compare an answer with reference answers, any one of which is enough.

        Parameters
        ----------
        question, answer
            As they were asked and given.
        references
            At least one that is not blank.
        kind
            The form of the references, as ``Question.kind`` gives it; None if it is not known.

        Raises
        ------
        InvalidOption
            If there is no reference.
        GenerationError
            If the judge's model gives no verdict.
        """
        ...


@runtime_checkable
class BatchJudge(Judge, Protocol):
    """A judge that decides about several answers at a time."""

    def judge(
        self, question: str, references: Sequence[str], answer: str, *, kind: str | None = None
    ) -> Verdict:
        """Give the verdict of ``judge_batch`` on one case, or raise its error."""
        (verdict,) = self.judge_batch([Case(question, references, answer, kind)])
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    def judge_batch(self, cases: Sequence[Case]) -> Sequence[Verdict | VisarError]:
        """Give the verdict of ``judge`` on each case; in its place stands what that would raise."""
        ...


def judge_each(judge: Judge, cases: Sequence[Case]) -> Sequence[Verdict | VisarError]:
    """Give the verdict of a judge on each case, or the error, on several at a time if it can."""
    if isinstance(judge, BatchJudge):
        return judge.judge_batch(cases)
    verdicts: list[Verdict | VisarError] = []
    for case in cases:
        try:
            verdicts.append(judge.judge(*case[:3], kind=case.kind))
        except VisarError as error:
            verdicts.append(error)
    return verdicts


def usable_references(question: str, references: Sequence[str]) -> list[str]:
    """The references that are not blank; raises InvalidOption if there are none."""
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
