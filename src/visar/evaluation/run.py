"""Run an evaluation: encode, retrieve, answer, judge.

A call of a run computes results that are missing or stale in the folder. So an interrupted run can
be resumed, a larger plan extends a smaller one, and several machines can compute shares. Models
are released after their stage, before the next stage loads its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visar._version import __version__
from visar.encoders.encoder import Encoder
from visar.errors import InvalidOption
from visar.evaluation.answering import answer, judge_answers, quote
from visar.evaluation.calls import ONE_BY_ONE, ModelCalls, Pace
from visar.evaluation.datasets import find_revision, published_edition
from visar.evaluation.inputs import (
    Definitions,
    define_calibration,
    define_generator,
    define_method,
    digest,
)
from visar.evaluation.judge import Judge, get_judge, judge_and_model, needs_model
from visar.evaluation.manifest import DataRead, Manifest, finish, write_manifest
from visar.evaluation.plan import Plan, QuestionSet
from visar.evaluation.preparing import prepare_documents, write_questions
from visar.evaluation.records import writer_name
from visar.evaluation.searching import Search
from visar.evaluation.work import Outcome, ProgressListener, Work
from visar.generation import extractive
from visar.generation.generator import BatchGenerator, Generator
from visar.generation.registry import is_served
from visar.index import Index
from visar.models.protocols import Releasable, identity_of
from visar.results import EncoderRef
from visar.retrieval.calibration import find_calibration


class Run:
    """A call of a run, which computes the results of a plan that are missing in a folder.

    Raises VisarError if an encoder, generator or judge is unknown or can't run here.

    Parameters
    ----------
    folder
        Folder of the run.
    plan
        Plan of the evaluation.
    question_sets
        Question sets returned by `open_question_sets`.
    index
        Index for the documents, which also creates and holds the models.
    listener
        Callbacks for progress.
    base_url
        URL where ``openai:MODEL`` is served.
    ray
        Address of a Ray cluster that encodes and retrieves.
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
        self._plan = plan
        self._question_sets = question_sets
        self._index = index
        self._base_url = base_url
        self._methods = plan.chosen_methods()
        self._encoders: dict[str, Encoder] = {}
        addresses: dict[str, str] = {}
        for typed in plan.encoders:
            encoder = index.encoder(typed)
            if encoder.name in addresses:
                other = addresses[encoder.name]
                raise InvalidOption(f"{other} and {typed} are the same encoder: remove one.")
            self._encoders[encoder.name] = encoder
            addresses[encoder.name] = typed
        self._generators = [
            self._generator(name) for name in plan.generators if name != extractive.NAME
        ]
        self._quotes = extractive.NAME in plan.generators
        self._judges = [self._judge(name) for name in plan.judges if plan.generators]
        self._work = Work(
            folder=folder,
            writer_name=writer_name(),
            plan=plan,
            manifest=Manifest(
                plan=plan.model_dump(mode="json"),
                data={one.name: _data_read(one) for one in question_sets if not one.published},
                definitions=self._definitions(),
                addresses={name: typed for name, typed in addresses.items() if typed != name},
                models={
                    **{name: identity_of(encoder) for name, encoder in self._encoders.items()},
                    **{one.name: identity_of(one) for one in self._generators},
                },
            ),
            index=index,
            addresses=addresses,
            listener=listener,
            ray=ray,
            calls=ModelCalls(listener.step),
        )

    def run(self) -> Outcome:
        """Compute missing results.

        Raises VisarError if an encoder or method fails. Failures of generators and judges are
        recorded, and retried in the next call.
        """
        work = self._work
        write_manifest(work.folder, work.writer_name, work.manifest)
        interrupted = True
        try:
            self._run_stages()
            interrupted = False
        finally:
            work.outcome.failures = work.calls.failures()
            skipped, failures = work.outcome.skipped, work.outcome.failures
            ended = finish(work.manifest, skipped, failures, interrupted=interrupted)
            write_manifest(work.folder, work.writer_name, ended)
        return work.outcome

    def _run_stages(self) -> None:
        work = self._work
        for encoder in self._encoders.values():
            prepare_documents(work, self._question_sets, encoder)
            if not work.rows:
                write_questions(work, self._question_sets)
            search = Search(work, encoder, self._methods, keep_weights=self._quotes)
            search.retrieve()
            search.write_details()
            if self._quotes:
                quote(work, search, encoder)
            self._index.release()
        for generator in self._generators:
            answer(work, generator, self._pace(generator))
            self._index.release()
        for judge, pace, _ in self._judges:
            judge_answers(work, judge, pace)
            self._index.release()

    def _definitions(self) -> Definitions:
        prompt = self._plan.prompt
        generators: dict[str, dict[str, str]] = {
            one.name: {prompt: define_generator(one, prompt)} for one in self._generators
        }
        if self._quotes:
            # Quotes have no prompt.
            generators[extractive.NAME] = {"default": ""}
        return Definitions(
            code=__version__,
            encoders={name: encoder.version for name, encoder in self._encoders.items()},
            calibrations={
                name: define_calibration(find_calibration(EncoderRef.of(encoder)))
                for name, encoder in self._encoders.items()
            },
            methods={method.name: define_method(method) for method in self._methods},
            generators=generators,
            judges={judge.name: digest(version) for judge, _, version in self._judges},
        )

    def _generator(self, name: str) -> Generator:
        base_url = self._base_url if is_served(name) else None
        return self._index.generator(name, base_url=base_url)

    def _pace(self, generator: Generator) -> Pace:
        """Return the pace for a generator: threads if it is served, a batch if it runs here."""
        if not isinstance(generator, Releasable):
            return Pace(threads=self._plan.concurrency)
        can_batch = isinstance(generator, BatchGenerator)
        return Pace(batch=self._plan.concurrency) if can_batch else ONE_BY_ONE

    def _judge(self, name: str) -> tuple[Judge, Pace, str]:
        """Return a judge, its pace, and its model's version."""
        if not needs_model(name):
            return get_judge(name), ONE_BY_ONE, ""
        kind, model = judge_and_model(name)
        generator = self._generator(model)
        return kind(generator), self._pace(generator), identity_of(generator)


def _data_read(questions: QuestionSet) -> DataRead:
    count = len(questions.questions)
    content = [
        (one.id, one.document, one.text, one.evidence_pages, one.answers, one.kind)
        for one in questions.questions
    ]
    path = questions.dataset.path(questions.questions[0].document) if count else None
    return DataRead(
        source=questions.source,
        questions=count,
        edition=published_edition(questions.name, count),
        revision=None if path is None else find_revision(path),
        digest=digest(content),
    )
