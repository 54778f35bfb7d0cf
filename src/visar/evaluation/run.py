"""An evaluation from beginning to end: encode, retrieve, answer, judge.

A call of a run does what the folder does not hold yet, or holds only stale: an interrupted run is
resumed, a larger plan adds to a smaller one, and shares of several machines add up. Models are
released when the stage that needs them is over, before the next one loads its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from visar._version import __version__
from visar.core import select
from visar.core.vectors import Float32
from visar.documents import ReadOptions
from visar.encoders.protocol import Encoder
from visar.errors import DocumentError, EmptyQuestion, InvalidOption
from visar.evaluation.answerer import AnswerTask, quote_answer, write_answers
from visar.evaluation.calls import ONE_BY_ONE, ModelCalls, Pace, group_by
from visar.evaluation.datasets import published_edition
from visar.evaluation.details import details_path, read_inputs, write_details
from visar.evaluation.inputs import (
    Definitions,
    define_calibration,
    define_generator,
    define_method,
    digest,
)
from visar.evaluation.judge import (
    Case,
    Judge,
    Verdict,
    get_judge,
    judge_and_model,
    judge_each,
    needs_model,
)
from visar.evaluation.manifest import DataRead, Manifest, Skipped, finish, write_manifest
from visar.evaluation.plan import Plan, QuestionSet
from visar.evaluation.questions import Question, Revised
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
from visar.evaluation.state import (
    CORRECTED,
    RunState,
    planned_answers,
    planned_retrievals,
    planned_verdicts,
    read_state,
)
from visar.evaluation.workers import Searched, Task, retrieve
from visar.generation import extractive
from visar.generation.parsing import is_not_answerable
from visar.generation.protocol import BatchGenerator, Generator, model_version
from visar.generation.registry import is_served
from visar.index import Index
from visar.ingest.pipeline import Progress as PageProgress
from visar.models.protocols import Releasable
from visar.results import Document, EncoderRef
from visar.retrieval.calibration import find_calibration
from visar.retrieval.search import Searcher


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
    stale: int = 0
    """Results found in the folder whose inputs have changed."""
    skipped: Skipped = field(default_factory=Skipped)
    failures: dict[str, str] = field(default_factory=dict)
    """By encoder, generator or judge: how often it failed, and the last reason."""


_Documents = dict[tuple[str, str], Document]
"""The documents of a run that are in the index, by data set and name."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A question of the run."""

    question: Question
    asked: Asked
    document: tuple[str, str]
    """The document's data set and name."""


