"""Apply corrections of questions from a separate file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt, model_validator

from visar.evaluation.datasets.entries import (
    Schema,
    Text,
    parse,
    raise_problems,
    read_entries,
    shown,
)
from visar.evaluation.questions import Question


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


def read_corrections(file: Path) -> list[Correction]:
    """Read corrections in JSON Lines; docs/evaluation-reference.md describes the format.

    Raises DatasetError with a list of all problems.
    """
    entries = [
        replace(entry, values=entry.values | {"where": f"{file}, {entry.where}"})
        for entry in read_entries(file)
    ]
    return parse(file, entries, _correction)


def _correction(values: dict[str, Any]) -> Correction:
    is_answer = values.get("field") == "answers"
    return (_AnswersCorrection if is_answer else _PagesCorrection).model_validate(values)


def correct(
    questions: Sequence[Question], corrections: Sequence[Correction]
) -> tuple[list[Question], frozenset[str]]:
    """Return all questions, with corrections applied to copies, and the ids of changed ones.

    Raises DatasetError with the lines of corrections for missing questions, with a different
    original value, or for the same field as another correction.
    """
    problems: list[str] = []
    corrected = {question.id: question for question in questions}
    first: dict[tuple[str, str], str] = {}
    for correction in corrections:
        fault = None
        question = corrected.get(correction.question)
        field = (correction.question, correction.field)
        if question is None:
            fault = f"the data set has no question {shown(correction.question)}"
        elif field in first:
            fault = f"{first[field]} already corrects the same field"
        else:
            first[field] = correction.where
            current = list(getattr(question, correction.field))
            if current != correction.was:
                fault = (
                    f'"was" is {shown(correction.was)}, but the data set has {shown(current)} '
                    f"in {correction.field} of {question.id}"
                )
            elif correction.field == "answers":
                # The kind described the old answers.
                answers = tuple(correction.becomes)
                corrected[question.id] = replace(question, answers=answers, kind=None)
            else:
                pages = tuple(correction.becomes)
                corrected[question.id] = replace(question, evidence_pages=pages)
        if fault is not None:
            problems.append(f"{correction.where}: {fault}")
    raise_problems("The corrections don't match the data set", problems)
    return [corrected[question.id] for question in questions], frozenset(one for one, _ in first)
