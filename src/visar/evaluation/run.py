"""An evaluation from beginning to end: encode, retrieve, answer, judge.

Every stage keeps its records as it goes, and begins with what is not there yet: a run that was
interrupted goes on, a larger plan adds to a smaller one, and shares of several machines add up.
Models are released when the stage that needs them is over, before the next one loads its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from visar.core import select
from visar.documents import ReadOptions
from visar.encoders.protocol import Encoder
from visar.errors import DocumentError, EmptyQuestion, InvalidOption
from visar.evaluation.answerer import Answerer, AnswerTask
from visar.evaluation.calls import ONE_BY_ONE, ModelCalls, Pace, group_by
from visar.evaluation.datasets import published_edition
from visar.evaluation.details import details_path, write_details
from visar.evaluation.judge import (
    CachedJudge,
    Case,
    Judge,
    Verdict,
    get_judge,
    judge_and_model,
    judge_each,
    needs_model,
)
from visar.evaluation.manifest import DataRead, Manifest, Skipped, finish, write_manifest
from visar.evaluation.methods import ComparedMethod, is_answered
from visar.evaluation.plan import Plan, QuestionSet
from visar.evaluation.questions import Question
from visar.evaluation.records import (
    KEYS,
    Answered,
    Asked,
    Judged,
    Record,
    RecordWriter,
    Retrieved,
    key_of,
    read_by_key,
    writer_name,
)
from visar.evaluation.workers import Task, retrieve
from visar.generation import extractive
from visar.generation.parsing import is_not_answerable
from visar.generation.protocol import BatchGenerator, Generator
from visar.generation.registry import is_served
from visar.index import Index
from visar.ingest.pipeline import Progress as PageProgress
from visar.models.protocols import Releasable
from visar.results import Document, EncoderRef


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """Callbacks that receive the progress of a run."""

    document: Callable[[Path], PageProgress]
    """Called with a document's path; returns the callback for its pages."""
    step: Callable[[str, int, int], None]
    """Called with a stage, how much of it is done, and how much there is."""


@dataclass(slots=True)
class Outcome:
    """What one call of a run did."""

    questions: int = 0
    documents: int = 0
    retrieved: int = 0
    answered: int = 0
    judged: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    failures: dict[str, str] = field(default_factory=dict)
    """By encoder, generator or judge: how often it failed, and the last reason."""


_Documents = dict[tuple[str, str], Document]
"""The documents of a run that are in the index, by data set and name."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A question of the run."""

    questions: QuestionSet
    question: Question
    asked: Asked
    document: Document


