"""Why these pages: everything that the views of a decision show, as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.core import select
from visar.core.selection import Selection
from visar.core.similarity import PageSimilarity
from visar.core.weights import Products, activation
from visar.documents.page import Box, Page
from visar.results import Place, SearchResult
from visar.retrieval.calibration import find_calibration
from visar.retrieval.corpus import Corpus
from visar.retrieval.methods import METHODS, DocumentPages, Method, ScoredPages

# A matrix of more pages than this is too fine to look at.
MOST_PAGES = 200
TOP_T = 50
FIXED_K = 10
"""How many pages the fixed top-k takes that methods are compared with."""
MOST_PAIRS = 6
# Score-Cluster clusters the pages once for every size of cluster.
_CLUSTERED_PAGES = 150
# Beyond so many pages reading them to count their tokens would take longer than choosing them.
_COUNTED_PAGES = 50
# What English text has in the tokenizers of most language models.
_CHARACTERS_PER_TOKEN = 4

ReadPages: TypeAlias = Callable[[Sequence[int]], Sequence[Page]]
"""Reads pages by their positions among those chosen from; what `Corpus.read` is."""


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A word of the question."""

    text: str
    influence: float
    """How much of the weight on the chosen pages it has given, 0 to 1 relative to the most."""
    vectors: tuple[int, ...]
    """Which of the question's vectors are of it."""


@dataclass(frozen=True, slots=True)
class SearchedPage:
    """A page that was searched."""

    document: str
    page: int
    """1 for the first."""
    activity: float
    """s_p, 0 to 1 relative to the largest: how much of the page speaks of the question."""
    late_interaction: float
    rank: int
    """1 for the best."""


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """The pages that a method takes for the question."""

    method: str
    """Of ``visar.retrieval.methods``; "top-k" takes a fixed number."""
    label: str
    pages: tuple[int, ...]
    """Places in `Explanation.pages` from 0, the method's best first."""
    seconds: float
    """To choose them, without encoding the question."""
    tokens: int | None
    """About how many a language model reads if it is given their text, at 4 characters each; None
    for more than 50 pages, or without the text of pages."""

    @property
    def k(self) -> int:
        return len(self.pages)


@dataclass(frozen=True, slots=True)
class PatchPair:
    """A patch of one page, and the patch of another that shares most with it."""

    first: Box
    second: Box
    words: tuple[str, str]
    """The words there; empty where a patch is not one word."""
    shared: float
    """S_j of Eq. 10: the product of their weights and of their cosine."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What the method saw of a question."""

    words: tuple[QuestionWord, ...]
    """Empty if the encoder does not tell which of its vectors belong to which word."""
    pages: tuple[SearchedPage, ...]
    """Those that the method chose from, in the order of their documents."""
    cost: tuple[float | None, ...]
    """J(1), J(2), …; None where it was proved not to matter."""
    k_star: int
    similarity: NDArray[np.float32]
    """Sim(p, q) between the best active pages, at most 200, in rank order."""
    choices: tuple[MethodChoice, ...]
    """What each method takes, ViSAR first and a fixed top-k last."""

    @property
    def cuts(self) -> dict[str, int]:
        """How many pages the methods take that decide so themselves, by their names."""
        return {one.method: one.k for one in self.choices if METHODS[one.method].adaptive}


def explain(
    found: SearchResult, pages: DocumentPages, read: ReadPages | None = None
) -> Explanation:
    """Explain a result.

    Parameters
    ----------
    found
        What a search has found.
    pages
        The vectors of the pages that were searched.
    read
        Reads pages, to count their tokens.
    """
    few = len(found.selection.active) <= MOST_PAGES
    selection = select(found.query, pages.vectors, full_matrix=few)
    return Explanation(
        words=_words(found, pages),
        pages=_pages(found, selection),
        cost=tuple(float(value) if np.isfinite(value) else None for value in selection.cost),
        k_star=selection.k_star,
        similarity=_similarity(pages, selection),
        choices=_choices(found, pages, read),
    )


def patch_pairs(
    found: SearchResult, corpus: Corpus, first: Place, second: Place
) -> tuple[PatchPair, ...]:
    """Find what makes two pages alike: the patches that share most, best first.

    Parameters
    ----------
    found
        What a search has found.
    corpus
        All pages of the documents that were searched.
    first, second
        The pages, by their documents' ids and their numbers.

    Returns
    -------
    tuple
        At most six pairs; of those of the same two words the best. None if a page has no weight.
    """
    sides = [_weighted(found, corpus.page(*place)) for place in (first, second)]
    products = sides[0].vectors @ sides[1].vectors.T
    if not products.size:
        return ()
    partners = products.argmax(axis=1)
    shared = products[np.arange(len(partners)), partners]
    pairs: dict[object, PatchPair] = {}
    for source in np.argsort(-shared, kind="stable").tolist():
        if shared[source] <= 0 or len(pairs) == MOST_PAIRS:
            break
        places = source, int(partners[source])
        texts = [side.texts[place] for side, place in zip(sides, places, strict=True)]
        boxes = [side.boxes[place] for side, place in zip(sides, places, strict=True)]
        # A page that says the same word often has as many patches that match alike.
        key = (texts[0].lower(), texts[1].lower()) if all(texts) else source
        pairs.setdefault(
            key, PatchPair(boxes[0], boxes[1], (texts[0], texts[1]), float(shared[source]))
        )
    return tuple(pairs.values())


