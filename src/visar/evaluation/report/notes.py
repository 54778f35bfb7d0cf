"""Notes below tables, on which questions count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from visar.evaluation.frames import Results

Counts = Mapping[tuple[str, str], int]
"""Number of questions in each row, by the row's name and encoder."""


def question_notes(
    results: Results, dataset: str, counts: Counts, *, has_answers: bool
) -> list[str]:
    """Return notes for a table, given the number of questions in each row.

    They are about questions that don't count, corrections, skipped documents, pages without vectors
    and missing results. All questions count for answers, those with evidence pages for retrieval.
    """
    counted = asked = results.of(dataset)
    if has_answers:
        answerable = int(asked.answerable.sum())
        start = (
            f"{dataset}: all {len(asked)} questions count here; {answerable} of them are "
            f"answerable, {len(asked) - answerable} aren't."
        )
    else:
        counted = asked[asked.evidence_pages.map(len) > 0]
        start = (
            f"{dataset}: of {len(asked)} questions, {len(counted)} have evidence pages and count "
            f"here; {len(asked) - len(counted)} have none."
        )
    notes = [start]
    if corrected := int(counted.corrected.sum()):
        notes.append(f"{corrected} of the questions are corrected.")
    if reasons := results.skipped_documents(dataset).values():
        missing = sum(reason == "missing" for reason in reasons)
        notes.append(
            f"Skipped with all their questions: {missing} missing documents, "
            f"{len(reasons) - missing} unreadable documents."
        )
    left_out = {}
    for encoder in dict.fromkeys(encoder for _, encoder in counts):
        of_encoder = results.left_out.get((dataset, encoder), frozenset())
        left_out[encoder] = int(counted.question.isin(of_encoder).sum())
        affected = results.invalid_questions.get((dataset, encoder), frozenset())
        if of_encoder:
            notes.append(
                f"{encoder}: {left_out[encoder]} questions are left out, as in the paper, because "
                "a page of their document couldn't be encoded."
            )
        elif number := int(counted.question.isin(affected).sum()):
            notes.append(
                f"{encoder}: {number} questions are about documents with pages that couldn't be "
                "encoded and count as empty. The paper leaves out such questions."
            )
    lacking = [
        f"{row} ({encoder}) {missing}"
        for (row, encoder), count in counts.items()
        if (missing := len(counted) - left_out[encoder] - count) > 0
    ]
    if lacking:
        notes.append(f"Missing results, left out of their rows: {', '.join(lacking)}.")
    return notes


def listed(names: Iterable[str]) -> str:
    """Join names by commas."""
    return ", ".join(names) or "none"
