"""Examples for fitting calibrations: questions with evidence pages, put to pages.

Each question is put to its own document, to all documents together (as people also ask whole
libraries), and to other documents, which don't answer it.
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
"""Number of other documents that each question is put to."""

Kind: TypeAlias = Literal["own", "library", "other"]
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A question put to pages."""

    kind: Kind
    """The pages: the own document, the best pages of all documents, or another document."""
    document: str
    """The document that the question is about."""
    pages_of: str
    """The document that the question is put to; empty for all."""
    cosine: float
    """The mean cosine of the question with the best page."""
    features: Float64
    """The `page_features` of each page; empty if the document is another one."""
    evidence: NDArray[np.bool_]
    """Whether each page has evidence."""
    ranking: Integers
    """The pages ranked by s_p."""
    k_star: int
    """The number of pages chosen by the paper's rule."""
    judged: Float64 | None = None
    """The reader's judgment of each page; NaN for pages it didn't read."""
    cosines: Float64 | None = None
    """The mean cosine of the question with each page."""


def gather(
    index: Index,
    questions: Sequence[Question],
    names: Mapping[str, str],
    encoder: str,
    progress: Progress = lambda _done, _total: None,
) -> list[Example]:
    """Create the examples of questions.

    ``names`` maps the names of documents in the data set to their ids in the index. Questions about
    other documents are skipped. If the index has a reader, it reads the best pages, as in a search.
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
    """The indexed documents of a data set, by name."""

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
        """Yield the examples of a question; ``number`` varies the choice of other documents."""
        own = question.document
        late = {name: maxsim(query, pages) for name, pages in self._pages.items()}
        yield self._example("own", question, query, [(own, page) for page in _numbers(late[own])])
        everything = [(name, page) for name, each in late.items() for page in _numbers(each)]
        best = np.argsort(-np.concatenate(list(late.values())), kind="stable")[:CANDIDATES]
        candidates = [everything[position] for position in np.sort(best)]
        yield self._example("library", question, query, candidates)
        others = [name for name in self._vectors if name != own]
        count = min(OTHER_DOCUMENTS, len(others))
        for n in range(count):
            name = others[(number + n * len(others) // count) % len(others)]
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
        """Return the reader's judgments of pages."""
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
    """Return page numbers, from 1."""
    return range(1, len(pages) + 1)