@dataclass(frozen=True, slots=True)
class _WeightedPatches:
    vectors: NDArray[np.float32]
    """u_pj = ŵ_pj v_pj of the patches with a weight."""
    boxes: list[Box]
    texts: list[str]


def _weighted(found: SearchResult, page: Corpus) -> _WeightedPatches:
    boxes, words = page.patches(0)
    weights = found.patch_weights(*page.places[0])
    if weights is None:  # a neighbour that the method did not choose from
        weights = np.zeros(len(boxes), np.float32)
    active = np.flatnonzero(weights > 0)
    written = page.read()[0].words
    return _WeightedPatches(
        page.vectors(0)[active].astype(np.float32) * weights[active, None],
        [(left, top, right, bottom) for left, top, right, bottom in boxes[active].tolist()],
        [written[n].text if 0 <= n < len(written) else "" for n in words[active].tolist()],
    )


def _words(found: SearchResult, pages: DocumentPages) -> tuple[QuestionWord, ...]:
    spans = found.spans
    if spans is None:
        return ()
    given = _influence(found, pages)
    words, start = [], 0
    for text in found.question.split():
        start = found.question.index(text, start)
        end = start + len(text)
        vectors = tuple(n for n, (first, last) in enumerate(spans) if first < end and last > start)
        words.append((text, float(given[list(vectors)].sum()), vectors))
        start = end
    most = max((influence for _, influence, _ in words), default=0.0) or 1.0
    return tuple(QuestionWord(text, given / most, vectors) for text, given, vectors in words)


def _influence(found: SearchResult, pages: DocumentPages) -> NDArray[np.float64]:
    """How much each vector of the question speaks for the chosen pages.

    A patch's weight comes from the largest term of Eq. 8; here it is shared among all vectors in
    proportion to their terms, since a word that nearly wins everywhere matters too.
    """
    selection, vectors = found.selection, pages.vectors
    products = Products(found.query, vectors, keep=False)
    activations = activation(products, len(vectors), len(found.query))
    means = np.maximum(activations.mean(axis=0), np.finfo(np.float64).tiny)
    # The normalised spread of a vector's activations is a factor of all of them.
    factors = activations / means * activations.std(axis=0) * selection.token_weights
    given = np.zeros(len(found.query))
    for page in selection.pages.tolist():
        rows = np.arange(vectors.offsets[page], vectors.offsets[page + 1])
        cosines = vectors.take(rows, np.ones(len(rows), np.float32)) @ found.query.T
        terms = np.maximum(cosines, 0) * factors[page] ** 2
        terms /= np.maximum(terms.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        given += selection.patch_weights[page] @ terms
    return given


def _pages(found: SearchResult, selection: Selection) -> tuple[SearchedPage, ...]:
    ranks = np.empty(len(selection.ranking), int)
    ranks[selection.ranking] = np.arange(1, len(ranks) + 1)
    largest = float(selection.scores.max(initial=0)) or 1.0
    values = zip(found.places, selection.scores, selection.late_interaction, ranks, strict=True)
    return tuple(
        SearchedPage(document, page, float(score) / largest, float(late), int(rank))
        for (document, page), score, late, rank in values
    )


def _similarity(pages: DocumentPages, selection: Selection) -> NDArray[np.float32]:
    """Sim of the best active pages, in rank order."""
    active = set(selection.active.tolist())
    best = [page for page in selection.ranking.tolist() if page in active][:MOST_PAGES]
    if selection.similarity is not None:
        return selection.similarity[np.ix_(best, best)].astype(np.float32)
    weights = np.concatenate(selection.patch_weights)
    similarity = PageSimilarity(pages.vectors, weights, top_t=TOP_T)
    order = np.searchsorted(similarity.pages, best).tolist()
    return similarity.rows(order)[:, order].astype(np.float32)


def _choices(
    found: SearchResult, pages: DocumentPages, read: ReadPages | None
) -> tuple[MethodChoice, ...]:
    calibration = find_calibration(found.encoder)
    scored = ScoredPages(found.query, pages, calibration=calibration)
    results = [(method, method.choose(scored)) for method in _methods(scored)]
    counted = sorted(
        {
            page
            for _, result in results
            if len(result.pages) <= _COUNTED_PAGES
            for page in result.pages.tolist()
        }
    )
    read_pages = () if read is None else read(counted)
    tokens = dict(zip(counted, map(_tokens, read_pages), strict=False))
    return tuple(
        MethodChoice(
            method=method.name,
            label=f"Top {FIXED_K}" if method.name == "top-k" else method.label,
            pages=tuple(result.pages.tolist()),
            seconds=sum(result.seconds.values()),
            tokens=sum(tokens[page] for page in result.pages.tolist())
            if tokens.keys() >= set(result.pages.tolist())
            else None,
        )
        for method, result in results
    )


def _methods(scored: ScoredPages) -> list[Method]:
    names = ["visar", "visar-approx", "largest-gap"]
    if len(scored) <= _CLUSTERED_PAGES and find_spec("sklearn") is not None:
        import_module("sklearn.cluster")  # which would count as time to choose
        names.append("score-cluster")
    if scored.calibration is not None:
        names.append("calibrated")
    return [*(METHODS[name] for name in names), METHODS["top-k"].with_options(k=FIXED_K)]


def _tokens(page: Page) -> int:
    characters = sum(len(word.text) + 1 for word in page.words)
    return -(-characters // _CHARACTERS_PER_TOKEN)
