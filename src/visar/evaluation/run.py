"""Run an evaluation: encode, retrieve, answer, judge.

A call of a run computes results that are missing or stale in the folder. So an interrupted run can
be resumed, a larger plan extends a smaller one, and several machines can compute shares. Models
are released after their stage, before the next stage loads its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from visar._version import __version__
from visar.encoders.encoder import Encoder
from visar.errors import InvalidOption
from visar.evaluation.answering import answer, judge_answers, quote
from visar.evaluation.calls import ONE_BY_ONE, ModelCalls, Pace
from visar.evaluation.inputs import Definitions, define_method, digest
from visar.evaluation.judge import Judge, get_judge, judge_and_model, needs_model
from visar.evaluation.manifest import Manifest, Skipped, now, write_manifest
from visar.evaluation.plan import Plan, QuestionSet
from visar.evaluation.preparing import prepare_documents, write_questions
from visar.evaluation.records import writer_name
from visar.evaluation.searching import Search
from visar.evaluation.work import Work
from visar.generation import extractive
from visar.generation.answering import prompt_digest
from visar.generation.generator import BatchGenerator, Generator
from visar.generation.registry import is_served
from visar.index import Index
from visar.models.protocols import Releasable, identity_of
from visar.results import EncoderRef
from visar.retrieval.calibration import find_calibration


class Outcome(BaseModel):
    """The result of a call of a run."""

    questions: int = 0
    documents: int = 0
    retrieved: int = 0
    answered: int = 0
    judged: int = 0
    stale: int = 0
    """The number of stale results in the folder."""
    skipped: Skipped
    failures: dict[str, str]
    """The number of failures and the last reason, by encoder, generator or judge."""


def run(
    folder: Path,
    plan: Plan,
    question_sets: Sequence[QuestionSet],
    index: Index,
    step: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
    *,
    base_url: str | None = None,
    ray: str | None = None,
) -> Outcome:
    """Compute the results of a plan that are missing in a folder.

    Raises VisarError if an encoder, generator or judge is unknown or can't run here, or an encoder
    or method fails. Failures of generators and judges are recorded, and retried in the next call.

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
    step
        Callback for progress: stage, number of steps done, and total number of steps.
    base_url
        URL where ``openai:MODEL`` is served.
    ray
        Address of a Ray cluster that encodes and retrieves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    models = _Models.create(plan, index, base_url)
    work = Work(
        folder=folder,
        writer=writer_name(),
        plan=plan,
        manifest=Manifest(
            plan=plan.model_dump(mode="json"),
            data={one.name: one.data_read() for one in question_sets if one.published is None},
            definitions=models.define(plan),
            addresses={name: typed for name, typed in models.addresses.items() if typed != name},
            models={
                **{name: identity_of(encoder) for name, encoder in models.encoders.items()},
                **{one.name: identity_of(one) for one in models.generators},
            },
        ),
        index=index,
        addresses=models.addresses,
        step=step,
        ray=ray,
        calls=ModelCalls(step),
    )
    write_manifest(folder, work.writer, work.manifest)
    finished = None
    try:
        _run_stages(work, question_sets, models)
        finished = now()
    finally:
        failures = work.calls.failures()
        ended = {"finished": finished, "skipped": work.skipped, "failures": failures}
        write_manifest(folder, work.writer, work.manifest.model_copy(update=ended))
    return Outcome(
        questions=len(work.rows),
        documents=len(work.documents),
        **work.stored,
        stale=work.state.stale.total(),
        skipped=work.skipped,
        failures=failures,
    )


@dataclass(frozen=True, slots=True)
class _Models:
    """The models of a plan."""

    encoders: dict[str, Encoder]
    addresses: dict[str, str]
    """The encoders' names as typed, by name."""
    generators: list[Generator]
    """The generators except quotes."""
    quotes: bool
    judges: list[tuple[Judge, Pace, str]]
    """Judges, their pace, and the version of their models."""

    @classmethod
    def create(cls, plan: Plan, index: Index, base_url: str | None) -> _Models:
        """Create the models; raises VisarError if one is unknown or can't run here."""

        def generator(name: str) -> Generator:
            return index.generator(name, base_url=base_url if is_served(name) else None)

        def judge(name: str) -> tuple[Judge, Pace, str]:
            if not needs_model(name):
                return get_judge(name), ONE_BY_ONE, ""
            kind, model_name = judge_and_model(name)
            model = generator(model_name)
            return kind(model), _pace(model, plan.concurrency), identity_of(model)

        encoders: dict[str, Encoder] = {}
        addresses: dict[str, str] = {}
        for typed in plan.encoders:
            encoder = index.encoder(typed)
            if encoder.name in addresses:
                other = addresses[encoder.name]
                raise InvalidOption(f"{other} and {typed} are the same encoder: remove one.")
            encoders[encoder.name] = encoder
            addresses[encoder.name] = typed
        return cls(
            encoders,
            addresses,
            [generator(name) for name in plan.generators if name != extractive.NAME],
            extractive.NAME in plan.generators,
            [judge(name) for name in plan.judges if plan.generators],
        )

    def define(self, plan: Plan) -> Definitions:
        """Return the definitions of the models and methods of a plan."""
        prompt = plan.prompt
        found = {name: find_calibration(EncoderRef.of(one)) for name, one in self.encoders.items()}
        generators: dict[str, dict[str, str]] = {
            one.name: {prompt: digest(identity_of(one), prompt_digest(one, prompt))}
            for one in self.generators
        }
        if self.quotes:
            # Quotes have no prompt.
            generators[extractive.NAME] = {"default": ""}
        return Definitions(
            code=__version__,
            encoders={name: encoder.version for name, encoder in self.encoders.items()},
            calibrations={
                name: "" if known is None else digest(repr(known)) for name, known in found.items()
            },
            methods={method.name: define_method(method) for method in plan.chosen_methods()},
            generators=generators,
            judges={judge.name: digest(version) for judge, _, version in self.judges},
        )


def _pace(generator: Generator, concurrency: int) -> Pace:
    """Return the pace for a generator: threads if it is served, a batch if it runs here."""
    if not isinstance(generator, Releasable):
        return Pace(threads=concurrency)
    can_batch = isinstance(generator, BatchGenerator)
    return Pace(batch=concurrency) if can_batch else ONE_BY_ONE


def _run_stages(work: Work, question_sets: Sequence[QuestionSet], models: _Models) -> None:
    for encoder in models.encoders.values():
        prepare_documents(work, question_sets, encoder)
        if not work.rows:
            write_questions(work, question_sets)
        search = Search(work, encoder, work.plan.chosen_methods(), keep_weights=models.quotes)
        search.retrieve()
        search.write_details()
        if models.quotes:
            quote(work, search, encoder)
        work.index.release()
    for generator in models.generators:
        answer(work, generator, _pace(generator, work.plan.concurrency))
        work.index.release()
    for judge, pace, _ in models.judges:
        judge_answers(work, judge, pace)
        work.index.release()
