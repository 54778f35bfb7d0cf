"""Digests of the inputs of results.

Each stored result has a digest of everything it depends on. If the question, document, encoder,
method, prompt, model, reference answer or judge changes, the result is stale: it is ignored and
computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from visar.evaluation.methods import ComparedMethod, is_answered
from visar.evaluation.records import AnswerRecord, QuestionRecord
from visar.generation import extractive


def digest(*values: Any) -> str:
    """Return a digest of plain values.

    >>> digest("a", (1, 2)) == digest("a", [1, 2]) != digest("a", [2, 1])
    True
    """
    # json.dumps writes ASCII, because lone surrogates can't be encoded as UTF-8.
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class MethodDefinition(BaseModel):
    """The definition of a method in a run."""

    digest: str = ""
    """A digest of its options, and of the code of plugin methods."""
    needs_evidence: bool = False
    needs_calibration: bool = False
    max_pages: int | None = None
    answered: bool = False
    """True if generators answer from its pages."""


class Definitions(BaseModel):
    """The definitions of everything that results are computed with, by name."""

    code: str = ""
    """The version of ViSAR."""
    encoders: dict[str, str] = Field(default_factory=dict)
    """The versions of the encoders."""
    calibrations: dict[str, str] = Field(default_factory=dict)
    """Digests of the encoders' calibrations."""
    methods: dict[str, MethodDefinition] = Field(default_factory=dict)
    generators: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Digests of each generator's model and settings, by generator and prompt."""
    judges: dict[str, str] = Field(default_factory=dict)
    """Digests of the judges' models and settings."""

    def updated(self, later: Definitions) -> Definitions:
        """Return these definitions updated with those of a later call."""
        merged: dict[str, Any] = {
            name: getattr(self, name) | getattr(later, name)
            for name in ("encoders", "calibrations", "methods", "generators", "judges")
        }
        for name, prompts in self.generators.items():
            merged["generators"][name] = prompts | later.generators.get(name, {})
        return Definitions(code=later.code, **merged)

    def retrieval(self, asked: QuestionRecord, encoder: str, method: str) -> str:
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
        self, asked: QuestionRecord, encoder: str, generator: str, prompt: str, pages: Sequence[int]
    ) -> str:
        """Return the digest of the inputs of an answer.

        Models only see the pages, so it doesn't matter how they were chosen. Quotes also depend on
        the encoder's vectors, and on its calibration, which decides whether to quote a weak match.
        Their boxes are compared with those that annotators marked.
        """
        quoted = (
            self.code,
            encoder,
            self.encoders.get(encoder),
            self.calibrations.get(encoder),
            asked.boxes_digest,
        )
        return digest(
            "answer",
            asked.text_digest,
            asked.document_digest,
            quoted if generator == extractive.NAME else None,
            generator,
            prompt,
            self.generators.get(generator, {}).get(prompt, ""),
            pages,
        )

    def detail(self, asked: QuestionRecord, encoder: str) -> str:
        """Return the digest of the inputs of a question's similarity matrix and J(k)."""
        return digest(
            "detail",
            self.code,
            asked.text_digest,
            asked.document_digest,
            encoder,
            self.encoders.get(encoder, ""),
            asked.evidence_pages,
        )

    def verdict(self, asked: QuestionRecord, answered: AnswerRecord, judge: str) -> str:
        """Return the digest of the inputs of a verdict."""
        return digest(
            "verdict",
            asked.text_digest,
            asked.answers_digest,
            answered.judged_text,
            judge,
            self.judges.get(judge, ""),
        )


def define_method(method: ComparedMethod) -> MethodDefinition:
    """Return the definition of a method, with a digest of the source file of a plugin method."""
    module = method.function.__module__
    code = "" if module.startswith("visar.") else _source_digest(method)
    # The number of pages stored for a fixed k depends on the run's budgets, not on the method.
    options = {name: value for name, value in method.options.items() if name != "k"}
    return MethodDefinition(
        digest=digest(method.name, options, module, code),
        needs_evidence=method.needs_evidence,
        needs_calibration=method.needs_calibration,
        max_pages=method.max_pages,
        answered=is_answered(method),
    )


def _source_digest(method: ComparedMethod) -> str:
    import inspect

    try:
        return hashlib.sha256(Path(inspect.getfile(method.function)).read_bytes()).hexdigest()
    except (OSError, TypeError):
        return ""
