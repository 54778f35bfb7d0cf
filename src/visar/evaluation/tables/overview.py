"""What was asked, and what was not."""

from __future__ import annotations

from visar.evaluation.findings import Findings
from visar.evaluation.tables.scope import skipped_notes
from visar.evaluation.tables.table import Cell, Table


def overview_table(findings: Findings) -> Table:
    """The questions of each data set: how many count for what."""
    rows, notes = [], []
    for dataset, by_id in findings.questions.items():
        asked = by_id.values()
        sizes = {one.document: one.pages for one in asked}
        skipped = sum(one.questions for one in findings.skipped if one.dataset == dataset)
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
                Cell(skipped),
            )
        )
        notes += [f"{dataset}: {note}" for note in skipped_notes(findings, dataset)]
    unasked = {one.dataset for one in findings.skipped} - findings.questions.keys()
    notes += [
        f"{dataset}: {note}"
        for dataset in sorted(unasked)
        for note in skipped_notes(findings, dataset)
    ]
    if findings.unreadable:
        notes.append(
            "Left out, for they are no whole records (a writer was interrupted): "
            f"{'; '.join(findings.unreadable)}."
        )
    return Table(
        "questions",
        "Questions",
        (
            "Data set",
            "Documents",
            "Pages",
            "Largest",
            "Questions",
            "With evidence",
            "Answerable",
            "Corrected",
            "Skipped",
        ),
        tuple(rows),
        tuple(notes),
    )
