"""What a report covers: its methods, the questions that count, and the notes that say so."""

from __future__ import annotations

from collections.abc import Mapping

from visar.evaluation.findings import Findings, skipped_documents
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Asked, Retrieved

LATE = next(key for key, method in METHODS.items() if method.label == "Late-Interaction")
"""The key of fixed top-k by late interaction, which other methods are compared with."""

Pairs = list[tuple[Asked, Retrieved]]
"""Questions, each with the pages that a method chose for it."""


def is_other(method: str) -> bool:
    """Whether a method comes from another package, or is one that this version does not know."""
    return method not in METHODS


def label(method: str) -> str:
    """Return the name of a method in tables and figures; a method of others has its own."""
    return method if is_other(method) else METHODS[method].label


def is_main(method: str) -> bool:
    """Whether a method is reported in the main tables: also every method of other packages."""
    return is_other(method) or METHODS[method].group == "main"


def is_adaptive(method: str) -> bool:
    """Whether a method decides k by itself; of other packages' methods that is assumed."""
    return is_other(method) or METHODS[method].adaptive


def is_timed(method: str) -> bool:
    """Whether the time of a method means anything: Oracle knows the evidence."""
    return is_other(method) or (is_main(method) and not METHODS[method].needs_evidence)


def of_group(group: str) -> tuple[str, ...]:
    """Return the keys of the methods of a group."""
    return tuple(key for key, method in METHODS.items() if method.group == group)


def other_methods(findings: Findings) -> tuple[str, ...]:
    """Return the names of the methods in a run that come from other packages."""
    found = {method for by_method in findings.choices.values() for method in by_method}
    return tuple(sorted(filter(is_other, found)))


def with_evidence(findings: Findings, dataset: str, chosen: Mapping[str, Retrieved]) -> Pairs:
    """Return the questions that count for retrieval, with what was chosen for each."""
    asked = findings.questions.get(dataset, {})
    return [
        (asked[question], chosen[question])
        for question in sorted(chosen)
        if asked[question].evidence_pages
    ]


def evidence_counts(findings: Findings, dataset: str) -> list[int]:
    """Return the number of evidence pages of each question that has some."""
    asked = findings.questions.get(dataset, {}).values()
    return [len(set(one.evidence_pages)) for one in asked if one.evidence_pages]


def retrieval_notes(findings: Findings, dataset: str, counts: Mapping[str, int]) -> list[str]:
    """Return the notes on a table of retrieval, given the questions counted in each row."""
    asked = findings.questions.get(dataset, {}).values()
    counted = [one for one in asked if one.evidence_pages]
    start = (
        f"{dataset}: {len(asked)} questions, of which {len(counted)} have evidence pages and "
        f"count here; {len(asked) - len(counted)} have none."
    )
    return [start, *_common_notes(findings, dataset, counted, counts)]


def answer_notes(findings: Findings, dataset: str, counts: Mapping[str, int]) -> list[str]:
    """Return the notes on a table of answers, given the questions counted in each row."""
    asked = list(findings.questions.get(dataset, {}).values())
    answerable = sum(one.answerable for one in asked)
    start = (
        f"{dataset}: all {len(asked)} questions count here, {answerable} of them answerable from "
        f"the document, {len(asked) - answerable} not."
    )
    return [start, *_common_notes(findings, dataset, asked, counts)]


def _common_notes(
    findings: Findings, dataset: str, counted: list[Asked], counts: Mapping[str, int]
) -> list[str]:
    """Corrected questions, skipped documents and rows that lack results."""
    notes = []
    if corrected := sum(one.corrected for one in counted):
        notes.append(f"{corrected} of them are corrected.")
    if reasons := skipped_documents(findings, dataset).values():
        missing = sum(reason == "missing" for reason in reasons)
        notes.append(
            f"Skipped, with all their questions: {missing} missing documents, "
            f"{len(reasons) - missing} that cannot be read."
        )
    expected = len(counted)
    lacking = [f"{row} {expected - count}" for row, count in counts.items() if count < expected]
    if lacking:
        notes.append(f"Without a result, and left out of their rows only: {', '.join(lacking)}.")
    return notes
