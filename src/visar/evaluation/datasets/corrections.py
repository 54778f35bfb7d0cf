"""Corrections to what a data set says: kept apart from it, with a reason and a name each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from visar.evaluation.datasets.fields import Fields
from visar.evaluation.datasets.reading import Entry, Problems, read_entries, shown
from visar.evaluation.questions import Question

Value: TypeAlias = tuple[int, ...] | tuple[str, ...]

_CORRECTABLE = ("evidence_pages", "answers")


@dataclass(frozen=True, slots=True)
class Correction:
    """One change to one question."""

    question: str
    """Its id."""
    field: str
    """What changes: "evidence_pages" or "answers"."""
    was: Value
    """What the data set says: a correction made for another version of it is refused."""
    becomes: Value
    why: str
    by: str
    where: str
    """File and line, for errors."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """Questions after corrections."""

    questions: list[Question]
    """All, in their order."""
    changed: frozenset[str]
    """The ids of those that were changed."""


def read_corrections(file: Path) -> list[Correction]:
    """Read a file of JSON lines, one correction a line; docs/evaluation-data.md has the format."""
    problems = Problems(str(file))
    entries = read_entries(file, problems)
    corrections = [_correction(file, entry, problems) for entry in entries]
    problems.refuse()
    return corrections


def correct(questions: Sequence[Question], corrections: Sequence[Correction]) -> Corrected:
    """Apply corrections; the questions given stay as they are, for results without.

    Refused, with the line, are corrections of questions that are not there, of something that is
    not as the correction says it was, and two of the same thing.
    """
    problems = Problems("The corrections do not fit the data set")
    corrected = {question.id: question for question in questions}
    first: dict[tuple[str, str], str] = {}
    for correction in corrections:
        question = corrected.get(correction.question)
        thing = (correction.question, correction.field)
        if question is None:
            problems.add(
                correction.where, f"the data set has no question {shown(correction.question)}"
            )
        elif thing in first:
            problems.add(correction.where, f"{first[thing]} corrects the same")
        else:
            first[thing] = correction.where
            corrected[question.id] = _applied(question, correction, problems)
    problems.refuse()
    changed = frozenset(identity for identity, _ in first)
    return Corrected([corrected[question.id] for question in questions], changed)


def _applied(question: Question, correction: Correction, problems: Problems) -> Question:
    now: Value
    now = question.evidence_pages if correction.field == "evidence_pages" else question.answers
    if now != correction.was:
        problems.add(
            correction.where,
            f'"was" is {shown(list(correction.was))}, but the data set says {shown(list(now))} '
            f"in {correction.field} of {question.id}",
        )
        return question
    if correction.field == "answers":
        return replace(question, answers=tuple(map(str, correction.becomes)))
    return replace(question, evidence_pages=tuple(map(int, correction.becomes)))


def _correction(file: Path, entry: Entry, problems: Problems) -> Correction:
    fields = Fields(entry, problems)
    field = fields.text("field")
    was, becomes = _values(fields, field)
    if was == becomes:
        fields.wrong('"was" and "becomes" are the same')
    return Correction(
        question=fields.text("question"),
        field=field,
        was=was,
        becomes=becomes,
        why=fields.text("why"),
        by=fields.text("by"),
        where=f"{file}, {entry.where}",
    )


def _values(fields: Fields, field: str) -> tuple[Value, Value]:
    if field == "answers":
        return fields.texts("was"), fields.texts("becomes")
    if field and field not in _CORRECTABLE:
        fields.wrong(f'"field" must be {" or ".join(_CORRECTABLE)}, not {shown(field)}')
        return (), (1,)
    was, becomes = fields.pages("was"), fields.pages("becomes")
    if any(page < 1 for page in becomes):
        fields.wrong('"becomes" holds a page below 1')
    return was, becomes