class Run:
    """One call of a run: what ``plan`` says and the folder does not hold yet.

    ``question_sets`` are those of `open_question_sets`; the index
    takes the documents, and makes and holds the models; ``base_url`` is where ``openai:MODEL`` is
    served; ``ray`` is the address of a cluster that encodes and retrieves. Raises VisarError if
    there is no such encoder, generator or judge, or it cannot be had here.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        question_sets: Sequence[QuestionSet],
        index: Index,
        listener: ProgressListener,
        *,
        base_url: str | None = None,
        ray: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._plan = plan
        self._methods = plan.chosen_methods()
        self._question_sets = question_sets
        self._index = index
        self._listener = listener
        self._base_url = base_url
        self._ray = ray
        self._writer_name = writer_name()
        self._encoders: dict[str, Encoder] = {}
        self._addresses: dict[str, str] = {}
        for typed in plan.encoders:
            encoder = index.encoder(typed)
            if encoder.name in self._encoders:
                other = self._addresses[encoder.name]
                raise InvalidOption(f"{other} and {typed} are the same encoder: name it once.")
            self._encoders[encoder.name] = encoder
            self._addresses[encoder.name] = typed
        self._generators = {
            name: self._generator(name) for name in plan.generators if name != extractive.NAME
        }
        self._paces = {
            name: self._pace_of(generator) for name, generator in self._generators.items()
        }
        self._judges = [self._judge_named(name) for name in plan.judges if plan.generators]
        self._documents: _Documents = {}
        self._rows: list[_Row] = []
        self._retrieved: dict[tuple[Any, ...], Retrieved] = {}
        self._calls = ModelCalls(listener.step)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Do what is not done yet.

        Raises VisarError if an encoder or a method fails. A generator or judge that fails is noted,
        and asked again in the next call.
        """
        manifest = Manifest(
            plan=self._plan.model_dump(mode="json"),
            data={one.name: data_read(one) for one in self._question_sets if not one.published},
            encoders={name: encoder.version for name, encoder in self._encoders.items()},
            addresses={name: typed for name, typed in self._addresses.items() if typed != name},
        )
        write_manifest(self._folder, self._writer_name, manifest)
        interrupted = True
        try:
            self._run_stages()
            interrupted = False
        finally:
            self._outcome.failures = self._calls.failures()
            ended = finish(
                manifest,
                self._outcome.skipped,
                self._outcome.failures,
                interrupted=interrupted,
            )
            write_manifest(self._folder, self._writer_name, ended)
        return self._outcome

    def _run_stages(self) -> None:
        self._retrieved = read_by_key(self._folder, Retrieved)
        for encoder in self._encoders.values():
            prepared = self._prepare_documents(encoder)
            self._ask()
            self._retrieve(encoder, prepared)
            self._keep_details(encoder, prepared)
            if extractive.NAME in self._plan.generators:
                # Quotes need the encoder: they are made while it is there.
                self._answer(extractive.NAME, [encoder.name])
            self._index.release()
        for generator in self._generators:
            self._answer(generator, self._encoders)
            self._index.release()
        for judge, pace in self._judges:
            self._judge(judge, pace)
            self._index.release()

    def _generator(self, name: str) -> Generator:
        base_url = self._base_url if is_served(name) else None
        return self._index.generator(name, base_url=base_url)

    def _pace_of(self, generator: Generator) -> Pace:
        """How many questions a generator is given at a time: if its model runs here, in a batch."""
        if not isinstance(generator, Releasable):
            return Pace(threads=self._plan.concurrency)
        can_batch = isinstance(generator, BatchGenerator)
        return Pace(batch=self._plan.concurrency) if can_batch else ONE_BY_ONE

    def _judge_named(self, name: str) -> tuple[Judge, Pace]:
        """The judge of a name, and how many answers it is given at a time."""
        if not needs_model(name):
            return get_judge(name), ONE_BY_ONE
        judge, model = judge_and_model(name)
        generator = self._generator(model)
        cached = CachedJudge(judge(generator), self._folder / "verdicts")
        return cached, self._pace_of(generator)

    def _writer(self, kind: type[Record]) -> RecordWriter[Record]:
        return RecordWriter(self._folder, kind, self._writer_name)

    def _prepare_documents(self, encoder: Encoder) -> _Documents:
        """Put every document into the index; what is there is not read again."""
        prepared: _Documents = {}
        skipped = self._outcome.skipped
        invalid = 0
        wanted = [
            (questions, name)
            for questions in self._question_sets
            if questions.published is None
            for name in documents_of(questions, self._plan.share)
        ]
        options = ReadOptions(ocr=self._plan.ocr, ocr_engine=self._plan.ocr_engine)
        if self._ray is not None:
            # All at once; the loop below finds them in the index.
            paths = [path for asked, name in wanted if (path := asked.dataset.path(name))]
            self._index.add_all(
                paths,
                encoder=self._addresses[encoder.name],
                options=options,
                progress=lambda place: self._listener.document(Path(place)),
                ray=self._ray,
            )
        for done, (questions, name) in enumerate(wanted):
            self._listener.step("documents", done, len(wanted))
            path = questions.dataset.path(name)
            if path is None:
                missing = skipped.missing.setdefault(questions.name, [])
                missing += [] if name in missing else [name]
                continue
            try:
                document = self._index.add(
                    path,
                    encoder=self._addresses[encoder.name],
                    options=options,
                    progress=self._listener.document(path),
                )
            except DocumentError as error:
                skipped.refused.setdefault(questions.name, {})[name] = str(error)
                continue
            prepared[questions.name, name] = document
            invalid += document.count_invalid(encoder.name)
        self._listener.step("documents", len(wanted), len(wanted))
        if invalid:
            skipped.invalid_pages[encoder.name] = invalid
        self._documents |= prepared
        self._outcome.documents = len(self._documents)
        return prepared

    def _ask(self) -> None:
        """Keep the questions whose documents are there, without their words."""
        known = read_by_key(self._folder, Asked)
        self._rows = []
        for questions in self._question_sets:
            outside = []
            for question in questions.questions:
                document = self._documents.get(_document_key(questions, question))
                if document is None:
                    continue
                asked = asked_of(questions, question, document)
                self._rows.append(_Row(questions, question, asked, document))
                if len(asked.evidence_pages) < len(question.evidence_pages):
                    outside.append(question.id)
            if outside:
                self._outcome.skipped.pages_outside[questions.name] = outside
        self._outcome.questions = len(self._rows)
        with self._writer(Asked) as writer:
            asked_now = [row.asked for row in self._rows]
            writer.write(one for one in asked_now if known.get(key_of(one)) != one)

    def _retrieve(self, encoder: Encoder, prepared: _Documents) -> None:
        with self._writer(Retrieved) as writer:

            def keep(found: list[Retrieved]) -> None:
                writer.write(found)
                self._retrieved.update((key_of(record), record) for record in found)
                self._outcome.retrieved += len(found)

            # What corrections leave as it was is taken over once the published data are done.
            for is_corrected in (False, True):
                # Long documents first, so that no core waits for the last.
                rows = sorted(
                    (row for row in self._rows if bool(row.questions.published) == is_corrected),
                    key=lambda row: (-row.asked.pages, row.asked.document),
                )
                keep([record for row in rows for record in self._taken_over(row, encoder.name)])
                tasks = list(self._tasks(rows, encoder, prepared))
                progress = partial(self._listener.step, "retrieval")
                alone = self._plan.measure_latency
                retrieve(self._index.location, tasks, keep, progress, alone=alone, ray=self._ray)

    def _tasks(
        self, rows: Iterable[_Row], encoder: Encoder, prepared: _Documents
    ) -> Iterator[Task]:
        reference = EncoderRef(encoder.name, encoder.version, encoder.dimension)
        for row in rows:
            document = prepared.get(_document_key(row.questions, row.question))
            missing = tuple(method.name for method in self._missing(row.asked, encoder.name))
            query = None
            if document is not None and missing:
                with self._calls.caught(encoder.name, row.question.id, EmptyQuestion):
                    query = encoder.encode_query(row.question.text)
            if document is not None and query is not None:
                invalid = document.count_invalid(encoder.name)
                task = row.asked, document.id, reference, query, missing, self._plan.depth
                yield Task(*task, invalid_pages=invalid)

    def _missing(self, asked: Asked, encoder: str) -> Iterator[ComparedMethod]:
        """The methods that can choose for a question, and whose choice is not kept yet."""
        for method in self._methods:
            if method.needs_evidence and not asked.evidence_pages:
                continue
            if method.max_pages is not None and asked.pages > method.max_pages:
                continue
            found = self._retrieved.get((asked.dataset, asked.question, encoder, method.name))
            # An earlier call with smaller budgets kept fewer pages of fixed top-k.
            depth = 1 if method.adaptive else min(self._plan.depth, asked.pages)
            is_kept = found is not None and len(found.pages) >= depth
            is_timed = found is not None and (found.alone or not self._plan.measure_latency)
            if not (is_kept and is_timed):
                yield method

    def _taken_over(self, row: _Row, encoder: str) -> Iterator[Retrieved]:
        """What was chosen before a question was corrected; only the oracle looks at evidence."""
        asked = row.asked
        if row.questions.published is None:
            return
        for method in self._missing(asked, encoder):
            found = self._retrieved.get(
                (row.questions.published, asked.question, encoder, method.name)
            )
            if found is not None and not (asked.corrected and method.needs_evidence):
                yield replace(found, dataset=asked.dataset)

    def _keep_details(self, encoder: Encoder, prepared: _Documents) -> None:
        """Keep the similarity matrix and J(k) of chosen questions."""
        for row in self._rows:
            document = prepared.get(_document_key(row.questions, row.question))
            is_wanted = row.question.id in self._plan.details and not row.questions.published
            if not is_wanted or document is None:
                continue
            path = details_path(self._folder, row.asked, encoder.name)
            if not path.exists():
                searcher = self._index.searcher([document.id], self._addresses[encoder.name])
                query = encoder.encode_query(row.question.text)
                selection = select(query, searcher.pages, full_matrix=True)
                write_details(path, row.asked, encoder.name, selection)

    def _answer(self, generator: str, encoders: Iterable[str]) -> None:
        known = read_by_key(self._folder, Answered)
        pace = self._paces.get(generator, ONE_BY_ONE)
        models = self._generators, self._addresses
        answerer = Answerer(self._index, *models, concurrency=max(pace.threads, pace.batch))
        rows = {(row.asked.dataset, row.asked.question): row for row in self._rows}
        for answered in known.values():
            if row := rows.get((answered.dataset, answered.question)):
                answerer.remember(answered, row.question.text, row.document.id)
        tasks = [
            task
            for task in self._answer_tasks(generator, encoders)
            if key_of(task.blank) not in known
        ]
        if pace.batch > 1:
            # Prompts of a batch are padded to the longest.
            tasks.sort(key=lambda task: len(task.blank.pages))
        groups = group_by(tasks, lambda task: task.input)
        with self._writer(Answered) as writer:

            def keep(group: Sequence[AnswerTask], answered: Answered) -> None:
                writer.write(task.record(answered) for task in group)
                self._outcome.answered += len(group)

            self._calls.make(
                "answers",
                generator,
                groups,
                answerer.answer,
                keep,
                question=lambda task: task.retrieved.question,
                pace=pace,
            )

    def _answer_tasks(self, generator: str, encoders: Iterable[str]) -> Iterator[AnswerTask]:
        """Tasks of one question stand together, so that it is searched for once."""
        methods = [method for method in self._methods if is_answered(method)]
        # What quotes has no prompt.
        prompt = "default" if generator == extractive.NAME else self._plan.prompt
        for row in self._rows:
            for encoder in encoders:
                for method in methods:
                    found = self._retrieved.get((*key_of(row.asked), encoder, method.name))
                    if found is not None:
                        for max_k in self._plan.max_k:
                            task = row.question.text, row.document.id, found, generator, max_k
                            yield AnswerTask(*task, prompt=prompt)

    def _judge(self, judge: Judge, pace: Pace) -> None:
        questions = {
            (questions.name, question.id): question
            for questions in self._question_sets
            for question in self._questions_of_share(questions)
            # Where the data set has no answer, there is nothing to judge by.
            if question.answers
        }
        known = read_by_key(self._folder, Judged)
        answers = [
            record
            for record in read_by_key(self._folder, Answered).values()
            if (record.dataset, record.question) in questions
            and (*key_of(record), judge.name) not in known
        ]

        def case_of(answered: Answered) -> Case:
            question = questions[answered.dataset, answered.question]
            return Case(question.text, tuple(question.answers), answered.said, question.kind)

        with self._writer(Judged) as writer:

            def keep(group: Sequence[Answered], verdict: Verdict) -> None:
                writer.write(_judged(judge, answered, verdict) for answered in group)
                self._outcome.judged += len(group)

            self._calls.make(
                "judging",
                judge.name,
                group_by(answers, case_of),
                lambda answers: judge_each(judge, [case_of(answered) for answered in answers]),
                keep,
                question=lambda answered: answered.question,
                pace=pace,
            )

    def _questions_of_share(self, questions: QuestionSet) -> list[Question]:
        documents = set(documents_of(questions, self._plan.share))
        return [question for question in questions.questions if question.document in documents]


