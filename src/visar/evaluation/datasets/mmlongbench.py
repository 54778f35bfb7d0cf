"""MMLongBench-Doc: a list of samples, and a folder with the PDFs they ask about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visar.evaluation.datasets.locating import within
from visar.evaluation.datasets.published import published_questions
from visar.evaluation.datasets.reading import Entry, Problems
from visar.evaluation.questions import Question


class MMLongBench:
    """MMLongBench-Doc, as its authors publish it and as in the collection the paper used."""

    name: str = "MMLongBench"

    def __init__(self, entries: Sequence[Entry], problems: Problems, documents: Path) -> None:
        self._documents = documents
        self._questions = published_questions(entries, problems)
        problems.refuse()

    def questions(self) -> list[Question]:
        """All questions, in the order of the data set."""
        return list(self._questions)

    def path(self, document: str) -> Path | None:
        """Where a PDF is; None if it is missing."""
        return within(self._documents, document)