class Run:
    """One call of a run: what ``plan`` says and the folder does not hold yet.

    ``question_sets`` are those of `open_question_sets`; the index takes the documents, and makes
    and holds the models; ``base_url`` is where ``openai:MODEL`` is served; ``ray`` is the address
    of a cluster that encodes and retrieves. Raises VisarError if an encoder, generator or judge is
    unknown or cannot run here.
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
        self._generators: dict[str, Generator | None] = {
            name: None if name == extractive.NAME else self._generator(name)
            for name in plan.generators
        }
        self._judges: dict[str, tuple[Judge, Pace]] = {}
        self._definitions = Definitions(
            code=__version__,
            encoders={name: encoder.version for name, encoder in self._encoders.items()},
            calibrations={
                name: define_calibration(find_calibration(EncoderRef.of(encoder)))
                for name, encoder in self._encoders.items()
            },
            methods={method.name: define_method(method) for method in self._methods},
            generators={
                name: {self._prompt(name): define_generator(generator, self._prompt(name))}
                for name, generator in self._generators.items()
            },
        )
        for name in plan.judges if plan.generators else ():
            self._add_judge(name)
        self._manifest = Manifest(
            plan=plan.model_dump(mode="json"),
            data={one.name: _data_read(one) for one in question_sets if not one.published},
            definitions=self._definitions,
            addresses={name: typed for name, typed in self._addresses.items() if typed != name},
            models={
                name: model_version(generator)
                for name, generator in self._generators.items()
                if generator is not None
            },
        )
        self._documents: _Documents = {}
        self._rows: dict[tuple[str, str], _Row] = {}
        self._state = RunState({}, (), Definitions())
        self._queries: dict[tuple[str, str], Float32 | None] = {}
        self._searched: dict[tuple[str, str, str], Searched] = {}
        self._calls = ModelCalls(listener.step)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Do what is not done yet.

        Raises VisarError if an encoder or a method fails. A generator or judge that fails is noted,
        and asked again in the next call.
        """
        write_manifest(self._folder, self._writer_name, self._manifest)
        interrupted = True
        try:
            self._run_stages()
            interrupted = False
        finally:
            self._outcome.failures = self._calls.failures()
            ended = finish(
                self._manifest,
                self._outcome.skipped,
                self._outcome.failures,
                interrupted=interrupted,
            )
            write_manifest(self._folder, self._writer_name, ended)
        return self._outcome

    def _run_stages(self) -> None:
        for encoder in self._encoders.values():
            self._prepare_documents(encoder)
            if not self._rows:
                self._ask()
            self._retrieve(encoder)
            self._write_details(encoder)
            if extractive.NAME in self._generators:
                self._quote(encoder)
            self._index.release()
        for name, generator in self._generators.items():
            if generator is not None:
                self._answer(name, generator)
                self._index.release()
        for judge, pace in self._judges.values():
            self._judge(judge, pace)
            self._index.release()

    def _generator(self, name: str) -> Generator:
        base_url = self._base_url if is_served(name) else None
        return self._index.generator(name, base_url=base_url)

    def _prompt(self, generator: str) -> Any:
        # Quotes have no prompt.
        return "default" if generator == extractive.NAME else self._plan.prompt

    def _pace_of(self, generator: Generator) -> Pace:
        """Return how many questions a generator gets at a time: a batch if its model runs here."""
        if not isinstance(generator, Releasable):
            return Pace(threads=self._plan.concurrency)
        can_batch = isinstance(generator, BatchGenerator)
        return Pace(batch=self._plan.concurrency) if can_batch else ONE_BY_ONE

    def _add_judge(self, name: str) -> None:
        version, pace = "", ONE_BY_ONE
        if needs_model(name):
            kind, model = judge_and_model(name)
            generator = self._generator(model)
            judge: Judge = kind(generator)
            version, pace = model_version(generator), self._pace_of(generator)
        else:
            judge = get_judge(name)
        self._judges[judge.name] = judge, pace
        self._definitions.judges[judge.name] = digest(version)

    def _writer(self, kind: type[Record]) -> RecordWriter[Record]:
        return RecordWriter(self._folder, kind, self._writer_name)

    def _prepare_documents(self, encoder: Encoder) -> None:
        """Put every document into the index; what is there is not read again."""
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
                progress=lambda path: self._listener.document(Path(path)),
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
            self._documents[questions.name, name] = document
            invalid += document.count_invalid(encoder.name)
        self._listener.step("documents", len(wanted), len(wanted))
        if invalid:
            skipped.invalid_pages[encoder.name] = invalid
        self._outcome.documents = len(self._documents)

    def _ask(self) -> None:
        """Write the questions whose documents are there, without their words."""
        contents = {
            document.id: self._document_digest(document) for document in self._documents.values()
        }
        for questions in self._question_sets:
            outside = []
            for question in questions.questions:
                document = self._documents.get(_document_key(questions, question))
                if document is None:
                    continue
                asked = asked_of(questions, question, document, contents[document.id])
                source = _document_key(questions, question)
                self._rows[key_of(asked)] = _Row(question, asked, source)
                if len(asked.evidence_pages) < len(question.evidence_pages):
                    outside.append(question.id)
            if outside:
                self._outcome.skipped.pages_outside[questions.name] = outside
        self._outcome.questions = len(self._rows)
        known = read_by_key(self._folder, Asked)
        in_data = {(each.name, one.id) for each in self._question_sets for one in each.questions}
        names = {each.name for each in self._question_sets}
        dropped = [
            replace(one, dropped=True)
            for key, one in known.items()
            if one.dataset in names and key not in in_data and not one.dropped
        ]
        with self._writer(Asked) as writer:
            asked_now = [row.asked for row in self._rows.values()]
            writer.write([one for one in asked_now if known.get(key_of(one)) != one] + dropped)
        if self._rows:
            self._state = read_state(self._folder)
            self._outcome.stale = sum(self._state.stale.values())

    def _document_digest(self, document: Document) -> str:
        """Return the digest of a document's file and words.

        Raises InvalidOption if the index has words that were read with other OCR settings.
        """
        pages = self._index.pages(document.id)
        ocr = self._plan.ocr
        for page in pages:
            by_ocr = page.text_source in ("ocr", "both")
            if (ocr == "never" and by_ocr) or (ocr == "always" and not by_ocr and page.words):
                raise InvalidOption(
                    f"{self._index.location} holds {document.name} read with other OCR settings "
                    f"than --ocr {ocr}: page {page.number} has words from its {page.text_source}. "
                    "Use another --index."
                )
        return digest(document.id, [[word.text for word in page.words] for page in pages])

    def _encode(self, encoder: Encoder, question: Question) -> Float32 | None:
        """Return the vectors of a question, encoded once; None if it has no words to encode."""
        key = encoder.name, question.text
        if key not in self._queries:
            self._queries[key] = None
            with self._calls.caught(encoder.name, question.id, EmptyQuestion):
                self._queries[key] = encoder.encode_query(question.text)
        return self._queries[key]

    def _retrieve(self, encoder: Encoder) -> None:
        with self._writer(Retrieved) as writer:

            def keep(records: Iterable[Retrieved]) -> None:
                found = [replace(one, inputs=self._state.inputs(one) or "") for one in records]
                writer.write(found)
                self._state.keep(found)
                self._outcome.retrieved += len(found)

            def keep_searched(searched: Searched) -> None:
                keep(searched.retrieved)
                self._keep_searched(encoder.name, searched)

            # The second time, questions with the same inputs as others take over their results.
            for _ in range(2):
                missing = self._missing_retrievals(encoder.name)
                keep(self._taken_over(missing))
                tasks = list(self._tasks(missing, encoder))
                progress = partial(self._listener.step, "retrieval")
                alone = self._plan.measure_latency
                location, ray = self._index.location, self._ray
                retrieve(location, tasks, keep_searched, progress, alone=alone, ray=ray)

    def _missing_retrievals(self, encoder: str) -> dict[tuple[str, str], dict[str, str]]:
        """Return the methods whose choice is missing, with its inputs, by question."""
        missing: dict[tuple[str, str], dict[str, str]] = {}
        asked = [row.asked for row in self._rows.values()]
        for setting in planned_retrievals(self._manifest, asked):
            question, method = setting[:2], setting[3]
            row = self._rows[question]
            if setting[2] == encoder and not self._is_kept(self._state.retrieved.get(setting), row):
                inputs = self._state.definitions.retrieval(row.asked, encoder, method)
                missing.setdefault(question, {})[method] = inputs
        return missing

    def _is_kept(self, found: Retrieved | Answered | Judged | None, row: _Row) -> bool:
        """Return whether a retrieval is there, deep enough for the budgets, and timed if asked."""
        if not isinstance(found, Retrieved):
            return False
        adaptive = next(one.adaptive for one in self._methods if one.name == found.method)
        depth = 1 if adaptive else min(self._plan.depth, row.asked.pages)
        return len(found.pages) >= depth and (found.alone or not self._plan.measure_latency)

    def _taken_over(self, missing: dict[tuple[str, str], dict[str, str]]) -> Iterator[Retrieved]:
        """Yield the choices that were made from the same inputs for another question."""
        for (dataset, question), methods in missing.items():
            for method, inputs in list(methods.items()):
                known = self._state.known.get(inputs)
                if isinstance(known, Retrieved) and self._is_kept(
                    known, self._rows[dataset, question]
                ):
                    del methods[method]
                    yield replace(known, dataset=dataset, question=question)

    def _tasks(
        self, missing: dict[tuple[str, str], dict[str, str]], encoder: Encoder
    ) -> Iterator[Task]:
        """Yield the searches to do, long documents first, so that no core waits for the last."""
        given: set[str] = set()
        for key in sorted(missing, key=lambda key: self._search_order(self._rows[key])):
            methods = tuple(name for name, inputs in missing[key].items() if inputs not in given)
            given.update(missing[key].values())
            if methods:
                yield from self._task(self._rows[key], encoder, methods)

    @staticmethod
    def _search_order(row: _Row) -> tuple[int, str]:
        return -row.asked.pages, row.asked.document

    def _task(self, row: _Row, encoder: Encoder, methods: tuple[str, ...]) -> Iterator[Task]:
        """Yield the search for a question, if its document and its words can be encoded."""
        document = self._documents[row.document]
        reference = EncoderRef.of(encoder)
        query = self._encode(encoder, row.question) if document.has(reference) else None
        if query is not None:
            invalid = document.count_invalid(encoder.name)
            yield Task(row.asked, document.id, reference, query, methods, self._plan.depth, invalid)

    def _write_details(self, encoder: Encoder) -> None:
        """Write the similarity matrix and J(k) of the questions that the plan names."""
        for row in self._rows.values():
            asked = row.asked
            if asked.question not in self._plan.details or asked.dataset.endswith(CORRECTED):
                continue
            path = details_path(self._folder, asked, encoder.name)
            inputs = digest(
                self._definitions.retrieval(asked, encoder.name, "visar"), asked.evidence_pages
            )
            query = self._encode(encoder, row.question)
            if query is not None and read_inputs(path) != inputs:
                document = self._documents[row.document].id
                searcher = self._index.searcher([document], self._addresses[encoder.name])
                selection = select(query, searcher.pages, full_matrix=True)
                write_details(path, asked, encoder.name, selection, inputs)

    def _quote(self, encoder: Encoder) -> None:
        tasks = [
            task
            for task in self._answer_tasks(extractive.NAME)
            if task.blank.encoder == encoder.name
        ]
        rows = [self._rows[key] for key in dict.fromkeys(_question_of(task) for task in tasks)]
        searches = [
            task
            for row in sorted(rows, key=self._search_order)
            # The pages were chosen in an earlier call, which did not keep the weights.
            if self._search_key(encoder.name, row.asked) not in self._searched
            for task in self._task(row, encoder, ())
        ]
        retrieve(
            self._index.location,
            searches,
            partial(self._keep_searched, encoder.name),
            partial(self._listener.step, "retrieval"),
            ray=self._ray,
        )
        searchers: dict[str, Searcher] = {}

        def quote(batch: Sequence[AnswerTask]) -> list[Answered]:
            (task,) = batch
            if task.document not in searchers:
                # Tasks of one document come one after another.
                searchers.clear()
                address = self._addresses[encoder.name]
                searchers[task.document] = self._index.searcher([task.document], address)
            asked = self._rows[_question_of(task)].asked
            searched = self._searched[self._search_key(encoder.name, asked)]
            return [quote_answer(task, searchers[task.document], searched)]

        tasks.sort(key=lambda task: self._search_order(self._rows[_question_of(task)]))
        self._keep_answers(extractive.NAME, tasks, quote, ONE_BY_ONE)
        self._searched.clear()

    @staticmethod
    def _search_key(encoder: str, asked: Asked) -> tuple[str, str, str]:
        return encoder, asked.text_digest, asked.document_digest

    def _keep_searched(self, encoder: str, searched: Searched) -> None:
        if extractive.NAME in self._generators:
            self._searched[self._search_key(encoder, searched.asked)] = searched

    def _answer(self, name: str, generator: Generator) -> None:
        pace = self._pace_of(generator)
        tasks = list(self._answer_tasks(name))
        if pace.batch > 1:
            # Prompts of a batch are padded to the longest.
            tasks.sort(key=lambda task: len(task.blank.pages))
        write = partial(
            write_answers,
            index=self._index,
            generator=generator,
            concurrency=max(pace.threads, pace.batch),
        )
        self._keep_answers(name, tasks, write, pace)

    def _answer_tasks(self, generator: str) -> Iterator[AnswerTask]:
        """Yield the answers of a generator that are missing and whose pages are chosen."""
        asked = [row.asked for row in self._rows.values()]
        for setting in planned_answers(self._manifest, asked):
            chosen = self._state.retrieved.get(setting[:4])
            if setting[4] != generator or setting in self._state.answered or chosen is None:
                continue
            dataset, question, encoder, method, _, max_k, prompt = setting
            pages = chosen.pages[:max_k]
            row = self._rows[dataset, question]
            inputs = self._state.definitions.answer(row.asked, encoder, generator, prompt, pages)
            blank = Answered(
                dataset=dataset,
                question=question,
                encoder=encoder,
                method=method,
                generator=generator,
                max_k=max_k,
                pages=pages,
                text="",
                raw="",
                input_tokens=None,
                output_tokens=None,
                seconds=0.0,
                prompt=prompt,
                inputs=inputs,
            )
            yield AnswerTask(row.question.text, self._documents[row.document].id, blank, prompt)

    def _keep_answers(
        self,
        generator: str,
        tasks: Sequence[AnswerTask],
        answer: Callable[[Sequence[AnswerTask]], Sequence[Answered | Exception]],
        pace: Pace,
    ) -> None:
        """Answer tasks, those with the same inputs once, and keep the answers."""
        with self._writer(Answered) as writer:

            def keep(group: Sequence[AnswerTask], answered: Answered) -> None:
                found = [_with_setting(answered, task.blank) for task in group]
                writer.write(found)
                self._state.keep(found)
                self._outcome.answered += len(group)

            groups = group_by(tasks, lambda task: task.blank.inputs)
            for group in groups:
                known = self._state.known.get(group[0].blank.inputs)
                if isinstance(known, Answered):
                    keep(group, known)
            self._calls.make(
                "answers",
                generator,
                [group for group in groups if group[0].blank.inputs not in self._state.known],
                answer,
                keep,
                question=lambda task: task.blank.question,
                pace=pace,
            )

    def _judge(self, judge: Judge, pace: Pace) -> None:
        asked = [row.asked for row in self._rows.values()]
        blanks = []
        for setting in planned_verdicts(self._manifest, asked):
            answered = self._state.answered.get(setting[:-1])
            if setting[-1] == judge.name and setting not in self._state.judged and answered:
                blank = _blank_verdict(answered, judge.name)
                blanks.append(replace(blank, inputs=self._state.inputs(blank) or ""))

        def case_of(blank: Judged) -> Case:
            question = self._rows[blank.dataset, blank.question].question
            said = self._state.answered[key_of(blank)[:-1]].said
            return Case(question.text, question.answers, said, question.kind)

        with self._writer(Judged) as writer:

            def keep(group: Sequence[Judged], verdict: Verdict | Judged) -> None:
                found = [
                    replace(
                        blank, correct=verdict.correct, reason=verdict.reason, model=verdict.model
                    )
                    for blank in group
                ]
                writer.write(found)
                self._state.keep(found)
                self._outcome.judged += len(group)

            groups = group_by(blanks, lambda blank: blank.inputs)
            for group in groups:
                known = self._state.known.get(group[0].inputs)
                if isinstance(known, Judged):
                    keep(group, known)
            self._calls.make(
                "judging",
                judge.name,
                [group for group in groups if group[0].inputs not in self._state.known],
                lambda blanks: judge_each(judge, [case_of(blank) for blank in blanks]),
                keep,
                question=lambda blank: blank.question,
                pace=pace,
            )


