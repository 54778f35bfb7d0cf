"""The records and manifests of a run, read back for its report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from visar.errors import NotARun
from visar.evaluation.manifest import Skipped, read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Asked, Judged, Retrieved, read_lines


class AnswerKey(NamedTuple):
    """Whose answers they are."""

    dataset: str
    generator: str
    prompt: str
    encoder: str
    max_k: int


class VerdictKey(NamedTuple):
    """Whose answers were judged, and by whom."""

    dataset: str
    generator: str
    prompt: str
    judge: str
    encoder: str
    max_k: int


@dataclass(frozen=True)
class Findings:
    """All records and manifests of a run."""

    asked: tuple[Asked, ...]
    retrieved: tuple[Retrieved, ...] = ()
    answered: tuple[Answered, ...] = ()
    judged: tuple[Judged, ...] = ()
    manifests: tuple[Mapping[str, Any], ...] = ()
    """Of every call of the run, the last one last."""
    unreadable: tuple[str, ...] = ()
    """Lines that are no JSON: what a crashed writer left in the middle of a file."""
    left_out: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By (data set, encoder): questions left out because pages could not be encoded."""

    @cached_property
    def questions(self) -> dict[str, dict[str, Asked]]:
        """By data set and id."""
        found: dict[str, dict[str, Asked]] = {}
        for one in self.asked:
            found.setdefault(one.dataset, {})[one.question] = one
        return {dataset: found[dataset] for dataset in sorted(found)}

    @cached_property
    def choices(self) -> dict[tuple[str, str], dict[str, dict[str, Retrieved]]]:
        """By (data set, encoder), method and question."""
        return self._grouped(self.retrieved, "dataset", "encoder")

    @cached_property
    def answers(self) -> dict[AnswerKey, dict[str, dict[str, Answered]]]:
        """By setting, method and question."""
        grouped = self._grouped(self.answered, *AnswerKey._fields)
        return {AnswerKey(*key): by_method for key, by_method in grouped.items()}

    @cached_property
    def verdicts(self) -> dict[VerdictKey, dict[str, dict[str, bool]]]:
        """By setting, method and question."""
        return {
            VerdictKey(*key): {
                method: {question: one.correct for question, one in by_question.items()}
                for method, by_question in by_method.items()
            }
            for key, by_method in self._grouped(self.judged, *VerdictKey._fields).items()
        }

    @cached_property
    def invalid_questions(self) -> dict[tuple[str, str], frozenset[str]]:
        """By (data set, encoder): questions about documents with pages that it failed on."""
        documents: dict[tuple[str, str], set[str]] = {}
        for one in filter(self._is_of_run, self.retrieved):
            if one.invalid_pages:
                asked = self.questions[one.dataset][one.question]
                documents.setdefault((one.dataset, one.encoder), set()).add(asked.document)
        return {
            (dataset, encoder): frozenset(
                one.question
                for one in self.questions[dataset].values()
                if one.document in documents[dataset, encoder]
            )
            for dataset, encoder in sorted(documents)
        }

    def leave_out_invalid(self, settings: Collection[tuple[str, str]]) -> Findings:
        """Return the findings without `invalid_questions` of some (data set, encoder)."""
        left_out = {key: self.invalid_questions.get(key, frozenset()) for key in settings}

        def kept(records: Iterable[_Result]) -> tuple[_Result, ...]:
            return tuple(
                one
                for one in records
                if one.question not in left_out.get((one.dataset, one.encoder), ())
            )

        return replace(
            self,
            retrieved=kept(self.retrieved),
            answered=kept(self.answered),
            judged=kept(self.judged),
            left_out={key: questions for key, questions in left_out.items() if questions},
        )

    def _grouped(
        self, records: Iterable[Any], *fields: str
    ) -> dict[Any, dict[str, dict[str, Any]]]:
        """Group records of the run's questions by fields, then by method and question."""
        key_of = attrgetter(*fields)
        found: dict[Any, dict[str, dict[str, Any]]] = {}
        for one in filter(self._is_of_run, records):
            found.setdefault(key_of(one), {}).setdefault(one.method, {})[one.question] = one
        return {key: _in_order(found[key]) for key in sorted(found)}

    def _is_of_run(self, record: Retrieved | Answered | Judged) -> bool:
        return record.question in self.questions.get(record.dataset, {})

    @cached_property
    def strays(self) -> int:
        """How many records are of questions that the run does not ask: they do not count."""
        kinds = (self.retrieved, self.answered, self.judged)
        return sum(not self._is_of_run(record) for records in kinds for record in records)

    @cached_property
    def has_paper_sparsity(self) -> bool:
        """Whether sparsity is kept as the paper counts it, too; older versions did not."""
        return all(
            one.paper_sparsity is not None or one.sparsity is None
            for one in self.retrieved
            if one.method == "visar"
        )

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.questions)

    @cached_property
    def encoders(self) -> tuple[str, ...]:
        return tuple(sorted({encoder for _, encoder in self.choices}))


