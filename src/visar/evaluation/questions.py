"""Questions about documents with their reference answers, and the interface of data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class EvidenceBox:
    """The part of a page that an annotator marked."""

    page: int
    annotator: int
    box: tuple[float, float, float, float]
    """Left, top, right and bottom, in pixels of the page image."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a data set."""

    id: str
    """Unique within its data set, and stable: results are kept by it. Never the question's text."""
    document: str
    """The document's name in the data set."""
    text: str
    evidence_pages: tuple[int, ...]
    """The pages (1 is the first) that hold the answer; empty when there is none, or it is unknown.
    Only questions that have some count for retrieval; all count for accuracy."""
    answers: tuple[str, ...]
    """The reference answers, any one of which is right; "Not answerable" where the document does
    not say."""
    kind: str | None = None
    """The form of the answer as the data set names it: Str, Int, Float, List, None."""
    boxes: tuple[EvidenceBox, ...] = ()
    """Where the evidence is on its pages, if the data set says so."""


@runtime_checkable
class Dataset(Protocol):
    """Questions, and the documents on this machine that they are about."""

    @property
    def name(self) -> str:
        """As the paper's tables call it where it is one of theirs."""
        ...

    def questions(self) -> list[Question]:
        """All questions, in the order of the data set."""
        ...

    def path(self, document: str) -> Path | None:
        """The document's file or folder of page images; None if it is missing."""
        ...
