"""What a result was computed from, as one digest.

Results are stored to be reused. Each carries the digest of everything it depends on, so that a
changed question, document, encoder, method, prompt, model, reference answer or judge makes it
stale: it is computed again, and never counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from visar.evaluation.methods import ComparedMethod, is_answered
from visar.evaluation.records import Answered, Asked
from visar.generation import extractive
from visar.generation.answering import prompt_digest
from visar.generation.prompts import PromptName
from visar.generation.protocol import Generator
from visar.models.protocols import identity_of
from visar.retrieval.calibration import Calibration


def digest(*values: Any) -> str:
    """Return a digest of plain values.

    >>> digest("a", (1, 2)) == digest("a", [1, 2]) != digest("a", [2, 1])
    True
    """
    # As ASCII: a lone surrogate in a text cannot be written as UTF-8.
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class MethodDefinition(BaseModel):
    """A method as a run used it."""

    digest: str = ""
    """Digest of its options, and of its code if that is not ours."""
    needs_evidence: bool = False
    needs_calibration: bool = False
    max_pages: int | None = None
    answered: bool = False
    """Whether generators are given its pages."""


class Definitions(BaseModel):
    """How results are computed, by the names they are stored under."""

    code: str = ""
    """Version of this package."""
    encoders: dict[str, str] = Field(default_factory=dict)
    """Versions of the encoders."""
    calibrations: dict[str, str] = Field(default_factory=dict)
    """Digests of the encoders' calibrations."""
    methods: dict[str, MethodDefinition] = Field(default_factory=dict)
    generators: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Digests of each generator's model and settings, by generator and prompt."""
    judges: dict[str, str] = Field(default_factory=dict)
    """Digests of the judges' models and settings."""

    def updated(self, later: Definitions) -> Definitions:
        """Return these definitions with those of a later call in their place."""
        generators = {
            name: {**self.generators.get(name, {}), **later.generators.get(name, {})}
            for name in {**self.generators, **later.generators}
        }
        return Definitions(
            code=later.code,
            encoders={**self.encoders, **later.encoders},
            calibrations={**self.calibrations, **later.calibrations},
            methods={**self.methods, **later.methods},
            generators=generators,
            judges={**self.judges, **later.judges},
        )

    def retrieval(self, asked: Asked, encoder: str, method: str) -> str:
        """Return the digest of the inputs of a retrieval."""
        definition = self.methods.get(method, MethodDefinition())
        return digest(
            "retrieval",
            self.code,
            asked.text_digest,
            asked.document_digest,
            encoder,
            self.encoders.get(encoder, ""),
            method,
            definition.digest,
            asked.evidence_pages if definition.needs_evidence else None,
            self.calibrations.get(encoder) if definition.needs_calibration else None,
        )

    def answer(
        self, asked: Asked, encoder: str, generator: str, prompt: str, pages: Sequence[int]
    ) -> str:
        """Return the digest of the inputs of an answer.

        A model sees nothing but the pages, however they were chosen; quotes also depend on the
        encoder's vectors.
        """
        quoted = generator == extractive.NAME
        return digest(
            "answer",
            asked.text_digest,
            asked.document_digest,
            (self.code, encoder, self.encoders.get(encoder, "")) if quoted else None,
            generator,
            prompt,
            self.generators.get(generator, {}).get(prompt, ""),
            pages,
        )

    def verdict(self, asked: Asked, answered: Answered, judge: str) -> str:
        """Return the digest of the inputs of a verdict."""
        return digest(
            "verdict",
            asked.text_digest,
            asked.answers_digest,
            answered.said,
            judge,
            self.judges.get(judge, ""),
        )


def define_method(method: ComparedMethod) -> MethodDefinition:
    """Return the definition of a method; a function of another package has its file's digest."""
    module = method.function.__module__
    code = "" if module.startswith("visar.") else _source_digest(method)
    # How many pages of a fixed top-k are kept depends on the run's budgets, not on the method.
    options = {name: value for name, value in method.options.items() if name != "k"}
    return MethodDefinition(
        digest=digest(method.name, options, module, code),
        needs_evidence=method.needs_evidence,
        needs_calibration=method.needs_calibration,
        max_pages=method.max_pages,
        answered=is_answered(method),
    )


def define_calibration(calibration: Calibration | None) -> str:
    """Return the digest of an encoder's calibration; empty if it has none."""
    return "" if calibration is None else digest(repr(calibration))


def define_generator(generator: Generator, prompt: PromptName) -> str:
    """Return the digest of a generator with a prompt."""
    return digest(identity_of(generator), prompt_digest(generator, prompt))


def _source_digest(method: ComparedMethod) -> str:
    import inspect

    try:
        return hashlib.sha256(Path(inspect.getfile(method.function)).read_bytes()).hexdigest()
    except (OSError, TypeError):
        return ""
