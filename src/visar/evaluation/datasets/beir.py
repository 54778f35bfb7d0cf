"""Data sets in BEIR's layout: a corpus of page images, queries, and judgments (qrels).

ViDoRe v1, v2 and v3 are published in this layout. The whole corpus is one document, because the
task is to search all pages. Page n is the nth row of the corpus.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field

from visar.documents.options import Limits
from visar.errors import DatasetError
from visar.evaluation.datasets.benchmarks import link_file
from visar.evaluation.datasets.entries import (
    Entry,
    Identity,
    OptionalText,
    Schema,
    Text,
    filled,
    leaves_folder,
    parse,
    read_entries,
    read_questions,
    shown,
)
from visar.evaluation.datasets.hub import cache_folder, create_once
from visar.evaluation.questions import EvidenceBox, Question

CORPUS_LIMITS = Limits(max_bytes=100_000_000_000, max_pages=1_000_000)
"""Limits for reading a corpus, which is one very large document."""

_SUFFIXES = (".parquet", ".jsonl", ".json", ".tsv")
_SIGNATURES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}


@dataclass(frozen=True, slots=True)
class BeirOptions:
    """Options that select queries and evidence."""

    grade: int = 1
    """The minimum grade for a page to count as evidence."""
    language: str | None = None
    """The language of the queries, as named in the data set; None for all."""
    split: str = "test"


class _Box(Schema):
    annotator: int = 0
    x1: float
    y1: float
    x2: float
    y2: float


class _CorpusRow(Schema):
    id: Identity = Field(validation_alias=AliasChoices("corpus-id", "corpus_id", "_id", "id"))
    image: OptionalText = None
    """The path of the image, in JSON Lines."""


class _QueryRow(Schema):
    id: Identity = Field(validation_alias=AliasChoices("query-id", "query_id", "_id", "id"))
    text: Text = Field(validation_alias=AliasChoices("query", "text"))
    language: OptionalText = None
    answer: OptionalText = None
    raw_answers: list[str] | None = None


class _Judgment(Schema):
    query: Identity = Field(validation_alias=AliasChoices("query-id", "query_id"))
    page: Identity = Field(validation_alias=AliasChoices("corpus-id", "corpus_id"))
    score: int = Field(strict=False)
    """The grade, which may be a string, as in tab-separated files."""
    bounding_boxes: list[_Box] | None = None


class BeirDataset:
    """A data set in BEIR's layout. Raises DatasetError if its folder is invalid."""

    def __init__(self, folder: Path, name: str, options: BeirOptions) -> None:
        parts = [name, options.language]
        parts.append(None if options.split == "test" else options.split)
        parts.append(None if options.grade == 1 else f"grade {options.grade}")
        self.name = ", ".join(part for part in parts if part)
        """The name of the data set, with options that aren't the default."""
        self._folder = folder
        self._document = name
        self._options = options
        self._corpus = _files_of(folder, "corpus", options)
        self._questions = self._read()

    def questions(self) -> list[Question]:
        """Return all queries with evidence pages, in the order of the file."""
        return list(self._questions)

    def path(self, document: str) -> Path | None:
        """Return a folder with the page images of the corpus, in order, created on first use."""
        return self._pages if document == self._document else None

    @cached_property
    def _rows(self) -> list[_CorpusRow]:
        rows = parse(self._folder, _entries_of(self._corpus), _CorpusRow.model_validate)
        (duplicate, count), *_ = Counter(row.id for row in rows).most_common(1)
        if count > 1:
            raise DatasetError(
                f"The corpus of {self._folder} has the page {shown(duplicate)} more than once: "
                "remove duplicates."
            )
        return rows

    def _read(self) -> list[Question]:
        numbers = {row.id: number for number, row in enumerate(self._rows, start=1)}
        judged = self._judgments(numbers)
        entries = _entries_of(_files_of(self._folder, "queries", self._options))
        language = self._options.language
        languages = {entry.values.get("language") for entry in entries} - {None}
        if language is not None and languages:
            entries = [
                entry
                for entry in entries
                if entry.fault or entry.values.get("language") == language
            ]
            if not entries:
                known = ", ".join(sorted(map(str, languages)))
                raise DatasetError(
                    f"{self._folder} has no queries in {language!r}. Languages: {known}."
                )

        def question(values: dict[str, Any]) -> Question:
            row = _QueryRow.model_validate(values)
            evidence = judged.get(row.id, {})
            answers = filled(row.answer or "", *(row.raw_answers or ()))
            return Question(
                id=row.id,
                document=self._document,
                text=row.text,
                evidence_pages=tuple(evidence),
                answers=tuple(dict.fromkeys(answers)),
                boxes=tuple(box for boxes in evidence.values() for box in boxes),
            )

        found = read_questions(self._folder, entries, question)
        return [each for each in found if each.evidence_pages]

    def _judgments(
        self, numbers: Mapping[str, int]
    ) -> dict[str, dict[int, tuple[EvidenceBox, ...]]]:
        """Return the evidence pages of each query with their boxes, best grade first."""
        rows = _judgments_in(_files_of(self._folder, "qrels", self._options))
        judged: dict[str, dict[int, tuple[EvidenceBox, ...]]] = {}
        for row in sorted(rows, key=lambda row: -row.score):
            if row.page not in numbers:
                raise DatasetError(
                    f"{self._folder}: the page {shown(row.page)} in the qrels isn't in the corpus."
                )
            if row.score >= self._options.grade:
                page = numbers[row.page]
                judged.setdefault(row.query, {})[page] = tuple(
                    EvidenceBox(page, box.annotator, (box.x1, box.y1, box.x2, box.y2))
                    for box in row.bounding_boxes or ()
                )
        return judged

    @cached_property
    def _pages(self) -> Path:
        states = [(file.resolve(), file.stat()) for file in self._corpus]
        key = repr([(str(file), state.st_size, state.st_mtime_ns) for file, state in states])
        digest = hashlib.sha256(key.encode()).hexdigest()[:12]
        target = cache_folder() / f"beir-{digest}"
        # The folder's name is shown as the document's name.
        return create_once(target, self._write_pages) / self._document

    def _write_pages(self, folder: Path) -> None:
        pages = folder / self._document
        pages.mkdir()
        width = len(str(len(self._rows)))
        for number, (file, image) in enumerate(self._images(), start=1):
            if isinstance(image, Path):
                link_file(image, pages / f"{number:0{width}}{image.suffix.lower()}")
                continue
            suffix = next(
                (end for start, end in _SIGNATURES.items() if image.startswith(start)), None
            )
            if suffix is None:
                raise DatasetError(f"{file}: the image in row {number} isn't PNG, JPEG or WebP.")
            (pages / f"{number:0{width}}{suffix}").write_bytes(image)

    def _images(self) -> Iterator[tuple[Path, bytes | Path]]:
        """Yield the image of each page, with the corpus file that contains it."""
        if self._corpus[0].suffix == ".parquet":
            for file in self._corpus:
                yield from ((file, image) for image in _images_of_table(file))
            return
        folder = self._corpus[0].parent
        for row in self._rows:
            if row.image is None or leaves_folder(row.image):
                raise DatasetError(
                    f"{self._corpus[0]}: the page {shown(row.id)} needs the path of an image below "
                    f'{folder} in "image", not {shown(row.image)}.'
                )
            if not (folder / row.image).is_file():
                raise DatasetError(f"{folder / row.image}: no such file.")
            yield self._corpus[0], folder / row.image


