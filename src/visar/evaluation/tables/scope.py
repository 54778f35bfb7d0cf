"""Which questions a table counts, which it does not and why, and what the paper says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from visar.evaluation.findings import Findings, skipped_documents
from visar.evaluation.methods import METHODS
from visar.evaluation.paper import the_paper
from visar.evaluation.records import Asked, Retrieved


def label(method: str) -> str:
    """As the paper's tables name it."""
    return METHODS[method].label if method in METHODS else method


def with_evidence(
    findings: Findings, dataset: str, chosen: Mapping[str, Retrieved]
) -> list[tuple[Asked, Retrieved]]:
    """The questions that count for retrieval, with what was chosen for each."""
    asked = findings.questions.get(dataset, {})
    return [
        (asked[question], chosen[question])
        for question in sorted(chosen)
        if asked[question].evidence_pages
    ]


def retrieval_notes(
    findings: Findings, dataset: str, chosen: Mapping[str, Mapping[str, Retrieved]]
) -> list[str]:
    """What was counted for retrieval; ``chosen`` by row of the table."""
    asked = findings.questions.get(dataset, {}).values()
    counted = [one for one in asked if one.evidence_pages]
    counts = {row: len(with_evidence(findings, dataset, by)) for row, by in chosen.items()}
    return [
        f"{dataset}: {len(asked)} questions, of which {len(counted)} have evidence pages and "
        f"count here; {len(asked) - len(counted)} have none.",
        *_corrected_note(counted),
        *skipped_notes(findings, dataset),
        *_missing_note(counts, len(counted)),
    ]


def answer_notes(findings: Findings, dataset: str, counts: Mapping[str, int]) -> list[str]:
    """What was counted for answers; ``counts`` by row of the table."""
    asked = findings.questions.get(dataset, {}).values()
    answerable = sum(one.answerable for one in asked)
    return [
        f"{dataset}: all {len(asked)} questions count here, {answerable} of them answerable from "
        f"the document, {len(asked) - answerable} not.",
        *_corrected_note(asked),
        *skipped_notes(findings, dataset),
        *_missing_note(counts, len(asked)),
    ]


def skipped_notes(findings: Findings, dataset: str) -> list[str]:
    """How many documents were left out and why; the first table has their names."""
    reasons = skipped_documents(findings, dataset).values()
    if not reasons:
        return []
    missing = sum(reason == "missing" for reason in reasons)
    return [
        f"Skipped, with all their questions: {missing} missing documents, "
        f"{len(reasons) - missing} that cannot be read."
    ]


def _corrected_note(asked: Iterable[Asked]) -> list[str]:
    corrected = sum(one.corrected for one in asked)
    return [f"{corrected} of them are corrected."] if corrected else []


def _missing_note(counts: Mapping[str, int], expected: int) -> list[str]:
    missing = {row: expected - count for row, count in counts.items() if count < expected}
    if not missing:
        return []
    listed = ", ".join(f"{row} {number}" for row, number in missing.items())
    return [f"Without a result, and left out of their rows only: {listed}."]


@dataclass(frozen=True, slots=True)
class Beside:
    """The paper's numbers for a data set, or why there are none."""

    dataset: str
    obstacle: str | None

    @classmethod
    def of(cls, findings: Findings, dataset: str) -> Beside:
        asked = findings.questions.get(dataset, {})
        corrected = sum(one.corrected for one in asked.values())
        if corrected:
            return cls(dataset, f"{corrected} questions are corrected, and not so in the paper")
        return cls(dataset, the_paper().difference(dataset, len(asked)))

    def value(
        self,
        measure: str,
        encoder: str | None,
        method: str,
        generator: str | None = None,
        max_k: int | None = None,
    ) -> float | None:
        if self.obstacle is not None:
            return None
        return the_paper().value(
            measure,
            dataset=self.dataset,
            encoder=encoder,
            method=method,
            generator=generator,
            max_k=max_k,
        )

    def notes(
        self, encoders: Iterable[str], generator: str | None = None, judge: str | None = None
    ) -> list[str]:
        """Why a paper's number is missing, and what differs although one is shown."""
        paper = the_paper()
        obstacles = [] if self.obstacle is None else [self.obstacle]
        unknown = sorted({one for one in encoders if not paper.uses_encoder(one)})
        if unknown:
            obstacles.append(f"the paper does not use the encoder {', '.join(unknown)}")
        if generator is not None and not paper.uses_generator(generator):
            obstacles.append(f"the paper does not use the generator {generator}")
        notes = []
        if obstacles:
            where = "" if self.obstacle is not None else " for some or all rows"
            notes.append(f"No number of the paper stands here{where}: {'; '.join(obstacles)}.")
        elif judge is not None:
            notes.append(f"Judged by {judge}; in the paper by {paper.judge}.")
        return notes
