"""Examples that a calibration is fitted on: questions with evidence pages, put to pages.

A question is put to its own document, to all documents together, since people ask whole libraries
too, and to other documents, which do not answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, maxsim, select
from visar.core.vectors import Float32, Float64, Integers
from visar.evaluation.questions import Question
from visar.index import Index
from visar.quotes.choice import WeightedPage, find_quotes
from visar.retrieval.calibration import FEATURES, best_cosine, page_features
from visar.retrieval.search import CANDIDATES, READ_PAGES

OTHER_DOCUMENTS = 5
"""Number of other documents that a question is put to."""

Kind: TypeAlias = Literal["own", "library", "other"]
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A question put to pages."""

    kind: Kind
    """Its own document, the best pages of all documents, or another document."""
    document: str
    """Document that the question is about."""
    pages_of: str
    """Document that it was put to; empty for all."""
    cosine: float
    """Mean cosine of the question with the closest page."""
    features: Float64
    """`page_features` of each page. There are no pages here if the document is another one."""
    evidence: NDArray[np.bool_]
    """Whether each page holds evidence."""
    ranking: Integers
    """The pages in the order of s_p."""
    k_star: int
    """Number of pages that the paper's rule takes."""
    judged: Float64 | None = None
    """Judgment of the reader on each page, NaN for a page that it did not read in."""
    cosines: Float64 | None = None
    """Mean cosine of the question with each page."""


def _silently(done: int, total: int) -> None:
    """Report no progress."""


def gather(
    index: Index,
    questions: Sequence[Question],
    names: Mapping[str, str],
    encoder: str,
    progress: Progress = _silently,
) -> list[Example]:
    """Put questions to their documents, to all documents together, and to other documents.

    If the index has a reader, it reads in the best pages, as it does in a search.

    Parameters
    ----------
    index
        Holds the documents and their vectors.
    questions
        Those whose document is missing in ``names`` are left out.
    names
        The id in the index of each document, by its name in the data set.
    encoder
        Whose vectors are used.
    progress
        Called with the questions done and their number.
    """
    library = _Library(index, names, encoder)
    asked = [question for question in questions if question.document in names]
    examples: list[Example] = []
    for number, question in enumerate(asked):
        progress(number, len(asked))
        query = index.encode_question(question.text, encoder=encoder)
        examples += library.ask(question, query, number)
    progress(len(asked), len(asked))
    return examples


class _Library:
    """The documents of a data set, by name."""

    def __init__(self, index: Index, names: Mapping[str, str], encoder: str) -> None:
        self._index = index
        self._names = names
        self._vectors = {
            name: index.vectors(names[name], encoder=encoder) for name in sorted(names)
        }
        self._pages = {
            name: PageVectors(stored.vectors, stored.offsets)
            for name, stored in self._vectors.items()
        }

    def ask(self, question: Question, query: Float32, number: int) -> Iterator[Example]:
        """Put a question to its document and to others. ``number`` varies which."""
        own = question.document
        late = {name: maxsim(query, pages) for name, pages in self._pages.items()}
        yield self._example("own", question, query, [(own, page) for page in _numbers(late[own])])
        everything = [(name, page) for name, each in late.items() for page in _numbers(each)]
        best = np.argsort(-np.concatenate(list(late.values())), kind="stable")[:CANDIDATES]
        candidates = [everything[position] for position in np.sort(best)]
        yield self._example("library", question, query, candidates)
        others = [name for name in self._vectors if name != own]
        taken = min(OTHER_DOCUMENTS, len(others))
        for place in range(taken):
            name = others[(number + place * len(others) // taken) % len(others)]
            yield Example(
                kind="other",
                document=own,
                pages_of=name,
                cosine=float(late[name].max() / len(query)),
                features=np.zeros((0, len(FEATURES))),
                evidence=np.zeros(0, np.bool_),
                ranking=np.zeros(0, np.int64),
                k_star=0,
            )

    def _example(
        self, kind: Kind, question: Question, query: Float32, pages: Sequence[tuple[str, int]]
    ) -> Example:
        own = question.document
        vectors = [self._vectors[name].page(number).vectors for name, number in pages]
        selection = select(query, self._pages[own] if kind == "own" else PageVectors(vectors))
        judged = None
        if self._index.reader() is not None:
            best = [pages[position] for position in selection.ranking[:READ_PAGES]]
            found = self._read(question.text, query, selection.token_weights, best)
            judged = np.array([found.get(page, np.nan) for page in pages])
        evidence = {(own, page) for page in question.evidence_pages}
        return Example(
            kind=kind,
            document=own,
            pages_of=own if kind == "own" else "",
            cosine=best_cosine(selection),
            features=page_features(selection),
            evidence=np.array([page in evidence for page in pages]),
            ranking=selection.ranking,
            k_star=selection.k_star,
            judged=judged,
            cosines=selection.late_interaction / len(query),
        )

    def _read(
        self,
        question: str,
        query: Float32,
        token_weights: Float64,
        pages: Sequence[tuple[str, int]],
    ) -> dict[tuple[str, int], float]:
        """Return the judgment of the reader on pages."""
        weighted = []
        for name, number in pages:
            embedding = self._vectors[name].page(number)
            weighted.append(
                WeightedPage(
                    document=name,
                    page=self._index.page(self._names[name], number),
                    vector_words=embedding.words,
                    vector_boxes=embedding.boxes,
                    similarities=query @ embedding.vectors.astype(np.float32).T,
                    query_weights=token_weights,
                )
            )
        return find_quotes(question, weighted, self._index.reader()).page_relevance()


def _numbers(pages: Sized) -> range:
    """Return the numbers of pages, from 1."""
    return range(1, len(pages) + 1)
