"""LongDocURL: questions about documents that are there as PDFs or as page images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from visar.evaluation.datasets.fields import Fields
from visar.evaluation.datasets.locating import ScatteredDocuments
from visar.evaluation.datasets.published import published_questions
from visar.evaluation.datasets.reading import Entry, Problems
from visar.evaluation.questions import Question


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A document of which only some page images are there."""

    document: str
    images: int
    """That are there."""
    first_missing: int
    """The first page that is not; 1 is the first of the document."""

    def __str__(self) -> str:
        return (
            f"{self.document}: only {self.images} page images are there, and that of page "
            f"{self.first_missing} (number {self.first_missing - 1} in its name) is missing"
        )


class LongDocURL:
    """LongDocURL, as its authors publish it and as in the collection the paper used.

    Evidence pages count from 1, the numbers in the names of page images from 0: page 1 is
    ``NAME_0.png``. A document with some of its page images only counts as missing, because the
    pages after a gap would have the wrong numbers, and what is retrieved from a part of a document
    is no result for the whole.
    """

    name: str = "LongDocURL"

    def __init__(self, entries: Sequence[Entry], problems: Problems, folder: Path) -> None:
        self._files = ScatteredDocuments(folder)
        self._questions = published_questions(entries, problems)
        self._page_counts: dict[str, int] = {}
        for entry, question in zip(entries, self._questions, strict=True):
            if pages := Fields(entry, problems).optional_count("total_pages"):
                self._page_counts[question.document] = pages
        problems.refuse()

    def questions(self) -> list[Question]:
        """All questions, in the order of the data set."""
        return list(self._questions)

    def path(self, document: str) -> Path | None:
        """Where a document is: its PDF, else a folder of its page images; None if it is missing."""
        name = _stem(document)
        if pdf := self._files.pdf(name):
            return pdf
        if not self._files.images(name) or self._first_missing(document):
            return None
        return self._files.folder_of_images(name)

    def incomplete_documents(self) -> list[Incomplete]:
        """The documents that count as missing because page images of them are."""
        found = []
        for document in dict.fromkeys(question.document for question in self._questions):
            name = _stem(document)
            images = len(self._files.images(name))
            missing = self._first_missing(document)
            if images and missing and not self._files.pdf(name):
                found.append(Incomplete(document, images, missing))
        return found

    def _first_missing(self, document: str) -> int | None:
        images = self._files.images(_stem(document))
        pages = self._page_counts.get(document, max(images, default=-1) + 1)
        return next((page for page in range(1, pages + 1) if page - 1 not in images), None)


def _stem(document: str) -> str:
    return document.removesuffix(".pdf")
