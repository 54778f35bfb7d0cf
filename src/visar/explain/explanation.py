"""Why these pages: everything that the views of a decision show, as data."""

from __future__ import annotations

import time
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
from visar.core.weights import Products
from visar.documents.page import Box, Page
from visar.errors import InvalidOption
from visar.results import (
    Explanation,
    MethodChoice,
    PatchPair,
    QuestionWord,
    SearchedPage,
    SearchResult,
)
from visar.retrieval.calibration import find_calibration
from visar.retrieval.corpus import Corpus
from visar.retrieval.methods import METHODS, DocumentPages, Method, ScoredPages
from visar.trace import PageId, Trace

# A matrix of more pages than this is too fine to look at.
MOST_PAGES = 200
TOP_T = 50
FIXED_K = 10
"""How many pages the fixed top-k takes that methods are compared with."""
MOST_PAIRS = 6
_LABELS = {
    "visar": "ViSAR",
    "visar-approx": "ViSAR (Approx.)",
    "largest-gap": "Largest-Gap",
    "score-cluster": "Score-Cluster",
    "calibrated": "Calibrated",
    "top-k": f"Top {FIXED_K}",
}
# Score-Cluster clusters the pages once for every size of cluster.
_CLUSTERED_PAGES = 150
# Beyond so many pages reading them to count their tokens would take longer than choosing them.
_COUNTED_PAGES = 50
# What English text has in the tokenizers of most language models.
_CHARACTERS_PER_TOKEN = 4

ReadPages: TypeAlias = Callable[[Sequence[int]], Sequence[Page]]
"""Reads pages by their positions among those chosen from; what `Corpus.read` is."""


def explain(
    found: SearchResult,
    pages: DocumentPages,
    page_ids: Sequence[PageId] | None = None,
    read: ReadPages | None = None,
) -> Explanation:
    """Explain a result.

    Parameters
    ----------
    found
        The result of a search on this machine.
    pages
        The vectors of the pages that were searched.
    page_ids
        The same pages by document and number, if not all of them are in the library any more.
    read
        Function that reads pages, to count their tokens.
    """
    trace = trace_of(found)
    page_ids = trace.pages if page_ids is None else page_ids
    few = len(trace.relevance.active) <= MOST_PAGES
    selection = select(trace.question, pages.vectors, full_matrix=few)
    similarity = _similarity(pages, selection)
    positions = {page_id: position for position, page_id in enumerate(page_ids)}
    chosen = [(hit.document, hit.page) for hit in found.pages[: found.k]]
    chosen_positions = [positions[page_id] for page_id in chosen if page_id in positions]
    return Explanation(
        words=_words(found.question, trace, selection, pages, chosen_positions),
        pages=_pages(page_ids, selection),
        cost=tuple(float(value) if np.isfinite(value) else None for value in selection.cost),
        k_star=selection.k_star,
        similarity=tuple(tuple(row) for row in similarity.tolist()),
        choices=_choices(found, pages, read),
    )


def trace_of(found: SearchResult) -> Trace:
    """Return what a search left behind; raises InvalidOption if it ran on another machine."""
    if found.trace is None:
        raise InvalidOption("This result comes from a server: let its client explain it.")
    return found.trace


