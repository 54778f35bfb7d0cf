"""An evaluation from beginning to end: encode, retrieve, answer, judge.

Every step keeps what it has found as it goes, and begins with what is not there yet: a run that
was interrupted goes on, a larger plan adds to a smaller one, and shares of several machines add up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from visar.core import select
from visar.core.baselines import oracle
from visar.encoders.protocol import Encoder
from visar.encoders.registry import get_encoder
from visar.errors import GenerationError
from visar.evaluation.answering import Answers, AnswerTask, is_answered
from visar.evaluation.judge import Judge, get_judge, needs_model
from visar.evaluation.keeping import Keeper, read_by_key
from visar.evaluation.manifest import finish, new_manifest, write_manifest
from visar.evaluation.plan import Plan, method_keys
from visar.evaluation.preparing import Part, Shelf, asked_of, shelve
from visar.evaluation.questions import Question
from visar.evaluation.records import Answered, Asked, Judged, Retrieved, key_of
from visar.evaluation.retrieving import Task, carried_over, missing_methods, retrieve
from visar.generation import extractive
from visar.generation.protocol import Generator
from visar.generation.registry import get_generator, is_served
from visar.index import Index, Reading
from visar.index import Progress as PageProgress
from visar.store import EncoderRef

_logger = logging.getLogger(__name__)

# A generator that fails this often in a row will fail again.
MOST_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Watch:
    """Whom a run tells how far it is."""

    document: Callable[[Path], PageProgress]
    step: Callable[[str, int, int], None]
    """Called with a step, how much of it is done, and how much there is."""


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    questions: int = 0
    retrieved: int = 0
    answered: int = 0
    judged: int = 0
    shelf: Shelf = field(default_factory=Shelf)
    failures: dict[str, str] = field(default_factory=dict)
    """By generator: the last thing that went wrong, and how often something did."""


class Run:
    """One run in one folder."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        parts: Sequence[Part],
        index: Index,
        watch: Watch,
        *,
        base_url: str | None = None,
        device: str = "auto",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._plan = plan
        self._parts = parts
        self._index = index
        self._watch = watch
        self._device = device
        self._encoders = {name: get_encoder(name, device=device) for name in plan.encoders}
        self._generators: dict[str, Generator] = {
            name: get_generator(name, base_url=base_url if is_served(name) else None, device=device)
            for name in plan.generators
            if name != extractive.NAME
        }
        self._judges: list[Judge] = [
            get_judge(
                name,
                base_url=base_url if is_served(name) else None,
                device=device if needs_model(name) else "auto",
                cache=folder / "verdicts",
            )
            for name in (plan.judges if plan.generators else ())
        ]
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Do what is not done yet."""
        versions = {name: encoder.version for name, encoder in self._encoders.items()}
        manifest = new_manifest(self._plan, versions)
        write_manifest(self._folder, manifest)
        reading = Reading(ocr=self._plan.ocr)  # type: ignore[arg-type]  # checked when it is read
        self._outcome.shelf = shelve(
            self._index,
            self._parts,
            self._plan.encoders,
            self._plan.share,
            reading,
            self._watch.document,
            lambda done, total: self._watch.step("documents", done, total),
        )
        asked = self._ask()
        self._retrieve(asked)
        self._keep_details(asked)
        if self._plan.generators:
            self._answer(asked)
            self._judge()
        skipped = self._outcome.shelf.skipped
        write_manifest(self._folder, finish(manifest, skipped, self._outcome.failures))
        return self._outcome

    def _ask(self) -> list[tuple[Part, Question, Asked]]:
        """The questions of this run, kept without their words."""
        known = read_by_key(self._folder, Asked)
        rows = []
        with Keeper(self._folder, Asked) as keeper:
            for part in self._parts:
                by_id = {question.id: question for question in part.questions}
                asked = asked_of(part, self._outcome.shelf)
                keeper.keep(record for record in asked if known.get(key_of(record)) != record)
                rows += [(part, by_id[record.question], record) for record in asked]
        self._outcome.questions = len(rows)
        return rows

    def _retrieve(self, rows: Sequence[tuple[Part, Question, Asked]]) -> None:
        methods = method_keys(self._plan.methods)
        known = read_by_key(self._folder, Retrieved)
        with Keeper(self._folder, Retrieved) as keeper:

            def keep(found: list[Retrieved]) -> None:
                keeper.keep(found)
                known.update((key_of(record), record) for record in found)
                self._outcome.retrieved += len(found)

            # What corrections leave as it was is taken over once the published data are done.
            for of_corrections in (False, True):
                chosen = [row for row in rows if (row[0].published is not None) == of_corrections]
                for part, _, asked in chosen if of_corrections else ():
                    for encoder in self._encoders:
                        missing = missing_methods(asked, encoder, methods, known)
                        keep(
                            list(carried_over(asked, part.published or "", encoder, missing, known))
                        )
                tasks = list(self._tasks(chosen, methods, known))
                self._work(tasks, keep)

    def _work(self, tasks: Sequence[Task], keep: Callable[[list[Retrieved]], None]) -> None:
        done = 0

        def keep_and_tell(found: list[Retrieved]) -> None:
            nonlocal done
            keep(found)
            done += 1
            self._watch.step("retrieval", done, len(tasks))

        if tasks:
            self._watch.step("retrieval", 0, len(tasks))
            retrieve(self._index.location, tasks, keep_and_tell)

    def _tasks(
        self,
        rows: Sequence[tuple[Part, Question, Asked]],
        methods: Sequence[str],
        known: dict[tuple[Any, ...], Retrieved],
    ) -> Iterator[Task]:
        """What is to be retrieved; long documents first, so that no core waits for the last."""
        for part, question, asked in sorted(rows, key=lambda row: (-row[2].pages, row[2].document)):
            document = self._outcome.shelf.of(part, question)
            for name, encoder in self._encoders.items():
                missing = missing_methods(asked, name, methods, known)
                if document is not None and missing:
                    reference = EncoderRef(encoder.name, encoder.version, encoder.dimension)
                    query = encoder.encode_query(question.text)
                    yield Task(asked, document.id, reference, query, missing)

    def _keep_details(self, rows: Sequence[tuple[Part, Question, Asked]]) -> None:
        """The similarity matrix and J(k) of chosen questions."""
        folder = self._folder / "details"
        for part, question, asked in rows:
            document = self._outcome.shelf.of(part, question)
            if question.id not in self._plan.details or document is None or part.published:
                continue
            for name, encoder in self._encoders.items():
                path = folder / f"{_slug(part.name)}-{_slug(name)}-{_slug(question.id)}.npz"
                if not path.exists():
                    folder.mkdir(exist_ok=True)
                    _write_details(path, self._index, document.id, encoder, question, asked)

    def _answer(self, rows: Sequence[tuple[Part, Question, Asked]]) -> None:
        known = read_by_key(self._folder, Answered)
        tasks = [task for task in self._answer_tasks(rows) if key_of(task.blank) not in known]
        answers = Answers(self._index, self._generators, known.values())
        in_a_row: dict[str, int] = {}
        with Keeper(self._folder, Answered) as keeper:
            for done, task in enumerate(tasks, start=1):
                if in_a_row.get(task.generator, 0) < MOST_FAILURES:
                    try:
                        keeper.keep([answers.answer(task)])
                    except GenerationError as error:
                        in_a_row[task.generator] = in_a_row.get(task.generator, 0) + 1
                        self._outcome.failures[task.generator] = str(error)
                        _logger.warning("%s: %s", task.retrieved.question, error)
                    else:
                        in_a_row[task.generator] = 0
                        self._outcome.answered += 1
                self._watch.step("answers", done, len(tasks))

    def _answer_tasks(self, rows: Sequence[tuple[Part, Question, Asked]]) -> Iterator[AnswerTask]:
        """Tasks of one question stand together, so that it is searched for once."""
        retrieved = read_by_key(self._folder, Retrieved)
        methods = [key for key in method_keys(self._plan.methods) if is_answered(key)]
        for part, question, asked in rows:
            document = self._outcome.shelf.of(part, question)
            for encoder in self._encoders:
                for method in methods:
                    found = retrieved.get((asked.dataset, asked.question, encoder, method))
                    if found is None or document is None:
                        continue
                    for generator in self._plan.generators:
                        for max_k in self._plan.max_k:
                            yield AnswerTask(question.text, document, found, generator, max_k)

    def _judge(self) -> None:
        questions = {
            (part.name, question.id): question
            for part in self._parts
            for question in part.questions
        }
        known = read_by_key(self._folder, Judged)
        answered = [
            record
            for record in read_by_key(self._folder, Answered).values()
            # Where the data set has no answer, there is nothing to judge by.
            if (asked := questions.get((record.dataset, record.question))) and asked.answers
        ]
        with Keeper(self._folder, Judged) as keeper:
            for done, record in enumerate(answered, start=1):
                question = questions[record.dataset, record.question]
                keeper.keep(self._verdicts(record, question, known))
                self._watch.step("judging", done, len(answered))

    def _verdicts(
        self, record: Answered, question: Question, known: dict[tuple[Any, ...], Judged]
    ) -> Iterator[Judged]:
        for judge in self._judges:
            if (*key_of(record), judge.name) in known:
                continue
            verdict = judge.judge(question.text, question.answers, record.text or "Not answerable")
            self._outcome.judged += 1
            yield Judged(
                dataset=record.dataset,
                question=record.question,
                encoder=record.encoder,
                method=record.method,
                generator=record.generator,
                max_k=record.max_k,
                judge=judge.name,
                correct=verdict.correct,
            )


def _write_details(
    path: Path, index: Index, document: str, encoder: Encoder, question: Question, asked: Asked
) -> None:
    pages = index.searcher([document], encoder.name).pages
    selection = select(encoder.encode_query(question.text), pages, full_matrix=True)
    evidence = [page - 1 for page in asked.evidence_pages]
    assert selection.similarity is not None  # noqa: S101 - it was asked for
    best = oracle(selection.late_interaction, evidence).k if evidence else 0
    np.savez_compressed(
        path,
        similarity=selection.similarity,
        cost=selection.cost,
        ranking=selection.ranking,
        k_star=selection.k_star,
        k_oracle=best,
        id=np.array(question.id),
        encoder=np.array(encoder.name),
        dataset=np.array(asked.dataset),
    )


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)
