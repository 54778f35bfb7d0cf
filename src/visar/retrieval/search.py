"""From a question to the pages it needs, over one document or several."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from visar.core import PageVectors, Products, Relevance, Selection, maxsim
from visar.core.vectors import Float32, Float64
from visar.documents.page import Page
from visar.encoders.protocol import Encoder, SpanEncoder, encode_image_query
from visar.errors import InvalidOption
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
from visar.trace import PageId, Trace

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.quotes.choice import Question, Quotes, WeightedPage
    from visar.quotes.reader import Reader
    from visar.retrieval.candidates import Candidates

# Of what an encoder calls a weak match: below it there is none. For encoders without calibration;
# of questions to the embedded encoder it refused 21 % that had an answer.
NO_MATCH = 5 / 6
CANDIDATES = 50
"""Number of pages of several documents that methods choose from: the best by late interaction."""
SCANNED = 300
"""Maximum number of pages of several documents that are all compared with a question."""
READ_PAGES = 10
"""Number of pages that a reader reads in: the best by s_p."""

Spans: TypeAlias = tuple[tuple[int, int], ...]


class Searcher:
    """Answers questions about one corpus with one encoder. Safe for threads.

    Parameters
    ----------
    corpus
        The pages searched. Documents that are removed from the store meanwhile are left out.
    encoder
        Encodes the questions; its reference must be that of the corpus.
    candidates
        Find the pages of a large library that are worth comparing; without, all are compared.
    left_out
        Documents that were asked for and have no vectors of the encoder: results name them.
    reader
        Reads passages of the best pages again: it orders these pages and the quotes.
    source
        Library that found pages get their images and words from.
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

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Everything that a search depends on beside the query: documents and encoder."""
        return self._corpus.documents, self._left_out, self._corpus.encoder, id(self._encoder)

    @property
    def pages(self) -> PageVectors:
        """The vectors of all pages searched."""
        return self._corpus.pages.vectors

    def search(
        self,
        query: str | Query,
        *,
        method: str | Method | MethodFunction | None = None,
        image: Image | None = None,
    ) -> SearchResult:
        """Find the pages that a question needs among those of the corpus.

        Parameters
        ----------
        query
            A question, or a query with its options.
        method
            A method or a function, instead of the name that the query gives.
        image
            A picture to look for, instead of a question.
        """
        started = time.perf_counter()
        query = Query(question=query) if isinstance(query, str) else query
        chosen_by = _with_k(get_method(method or query.method), query.k)
        query = replace(query, method=chosen_by.name)
        if image is not None and query.question:
            raise InvalidOption("A search has a question or an image, not both: leave one out.")
        with ThreadPoolExecutor(1) as pool:
            # The question is encoded, and a model loaded for it, while all else is got ready.
            encoding = pool.submit(self._encode, query.question, image)
            found = read_remaining(
                self._corpus,
                lambda corpus: self._search(corpus, query, chosen_by, encoding.result),
            )
        found = replace(found, seconds=time.perf_counter() - started)
        return replace(found, summary=why_so_many(found))

    def weigh(
        self, vectors: Float32, token_weights: Float64, page_ids: Sequence[PageId]
    ) -> list[WeightedPage]:
        """Read pages with their cosines to a question's vectors, which have these weights."""
        return _weigh(self._corpus, vectors, token_weights, page_ids)

    def strength(
        self, question: str, match: float, pages: Sequence[Page], *, quoted: bool
    ) -> Strength:
        """Return how well pages match a question; ``match`` is their `best_cosine`."""
        from visar.quotes.choice import Question

        calibration = find_calibration(self._corpus.encoder)
        if calibration is None:
            strength = _strength(match, self._encoder.weak_match)
        else:
            strength = calibration.strength(calibration.about(match))
        if strength == "none" and (
            # The words of a question about the document itself need not stand in it.
            (Question(question).is_about_document and quoted) or _shares_words(question, pages)
        ):
            return "weak"
        return strength

    def _encode(self, question: str, image: Image | None) -> tuple[Float32, Spans | None]:
        """Return the vectors of a question, and the characters that each of them stands for."""
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
        """Search a corpus; the time and the summary are added by the caller."""
        from visar.quotes.choice import Question, find_quotes

        calibration = find_calibration(corpus.encoder)
        self._prepare(corpus, exact=query.exact)
        asked_for = Question(query.question)
        vectors, spans = encode()
        considered, products = self._considered(corpus, vectors, query)
        scored = ScoredPages(
            vectors,
            considered.pages,
            max_k=query.max_k,
            calibration=calibration,
            products=products,
        )
        choice = method.choose(scored)
        selection = choice if isinstance(choice, Selection) else None
        relevance = scored.relevance if selection is None else selection
        asked = _Question(vectors, considered, relevance)

        chosen = [considered.page_ids[page] for page in choice.pages[: query.max_k]]
        k = len(chosen)
        named = _named_page(corpus, asked_for)
        front = [(chosen[0][0], 1)] if asked_for.is_about_document else []
        best: list[PageId] = []
        if self._reader is not None and selection is not None:
            # The method says how many pages; the reader helps to say which.
            best = [considered.page_ids[page] for page in relevance.ranking[:READ_PAGES]]
        pages = asked.read(list(dict.fromkeys([*named, *best, *chosen, *front])))
        quotes = find_quotes(query.question, pages, self._reader if query.question else None)
        chosen = list(dict.fromkeys([*named, *asked.order(best, quotes), *chosen]))[:k]
        beside = dict(_neighbors(corpus, chosen, query.neighbors))
        shown = [*chosen, *beside]
        runner_up = asked.runner_up(shown)
        passages = quotes.quotes([*shown, *front])
        missing = [one for one in [*shown, *runner_up] if one not in quotes.page_ids]
        more = find_quotes(query.question, asked.read(missing))

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
                judged=asked.judged(quotes),
            )
        hits = [
            asked.hit(
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
        """Load what the question will be compared with."""
        if _is_small(corpus):
            _ = corpus.pages
        elif self._candidates is not None and not exact:
            self._candidates.prepare(corpus)

    def _considered(
        self, corpus: Corpus, vectors: Float32, query: Query
    ) -> tuple[Corpus, Products]:
        """Return the pages to choose from, all of one document or the best of several.

        With them come their products with the question, so that no page is compared twice.
        """
        most = max(CANDIDATES, query.k or 0)
        if len(corpus.documents) == 1 or len(corpus) <= most:
            return corpus, Products(vectors, corpus.pages.vectors)
        candidates: list[PageId] = []
        if not _is_small(corpus) and self._candidates is not None and not query.exact:
            candidates = self._candidates.find(corpus, vectors, query.question, most)
        if candidates:
            corpus = corpus.only(candidates)
        if candidates or _is_small(corpus):
            products = Products(vectors, corpus.pages.vectors)
            best = _best(maxsim(vectors, products), most)
            return corpus.only([corpus.page_ids[page] for page in best]), products.only(best)
        best = _best(corpus.late_interaction(vectors), most)
        corpus = corpus.only([corpus.page_ids[page] for page in best])
        return corpus, Products(vectors, corpus.pages.vectors)


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """The vectors of a question, and the pages that a method chose from with their relevance."""

    vectors: Float32
    considered: Corpus
    relevance: Relevance

    def read(self, page_ids: Sequence[PageId]) -> list[WeightedPage]:
        """Read pages of the same documents with their cosines."""
        return _weigh(self.considered, self.vectors, self.relevance.token_weights, page_ids)

    def order(self, page_ids: Sequence[PageId], quotes: Quotes) -> list[PageId]:
        """Order pages by s_p and by the reader's best judgment on each, both standardized."""
        from visar.quotes.choice import standardized

        judged = quotes.page_relevance()
        if not judged or not page_ids:
            return list(page_ids)
        lowest = min(judged.values())
        found = [self.considered.find(*page_id) for page_id in page_ids]
        scores = standardized([float(self.relevance.scores[p]) for p in found if p is not None])
        scores += standardized([judged.get(page_id, lowest) for page_id in page_ids])
        return [page_ids[position] for position in np.argsort(-scores, kind="stable")]

    def judged(self, quotes: Quotes) -> Float64:
        """Return the reader's judgment on each page considered, NaN where it read nothing."""
        found = quotes.page_relevance()
        return np.array([found.get(page_id, np.nan) for page_id in self.considered.page_ids])

    def runner_up(self, shown: Sequence[PageId]) -> list[PageId]:
        """Return the first page by s_p or by late interaction that is not shown, if any."""
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
        """Return a page that was read as a hit, with its best passage."""
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
    """Return the page that a question about one document names."""
    number, document = question.page, corpus.documents[0]
    if number is None or len(corpus.documents) > 1 or not 1 <= number <= document.pages:
        return []
    return [(document.id, number)]


def _best(scores: Float64, most: int) -> list[int]:
    """Return the positions of the pages with the highest scores, in the order of the pages."""
    best: list[int] = np.sort(np.argsort(-scores, kind="stable")[:most]).tolist()
    return best


def _is_small(corpus: Corpus) -> bool:
    """Return whether all pages are compared with every question, and therefore kept loaded."""
    return len(corpus.documents) == 1 or len(corpus) <= SCANNED


def _neighbors(
    corpus: Corpus, chosen: Sequence[PageId], neighbors: int
) -> Iterator[tuple[PageId, int]]:
    """Yield the pages around the chosen ones within their documents, each once.

    With each comes the number of the chosen page that it stands beside.
    """
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
            f"k goes with the method top-k; {method.name} decides k itself (max_k)."
        )
    return method.with_options(k=k)


def _shares_words(question: str, pages: Sequence[Page]) -> bool:
    """Return whether a page in another language than English has most words of the question.

    Encoders and their calibrations know English best: in other languages cosines are lower, and
    the words themselves tell more.
    """
    language = detect_language(word.text for page in pages for word in page.words)
    if language is None or language == "english":
        return False
    vocabulary = Vocabulary(language)
    asked = {stem for _, stem in vocabulary.stems(question)}
    for page in pages:
        text = " ".join(word.text for word in page.words)
        shared = asked.intersection(stem for _, stem in vocabulary.stems(text))
        if 2 * len(shared) > len(asked):
            return True
    return False


def _strength(match: float, weak: float) -> Strength:
    if match >= weak:
        return "good"
    return "weak" if match >= NO_MATCH * weak else "none"
