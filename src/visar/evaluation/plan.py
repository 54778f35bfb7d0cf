"""What an evaluation is to do, from a file, from flags, or both; and the questions it asks."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from visar.errors import DatasetError, InvalidOption
from visar.evaluation.authors import as_authors, tell_folder
from visar.evaluation.datasets import correct, open_dataset, read_corrections
from visar.evaluation.methods import DEPTH, GROUPS, ComparedMethod, find_methods
from visar.evaluation.questions import Dataset, Question
from visar.evaluation.records import describe_problem
from visar.generation.prompts import PromptName

_Count = Annotated[int, Field(strict=True, ge=1)]


class Plan(BaseModel):
    """Data × encoders × methods × generators × budgets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: tuple[str, ...] = ()
    """Data sets: names of benchmarks, or paths."""
    encoders: tuple[str, ...] = ("embedded",)
    """Names or addresses, as ``--encoder`` takes them."""
    methods: tuple[str, ...] = GROUPS
    """Names of methods, or whole groups of them."""
    generators: tuple[str, ...] = ()
    max_k: tuple[_Count, ...] = (5, 10)
    """Budgets of pages for generators."""
    prompt: PromptName = "default"
    """Prompt for generators: ViSAR's own, or the paper's."""
    as_authors: bool = False
    """Whether all is computed as the paper's authors did."""
    judges: tuple[str, ...] = ("rules",)
    corrections: str | None = None
    """A file with corrections of the data."""
    details: tuple[str, ...] = ()
    """Questions, by their ids, whose similarity matrix and J(k) are kept."""
    ocr: Literal["auto", "always", "never"] = "auto"
    ocr_engine: Literal["rapidocr", "tesseract"] = "rapidocr"
    concurrency: _Count = 1
    """How many questions a served model is asked at a time, and one on this machine in a batch."""
    measure_latency: bool = False
    """Whether retrieval runs one question at a time with all cores, for its latencies."""
    share: tuple[_Count, _Count] = (1, 1)
    """Which of how many shares of the documents this machine takes."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.data:
            raise InvalidOption("Name the data: --data with a benchmark's name or a path.")
        mine, shares = self.share
        if mine > shares:
            raise InvalidOption(f"There is no share {mine} of {shares}.")
        find_methods(self.methods)
        return self

    @property
    def depth(self) -> int:
        """How many pages are kept of methods that do not decide k by themselves."""
        return max(DEPTH, *self.max_k) if self.max_k else DEPTH

    @property
    def index_name(self) -> str:
        """Name of the run's own index: words read with other OCR settings have another one."""
        if (self.ocr, self.ocr_engine) == ("auto", "rapidocr"):
            return "index"
        return f"index-{self.ocr}-{self.ocr_engine}"

    def chosen_methods(self) -> list[ComparedMethod]:
        """Return the methods of the plan, those that take long last."""
        return find_methods(self.methods, self.depth)


def read_plan(
    path: Path | None, flags: Mapping[str, Any], *, checkpoint_is: str | None = None
) -> Plan:
    """Make a plan from a TOML file, if there is one; flags override its settings.

    A flag that is None was not given. ``checkpoint_is`` names the known model that the plan's
    folder with a checkpoint holds. Raises InvalidOption if the file cannot be read, or a setting or
    its value is wrong.
    """
    values = {} if path is None else _read_toml(path)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = values | given
        # First as they are, so that a wrong value is named as it was given.
        plan = Plan.model_validate(settings)
        if checkpoint_is is not None:
            settings = tell_folder(checkpoint_is, settings)
        if plan.as_authors:
            settings = as_authors(settings)
        return Plan.model_validate(settings)
    except ValidationError as error:
        raise _refusal(error, path, given) from None


def _refusal(error: ValidationError, path: Path | None, flags: Mapping[str, Any]) -> InvalidOption:
    first = error.errors()[0]
    setting = first["loc"][0] if first["loc"] else None
    source = (
        f"{path}: " if path is not None and setting is not None and setting not in flags else ""
    )
    if first["type"] == "extra_forbidden":
        known = ", ".join(Plan.model_fields)
        return InvalidOption(f"{source}there is no setting {setting!r}, but {known}.")
    return InvalidOption(source + describe_problem(error))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} is no TOML file: {error}.") from error


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The questions of a data set, as published or with corrections."""

    name: str
    dataset: Dataset
    questions: Sequence[Question]
    changed: frozenset[str] = frozenset()
    """Ids of the questions that corrections have changed."""
    published: str | None = None
    """The name of the question set that it is a correction of."""
    source: str = ""
    """What the plan calls the data set."""


def open_question_sets(plan: Plan) -> list[QuestionSet]:
    """Open the data sets of a plan, each as published and, with corrections, as corrected.

    ``NAME=FOLDER`` is the benchmark of that name in a folder of this machine. Raises DatasetError
    if a data set or the corrections cannot be had, or two data sets have the same name, and
    InvalidOption if no question has the id of a detail.
    """
    opened: list[QuestionSet] = []
    for data in plan.data:
        name, equals, folder = data.partition("=")
        is_named = bool(equals) and "?" not in name and not Path(data).exists()
        dataset = open_dataset(name, data=Path(folder)) if is_named else open_dataset(data)
        if any(other.name == dataset.name for other in opened):
            raise DatasetError(f"{data}: there is a data set {dataset.name} in this run already.")
        published = QuestionSet(dataset.name, dataset, dataset.questions(), source=data)
        opened.append(published)
        if plan.corrections is not None:
            opened.append(_corrected(published, Path(plan.corrections)))
    known = {question.id for one in opened for question in one.questions}
    for detail in plan.details:
        if detail not in known:
            raise InvalidOption(f"No question has the id {detail!r} (--detail).")
    return opened


def _corrected(published: QuestionSet, file: Path) -> QuestionSet:
    corrected = correct(published.questions, read_corrections(file))
    return QuestionSet(
        name=f"{published.name}, corrected",
        dataset=published.dataset,
        questions=corrected.questions,
        changed=corrected.changed,
        published=published.name,
    )
