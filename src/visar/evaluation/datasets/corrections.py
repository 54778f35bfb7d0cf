"""Find doubtful questions in a data set, and apply corrections from a separate file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt, model_validator

from visar.evaluation.datasets.benchmarks import LongDocURL
from visar.evaluation.datasets.entries import Problems, read_entries, shown
from visar.evaluation.datasets.schemas import Schema, Text, parse
from visar.evaluation.questions import Dataset, Question
from visar.generation.parsing import is_not_answerable


@dataclass(frozen=True, slots=True)
class Doubt:
    """A possible error in a question that a person should check."""

    question: str
    """The question's id."""
    what: str

    def __str__(self) -> str:
        return f"{self.question}: {self.what}"


class Correction(Schema):
    """A correction of a field of a question."""

    question: Text
    """The question's id."""
    field: Literal["evidence_pages", "answers"]
    """The field to change."""
    was: list[Any]
    """The value in the data set, to detect corrections for other versions."""
    becomes: list[Any]
    why: Text
    by: Text
    where: str = ""
    """The file and line, for error messages."""

    @model_validator(mode="after")
    def _differ(self) -> Correction:
        if self.was == self.becomes:
            raise ValueError('"was" and "becomes" are equal')
        return self


class _PagesCorrection(Correction):
    was: list[int]
    becomes: list[PositiveInt]


class _AnswersCorrection(Correction):
    was: list[Text]
    becomes: list[Text]


@dataclass(frozen=True, slots=True)
class Corrected:
    """Corrected questions."""

    questions: list[Question]
    """All questions, in their original order."""
    changed: frozenset[str]
    """The ids of changed questions."""


def missing_documents(dataset: Dataset) -> list[str]:
    """Return documents that questions need but aren't available, in the order of the data set."""
    documents = dict.fromkeys(question.document for question in dataset.questions())
    return [document for document in documents if dataset.path(document) is None]


def incomplete_documents(dataset: Dataset) -> dict[str, int]:
    """Return missing documents with some page images, with the first missing page.

    Only LongDocURL has page images numbered by document.
    """
    return dataset.incomplete_documents() if isinstance(dataset, LongDocURL) else {}


def doubtful(questions: Sequence[Question], page_counts: Mapping[str, int]) -> list[Doubt]:
    """Return possible errors; ``page_counts`` are the page counts of known documents.

    >>> question = Question("q1", "a.pdf", "How many?", (0, 9), ("4",))
    >>> for doubt in doubtful([question], {"a.pdf": 8}):
    ...     print(doubt)
    q1: evidence page 0 is below 1
    q1: evidence page 9 is past the end of the document, which has 8 pages
    """
    return [
        Doubt(question.id, what)
        for question in questions
        for what in _doubts(question, page_counts.get(question.document))
    ]


def read_corrections(file: Path) -> list[Correction]:
    """Read corrections in JSON Lines; docs/evaluation-reference.md describes the format.

    Raises DatasetError with a list of all problems.
    """
    problems = Problems(str(file))
    entries = read_entries(file, problems)
    corrections = []
    for entry in entries:
        placed = replace(entry, values=entry.values | {"where": f"{file}, {entry.where}"})
        is_answer = entry.values.get("field") == "answers"
        schema = _AnswersCorrection if is_answer else _PagesCorrection
        corrections.append(parse(placed, schema, problems))
    problems.raise_if_any()
    return [correction for correction in corrections if correction is not None]


def correct(questions: Sequence[Question], corrections: Sequence[Correction]) -> Corrected:
    """Apply corrections to copies of the questions.

    Raises DatasetError with the lines of corrections for missing questions, with a different
    original value, or for the same field as another correction.
    """
    problems = Problems("The corrections don't match the data set")
    corrected = {question.id: question for question in questions}
    first: dict[tuple[str, str], str] = {}
    for correction in corrections:
        question = corrected.get(correction.question)
        field = (correction.question, correction.field)
        if question is None:
            problems.add(
                correction.where, f"the data set has no question {shown(correction.question)}"
            )
        elif field in first:
            problems.add(correction.where, f"{first[field]} already corrects the same field")
        else:
            first[field] = correction.where
            corrected[question.id] = _apply(question, correction, problems)
    problems.raise_if_any()
    changed = frozenset(identity for identity, _ in first)
    return Corrected([corrected[question.id] for question in questions], changed)


def _doubts(question: Question, pages: int | None) -> Iterator[str]:
    for page in question.evidence_pages:
        if page < 1:
            yield f"evidence page {page} is below 1"
        elif pages is not None and page > pages:
            yield f"evidence page {page} is past the end of the document, which has {pages} pages"
    if not question.answers:
        yield "no answer is given"
    elif all(map(is_not_answerable, question.answers)):
        if question.evidence_pages:
            yield "it is not answerable, but has evidence pages"
    elif not question.evidence_pages:
        yield "it has an answer, but no evidence pages"


def _apply(question: Question, correction: Correction, problems: Problems) -> Question:
    current: list[Any] = list(getattr(question, correction.field))
    if current != correction.was:
        problems.add(
            correction.where,
            f'"was" is {shown(correction.was)}, but the data set has {shown(current)} '
            f"in {correction.field} of {question.id}",
        )
        return question
    if correction.field == "answers":
        # The kind described the old answers.
        return replace(question, answers=tuple(correction.becomes), kind=None)
    return replace(question, evidence_pages=tuple(correction.becomes))
