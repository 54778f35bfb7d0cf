"""Converters of other benchmarks to questions of one's own (docs/evaluation-data.md).

Each reads the file of questions as the benchmark publishes it. Documents are named as they lie
when the benchmark's documents are unpacked beside the converted file. Other packages add
converters by entry points of the group ``visar.converters``; ``module:function`` names one
without a package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from visar import plugins
from visar.errors import DatasetError
from visar.evaluation.datasets.benchmarks import existing, link_file
from visar.evaluation.datasets.entries import (
    Entry,
    Fields,
    Problems,
    leaves_folder,
    read_entries,
    shown,
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


class _Benchmark:
    """One entry of a benchmark's file, with what a question is made of."""

    def __init__(self, entry: Entry, problems: Problems, seen: dict[str, str], file: Path) -> None:
        self.fields = Fields(entry, problems)
        self.values = entry.values
        self.file = file
        self._seen = seen

    def pdf(self, key: str, folder: str) -> str:
        """The name of a PDF in a folder, whether its field has the suffix or not."""
        return f"{folder}/{self.fields.document(key).removesuffix('.pdf')}.pdf"

    def objects(self, key: str) -> list[dict[str, Any]]:
        """A list of objects."""
        return _objects(self.fields, self.values, key)

    def page(self, values: Mapping[str, Any], key: str) -> int:
        """A page number of an object within the entry."""
        page = values.get(key)
        if isinstance(page, int) and not isinstance(page, bool):
            return page
        self.fields.wrong(f'"{key}" must be a page number, not {shown(page)}')
        return 0

    def question(
        self,
        document: str,
        text: str,
        pages: Iterable[int],
        answers: Sequence[str],
        *,
        first_page: int,
        key: str = "id",
    ) -> Question:
        """The question; ``first_page`` is the number that the file gives to the first page."""
        return Question(
            id=self.fields.identity(key, document, text, self._seen),
            document=document,
            text=text,
            evidence_pages=tuple(dict.fromkeys(page + 1 - first_page for page in pages)),
            answers=tuple(answers),
        )


def _mmdocir(entry: _Benchmark) -> Question:
    """``MMDocIR_annotations.jsonl``: a document a line, with its questions; pages from 0."""
    fields = entry.fields
    return entry.question(
        entry.pdf("doc_name", "doc_pdfs"),
        fields.text("Q"),
        fields.pages("page_id"),
        fields.answers("A"),
        first_page=0,
    )


def _mmdocrag(entry: _Benchmark) -> Question:
    """``evaluation_20.jsonl`` and the like: evidence are the pages of gold quotes, from 0."""
    fields = entry.fields
    quotes = {
        str(quote.get("quote_id")): quote
        for quote in (*entry.objects("text_quotes"), *entry.objects("img_quotes"))
    }
    gold = fields.texts("gold_quotes")
    if unknown := [name for name in gold if name not in quotes]:
        fields.wrong(f'"gold_quotes" names {shown(unknown[0])}, which is none of its quotes')
    pages = [entry.page(quotes[name], "page_id") for name in gold if name in quotes]
    return entry.question(
        entry.pdf("doc_name", "doc_pdfs"),
        fields.text("question"),
        sorted(pages),
        fields.answers("answer_short"),
        first_page=0,
        key="q_id",
    )


def _visr_bench(entry: _Benchmark) -> Question:
    """``QA/TYPE_QA.json``: a document an entry, with its questions; pages from 0."""
    fields = entry.fields
    folder = "Multilingual" if entry.file.stem.startswith("multilingual") else "Multimodal"
    return entry.question(
        f"{folder}/{fields.document('file_name')}",
        fields.text("question"),
        [entry.page(entry.values, "page_index")],
        fields.answers("answer"),
        first_page=0,
    )


def _slidevqa(entry: _Benchmark) -> Question:
    """``annotations/qa/SPLIT.jsonl``: decks of 20 slides, pages from 1."""
    fields = entry.fields
    return entry.question(
        # At the hub the split is the beginning of the name.
        f"images/{entry.file.stem.partition('-')[0]}/{fields.document('deck_name')}",
        fields.text("question"),
        fields.pages("evidence_pages"),
        fields.answers("answer"),
        first_page=1,
        key="qa_id",
    )


