"""File-based data sets: MMLongBench-Doc, LongDocURL, and custom questions."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import AliasChoices, Field, PositiveInt

from visar.evaluation.datasets.entries import (
    Answer,
    DocumentName,
    Entry,
    Identity,
    OptionalText,
    Schema,
    Text,
    WrittenPages,
    filled,
    leaves_folder,
    read_questions,
)
from visar.evaluation.questions import Question

MMLONGBENCH = "MMLongBench"
LONGDOCURL = "LongDocURL"

_PAGE_IMAGE = re.compile(r"(?P<document>.+)_(?P<page>\d+)\.(?:png|jpe?g|webp)", re.I | re.A)


@dataclass(eq=False)
class QuestionFile:
    """A file of questions about documents in a folder: MMLongBench-Doc or custom questions."""

    name: str
    _questions: Sequence[Question]
    _folder: Path

    def questions(self) -> list[Question]:
        """Return all questions, in the order of the file."""
        return list(self._questions)

    def path(self, document: str) -> Path | None:
        """Return a document's file or folder of page images; None if it is missing."""
        return None if leaves_folder(document) else if_exists(self._folder / document)


@dataclass(eq=False)
class LongDocURL(QuestionFile):
    """LongDocURL, with documents as PDFs or page images anywhere below a folder.

    Evidence pages are numbered from 1, but page images from 0: page 1 is ``NAME_0.png``. A
    document with missing page images counts as missing, because later pages would have wrong
    numbers and part of a document is easier to search than the whole.
    """

    _page_counts: Mapping[str, int]
    _gathered: dict[str, Path] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def path(self, document: str) -> Path | None:
        """Return a document's PDF or folder of page images; None if it is missing."""
        name = document.removesuffix(".pdf")
        pdfs, images = self._found
        if name in pdfs:
            return pdfs[name]
        numbers = images.get(name, {}).keys()
        pages = self._page_counts.get(document, max(numbers, default=-1) + 1)
        is_complete = bool(numbers) and numbers >= set(range(pages))
        return self._folder_of_images(name) if is_complete else None

    @cached_property
    def _found(self) -> tuple[dict[str, Path], dict[str, dict[int, Path]]]:
        """PDFs by document, and page images by document and number in their file names."""
        pdfs: dict[str, Path] = {}
        images: dict[str, dict[int, Path]] = {}
        for path in _files_below(self._folder):
            if path.suffix.lower() == ".pdf":
                pdfs.setdefault(path.stem, path)
            elif match := _PAGE_IMAGE.fullmatch(path.name):
                images.setdefault(match["document"], {}).setdefault(int(match["page"]), path)
        return pdfs, images

    def _folder_of_images(self, name: str) -> Path:
        """Return a folder that only contains a document's page images.

        If their folder has other files, this is a temporary folder of links to them, which exists
        as long as this object.
        """
        from visar.documents.finding import visible_files

        images = self._found[1][name]
        folder = images[0].parent
        if set(visible_files(folder)) == set(images.values()):
            return folder
        with self._lock:
            if name not in self._gathered:
                parent = Path(tempfile.mkdtemp(prefix="visar-pages-"))
                weakref.finalize(self, shutil.rmtree, parent, ignore_errors=True)
                # Named so because a document is shown by the name of its folder.
                folder = parent / name
                folder.mkdir()
                for path in images.values():
                    link_file(path, folder / path.name)
                self._gathered[name] = folder
            return self._gathered[name]


class PublishedQuestion(Schema):
    """A question in the format of either benchmark."""

    id: Identity | None = Field(None, alias="question_id")
    # LongDocURL has a number; in the collection it has a file name, as in MMLongBench-Doc.
    document: DocumentName = Field(validation_alias=AliasChoices("doc_no", "doc_id"))
    text: Text = Field(alias="question")
    evidence_pages: WrittenPages
    answer: Answer
    answer_2: Answer = ""
    answer_3: Answer = ""
    kind: OptionalText = Field(None, alias="answer_format")
    total_pages: PositiveInt | None = None


class OwnQuestion(Schema):
    """A custom question."""

    id: Identity | None = None
    document: DocumentName
    text: Text = Field(alias="question")
    evidence_pages: list[int]
    answers: list[Text]


def published_questions(
    file: Path, entries: Sequence[Entry], *, first_page: int = 1, raise_to_first: bool = False
) -> list[Question]:
    """Return the questions of either benchmark; raises DatasetError if an entry is invalid.

    ``first_page`` is the number of a document's first page in the file. With ``raise_to_first``,
    lower numbers also mean the first page.
    """

    def question(values: dict[str, Any]) -> Question:
        row = PublishedQuestion.model_validate(values)
        pages = [page + 1 - first_page for page in row.evidence_pages]
        if raise_to_first:
            pages = [max(1, page) for page in pages]
        return Question(
            id=row.id or "",
            document=row.document,
            text=row.text,
            evidence_pages=tuple(dict.fromkeys(pages)),
            answers=filled(row.answer, row.answer_2, row.answer_3),
            kind=row.kind,
        )

    return read_questions(file, entries, question)


def own_questions(file: Path, entries: Sequence[Entry]) -> list[Question]:
    """Return custom questions; raises DatasetError if an entry is invalid."""

    def question(values: dict[str, Any]) -> Question:
        row = OwnQuestion.model_validate(values)
        pages = tuple(dict.fromkeys(row.evidence_pages))
        return Question(row.id or "", row.document, row.text, pages, tuple(row.answers))

    return read_questions(file, entries, question)


def link_file(path: Path, link: Path) -> None:
    """Link to a file, or copy it, because not all Windows users can create links."""
    try:
        link.symlink_to(path.absolute())
    except OSError:
        shutil.copyfile(path, link)


def if_exists(path: Path) -> Path | None:
    """Return a path if it exists, else None."""
    try:
        return path if path.exists() else None
    except (OSError, ValueError):
        # The path isn't valid on this system.
        return None


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield all files that aren't hidden, sorted by name, following links to folders."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        with contextlib.suppress(OSError):
            state = Path(parent).stat()
            if (state.st_dev, state.st_ino) in seen:
                # A link to a folder that was already visited.
                folders.clear()
                continue
            seen.add((state.st_dev, state.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))
