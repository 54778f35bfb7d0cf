"""What a report covers: its methods, the questions that count, and the notes that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from visar.evaluation.findings import Findings, method_order, skipped_documents
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Asked, Retrieved

LATE = next(key for key, method in METHODS.items() if method.label == "Late-Interaction")
"""The key of fixed top-k by late interaction, which other methods are compared with."""
PAPER_METHODS = (
    LATE,
    "single-vector",
    "visar",
    "visar-approx",
    "largest-gap",
    "score-cluster",
    "oracle",
)
"""The keys of the methods that the paper compares."""
SIGNIFICANT = 0.05
# Variants of ViSAR, which have tables and figures of their own.
_VARIANTS = ("ablation", "T", "gamma", "acceleration")

Pair = tuple[Asked, Retrieved]
"""A question with the pages that a method chose for it."""
Pairs = list[Pair]
Counts = Mapping[tuple[str, str], int]
"""How many questions a row counts, by what the row shows and its encoder."""


def is_other(method: str) -> bool:
    """Whether a method comes from another package, or is one that this version does not know."""
    return method not in METHODS


def label(method: str) -> str:
    """Return the name of a method in tables and figures; a method of others has its own."""
    return method if is_other(method) else METHODS[method].label or method


def is_main(method: str) -> bool:
    """Whether a method is reported in the main tables: also every method of other packages."""
    return is_other(method) or METHODS[method].group not in _VARIANTS


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
    """Return the methods of a run that the main tables report beside the paper's."""
    found = {method for by_method in findings.choices.values() for method in by_method}
    return tuple(method_order(filter(is_main, found.difference(PAPER_METHODS))))


def name_generator(generator: str, prompt: str) -> str:
    """Return a generator's name with the prompt, where it is not the default one.

    >>> name_generator("qwen2.5-vl", "paper")
    "qwen2.5-vl (the paper's prompt)"
    """
    if prompt == "default":
        return generator
    which = "the paper's prompt" if prompt == "paper" else f"prompt {prompt}"
    return f"{generator} ({which})"


def seconds_of(retrieved: Retrieved) -> float:
    """Return the latency of a retrieval."""
    return sum(retrieved.seconds.values())


def how_timed(retrieved: Iterable[Retrieved]) -> str:
    """Say whether latencies of retrieval were taken alone on the machine."""
    if all(one.alone for one in retrieved):
        return "Retrieval was timed with all cores, one question at a time."
    return (
        "Retrieval was timed while other questions were searched for on other cores: "
        "visar eval run --measure-latency times it alone."
    )


def answers_of(
    by_method: Mapping[str, Mapping[str, Answered]], method: str
) -> Mapping[str, Answered]:
    """Return the answers from a method's pages, by question.

    The approximation is given ViSAR's, as in the paper: it chooses the same pages, and generators
    are not asked twice.
    """
    found = by_method.get(method, {})
    return by_method.get("visar", {}) if method == "visar-approx" and not found else found


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


def retrieval_notes(findings: Findings, dataset: str, counts: Counts) -> list[str]:
    """Return the notes on a table of retrieval, given the questions counted in each row."""
    asked = findings.questions.get(dataset, {}).values()
    counted = [one for one in asked if one.evidence_pages]
    start = (
        f"{dataset}: {len(asked)} questions, of which {len(counted)} have evidence pages and "
        f"count here; {len(asked) - len(counted)} have none."
    )
    return [start, *_common_notes(findings, dataset, counted, counts)]


def answer_notes(findings: Findings, dataset: str, counts: Counts) -> list[str]:
    """Return the notes on a table of answers, given the questions counted in each row."""
    asked = list(findings.questions.get(dataset, {}).values())
    answerable = sum(one.answerable for one in asked)
    start = (
        f"{dataset}: all {len(asked)} questions count here, {answerable} of them answerable from "
        f"the document, {len(asked) - answerable} not."
    )
    return [start, *_common_notes(findings, dataset, asked, counts)]


def _common_notes(
    findings: Findings, dataset: str, counted: list[Asked], counts: Counts
) -> list[str]:
    """Corrected questions, skipped documents, pages without vectors, rows that lack results."""
    notes = []
    if corrected := sum(one.corrected for one in counted):
        notes.append(f"{corrected} of them are corrected.")
    if reasons := skipped_documents(findings, dataset).values():
        missing = sum(reason == "missing" for reason in reasons)
        notes.append(
            f"Skipped, with all their questions: {missing} missing documents, "
            f"{len(reasons) - missing} that cannot be read."
        )
    left_out = {}
    for encoder in dict.fromkeys(encoder for _, encoder in counts):
        of_encoder = findings.left_out.get((dataset, encoder), frozenset())
        left_out[encoder] = sum(one.question in of_encoder for one in counted)
        affected = findings.invalid_questions.get((dataset, encoder), frozenset())
        if of_encoder:
            notes.append(
                f"{encoder}: {left_out[encoder]} questions are left out, as in the paper, because "
                "a page of their document could not be encoded."
            )
        elif number := sum(one.question in affected for one in counted):
            notes.append(
                f"{encoder}: {number} questions are about documents with pages that could not be "
                "encoded; these count as empty pages. The paper leaves such questions out."
            )
    lacking = [
        f"{row} ({encoder}) {missing}"
        for (row, encoder), count in counts.items()
        if (missing := len(counted) - left_out[encoder] - count) > 0
    ]
    if lacking:
        notes.append(f"Without a result, and left out of their rows only: {', '.join(lacking)}.")
    return notes


def listed(names: Iterable[str]) -> str:
    """Return names as text, separated by commas."""
    return ", ".join(names) or "none"
