"""Search: finds the pages that a question needs, in one or several documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from visar.core import PageVectors, Products, Relevance, Selection, maxsim
from visar.core.vectors import Float32, Float64
from visar.documents.page import Page
from visar.encoders.encoder import Encoder, SpanEncoder, encode_image_query
from visar.errors import EncoderError, InvalidOption, InvalidVectors
from visar.forks import disable_after_fork
from visar.plugins import failing_as
from visar.query import Query
from visar.quotes.languages import Vocabulary, detect_language
from visar.results import Decision, Document, PageHit, PageSource, SearchResult, Strength
from visar.retrieval.calibration import (
    best_cosine,
    find_calibration,
    likelihood,
    page_features,
)
from visar.retrieval.corpus import Corpus, read_remaining
from visar.retrieval.methods import Method, MethodFunction, ScoredPages, get_method
from visar.retrieval.wording import why_so_many
from visar.telemetry import span
from visar.trace import PageId, Trace

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.quotes.choice import Question, Quotes, WeightedPage
    from visar.quotes.reader import Reader
    from visar.retrieval.candidates import Candidates

# Encoders without a calibration: minimum of a match, relative to the encoder's ``weak_match``. With
# the embedded encoder, it rejected 21% of the questions that had an answer.
NO_MATCH = 5 / 6
CANDIDATES = 50
"""Number of pages to choose from in several documents: the best by late interaction."""
MAX_SCANNED = 300
"""Maximum number of pages of several documents to compare without a first stage."""
READ_PAGES = 10
"""Number of pages with passages for the reader: the best by s_p."""

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Start and end of each vector's characters in the question."""


