"""Data behind the views that explain a choice of pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.core import select
from visar.core.selection import Selection
from visar.core.similarity import PageSimilarity
from visar.core.weights import Products
from visar.documents.page import Box, Page
from visar.errors import InvalidOption
from visar.quotes.languages import Vocabulary, detect_language
from visar.results import (
    Explanation,
    MethodChoice,
    Patches,
    PatchPair,
    QuestionWord,
    SearchedPage,
    SearchResult,
)
from visar.retrieval.calibration import find_calibration
from visar.retrieval.corpus import Corpus
from visar.retrieval.methods import METHODS, DocumentPages, Method, ScoredPages
from visar.trace import PageId, Trace

# Maximum number of pages in the similarity matrix: cells of a larger one are too small to see.
MAX_MATRIX_PAGES = 200
TOP_T = 50
FIXED_K = 10
"""Number of pages of top-k, as a baseline for other methods."""
MAX_PAIRS = 6
_LABELS = {
    "visar": "ViSAR",
    "visar-approx": "ViSAR (Approx.)",
    "largest-gap": "Largest-Gap",
    "score-cluster": "Score-Cluster",
    "calibrated": "Calibrated",
    "top-k": f"Top {FIXED_K}",
}
# Score-Cluster clusters the pages once per cluster size, which is slow for many pages.
_MAX_CLUSTERED = 150
# With more pages, counting tokens would take longer than choosing the pages.
_MAX_COUNTED = 50
# Average of most tokenizers in English text.
_CHARACTERS_PER_TOKEN = 4

ReadPages: TypeAlias = Callable[[Sequence[int]], Sequence[Page]]
"""Function that reads pages by their positions, such as `Corpus.read`."""


def explain(
    found: SearchResult,
    pages: DocumentPages,
    page_ids: Sequence[PageId] | None = None,
    read: ReadPages | None = None,
) -> Explanation:
    """Return the explanation of the result of a local search.

    ``pages`` are the vectors of the pages that the method chose from. Their ``page_ids`` are needed
    if some were removed from the library since the search, and ``read`` to count tokens.
    """
    trace = trace_of(found)
    page_ids = trace.pages if page_ids is None else page_ids
    few = len(trace.relevance.active) <= MAX_MATRIX_PAGES
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
    """Return the trace of a search; raises InvalidOption if the result comes from a server."""
    if found.trace is None:
        raise InvalidOption(
            "This result comes from a server. Explain it with the client that returned it."
        )
    return found.trace


def patch_pairs(
    found: SearchResult, corpus: Corpus, first: PageId, second: PageId
) -> tuple[PatchPair, ...]:
    """Return the pairs of patches that contribute most to the similarity of two pages.

    ``corpus`` has all pages of the documents searched. Returns at most six pairs, best first,
    without repetitions of the same two words; none if a page has no weight.
    """
    sides = [_weighted(found, corpus.page(*page_id)) for page_id in (first, second)]
    vectors, boxes, texts = zip(*sides, strict=True)
    products = vectors[0] @ vectors[1].T
    if not products.size:
        return ()
    partners = products.argmax(axis=1)
    shared = products[np.arange(len(partners)), partners]
    pairs: dict[object, PatchPair] = {}
    for source in np.argsort(-shared, kind="stable").tolist():
        if shared[source] <= 0 or len(pairs) == MAX_PAIRS:
            break
        patches = source, int(partners[source])
        one, other = (side[patch] for side, patch in zip(boxes, patches, strict=True))
        word, match = (side[patch] for side, patch in zip(texts, patches, strict=True))
        # Repeated words have many patches with similar matches.
        key = (word.lower(), match.lower()) if word and match else source
        pairs.setdefault(key, PatchPair(one, other, (word, match), float(shared[source])))
    return tuple(pairs.values())


def _weighted(
    found: SearchResult, page: Corpus
) -> tuple[NDArray[np.float32], list[Box], list[str]]:
    """Return the weighted vectors u_pj = ŵ_pj v_pj of a page, and their boxes and words."""
    boxes, words = page.patches(0)
    weights = trace_of(found).patch_weights(*page.page_ids[0])
    if weights is None:  # a neighbor that the method didn't choose from
        weights = np.zeros(len(boxes), np.float32)
    active = np.flatnonzero(weights > 0)
    page_words = page.read()[0].words
    return (
        page.vectors(0)[active].astype(np.float32) * weights[active, None],
        [(left, top, right, bottom) for left, top, right, bottom in boxes[active].tolist()],
        [page_words[n].text if 0 <= n < len(page_words) else "" for n in words[active].tolist()],
    )


def patches(found: SearchResult, corpus: Corpus, document: str, number: int) -> Patches:
    trace = trace_of(found)
    page = corpus.page(document, number)
    boxes, _ = page.patches(0)
    cosines = trace.question @ page.vectors(0).astype(trace.question.dtype).T
    weights = trace.patch_weights(document, number)
    return Patches(
        boxes=tuple(tuple(box) for box in boxes.tolist()),
        weights=(0.0,) * len(boxes) if weights is None else tuple(weights.tolist()),
        cosines=tuple(tuple(row) for row in cosines.tolist()),
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
    influences = _influence(trace.question, selection, pages, chosen)
    vocabulary = Vocabulary(detect_language(question.split()))
    words, start = [], 0
    for text in question.split():
        start = question.index(text, start)
        end = start + len(text)
        vectors = tuple(n for n, (first, last) in enumerate(spans) if first < end and last > start)
        words.append((text, float(influences[list(vectors)].sum()), vectors))
        start = end
    most = max((influence for _, influence, _ in words), default=0.0) or 1.0
    return tuple(
        QuestionWord(text, value / most, vectors, vocabulary.is_stop_word(text))
        for text, value, vectors in words
    )


def _influence(
    query: NDArray[np.float32], selection: Selection, pages: DocumentPages, chosen: Sequence[int]
) -> NDArray[np.float64]:
    """Return the influence of each question vector on the choice of pages.

    In Eq. 8, the weight of a patch comes from its largest term. Here it is divided among all
    vectors in proportion to their terms, since a word that is often a close second matters too.
    """
    vectors = pages.vectors
    activations = Products(query, vectors, keep=False).activation
    means = np.maximum(activations.mean(axis=0), np.finfo(np.float64).tiny)
    # All activations of a vector share the factor of their normalized spread.
    factors = activations / means * activations.std(axis=0) * selection.token_weights
    influence = np.zeros(len(query))
    for page in chosen:
        rows = np.arange(vectors.offsets[page], vectors.offsets[page + 1])
        cosines = vectors.take(rows, np.ones(len(rows), np.float32)) @ query.T
        terms = np.maximum(cosines, 0) * factors[page] ** 2
        terms /= np.maximum(terms.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        influence += selection.patch_weights[page] @ terms
    return influence


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
    """Return the similarity matrix of the best active pages, in rank order."""
    active = set(selection.active.tolist())
    best = [page for page in selection.ranking.tolist() if page in active][:MAX_MATRIX_PAGES]
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
        # Use a new object for each method, so that cached values don't distort the times.
        scored = ScoredPages(query, pages, calibration=calibration)
        started = time.perf_counter()
        chosen = method.choose(scored).pages.tolist()
        results.append((method, chosen, time.perf_counter() - started))
    counted = sorted(
        {page for _, chosen, _ in results if len(chosen) <= _MAX_COUNTED for page in chosen}
    )
    read_pages = () if read is None else read(counted)
    tokens = {
        page: ceil(sum(len(word.text) + 1 for word in one.words) / _CHARACTERS_PER_TOKEN)
        for page, one in zip(counted, read_pages, strict=False)
    }
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
    if n_pages <= _MAX_CLUSTERED and find_spec("sklearn") is not None:
        import_module("sklearn.cluster")  # so that the import isn't timed
        names.append("score-cluster")
    if calibrated:
        names.append("calibrated")
    return [*(METHODS[name] for name in names), METHODS["top-k"].with_options(k=FIXED_K)]