def patch_pairs(
    found: SearchResult, corpus: Corpus, first: PageId, second: PageId
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
    weights = trace_of(found).patch_weights(*page.page_ids[0])
    if weights is None:  # a neighbour that the method did not choose from
        weights = np.zeros(len(boxes), np.float32)
    active = np.flatnonzero(weights > 0)
    written = page.read()[0].words
    return _WeightedPatches(
        page.vectors(0)[active].astype(np.float32) * weights[active, None],
        [(left, top, right, bottom) for left, top, right, bottom in boxes[active].tolist()],
        [written[n].text if 0 <= n < len(written) else "" for n in words[active].tolist()],
    )


def _words(
    question: str,
    trace: Trace,
    selection: Selection,
    pages: DocumentPages,
    chosen: Sequence[int],
) -> tuple[QuestionWord, ...]:
    spans = trace.spans
    if spans is None:
        return ()
    given = _influence(trace.question, selection, pages, chosen)
    words, start = [], 0
    for text in question.split():
        start = question.index(text, start)
        end = start + len(text)
        vectors = tuple(n for n, (first, last) in enumerate(spans) if first < end and last > start)
        words.append((text, float(given[list(vectors)].sum()), vectors))
        start = end
    most = max((influence for _, influence, _ in words), default=0.0) or 1.0
    return tuple(QuestionWord(text, given / most, vectors) for text, given, vectors in words)


def _influence(
    query: NDArray[np.float32], selection: Selection, pages: DocumentPages, chosen: Sequence[int]
) -> NDArray[np.float64]:
    """Return how much each vector of the question speaks for the chosen pages.

    A patch's weight comes from the largest term of Eq. 8; here it is shared among all vectors in
    proportion to their terms, since a word that nearly wins everywhere matters too.
    """
    vectors = pages.vectors
    activations = Products(query, vectors, keep=False).activation
    means = np.maximum(activations.mean(axis=0), np.finfo(np.float64).tiny)
    # The normalised spread of a vector's activations is a factor of all of them.
    factors = activations / means * activations.std(axis=0) * selection.token_weights
    given = np.zeros(len(query))
    for page in chosen:
        rows = np.arange(vectors.offsets[page], vectors.offsets[page + 1])
        cosines = vectors.take(rows, np.ones(len(rows), np.float32)) @ query.T
        terms = np.maximum(cosines, 0) * factors[page] ** 2
        terms /= np.maximum(terms.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        given += selection.patch_weights[page] @ terms
    return given


def _pages(page_ids: Sequence[PageId], selection: Selection) -> tuple[SearchedPage, ...]:
    ranks = np.empty(len(selection.ranking), int)
    ranks[selection.ranking] = np.arange(1, len(ranks) + 1)
    largest = float(selection.scores.max(initial=0)) or 1.0
    values = zip(page_ids, selection.scores, selection.late_interaction, ranks, strict=True)
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
    query, calibration = trace_of(found).question, find_calibration(found.encoder)
    results = []
    for method in _methods(len(pages.vectors), calibrated=calibration is not None):
        # New for each method: what another has computed would count as no time at all.
        scored = ScoredPages(query, pages, calibration=calibration)
        started = time.perf_counter()
        chosen = method.choose(scored).pages.tolist()
        results.append((method, chosen, time.perf_counter() - started))
    counted = sorted(
        {page for _, chosen, _ in results if len(chosen) <= _COUNTED_PAGES for page in chosen}
    )
    read_pages = () if read is None else read(counted)
    tokens = dict(zip(counted, map(_tokens, read_pages), strict=False))
    return tuple(
        MethodChoice(
            method=method.name,
            label=_LABELS[method.name],
            adaptive=method.adaptive,
            pages=tuple(chosen),
            seconds=seconds,
            tokens=sum(tokens[page] for page in chosen) if tokens.keys() >= set(chosen) else None,
        )
        for method, chosen, seconds in results
    )


def _methods(n_pages: int, *, calibrated: bool) -> list[Method]:
    names = ["visar", "visar-approx", "largest-gap"]
    if n_pages <= _CLUSTERED_PAGES and find_spec("sklearn") is not None:
        import_module("sklearn.cluster")  # which would count as time to choose
        names.append("score-cluster")
    if calibrated:
        names.append("calibrated")
    return [*(METHODS[name] for name in names), METHODS["top-k"].with_options(k=FIXED_K)]


def _tokens(page: Page) -> int:
    characters = sum(len(word.text) + 1 for word in page.words)
    return -(-characters // _CHARACTERS_PER_TOKEN)