class Searcher:
    """Search in one corpus with its encoder. Thread-safe.

    Documents that have been removed from the store are left out. ``candidates`` is the first stage
    for large libraries; without it, all pages are compared. ``left_out`` are documents without
    vectors of the encoder, to list in results. ``reader`` reorders the best pages and their quotes.
    ``source`` is a library with the images and words of the pages found.
    """

    def __init__(
        self,
        corpus: Corpus,
        encoder: Encoder,
        *,
        candidates: Candidates | None = None,
        left_out: Sequence[Document] = (),
        reader: Reader | None = None,
        source: PageSource | None = None,
    ) -> None:
        self._corpus = corpus
        self._encoder = encoder
        self._candidates = candidates
        self._left_out = tuple(left_out)
        self._reader = reader
        self._source = source
        disable_after_fork(self)

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Everything that a search depends on besides the query: documents and encoder."""
        return self._corpus.documents, self._left_out, self._corpus.encoder, id(self._encoder)

    @property
    def pages(self) -> PageVectors:
        return self._corpus.pages.vectors

    def search(
        self,
        query: str | Query,
        *,
        method: str | Method | MethodFunction | None = None,
        image: Image | None = None,
    ) -> SearchResult:
        """Find the pages that a question, or an image instead of it, needs.

        ``method`` replaces the query's method.
        """
        started = time.perf_counter()
        query = Query(question=query) if isinstance(query, str) else query
        chosen_method = _with_k(get_method(method or query.method), query.k)
        query = replace(query, method=chosen_method.name)
        if image is not None and query.question:
            raise InvalidOption("A search has either a question or an image, not both.")
        with span("visar.search"), ThreadPoolExecutor(1) as pool:
            # Encode the question, which may load a model, while the pages are prepared.
            encoding = pool.submit(copy_context().run, self._encode, query.question, image)
            try:
                found = read_remaining(
                    self._corpus,
                    lambda corpus: self._search(corpus, query, chosen_method, encoding.result),
                )
            except InvalidVectors as error:
                # Either the question's, or those of an index that is older than the checks.
                if damage := self._corpus.find_damage():
                    raise damage from error
                raise
        found = replace(found, seconds=time.perf_counter() - started)
        return replace(found, summary=why_so_many(found))

    def weigh(
        self, vectors: Float32, token_weights: Float64, page_ids: Sequence[PageId]
    ) -> list[WeightedPage]:
        """Return pages with their cosines to a question's vectors, which have these weights."""
        return _weigh(self._corpus, vectors, token_weights, page_ids)

    def strength(
        self, question: str, match: float, pages: Sequence[Page], *, quoted: bool
    ) -> Strength:
        """Return the strength of the match between pages and question from their `best_cosine`."""
        from visar.quotes.choice import Question

        calibration = find_calibration(self._corpus.encoder)
        if calibration is None:
            strength = _strength(match, self._encoder.weak_match)
        else:
            strength = calibration.strength(calibration.about(match))
        if strength == "none" and (
            # A document needn't contain the words of a question about itself.
            (Question(question).is_about_document and quoted) or _shares_words(question, pages)
        ):
            return "weak"
        return strength

    def _encode(self, question: str, image: Image | None) -> tuple[Float32, Spans | None]:
        """Return the vectors of a question, and their spans if the encoder knows them."""
        name = self._corpus.encoder.name
        with (
            span("visar.encode", {"visar.encoder": name}),
            failing_as(EncoderError, f"The encoder {name} failed on the question"),
        ):
            if image is not None:
                return encode_image_query(self._encoder, image), None
            vectors = self._encoder.encode_query(question)
            if isinstance(self._encoder, SpanEncoder):
                return vectors, tuple(self._encoder.question_spans(question))
            return vectors, None

    def _search(
        self,
        corpus: Corpus,
        query: Query,
        method: Method,
        encode: Callable[[], tuple[Float32, Spans | None]],
    ) -> SearchResult:
        from visar.quotes.choice import Question, find_quotes

        calibration = find_calibration(corpus.encoder)
        self._prepare(corpus, exact=query.exact)
        question = Question(query.question)
        vectors, spans = encode()
        with span("visar.candidates", {"visar.pages_searched": len(corpus)}) as finding:
            considered, products = self._considered(corpus, vectors, query)
            finding.set({"visar.candidates": len(considered)})
        scored = ScoredPages(
            vectors,
            considered.pages,
            max_k=query.max_k,
            calibration=calibration,
            products=products,
        )
        with span("visar.select", {"visar.method": method.name}) as selecting:
            choice = method.choose(scored)
            selection = choice if isinstance(choice, Selection) else None
            relevance = scored.relevance if selection is None else selection
            chosen = [considered.page_ids[page] for page in choice.pages[: query.max_k]]
            k = len(chosen)
            selecting.set(
                {
                    "visar.k": k,
                    "visar.k_star": None if selection is None else selection.k_star,
                    "visar.pages_searched": len(corpus),
                    "visar.pages_saved": len(corpus) - k,
                }
            )
        context = _SearchContext(vectors, considered, relevance)
        named = _named_page(corpus, question)
        front = [(chosen[0][0], 1)] if question.is_about_document else []
        best: list[PageId] = []
        if self._reader is not None and selection is not None:
            # The method chooses the number of pages; the reader influences which ones.
            best = [considered.page_ids[page] for page in relevance.ranking[:READ_PAGES]]
        pages = context.read(list(dict.fromkeys([*named, *best, *chosen, *front])))
        named_reader = self._reader and self._reader.name
        with span("visar.read", {"visar.reader": named_reader, "visar.pages": len(pages)}):
            quotes = find_quotes(query.question, pages, self._reader if query.question else None)
        chosen = list(dict.fromkeys([*named, *context.order(best, quotes), *chosen]))[:k]
        beside = dict(_neighbors(corpus, chosen, query.neighbors))
        shown = [*chosen, *beside]
        runner_up = context.runner_up(shown)
        passages = quotes.quotes([*shown, *front])
        missing = [one for one in [*shown, *runner_up] if one not in quotes.page_ids]
        more = find_quotes(query.question, context.read(missing))

        reader = self._reader.name if self._reader and quotes.page_relevance() else None
        match = best_cosine(relevance)
        about = chances = None
        strength = self.strength(
            query.question, match, [one.page for one in pages], quoted=bool(passages)
        )
        if calibration is not None:
            about = calibration.about(match)
            chances = calibration.probabilities(
                match,
                page_features(relevance),
                several=len(corpus.documents) > 1,
                reader=reader,
                judged=context.judged(quotes),
            )
        hits = [
            context.hit(
                page_id,
                quotes if page_id in quotes.page_ids else more,
                chances,
                strength,
                beside=beside.get(page_id),
                source=self._source,
            )
            for page_id in [*shown, *runner_up]
        ]
        return SearchResult(
            query=query,
            pages=tuple(hits[: len(shown)]),
            documents=corpus.documents,
            left_out=self._left_out,
            pages_searched=len(corpus),
            candidates=None if considered is corpus else len(considered),
            pages_invalid=corpus.invalid_pages,
            k=len(chosen),
            match=match,
            about=about,
            strength=strength,
            runner_up=hits[-1] if runner_up else None,
            encoder=corpus.encoder,
            calibration=None if calibration is None else calibration.made_from,
            seconds=0.0,
            summary="",
            decision=None if selection is None else _decision(selection),
            passages=passages,
            reader=reader,
            trace=Trace(vectors, considered.page_ids, relevance, spans),
        )

    def _prepare(self, corpus: Corpus, *, exact: bool) -> None:
        """Load the vectors or candidate index of a search."""
        if _is_small(corpus):
            _ = corpus.pages
        elif self._candidates is not None and not exact:
            self._candidates.prepare(corpus)

    def _considered(
        self, corpus: Corpus, vectors: Float32, query: Query
    ) -> tuple[Corpus, Products]:
        """Return the pages to choose from, and their products with the question.

        These are all pages of a single document, or the best pages of several.
        """
        most = max(CANDIDATES, query.k or 0)
        if len(corpus.documents) == 1 or len(corpus) <= most:
            return corpus, Products(vectors, corpus.pages.vectors)
        candidates: list[PageId] = []
        if not _is_small(corpus) and self._candidates is not None and not query.exact:
            candidates = self._candidates.find(corpus, vectors, most)
        if candidates:
            corpus = corpus.only(candidates)
        if candidates or _is_small(corpus):
            products = Products(vectors, corpus.pages.vectors)
            best = _best(maxsim(vectors, products), most)
            return corpus.only([corpus.page_ids[page] for page in best]), products.subset(best)
        best = _best(corpus.late_interaction(vectors), most)
        corpus = corpus.only([corpus.page_ids[page] for page in best])
        return corpus, Products(vectors, corpus.pages.vectors)


