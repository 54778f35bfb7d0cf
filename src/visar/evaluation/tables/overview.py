"""What was asked, and what was not."""

from __future__ import annotations

from visar.evaluation.findings import (
    Findings,
    invalid_pages,
    questions_with_pages_outside,
    skipped_documents,
)
from visar.evaluation.tables.table import Cell, Table

_COLUMNS = (
    "Data set",
    "Documents",
    "Pages",
    "Largest",
    "Questions",
    "With evidence",
    "Answerable",
    "Corrected",
    "Skipped documents",
)


def overview_table(findings: Findings) -> Table:
    """The questions of each data set: how many count for what."""
    rows = []
    for dataset, by_id in findings.questions.items():
        asked = by_id.values()
        sizes = {one.document: one.pages for one in asked}
        rows.append(
            (
                Cell(dataset),
                Cell(len(sizes)),
                Cell(sum(sizes.values())),
                Cell(max(sizes.values())),
                Cell(len(asked)),
                Cell(sum(bool(one.evidence_pages) for one in asked)),
                Cell(sum(one.answerable for one in asked)),
                Cell(sum(one.corrected for one in asked)),
                Cell(len(skipped_documents(findings, dataset))),
            )
        )
    return Table("questions", "Questions", _COLUMNS, tuple(rows), tuple(_notes(findings)))


def _notes(findings: Findings) -> list[str]:
    notes = []
    for dataset in findings.datasets:
        skipped = skipped_documents(findings, dataset)
        if skipped:
            listed = "; ".join(f"{document} ({reason})" for document, reason in skipped.items())
            notes.append(f"{dataset}: skipped {listed}.")
        outside = questions_with_pages_outside(findings, dataset)
        if outside:
            notes.append(
                f"{dataset}: {len(outside)} questions name evidence pages that their document does "
                f"not have; only those it has count ({', '.join(outside)})."
            )
    notes += [
        f"{encoder}: {count} pages could not be encoded."
        for encoder, count in sorted(invalid_pages(findings).items())
    ]
    if findings.unreadable:
        notes.append(
            "Left out, for they are no whole records (a writer was interrupted): "
            f"{'; '.join(findings.unreadable)}."
        )
    if findings.strays:
        notes.append(f"Left out: {findings.strays} records of questions that the run did not ask.")
    return notes
