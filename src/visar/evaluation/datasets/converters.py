"""Convert other benchmarks to custom questions (docs/evaluation-reference.md).

Converters read a benchmark's published file of questions. The converted questions expect the
benchmark's documents to be unpacked next to the converted file. Other packages can add converters
by entry points in the group ``visar.converters``; ``module:function`` also works.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field, model_validator

from visar import plugins
from visar.errors import DatasetError
from visar.evaluation.datasets.benchmarks import if_exists, link_file
from visar.evaluation.datasets.entries import (
    Answer,
    DocumentName,
    Entry,
    Identity,
    Schema,
    Text,
    filled,
    leaves_folder,
    read_entries,
    read_questions,
    shown,
)
from visar.evaluation.questions import Question
from visar.files import write_whole

GROUP = "visar.converters"
"""The entry point group of converters: functions of a file that return its questions."""

Converter: TypeAlias = Callable[[Path], Iterable[Question]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of a conversion."""

    file: str
    questions: int
    with_evidence: int
    documents: int
    missing: list[str]
    """Documents that aren't next to the file."""


def convert(name: str, source: Path, out: Path) -> Conversion:
    """Convert a benchmark's file of questions to custom questions in JSON Lines.

    ``name`` is one of `converter_names`, or ``module:function``. Raises DatasetError with a list of
    problems if the file isn't in the benchmark's format, and InvalidOption if the converter is
    unknown.
    """
    name = next((one for one in CONVERTERS if one.casefold() == name.casefold()), name)
    if source.is_dir():
        raise DatasetError(f"{source} is a folder: give the file of questions in it.")
    questions = _questions(name, source)
    if not questions:
        raise DatasetError(f"{source} has no questions: check that it is the right file.")
    lines = [
        {
            "id": question.id,
            "question": question.text,
            "document": question.document,
            "evidence_pages": question.evidence_pages,
            "answers": question.answers,
        }
        for question in questions
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_whole(out, text.encode())
    documents = dict.fromkeys(question.document for question in questions)
    if name == _MP_DOCVQA:
        _link_pages(source, out.parent)
    return Conversion(
        str(out),
        len(questions),
        sum(bool(question.evidence_pages) for question in questions),
        len(documents),
        [document for document in documents if if_exists(out.parent / document) is None],
    )


def converter_names() -> list[str]:
    """Return the names of all converters, ours first, then those of plugins."""
    return list({**CONVERTERS, **plugins.entry_points(GROUP)})


def _questions(name: str, source: Path) -> list[Question]:
    if name in CONVERTERS:
        return list(CONVERTERS[name](source))
    found = plugins.entry_points(GROUP).get(name)
    if found is None and not plugins.is_object_name(name):
        raise plugins.unknown_name("converter", name, converter_names())
    converter = plugins.load(name if found is None else found)
    with plugins.failing_as(DatasetError, f"The converter {name} failed", "."):
        questions = list(converter(source))
    invalid = [one for one in questions if not isinstance(one, Question)]
    if invalid:
        raise DatasetError(
            f"The converter {name} returned {shown(invalid[0])}: it must return Question objects."
        )
    return questions


class _MMDocIR(Schema):
    """``MMDocIR_annotations.jsonl``: a document per line, with its questions; pages from 0."""

    doc_name: DocumentName
    text: Text = Field(alias="Q")
    pages: list[int] = Field(alias="page_id")
    answer: Answer = Field(alias="A")

    def question(self, _: Path) -> Question:
        return _question(self, _pdf("doc_pdfs", self.doc_name), self.pages, first_page=0)


class _Quote(Schema):
    quote_id: Identity
    page_id: int


class _MMDocRAG(Schema):
    """``evaluation_20.jsonl`` etc.: the evidence is the pages of gold quotes, from 0."""

    id: Identity = Field(alias="q_id")
    doc_name: DocumentName
    text: Text = Field(alias="question")
    text_quotes: list[_Quote]
    img_quotes: list[_Quote]
    gold_quotes: list[Text]
    answer: Answer = Field(alias="answer_short")

    @model_validator(mode="after")
    def _check_gold_quotes(self) -> _MMDocRAG:
        if unknown := [name for name in self.gold_quotes if name not in self.page_of]:
            raise ValueError(
                f'"gold_quotes" has {shown(unknown[0])}, which isn\'t one of the quotes'
            )
        return self

    @property
    def page_of(self) -> dict[str, int]:
        return {quote.quote_id: quote.page_id for quote in (*self.text_quotes, *self.img_quotes)}

    def question(self, _: Path) -> Question:
        pages = sorted(self.page_of[name] for name in self.gold_quotes)
        return _question(self, _pdf("doc_pdfs", self.doc_name), pages, first_page=0)


class _VisRBench(Schema):
    """``QA/TYPE_QA.json``: a document per entry, with its questions; pages from 0."""

    file_name: DocumentName
    text: Text = Field(alias="question")
    page_index: int
    answer: Answer

    def question(self, file: Path) -> Question:
        folder = "Multilingual" if file.stem.startswith("multilingual") else "Multimodal"
        return _question(self, f"{folder}/{self.file_name}", [self.page_index], first_page=0)


class _SlideVQA(Schema):
    """``annotations/qa/SPLIT.jsonl``: decks of 20 slides, pages from 1."""

    id: Identity = Field(alias="qa_id")
    deck_name: DocumentName
    text: Text = Field(alias="question")
    evidence_pages: list[int]
    answer: Answer

    def question(self, file: Path) -> Question:
        # On the hub, the file name starts with the split.
        folder = f"images/{file.stem.partition('-')[0]}"
        return _question(self, f"{folder}/{self.deck_name}", self.evidence_pages, first_page=1)


class _Evidence(Schema):
    doc_name: str | None = None
    evidence_page_num: int


class _FinanceBench(Schema):
    """``financebench_open_source.jsonl``: filings as PDFs, pages from 0."""

    id: Identity = Field(alias="financebench_id")
    doc_name: DocumentName
    text: Text = Field(alias="question")
    evidence: list[_Evidence]
    answer: Answer

    def question(self, _: Path) -> Question:
        own = [one for one in self.evidence if one.doc_name in (None, self.doc_name)]
        pages = [one.evidence_page_num for one in own]
        return _question(self, _pdf("pdfs", self.doc_name), pages, first_page=0)


class _MPDocVQA(Schema):
    """``SPLIT.json``: a question is about some pages of a document; the answer's page is from 0.

    The test split has no answers or answer pages.
    """

    id: Identity = Field(alias="questionId")
    doc_id: DocumentName
    page_ids: list[Text]
    text: Text = Field(alias="question")
    answers: list[Text] = Field(default_factory=list)
    answer_page_idx: int | None = None

    @model_validator(mode="after")
    def _check_pages(self) -> _MPDocVQA:
        if outside := [page for page in self.page_ids if leaves_folder(page)]:
            raise ValueError(f'"page_ids" must name files of one folder, not {shown(outside[0])}')
        page, count = self.answer_page_idx, len(self.page_ids)
        if page is not None and not 0 <= page < count:
            raise ValueError(f'"answer_page_idx" is {page}, but there are {count} pages')
        return self


def _pdf(folder: str, name: str) -> str:
    """Return the path of a PDF in a folder, adding the suffix if needed."""
    return f"{folder}/{name.removesuffix('.pdf')}.pdf"


def _question(row: Any, document: str, pages: Iterable[int], *, first_page: int) -> Question:
    """Return the question of a row; ``first_page`` is the number of the first page in the file."""
    return Question(
        id=getattr(row, "id", ""),
        document=document,
        text=row.text,
        evidence_pages=tuple(dict.fromkeys(page + 1 - first_page for page in pages)),
        answers=filled(row.answer),
    )


def _converter(schema: type[Any], *, nested: str | None = None) -> Converter:
    """Return a converter for files with a question per entry, or a list in the field ``nested``."""

    def convert_file(file: Path) -> list[Question]:
        entries = read_entries(file)
        if nested is not None:
            entries = [one for entry in entries for one in _nested(entry, nested)]
        return read_questions(
            file, entries, lambda values: schema.model_validate(values).question(file)
        )

    return convert_file


def _nested(entry: Entry, key: str) -> list[Entry]:
    """Return the objects of a list in an entry, with the entry's other fields."""
    items = entry.values.get(key)
    if entry.fault is not None:
        return [entry]
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        fault = f'"{key}" must be a list of objects, not {shown(items)}'
        return [replace(entry, fault=f'has no "{key}"' if items is None else fault)]
    shared = {name: value for name, value in entry.values.items() if name != key}
    return [
        Entry(f"{entry.where}, question {number}", {**shared, **item})
        for number, item in enumerate(items, start=1)
    ]


def _mp_docvqa(file: Path) -> list[Question]:
    """Return the questions of MP-DocVQA; each range of pages is a document."""
    return _mp_docvqa_windows(file)[0]


def _mp_docvqa_windows(file: Path) -> tuple[list[Question], dict[str, tuple[str, ...]]]:
    """Return the questions, and the page names of each document."""
    names: dict[tuple[str, tuple[str, ...]], str] = {}
    parts: Counter[str] = Counter()

    def question(values: dict[str, Any]) -> Question:
        row = _MPDocVQA.model_validate(values)
        window = row.doc_id, tuple(row.page_ids)
        if window not in names:
            parts[row.doc_id] += 1
            number = parts[row.doc_id]
            names[window] = f"pages/{row.doc_id}" + (f"-{number}" if number > 1 else "")
        evidence = () if row.answer_page_idx is None else (row.answer_page_idx + 1,)
        return Question(row.id, names[window], row.text, evidence, tuple(row.answers))

    questions = read_questions(file, read_entries(file, within="data"), question)
    return questions, {name: pages for (_, pages), name in names.items()}


def _link_pages(source: Path, folder: Path) -> None:
    """Link the page images of each document, which MP-DocVQA has in a single folder."""
    for document, pages in _mp_docvqa_windows(source)[1].items():
        images = [source.parent / "images" / f"{page}.jpg" for page in pages]
        target = folder / document
        if target.exists() or not all(image.is_file() for image in images):
            continue
        target.mkdir(parents=True)
        for number, image in enumerate(images, start=1):
            link_file(image, target / f"{number:04}.jpg")


_MP_DOCVQA = "MP-DocVQA"
# To add a benchmark, write a function and add an entry, or use an entry point in a package.
CONVERTERS: Mapping[str, Converter] = {
    "MMDocIR": _converter(_MMDocIR, nested="questions"),
    "MMDocRAG": _converter(_MMDocRAG),
    "VisR-Bench": _converter(_VisRBench, nested="qa_list"),
    "SlideVQA": _converter(_SlideVQA),
    _MP_DOCVQA: _mp_docvqa,
    "FinanceBench": _converter(_FinanceBench),
}
"""ViSAR's converters, by name of the benchmark."""