@dataclass(frozen=True, slots=True, eq=False)
class _SearchContext:
    """The vectors of a question, with the pages to choose from and their relevance."""

    vectors: Float32
    considered: Corpus
    relevance: Relevance

    def read(self, page_ids: Sequence[PageId]) -> list[WeightedPage]:
        return _weigh(self.considered, self.vectors, self.relevance.token_weights, page_ids)

    def order(self, page_ids: Sequence[PageId], quotes: Quotes) -> list[PageId]:
        """Return pages ordered by s_p plus the reader's best score, both standardized."""
        from visar.quotes.choice import standardize

        judged = quotes.page_relevance()
        if not judged or not page_ids:
            return list(page_ids)
        lowest = min(judged.values())
        found = [self.considered.find(*page_id) for page_id in page_ids]
        scores = standardize([float(self.relevance.scores[p]) for p in found if p is not None])
        scores += standardize([judged.get(page_id, lowest) for page_id in page_ids])
        return [page_ids[position] for position in np.argsort(-scores, kind="stable")]

    def judged(self, quotes: Quotes) -> Float64:
        """Return the reader's best score of each page; NaN if it read nothing on the page."""
        found = quotes.page_relevance()
        return np.array([found.get(page_id, np.nan) for page_id in self.considered.page_ids])

    def runner_up(self, shown: Sequence[PageId]) -> list[PageId]:
        """Return the best page by s_p or late interaction that isn't shown, if there is one."""
        firsts = self.relevance.ranking[0], self.relevance.late_interaction.argmax()
        page_ids = (self.considered.page_ids[first] for first in firsts)
        return [page_id for page_id in page_ids if page_id not in shown][:1]

    def hit(
        self,
        page_id: PageId,
        quotes: Quotes,
        chances: Float64 | None,
        strength: Strength,
        *,
        beside: int | None,
        source: PageSource | None,
    ) -> PageHit:
        """Return a page as a hit, with its best passage."""
        position = self.considered.find(*page_id)
        page, passage = quotes.page(page_id), quotes.best(page_id)
        score, late, probability = 0.0, 0.0, None
        if position is not None:
            score = float(self.relevance.scores[position])
            late = float(self.relevance.late_interaction[position])
            probability = None if chances is None else float(chances[position])
        elif page.similarities.size:
            late = float(page.similarities.max(axis=1).sum())
        return PageHit(
            document=page.document,
            name=self.considered.document(page.document).name,
            page=page.page.number,
            label=page.page.label,
            score=score,
            late_interaction=late,
            snippet=passage.text if passage else "",
            boxes=passage.boxes if passage else (),
            probability=probability,
            likelihood=likelihood(probability, strength),
            beside=beside,
            source=source,
        )


