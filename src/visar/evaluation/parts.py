"""From the data a plan names to the questions of a run."""

from __future__ import annotations

from pathlib import Path

from visar.errors import DatasetError
from visar.evaluation.datasets import correct, open_dataset, read_corrections
from visar.evaluation.plan import Plan
from visar.evaluation.preparing import Part


def open_parts(plan: Plan) -> list[Part]:
    """The data sets of a plan, each as published and, with corrections, as corrected.

    ``NAME=FOLDER`` is the benchmark of that name in a folder of this machine.
    """
    parts: list[Part] = []
    for data in plan.data:
        name, equals, folder = data.partition("=")
        named = bool(equals) and not Path(data).exists()
        dataset = open_dataset(name, data=Path(folder)) if named else open_dataset(data)
        if any(part.name == dataset.name for part in parts):
            raise DatasetError(f"{data}: there is a data set {dataset.name} in this run already.")
        part = Part(dataset.name, dataset, dataset.questions())
        parts.append(part)
        if plan.corrections is not None:
            parts.append(_corrected(part, Path(plan.corrections)))
    return parts


def _corrected(part: Part, file: Path) -> Part:
    corrected = correct(part.questions, read_corrections(file))
    return Part(
        name=f"{part.name}, corrected",
        dataset=part.dataset,
        questions=corrected.questions,
        changed=corrected.changed,
        published=part.name,
    )