def _financebench(entry: _Benchmark) -> Question:
    """``financebench_open_source.jsonl``: filings as PDFs, pages from 0."""
    fields = entry.fields
    name = fields.document("doc_name")
    evidence = [one for one in entry.objects("evidence") if one.get("doc_name", name) == name]
    return entry.question(
        entry.pdf("doc_name", "pdfs"),
        fields.text("question"),
        [entry.page(one, "evidence_page_num") for one in evidence],
        fields.answers("answer"),
        first_page=0,
        key="financebench_id",
    )


def _mp_docvqa(entry: _Benchmark, windows: dict[str, dict[tuple[str, ...], str]]) -> Question:
    """``SPLIT.json``: a question is about some pages of a document, its answer's counted from 0.

    ``windows`` gets the pages that questions are about, by document, with the name of each: a
    part of a document that a question is asked of is a document here.
    """
    fields = entry.fields
    name, pages = fields.document("doc_id"), fields.texts("page_ids")
    if outside := [page for page in pages if leaves_folder(page)]:
        fields.wrong(f'"page_ids" must name files of one folder, not {shown(outside[0])}')
    of_document = windows.setdefault(name, {})
    number = len(of_document) + 1
    document = of_document.setdefault(pages, f"pages/{name}" + (f"-{number}" if number > 1 else ""))
    # The test split has neither.
    answers = fields.texts("answers") if "answers" in entry.values else ()
    evidence = []
    if entry.values.get("answer_page_idx") is not None:
        evidence = [entry.page(entry.values, "answer_page_idx")]
        if not 0 <= evidence[0] < max(1, len(pages)):
            fields.wrong(f'"answer_page_idx" is {evidence[0]}, but there are {len(pages)} pages')
    text = fields.text("question")
    return entry.question(document, text, evidence, answers, first_page=0, key="questionId")


def _converter(
    question: Callable[[_Benchmark], Question], *, nested: str | None = None
) -> Converter:
    """A converter of files with a question an entry, or a list of them in a field of each."""
    return lambda file: _converted(file, question, nested=nested)


def _converted(
    file: Path,
    question: Callable[[_Benchmark], Question],
    *,
    nested: str | None = None,
    within: str | None = None,
) -> list[Question]:
    problems = Problems(str(file))
    entries = read_entries(file, problems, within=within)
    if nested is not None:
        entries = list(_nested(entries, nested, problems))
    seen: dict[str, str] = {}
    found = [question(_Benchmark(entry, problems, seen, file)) for entry in entries]
    problems.refuse()
    return found


def _nested(entries: Iterable[Entry], key: str, problems: Problems) -> Iterator[Entry]:
    """The objects of a list in each entry, with the other fields of the entry."""
    position = 0
    for entry in entries:
        shared = {name: value for name, value in entry.values.items() if name != key}
        items = _objects(Fields(entry, problems), entry.values, key)
        for number, item in enumerate(items, start=1):
            position += 1
            yield Entry(f"{entry.where}, question {number}", position, {**shared, **item})


def _objects(fields: Fields, values: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = values.get(key)
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return value
    fields.wrong(
        f'has no "{key}"'
        if value is None
        else f'"{key}" must be a list of objects, not {shown(value)}'
    )
    return []


def _mp_docvqa_questions(file: Path) -> list[Question]:
    windows: dict[str, dict[tuple[str, ...], str]] = {}
    return _converted(file, lambda entry: _mp_docvqa(entry, windows), within="data")


def _link_pages(source: Path, folder: Path) -> None:
    """Gather the page images of each document, which lie together beside MP-DocVQA's file."""
    windows: dict[str, dict[tuple[str, ...], str]] = {}
    _converted(source, lambda entry: _mp_docvqa(entry, windows), within="data")
    for pages, document in (one for named in windows.values() for one in named.items()):
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
    "MMDocIR": _converter(_mmdocir, nested="questions"),
    "MMDocRAG": _converter(_mmdocrag),
    "VisR-Bench": _converter(_visr_bench, nested="qa_list"),
    "SlideVQA": _converter(_slidevqa),
    _MP_DOCVQA: _mp_docvqa_questions,
    "FinanceBench": _converter(_financebench),
}
"""The converters that come with ViSAR, by the names of the benchmarks."""
