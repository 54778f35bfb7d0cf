"""Questions with reference answers, and the data set protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class EvidenceBox:
    """A part of a page marked by an annotator."""

    page: int
    annotator: int
    box: tuple[float, float, float, float]
    """Left, top, right and bottom in pixels of the page image."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question in a data set."""

    id: str
    """A stable id, unique in the data set, that results are stored under. Never the text."""
    document: str
    """The document's name in the data set."""
    text: str
    evidence_pages: tuple[int, ...]
    """The pages with the answer, numbered from 1; empty if there are none or they are unknown.
    Only questions with evidence pages count for retrieval; all questions count for accuracy."""
    answers: tuple[str, ...]
    """The reference answers, each of them correct; "Not answerable" if the document has no
    answer."""
    kind: str | None = None
    """The type of the answer in the data set: Str, Int, Float, List or None."""
    boxes: tuple[EvidenceBox, ...] = ()
    """The boxes of the evidence on its pages, if the data set has them."""


@runtime_checkable
class Dataset(Protocol):
    """A data set: questions, and the documents they are about."""

    @property
    def name(self) -> str:
        """The name of the data set; for the paper's data sets, the name in its tables."""
        ...

    def questions(self) -> list[Question]:
        """Return all questions, in the order of the data set."""
        ...

    def path(self, document: str) -> Path | None:
        """Return a document's file or folder of page images; None if it is missing."""
        ...


def write_list(items: Sequence[str]) -> str:
    """Return a list that a data set gives as an answer as one text: JSON without spaces.

    Texts that look like a list have a space after the comma, however they are quoted: so both can
    be told apart.

    >>> write_list(["Oban", "Coll"])
    '["Oban","Coll"]'
    """
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


def read_list(answer: str) -> list[str] | None:
    """Return the items of a list that `write_list` wrote; None for any other text."""
    try:
        items = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    are_texts = isinstance(items, list) and all(isinstance(item, str) for item in items)
    return items if are_texts and write_list(items) == answer else None