def _document_key(questions: QuestionSet, question: Question) -> tuple[str, str]:
    return questions.published or questions.name, question.document


def documents_of(questions: QuestionSet, share: tuple[int, int]) -> list[str]:
    """Return the documents of a question set that belong to a share of the run."""
    mine, shares = share
    return sorted({question.document for question in questions.questions})[mine - 1 :: shares]


def data_read(questions: QuestionSet) -> DataRead:
    """Return what the manifest says of a data set."""
    count = len(questions.questions)
    edition = published_edition(questions.name, count)
    return DataRead(source=questions.source, questions=count, edition=edition)


def asked_of(questions: QuestionSet, question: Question, document: Document) -> Asked:
    """Return the record of a question, with the evidence pages that its document has."""
    return Asked(
        question=question.id,
        dataset=questions.name,
        document=question.document,
        pages=document.pages,
        evidence_pages=tuple(
            page for page in question.evidence_pages if 1 <= page <= document.pages
        ),
        answerable=not any(map(is_not_answerable, question.answers)),
        corrected=question.id in questions.changed,
    )


def _judged(judge: Judge, answered: Answered, verdict: Verdict) -> Judged:
    key = dict(zip(KEYS[Answered], key_of(answered), strict=True))
    return Judged(**key, judge=judge.name, correct=verdict.correct)
