"""Stage one of a run: add documents to the index, and write questions to the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace

from visar.documents import Limits, ReadOptions
from visar.encoders.encoder import Encoder
from visar.errors import DocumentError, InvalidOption
from visar.evaluation.datasets.beir import CORPUS_LIMITS, BeirDataset
from visar.evaluation.inputs import digest
from visar.evaluation.plan import QuestionSet
from visar.evaluation.questions import Question
from visar.evaluation.records import QuestionRecord, read_by_key, write_records
from visar.evaluation.state import read_state
from visar.evaluation.work import Row, Work
from visar.generation.parsing import is_not_answerable
from visar.ingest.pipeline import Stage
from visar.results import Document


def prepare_documents(work: Work, question_sets: Sequence[QuestionSet], encoder: Encoder) -> None:
    """Add all documents to the index, skipping those that are already there."""
    plan, skipped = work.plan, work.skipped
    address = work.addresses[encoder.name]
    invalid = 0

    def pages_done(_: Stage, done: int, total: int) -> None:
        work.step("pages", done, total)

    documents = [
        (questions, name)
        for questions in question_sets
        if questions.published is None
        for name in questions.documents(plan.share)
    ]
    has_corpus = any(isinstance(questions.dataset, BeirDataset) for questions in question_sets)
    limits = CORPUS_LIMITS if has_corpus else Limits()
    options = ReadOptions(ocr=plan.ocr, ocr_engine=plan.ocr_engine, limits=limits)
    if work.ray is not None:
        # Add all documents in parallel; the loop below finds them in the index.
        paths = [path for questions, name in documents if (path := questions.dataset.path(name))]
        work.index.add_all(
            paths,
            encoder=address,
            options=options,
            progress=lambda _: pages_done,
            ray=work.ray,
        )
    for done, (questions, name) in enumerate(documents):
        work.step("documents", done, len(documents))
        path = questions.dataset.path(name)
        if path is None:
            missing = skipped.missing.setdefault(questions.name, [])
            missing += [] if name in missing else [name]
            continue
        try:
            document = work.index.add(path, encoder=address, options=options, progress=pages_done)
        except DocumentError as error:
            skipped.refused.setdefault(questions.name, {})[name] = str(error)
            continue
        work.documents[questions.name, name] = document
        invalid += len(document.failed_pages(encoder.name))
    work.step("documents", len(documents), len(documents))
    if invalid:
        skipped.invalid_pages[encoder.name] = invalid


def write_questions(work: Work, question_sets: Sequence[QuestionSet]) -> None:
    """Write the questions about indexed documents, without their text, and read the run's state."""
    contents = {one.id: _document_digest(work, one) for one in work.documents.values()}
    for questions in question_sets:
        outside = []
        for question in questions.questions:
            source = questions.published or questions.name, question.document
            document = work.documents.get(source)
            if document is None:
                continue
            record = _question_record(questions, question, document, contents[document.id])
            work.rows[record.key] = Row(question, record, source)
            if len(record.evidence_pages) < len(question.evidence_pages):
                outside.append(question.id)
        if outside:
            work.skipped.pages_outside[questions.name] = outside
    known = read_by_key(work.folder, QuestionRecord)
    changed = [one for one in work.asked if known.get(one.key) != one]
    changed += _removed_questions(known.values(), question_sets)
    write_records(work.folder, changed, work.writer)
    if work.rows:
        work.state = read_state(work.folder)


def _removed_questions(
    known: Iterable[QuestionRecord], question_sets: Sequence[QuestionSet]
) -> list[QuestionRecord]:
    """Return records of questions from earlier calls that were removed from their data sets."""
    ids = {one.name: {question.id for question in one.questions} for one in question_sets}
    return [
        replace(one, dropped=True)
        for one in known
        if not one.dropped and one.dataset in ids and one.question not in ids[one.dataset]
    ]


def _document_digest(work: Work, document: Document) -> str:
    """Return the digest of a document's file and words.

    Raises InvalidOption if the index has words that were read with different OCR settings.
    """
    pages = work.index.pages(document.id)
    ocr = work.plan.ocr
    for page in pages:
        by_ocr = page.text_source in ("ocr", "both")
        if (ocr == "never" and by_ocr) or (ocr == "always" and not by_ocr and page.words):
            raise InvalidOption(
                f"{work.index.location} has {document.name} with other OCR settings than "
                f"--ocr {ocr}: the text source of page {page.number} is {page.text_source}. "
                "Use a different --index."
            )
    return digest(document.id, [[word.text for word in page.words] for page in pages])


def _question_record(
    questions: QuestionSet, question: Question, document: Document, document_digest: str
) -> QuestionRecord:
    """Return the record of a question, with the evidence pages within its document."""
    return QuestionRecord(
        question=question.id,
        dataset=questions.name,
        document=question.document,
        pages=document.pages,
        evidence_pages=tuple(
            page for page in question.evidence_pages if 1 <= page <= document.pages
        ),
        answerable=not any(map(is_not_answerable, question.answers)),
        corrected=question.id in questions.changed,
        text_digest=digest(question.text),
        document_digest=document_digest,
        answers_digest=digest(question.answers, question.kind) if question.answers else "",
        boxes_digest=digest(*map(astuple, question.boxes)) if question.boxes else "",
    )