def _question_of(task: AnswerTask) -> tuple[str, str]:
    return task.blank.dataset, task.blank.question


def _with_setting(answered: Answered, blank: Answered) -> Answered:
    """Return an answer under the setting of another one with the same inputs."""
    return replace(answered, **dict(zip(KEYS[Answered], key_of(blank), strict=True)))


def _blank_verdict(answered: Answered, judge: str) -> Judged:
    setting = dict(zip(KEYS[Answered], key_of(answered), strict=True))
    return Judged(**setting, judge=judge, correct=False)


def _document_key(questions: QuestionSet, question: Question) -> tuple[str, str]:
    return questions.published or questions.name, question.document


def documents_of(questions: QuestionSet, share: tuple[int, int]) -> list[str]:
    """Return the documents of a question set that belong to a share of the run."""
    mine, shares = share
    return sorted({question.document for question in questions.questions})[mine - 1 :: shares]


def _data_read(questions: QuestionSet) -> DataRead:
    count = len(questions.questions)
    content = [
        (one.id, one.document, one.text, one.evidence_pages, one.answers, one.kind)
        for one in questions.questions
    ]
    return DataRead(
        source=questions.source,
        questions=count,
        edition=published_edition(questions.name, count),
        revision=questions.dataset.revision if isinstance(questions.dataset, Revised) else None,
        digest=digest(content),
    )


def asked_of(
    questions: QuestionSet, question: Question, document: Document, document_digest: str
) -> Asked:
    """Return the record of a question, with the evidence pages that its document has."""
    judged_by = (question.answers, question.kind)
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
        text_digest=digest(question.text),
        document_digest=document_digest,
        answers_digest=digest(judged_by) if question.answers else "",
    )
