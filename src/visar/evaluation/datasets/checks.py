"""What a data set says that can hardly be right, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from visar.evaluation.datasets.longdocurl import Incomplete, LongDocURL
from visar.evaluation.questions import Dataset, Question
from visar.generation.parsing import is_not_answerable


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something about a question that a person should look at."""

    question: str
    """Its id."""
    what: str

    def __str__(self) -> str:
        return f"{self.question}: {self.what}"


def missing_documents(dataset: Dataset) -> list[str]:
    """The documents that are asked about and not on this machine, in the order of the data set."""
    documents = dict.fromkeys(question.document for question in dataset.questions())
    return [document for document in documents if dataset.path(document) is None]


def incomplete_documents(dataset: Dataset) -> list[Incomplete]:
    """Those of the missing documents of which some page images are there."""
    return dataset.incomplete_documents() if isinstance(dataset, LongDocURL) else []


def doubtful(questions: Sequence[Question], page_counts: Mapping[str, int]) -> list[Doubt]:
    """What is doubtful about questions, by the number of pages of each document where known.

    >>> question = Question("q1", "a.pdf", "How many?", (0, 9), ("4",))
    >>> for doubt in doubtful([question], {"a.pdf": 8}):
    ...     print(doubt)
    q1: evidence page 0 is below 1
    q1: evidence page 9 is past the end of the document, which has 8 pages
    """
    return [
        Doubt(question.id, what)
        for question in questions
        for what in _doubts(question, page_counts.get(question.document))
    ]


def _doubts(question: Question, pages: int | None) -> Iterator[str]:
    for page in question.evidence_pages:
        if page < 1:
            yield f"evidence page {page} is below 1"
        elif pages is not None and page > pages:
            yield f"evidence page {page} is past the end of the document, which has {pages} pages"
    if not question.answers:
        yield "no answer is given"
    elif all(map(is_not_answerable, question.answers)):
        if question.evidence_pages:
            yield "it is not answerable, but has evidence pages"
    elif not question.evidence_pages:
        yield "it has an answer, but no evidence pages"
