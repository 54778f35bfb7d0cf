"""Doubts about the questions of a data set, and corrections kept in a file of their own."""

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
    """Something about a question that a person should look at."""

    question: str
    """Its id."""
    what: str

    def __str__(self) -> str:
        return f"{self.question}: {self.what}"


class Correction(Schema):
    """One change to one question."""

    question: Text
    """Its id."""
    field: Literal["evidence_pages", "answers"]
    """What changes."""
    was: list[Any]
    """What the data set says: a correction made for another version of it is refused."""
    becomes: list[Any]
    why: Text
    by: Text
    where: str = ""
    """File and line, for errors."""

    @model_validator(mode="after")
    def _differ(self) -> Correction:
        if self.was == self.becomes:
            raise ValueError('"was" and "becomes" are the same')
        return self


class _PagesCorrection(Correction):
    was: list[int]
    becomes: list[PositiveInt]


class _AnswersCorrection(Correction):
    was: list[Text]
    becomes: list[Text]


@dataclass(frozen=True, slots=True)
class Corrected:
    """Questions after corrections."""

    questions: list[Question]
    """All, in their order."""
    changed: frozenset[str]
    """The ids of those that were changed."""


def missing_documents(dataset: Dataset) -> list[str]:
    """The documents that are asked about and not on this machine, in the order of the data set."""
    documents = dict.fromkeys(question.document for question in dataset.questions())
    return [document for document in documents if dataset.path(document) is None]


def incomplete_documents(dataset: Dataset) -> dict[str, int]:
    """Those of the missing documents of which some page images are there: the first missing page.

    Only LongDocURL has page images that are numbered by document.
    """
    return dataset.incomplete_documents() if isinstance(dataset, LongDocURL) else {}


def doubtful(questions: Sequence[Question], page_counts: Mapping[str, int]) -> list[Doubt]:
    """List what can hardly be right; ``page_counts`` are those of the documents that are known.

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
    """Read corrections, one JSON object a line; docs/evaluation-data.md has the format.

    Raises a DatasetError that lists all that is wrong with the file.
    """
    problems = Problems(str(file))
    entries = read_entries(file, problems)
    corrections = []
    for entry in entries:
        placed = replace(entry, values=entry.values | {"where": f"{file}, {entry.where}"})
        is_answer = entry.values.get("field") == "answers"
        schema = _AnswersCorrection if is_answer else _PagesCorrection
        corrections.append(parse(placed, schema, problems))
    problems.refuse()
    return [correction for correction in corrections if correction is not None]


def correct(questions: Sequence[Question], corrections: Sequence[Correction]) -> Corrected:
    """Apply corrections to copies of the questions.

    Raises a DatasetError, with the lines, for corrections of questions that are not there, of
    something that is not as the correction says it was, and two of the same field.
    """
    problems = Problems("The corrections do not fit the data set")
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
            problems.add(correction.where, f"{first[field]} corrects the same")
        else:
            first[field] = correction.where
            corrected[question.id] = _applied(question, correction, problems)
    problems.refuse()
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


def _applied(question: Question, correction: Correction, problems: Problems) -> Question:
    now: list[Any] = list(getattr(question, correction.field))
    if now != correction.was:
        problems.add(
            correction.where,
            f'"was" is {shown(correction.was)}, but the data set says {shown(now)} '
            f"in {correction.field} of {question.id}",
        )
        return question
    if correction.field == "answers":
        # The form was that of the old answers.
        return replace(question, answers=tuple(correction.becomes), kind=None)
    return replace(question, evidence_pages=tuple(correction.becomes))