def is_beir(folder: Path) -> bool:
    """Return whether a folder has a corpus and queries in BEIR's layout."""
    return all(any(folder.glob(f"*{part}*")) for part in ("corpus", "queries"))


def read_qrels(path: Path, options: BeirOptions) -> dict[str, dict[str, int]]:
    """Return the grades of pages by query and page id, from a file or a data set's folder.

    Raises DatasetError if there are none or a row is invalid.
    """
    files = _files_of(path, "qrels", options) if path.is_dir() else [path]
    grades: dict[str, dict[str, int]] = {}
    for row in _judgments_in(files):
        grades.setdefault(row.query, {})[row.page] = row.score
    return grades


def _files_of(folder: Path, part: str, options: BeirOptions) -> list[Path]:
    """Return the files of the corpus, queries or qrels, in order."""
    prefix = f"{options.language}-" if options.language else ""
    # In mteb's format, the qrels are the default config.
    names = [f"{prefix}{part}", part, *(["data"] if part == "qrels" else [])]
    for name in dict.fromkeys(names):
        for suffix in _SUFFIXES:
            file = folder / f"{name}{suffix}"
            # A single file of judgments has no splits.
            if file.is_file() and (part != "qrels" or options.split == "test"):
                return [file]
            files = sorted((folder / name).glob(f"{options.split}*{suffix}"))
            if files:
                return files
    raise DatasetError(
        f"{folder} has no {part} for the split {options.split!r}: no {part}.jsonl, {part}.parquet "
        f"or {part}/{options.split}*.parquet. For a data set with a folder per language "
        f"(LANGUAGE-{part}), add ?language=LANGUAGE."
    )


def _entries_of(files: Sequence[Path]) -> list[Entry]:
    return [entry for file in files for entry in read_entries(file)]


def _judgments_in(files: Sequence[Path]) -> list[_Judgment]:
    return parse(files[0].parent, _entries_of(files), _Judgment.model_validate)


def _images_of_table(file: Path) -> Iterator[bytes]:
    """Yield the images of a Parquet file in the format of ``datasets``: {bytes, path}."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=16, columns=["image"]):
                for image in batch.column("image").to_pylist() if batch.num_columns else [None]:
                    content = image.get("bytes") if isinstance(image, dict) else image
                    if not isinstance(content, bytes):
                        raise DatasetError(f'{file} has a page without an image in "image".')
                    yield content
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DatasetError(f"Can't read the images in {file}: {error}.") from error