def _weigh(
    corpus: Corpus, query: Float32, token_weights: Float64, page_ids: Sequence[PageId]
) -> list[WeightedPage]:
    from visar.quotes.choice import WeightedPage

    if not page_ids:
        return []
    pages = corpus.only(page_ids)
    weighted = []
    for position, page in enumerate(pages.read()):
        boxes, words = pages.patches(position)
        vectors = pages.vectors(position).astype(np.float32)
        weighted.append(
            WeightedPage(
                document=pages.page_ids[position][0],
                page=page,
                vector_words=words,
                vector_boxes=boxes,
                similarities=query @ vectors.T,
                query_weights=token_weights,
            )
        )
    return weighted


def _named_page(corpus: Corpus, question: Question) -> list[PageId]:
    """Return the page that a question names, in a single document."""
    number, document = question.page, corpus.documents[0]
    if number is None or len(corpus.documents) > 1 or not 1 <= number <= document.pages:
        return []
    return [(document.id, number)]


def _best(scores: Float64, most: int) -> list[int]:
    """Return the positions of the highest scores, in ascending order."""
    best: list[int] = np.sort(np.argsort(-scores, kind="stable")[:most]).tolist()
    return best


def _is_small(corpus: Corpus) -> bool:
    """Return whether all pages are compared with every question, and so kept in memory."""
    return len(corpus.documents) == 1 or len(corpus) <= MAX_SCANNED


def _neighbors(
    corpus: Corpus, chosen: Sequence[PageId], neighbors: int
) -> Iterator[tuple[PageId, int]]:
    """Yield the neighbors of the chosen pages, each with the number of the page it is next to."""
    taken = set(chosen)
    for document, number in chosen:
        first = max(1, number - neighbors)
        last = min(corpus.document(document).pages, number + neighbors)
        for page_id in ((document, other) for other in range(first, last + 1)):
            if page_id not in taken:
                taken.add(page_id)
                yield page_id, number


def _decision(selection: Selection) -> Decision:
    return Decision(
        k_star=selection.k_star,
        exact=selection.k_star_exact,
        cost=tuple(float(value) if np.isfinite(value) else None for value in selection.cost),
        active_pages=len(selection.active),
        considered_pages=len(selection.ranking),
        fallback=selection.fallback,
        timings=selection.timings,
    )


def _with_k(method: Method, k: int | None) -> Method:
    if k is None:
        return method
    if method.adaptive:
        raise InvalidOption(
            f"k only works with the method top-k; use max_k to limit the pages of {method.name}."
        )
    return method.with_options(k=k)


def _shares_words(question: str, pages: Sequence[Page]) -> bool:
    """Return whether a page that isn't in English has most words of the question.

    Encoders and calibrations work best in English. In other languages, cosines are lower, and
    shared words are a better signal.
    """
    language = detect_language(word.text for page in pages for word in page.words)
    if language is None or language == "english":
        return False
    vocabulary = Vocabulary(language)
    stems = {stem for _, stem in vocabulary.stems(question)}
    for page in pages:
        text = " ".join(word.text for word in page.words)
        shared = stems.intersection(stem for _, stem in vocabulary.stems(text))
        if 2 * len(shared) > len(stems):
            return True
    return False


def _strength(match: float, weak: float) -> Strength:
    if match >= weak:
        return "good"
    return "weak" if match >= NO_MATCH * weak else "none"
