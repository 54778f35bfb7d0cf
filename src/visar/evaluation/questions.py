"""What a benchmark asks: questions about documents, with the pages and answers that are right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a benchmark."""

    id: str
    """Unique within its data set, and stable: results are kept by it. Never the question's text."""
    document: str
    """The document's name in the data set."""
    text: str
    evidence_pages: tuple[int, ...]
    """The pages (1 is the first) that hold the answer; empty when there is none, or it is unknown.
    Only questions that have some count for retrieval; all count for accuracy."""
    answers: tuple[str, ...]
    """What counts as correct; "Not answerable" where the document does not say."""
    kind: str | None = None
    """The form of the answer as the data set names it: Str, Int, Float, List, None."""


class Dataset(Protocol):
    """A benchmark on this machine."""

    name: str
    """As the paper's tables call it where it is one of theirs."""

    def questions(self) -> list[Question]:
        """All questions, in the order of the data set."""
        ...

    def path(self, document: str) -> Path | None:
        """Where a document is, a file or a folder of page images; None if it is missing."""
        ...
