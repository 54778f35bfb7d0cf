"""Converters of other benchmarks to questions of one's own (docs/evaluation-data.md).

Each reads the file of questions as the benchmark publishes it. Documents are named as they lie
when the benchmark's documents are unpacked beside the converted file. Other packages add
converters by entry points of the group ``visar.converters``; ``module:function`` names one
without a package.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field, model_validator

from visar import plugins
from visar.errors import DatasetError
from visar.evaluation.datasets.benchmarks import existing, link_file
from visar.evaluation.datasets.entries import (
    Entry,
    Problems,
    leaves_folder,
    read_entries,
    shown,
)
from visar.evaluation.datasets.schemas import (
    Answer,
    DocumentName,
    Identity,
    Schema,
    Text,
    filled,
    read_questions,
)
from visar.evaluation.questions import Question
from visar.files import write_whole

GROUP = "visar.converters"
"""The group of entry points: callables that take a file, and give its questions."""

Converter: TypeAlias = Callable[[Path], Iterable[Question]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What became of a benchmark's file of questions."""

    file: Path
    questions: int
    with_evidence: int
    documents: int
    missing: list[str] = field(default_factory=list)
    """Documents that are not beside the file."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return {**asdict(self), "file": str(self.file)}


def convert(name: str, source: Path, out: Path) -> Conversion:
    """Write the questions of a benchmark as questions of one's own.

    Parameters
    ----------
    name
        One of `converter_names`, or ``module:function``.
    source
        The benchmark's file of questions.
    out
        The file to write: JSON lines.

    Raises
    ------
    DatasetError
        If the file is not as the benchmark publishes it; the message lists all that is wrong.
    InvalidOption
        If there is no such converter.
    """
    name = next((one for one in CONVERTERS if one.casefold() == name.casefold()), name)
    if source.is_dir():
        raise DatasetError(f"{source} is a folder: give the file of questions in it.")
    questions = _questions(name, source)
    if not questions:
        raise DatasetError(f"{source} holds no questions.")
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
        out,
        len(questions),
        sum(bool(question.evidence_pages) for question in questions),
        len(documents),
        [document for document in documents if existing(out.parent / document) is None],
    )


def converter_names() -> list[str]:
    """Return the names of all converters, ours first, then those of installed packages."""
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
    odd = [one for one in questions if not isinstance(one, Question)]
    if odd:
        raise DatasetError(f"The converter {name} gave {shown(odd[0])}, which is no Question.")
    return questions


class _MMDocIR(Schema):
    """``MMDocIR_annotations.jsonl``: a document a line, with its questions; pages from 0."""

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
    """``evaluation_20.jsonl`` and the like: evidence are the pages of gold quotes, from 0."""

    id: Identity = Field(alias="q_id")
    doc_name: DocumentName
    text: Text = Field(alias="question")
    text_quotes: list[_Quote]
    img_quotes: list[_Quote]
    gold_quotes: list[Text]
    answer: Answer = Field(alias="answer_short")

    @model_validator(mode="after")
    def _gold_is_there(self) -> _MMDocRAG:
        if unknown := [name for name in self.gold_quotes if name not in self.page_of]:
            raise ValueError(
                f'"gold_quotes" names {shown(unknown[0])}, which is none of its quotes'
            )
        return self

    @property
    def page_of(self) -> dict[str, int]:
        return {quote.quote_id: quote.page_id for quote in (*self.text_quotes, *self.img_quotes)}

    def question(self, _: Path) -> Question:
        pages = sorted(self.page_of[name] for name in self.gold_quotes)
        return _question(self, _pdf("doc_pdfs", self.doc_name), pages, first_page=0)


class _VisRBench(Schema):
    """``QA/TYPE_QA.json``: a document an entry, with its questions; pages from 0."""

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
        # At the hub the split is the beginning of the name.
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
    """``SPLIT.json``: a question is about some pages of a document, its answer's counted from 0.

    The test split has neither answers nor pages.
    """

    id: Identity = Field(alias="questionId")
    doc_id: DocumentName
    page_ids: list[Text]
    text: Text = Field(alias="question")
    answers: list[Text] = Field(default_factory=list)
    answer_page_idx: int | None = None

    @model_validator(mode="after")
    def _pages_are_there(self) -> _MPDocVQA:
        if outside := [page for page in self.page_ids if leaves_folder(page)]:
            raise ValueError(f'"page_ids" must name files of one folder, not {shown(outside[0])}')
        page, count = self.answer_page_idx, len(self.page_ids)
        if page is not None and not 0 <= page < count:
            raise ValueError(f'"answer_page_idx" is {page}, but there are {count} pages')
        return self


def _pdf(folder: str, name: str) -> str:
    """The name of a PDF in a folder, whether it is given with the suffix or not."""
    return f"{folder}/{name.removesuffix('.pdf')}.pdf"


def _question(row: Any, document: str, pages: Iterable[int], *, first_page: int) -> Question:
    """The question of a row; ``first_page`` is the number that the file gives to the first page."""
    return Question(
        id=getattr(row, "id", ""),
        document=document,
        text=row.text,
        evidence_pages=tuple(dict.fromkeys(page + 1 - first_page for page in pages)),
        answers=filled(row.answer),
    )


def _converter(schema: type[Any], *, nested: str | None = None) -> Converter:
    """A converter of files with a question an entry, or a list of them in a field of each."""

    def convert_file(file: Path) -> list[Question]:
        problems = Problems(str(file))
        entries = read_entries(file, problems)
        if nested is not None:
            entries = list(_nested(entries, nested, problems))
        return read_questions(entries, schema, problems, lambda row: row.question(file))

    return convert_file


def _nested(entries: Iterable[Entry], key: str, problems: Problems) -> Iterator[Entry]:
    """The objects of a list in each entry, with the other fields of the entry."""
    position = 0
    for entry in entries:
        shared = {name: value for name, value in entry.values.items() if name != key}
        items = entry.values.get(key)
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            fault = f'"{key}" must be a list of objects, not {shown(items)}'
            problems.add(entry.where, f'has no "{key}"' if items is None else fault, position)
            continue
        for number, item in enumerate(items, start=1):
            position += 1
            yield Entry(f"{entry.where}, question {number}", position, {**shared, **item})


def _mp_docvqa(file: Path) -> list[Question]:
    """The questions; a part of a document that one is asked of is a document here."""
    return _mp_docvqa_windows(file)[0]


def _mp_docvqa_windows(file: Path) -> tuple[list[Question], dict[str, tuple[str, ...]]]:
    """The questions, and the names of the pages of each document."""
    problems = Problems(str(file))
    entries = read_entries(file, problems, within="data")
    names: dict[tuple[str, tuple[str, ...]], str] = {}
    parts: Counter[str] = Counter()

    def question(row: _MPDocVQA) -> Question:
        window = row.doc_id, tuple(row.page_ids)
        if window not in names:
            parts[row.doc_id] += 1
            number = parts[row.doc_id]
            names[window] = f"pages/{row.doc_id}" + (f"-{number}" if number > 1 else "")
        evidence = () if row.answer_page_idx is None else (row.answer_page_idx + 1,)
        return Question(row.id, names[window], row.text, evidence, tuple(row.answers))

    questions = read_questions(entries, _MPDocVQA, problems, question)
    return questions, {name: pages for (_, pages), name in names.items()}


def _link_pages(source: Path, folder: Path) -> None:
    """Gather the page images of each document, which lie together beside MP-DocVQA's file."""
    for document, pages in _mp_docvqa_windows(source)[1].items():
        images = [source.parent / "images" / f"{page}.jpg" for page in pages]
        target = folder / document
        if target.exists() or not all(image.is_file() for image in images):
            continue
        target.mkdir(parents=True)
        for number, image in enumerate(images, start=1):
            link_file(image, target / f"{number:04}.jpg")


_MP_DOCVQA = "MP-DocVQA"
# A new benchmark is one function and one entry here, or an entry point of another package.
CONVERTERS: Mapping[str, Converter] = {
    "MMDocIR": _converter(_MMDocIR, nested="questions"),
    "MMDocRAG": _converter(_MMDocRAG),
    "VisR-Bench": _converter(_VisRBench, nested="qa_list"),
    "SlideVQA": _converter(_SlideVQA),
    _MP_DOCVQA: _mp_docvqa,
    "FinanceBench": _converter(_FinanceBench),
}
"""The converters that come with ViSAR, by the names of the benchmarks."""
