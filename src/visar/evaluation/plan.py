"""The plan of an evaluation, from a file and flags, and its questions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from visar.errors import DatasetError, InvalidOption
from visar.evaluation.authors import as_authors, declare_checkpoint
from visar.evaluation.datasets import (
    correct,
    find_revision,
    open_dataset,
    published_edition,
    read_corrections,
)
from visar.evaluation.inputs import digest
from visar.evaluation.manifest import DataRead
from visar.evaluation.methods import DEPTH, GROUPS, ComparedMethod, find_methods
from visar.evaluation.questions import Dataset, Question
from visar.evaluation.records import describe_problem
from visar.evaluation.state import CORRECTED
from visar.generation.prompts import PromptName

_Count = Annotated[int, Field(strict=True, ge=1)]


class Plan(BaseModel):
    """The plan of an evaluation: data × encoders × methods × generators × budgets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: tuple[str, ...] = ()
    """Data sets: names of benchmarks or paths."""
    encoders: tuple[str, ...] = ("embedded",)
    """Names or addresses of encoders, as for ``--encoder``."""
    methods: tuple[str, ...] = GROUPS
    """Names of methods or groups of methods."""
    generators: tuple[str, ...] = ()
    max_k: tuple[_Count, ...] = (5, 10)
    """Page budgets for generators."""
    prompt: PromptName = "default"
    """The prompt for generators: ViSAR's own or the paper's."""
    as_authors: bool = False
    """True to use the settings of the paper's authors."""
    judges: tuple[str, ...] = ("rules",)
    corrections: str | None = None
    """A file with corrections to the data."""
    details: tuple[str, ...] = ()
    """Ids of questions whose similarity matrix and J(k) are stored."""
    ocr: Literal["auto", "always", "never"] = "auto"
    ocr_engine: Literal["rapidocr", "tesseract"] = "rapidocr"
    concurrency: _Count = 1
    """The number of concurrent questions for a served model, or the batch size for a local one."""
    measure_latency: bool = False
    """True to run retrieval one question at a time with all cores, to measure latencies."""
    share: tuple[_Count, _Count] = (1, 1)
    """This machine's share of the documents, and the number of shares."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.data:
            raise InvalidOption("No data given: use --data with a benchmark's name or a path.")
        mine, shares = self.share
        if mine > shares:
            raise InvalidOption(f"Invalid share {mine} of {shares}: use 1 to {shares}.")
        find_methods(self.methods)
        return self

    @property
    def depth(self) -> int:
        """The number of pages to store for methods with a fixed k."""
        return max(DEPTH, *self.max_k) if self.max_k else DEPTH

    @property
    def index_name(self) -> str:
        """The name of the run's index, which depends on the OCR settings."""
        if (self.ocr, self.ocr_engine) == ("auto", "rapidocr"):
            return "index"
        return f"index-{self.ocr}-{self.ocr_engine}"

    def chosen_methods(self) -> list[ComparedMethod]:
        """Return the methods of the plan, slow ones last."""
        return find_methods(self.methods, self.depth)


def read_plan(
    path: Path | None, flags: Mapping[str, Any], *, checkpoint_is: str | None = None
) -> Plan:
    """Create a plan from an optional TOML file and flags, which override the file.

    Flags that are None are ignored. ``checkpoint_is`` declares that the plan's folder with a
    checkpoint contains this known model. Raises InvalidOption if the file can't be read, or a
    setting or value is invalid.
    """
    values = {} if path is None else _read_toml(path)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = values | given
        # Validate the original settings first, so that errors quote them.
        plan = Plan.model_validate(settings)
        if checkpoint_is is not None:
            settings = declare_checkpoint(checkpoint_is, settings)
        if plan.as_authors:
            settings = as_authors(settings)
        return Plan.model_validate(settings)
    except ValidationError as error:
        raise _error(error, path, given) from None


def _error(error: ValidationError, path: Path | None, flags: Mapping[str, Any]) -> InvalidOption:
    first = error.errors()[0]
    setting = first["loc"][0] if first["loc"] else None
    source = (
        f"{path}: " if path is not None and setting is not None and setting not in flags else ""
    )
    if first["type"] == "extra_forbidden":
        known = ", ".join(Plan.model_fields)
        return InvalidOption(f"{source}unknown setting {setting!r}. Settings: {known}.")
    return InvalidOption(source + describe_problem(error))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOption(f"Can't read {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} isn't valid TOML: {error}.") from error


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The questions of a data set, as published or corrected."""

    name: str
    dataset: Dataset
    questions: Sequence[Question]
    source: str
    """The data set's name or path in the plan."""
    changed: frozenset[str] = frozenset()
    """Ids of questions changed by corrections."""
    published: str | None = None
    """The name of the published question set that it corrects; None if it isn't a correction."""

    def documents(self, share: tuple[int, int]) -> list[str]:
        """Return the documents in a share of the run."""
        mine, shares = share
        return sorted({question.document for question in self.questions})[mine - 1 :: shares]

    def data_read(self) -> DataRead:
        """Return the entry of the manifest."""
        count = len(self.questions)
        content = [
            (one.id, one.document, one.text, one.evidence_pages, one.answers, one.kind)
            for one in self.questions
        ]
        path = self.dataset.path(self.questions[0].document) if count else None
        return DataRead(
            source=self.source,
            questions=count,
            edition=published_edition(self.name, count),
            revision=None if path is None else find_revision(path),
            digest=digest(content),
        )


def open_question_sets(plan: Plan) -> list[QuestionSet]:
    """Open the data sets of a plan, as published and, if there are corrections, as corrected.

    ``NAME=FOLDER`` means the benchmark with that name in a local folder. Raises DatasetError if a
    data set or the corrections can't be read or two data sets have the same name, and
    InvalidOption if no question has the id of a detail.
    """
    opened: list[QuestionSet] = []
    for data in plan.data:
        name, equals, folder = data.partition("=")
        is_named = bool(equals) and "?" not in name and not Path(data).exists()
        dataset = open_dataset(name, data=Path(folder)) if is_named else open_dataset(data)
        if any(other.name == dataset.name for other in opened):
            raise DatasetError(
                f"{data}: this run already has a data set named {dataset.name}. Remove one."
            )
        published = QuestionSet(dataset.name, dataset, dataset.questions(), data)
        opened.append(published)
        if plan.corrections is not None:
            corrections = read_corrections(Path(plan.corrections))
            questions, changed = correct(published.questions, corrections)
            name = dataset.name + CORRECTED
            opened.append(QuestionSet(name, dataset, questions, data, changed, dataset.name))
    known = {question.id for one in opened for question in one.questions}
    for detail in plan.details:
        if detail not in known:
            raise InvalidOption(f"No question has the id {detail!r}: check --detail.")
    return opened