_Result = TypeVar("_Result", Retrieved, Answered, Judged)


def read_findings(folder: Path) -> Findings:
    """Read all records and manifests of a run's folder.

    Raises NotARun if the folder holds no run, or a file in it is not what it should be.
    """
    if not folder.is_dir():
        raise NotARun(f"{folder} is not a folder: give the folder of `visar eval run`.")
    asked, in_asked = read_lines(folder, Asked)
    if not asked:
        raise NotARun(
            f"{folder} holds no run: there is no question in asked*.jsonl. Start one with "
            "`visar eval run`, or give another folder."
        )
    retrieved, in_retrieved = read_lines(folder, Retrieved)
    answered, in_answered = read_lines(folder, Answered)
    judged, in_judged = read_lines(folder, Judged)
    return Findings(
        asked=tuple(asked),
        retrieved=tuple(retrieved),
        answered=tuple(answered),
        judged=tuple(judged),
        manifests=read_manifests(folder),
        unreadable=(*in_asked, *in_retrieved, *in_answered, *in_judged),
    )


CORRECTED = ", corrected"
"""How the name of a data set with corrections ends; it has the documents of the published one."""


def skipped_documents(findings: Findings, dataset: str) -> dict[str, str]:
    """Return the documents of a data set that no question was asked about, with the reasons."""
    asked = {one.document for one in findings.questions.get(dataset, {}).values()}
    name = dataset.removesuffix(CORRECTED)
    reasons: dict[str, str] = {}
    for skipped in _skipped(findings):
        reasons |= dict.fromkeys(skipped.missing.get(name, ()), "missing")
        reasons |= skipped.refused.get(name, {})
    # A later call of the run may have found what an earlier one missed.
    return {document: reasons[document] for document in sorted(reasons.keys() - asked)}


def questions_with_pages_outside(findings: Findings, dataset: str) -> list[str]:
    """Return the questions with evidence on pages that their document does not have."""
    outside = {
        one for skipped in _skipped(findings) for one in skipped.pages_outside.get(dataset, ())
    }
    return sorted(outside & findings.questions.get(dataset, {}).keys())


def invalid_pages(findings: Findings) -> dict[str, int]:
    """Return the number of pages an encoder failed on, as the last call that met some says."""
    found: dict[str, int] = {}
    for skipped in _skipped(findings):
        found |= skipped.invalid_pages
    return found


def _skipped(findings: Findings) -> list[Skipped]:
    return [Skipped.model_validate(one.get("skipped", {})) for one in findings.manifests]


_ORDER = {name: place for place, name in enumerate(METHODS)}

Value = TypeVar("Value")


def _in_order(by_method: dict[str, Value]) -> dict[str, Value]:
    return {name: by_method[name] for name in method_order(by_method)}


def method_order(names: Iterable[str]) -> list[str]:
    """Return names of methods in the order of METHODS; those it does not know come last."""
    return sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
