"""The first step of a run: documents into the index, questions without their words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from visar.errors import DocumentError
from visar.evaluation.questions import Dataset, Question
from visar.evaluation.records import Asked
from visar.index import Index, Reading
from visar.index import Progress as PageProgress
from visar.store import StoredDocument


@dataclass(frozen=True, slots=True)
class Part:
    """A data set as it is asked: as published, or with corrections."""

    name: str
    dataset: Dataset
    questions: Sequence[Question]
    changed: frozenset[str] = frozenset()
    """Ids of the questions that corrections have changed."""
    published: str | None = None
    """The name of the part that it is a correction of."""


@dataclass(slots=True)
class Skipped:
    """What takes no part in the run, and why."""

    missing: dict[str, list[str]] = field(default_factory=dict)
    """By data set: documents that are not there."""
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    """By data set: documents that cannot be read, with the reason."""
    pages_outside: dict[str, list[str]] = field(default_factory=dict)
    """By data set: questions with evidence on pages that their document does not have."""
    invalid_pages: dict[str, int] = field(default_factory=dict)
    """By encoder: pages it could make nothing of."""


@dataclass(slots=True)
class Shelf:
    """The documents of a run that are in the index, by data set and name."""

    documents: dict[tuple[str, str], StoredDocument] = field(default_factory=dict)
    skipped: Skipped = field(default_factory=Skipped)

    def of(self, part: Part, question: Question) -> StoredDocument | None:
        return self.documents.get((part.published or part.name, question.document))


def documents_of(part: Part, share: tuple[int, int]) -> list[str]:
    """The documents of a data set that this share of the run is about."""
    mine, shares = share
    return sorted({question.document for question in part.questions})[mine - 1 :: shares]


def shelve(
    index: Index,
    parts: Iterable[Part],
    encoders: Sequence[str],
    share: tuple[int, int],
    reading: Reading,
    progress: Callable[[Path], PageProgress],
    on_document: Callable[[int, int], None],
) -> Shelf:
    """Put every document into the index with every encoder. What is there is not read again."""
    shelf = Shelf()
    published = [part for part in parts if part.published is None]
    wanted = [(part, name) for part in published for name in documents_of(part, share)]
    for done, (part, name) in enumerate(wanted):
        on_document(done, len(wanted))
        path = part.dataset.path(name)
        if path is None:
            shelf.skipped.missing.setdefault(part.name, []).append(name)
            continue
        try:
            for encoder in encoders:
                document = index.add(
                    path, encoder=encoder, reading=reading, progress=progress(path)
                )
        except DocumentError as error:
            shelf.skipped.refused.setdefault(part.name, {})[name] = str(error)
            continue
        shelf.documents[part.name, name] = document
        for encoder in encoders:
            invalid = document.count_invalid(encoder)
            if invalid:
                known = shelf.skipped.invalid_pages.get(encoder, 0)
                shelf.skipped.invalid_pages[encoder] = known + invalid
    on_document(len(wanted), len(wanted))
    return shelf


def asked_of(part: Part, shelf: Shelf) -> list[Asked]:
    """The questions whose documents are there, without their words."""
    asked = []
    for question in part.questions:
        document = shelf.of(part, question)
        if document is None:
            continue
        within = tuple(page for page in question.evidence_pages if 1 <= page <= document.pages)
        if len(within) < len(question.evidence_pages):
            shelf.skipped.pages_outside.setdefault(part.name, []).append(question.id)
        asked.append(
            Asked(
                question=question.id,
                dataset=part.name,
                document=question.document,
                pages=document.pages,
                evidence_pages=within,
                answerable=not any(a.casefold() == "not answerable" for a in question.answers),
                corrected=question.id in part.changed,
            )
        )
    return asked
