"""Questions of one's own: JSON lines, with the documents beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visar.evaluation.datasets.fields import Fields, Unique
from visar.evaluation.datasets.locating import within
from visar.evaluation.datasets.reading import Entry, Problems
from visar.evaluation.questions import Question


class OwnQuestions:
    """A file with ``question``, ``document``, ``evidence_pages`` and ``answers`` a line.

    ``id`` is optional. Documents are named relative to the file's folder.
    """

    def __init__(
        self, name: str, entries: Sequence[Entry], problems: Problems, documents: Path
    ) -> None:
        self.name = name
        self._documents = documents
        unique = Unique()
        self._questions = [_question(entry, problems, unique) for entry in entries]
        problems.refuse()

    def questions(self) -> list[Question]:
        """All questions, in the order of the file."""
        return list(self._questions)

    def path(self, document: str) -> Path | None:
        """Where a document is, a file or a folder of page images; None if it is missing."""
        return within(self._documents, document)


def _question(entry: Entry, problems: Problems, unique: Unique) -> Question:
    fields = Fields(entry, problems)
    document, text = fields.document("document"), fields.text("question")
    identity = fields.identity("id", document, text)
    unique.check(fields, entry.where, identity)
    return Question(
        id=identity,
        document=document,
        text=text,
        evidence_pages=fields.pages("evidence_pages"),
        answers=fields.texts("answers"),
    )
