"""The entries of the two benchmarks, whose fields have the same names but for the document's."""

from __future__ import annotations

from collections.abc import Sequence

from visar.evaluation.datasets.fields import Fields, Unique
from visar.evaluation.datasets.reading import Entry, Problems
from visar.evaluation.questions import Question


def published_questions(entries: Sequence[Entry], problems: Problems) -> list[Question]:
    """One question an entry; not to be used before ``Problems.refuse``."""
    unique = Unique()
    return [_question(entry, problems, unique) for entry in entries]


def _question(entry: Entry, problems: Problems, unique: Unique) -> Question:
    fields = Fields(entry, problems)
    # LongDocURL gives a number; in the collection, the name of a file, as MMLongBench-Doc does.
    document = fields.document("doc_no" if "doc_no" in entry.values else "doc_id")
    text = fields.text("question")
    identity = fields.identity("question_id", document, text)
    unique.check(fields, entry.where, identity)
    return Question(
        id=identity,
        document=document,
        text=text,
        evidence_pages=fields.written_pages("evidence_pages"),
        answers=fields.answer("answer"),
        kind=fields.optional_text("answer_format"),
    )
