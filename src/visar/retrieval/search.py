"""From a question to the pages it needs, over one document or several."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, Selection, maxsim
from visar.core.vectors import Float32, Float64
from visar.encoders.protocol import Encoder, SpanEncoder, encode_image_query
from visar.errors import InvalidOption
from visar.query import Query
from visar.results import Decision, Document, PageHit, PageSource, Passage, SearchResult, Strength
from visar.retrieval.calibration import best_cosine, find_calibration, likelihood
from visar.retrieval.corpus import Corpus
from visar.retrieval.methods import Method, MethodFunction, ScoredPages, get_method
from visar.retrieval.wording import why_so_many
from visar.trace import PageId, Trace

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.retrieval.candidates import Candidates
    from visar.retrieval.quotes import WeightedPage

# Of what an encoder calls a weak match: below it there is none. For encoders without calibration;
# of questions to the embedded encoder it refused 21 % that had an answer.
NO_MATCH = 5 / 6
CANDIDATES = 50
"""Of several documents, the pages that the methods choose from: the best by late interaction."""
SCANNED = 300
"""The most pages of several documents that are all compared with a question."""


class Searcher:
    """Answers questions about one corpus with one encoder. Safe for threads.

    Parameters
    ----------
    corpus
        The pages searched.
    encoder
        Encodes the questions; its reference must be that of the corpus.
    candidates
        Find the pages of a large library that are worth comparing; without, all are compared.
    left_out
        Documents that were asked for and have no vectors of the encoder: results name them.
    source
        Where the pages found get their images and words from.
    """

    def __init__(
        self,
        corpus: Corpus,
        encoder: Encoder,
        *,
        candidates: Candidates | None = None,
        left_out: Sequence[Document] = (),
        source: PageSource | None = None,
    ) -> None:
        self._corpus = corpus
        self._encoder = encoder
        self._candidates = candidates
        self._left_out = tuple(left_out)
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
        question, exact, k, max_k = query.question, query.exact, query.k, query.max_k
        chosen_by = _with_k(get_method(method or query.method), k)
        if image is not None and question:
            raise InvalidOption("A search has a question or an image, not both: leave one out.")
        with ThreadPoolExecutor(1) as pool:
            # The question is encoded, and a model loaded for it, while all else is got ready.
            encoding = pool.submit(self._encode, question, image)
            from visar.retrieval.front_page import about_document
            from visar.retrieval.quotes import choose_quotes
            from visar.retrieval.wanted import answer_patterns, wanted

            answer_patterns(wanted(question))  # compiles them
            calibration = find_calibration(self._corpus.encoder)
            self._prepare(exact=exact)
            of_document = about_document(question) is not None
            vectors = encoding.result()
        corpus = self._considered(vectors, question, max(CANDIDATES, k or 0), exact=exact)
        scored = ScoredPages(vectors, corpus.pages, max_k=max_k, calibration=calibration)
        selection = scored.select()
        chosen = [corpus.places[page] for page in chosen_by.choose(scored).pages[:max_k]]
        beside = dict(self._neighbors(chosen, query.neighbors))
        shown = [*chosen, *beside]
        places = [*shown, *_runner_up(selection, corpus, shown)]
        front = [place for place in [(shown[0][0], 1)] if of_document and place not in shown]
        weighted = self._weigh(vectors, selection, corpus, [*places, *front])
        read = [*weighted[: len(shown)], *weighted[len(places) :]]
        weighted = weighted[: len(places)]
        passages, snippets = choose_quotes(question, read)
        snippets = snippets[: len(shown)]
        snippets += choose_quotes(question, weighted[len(shown) :])[1]
        best = best_cosine(selection)
        about = None if calibration is None else calibration.about(best)
        strength = (
            _strength(best, self._encoder.weak_match)
            if calibration is None or about is None
            else calibration.strength(about)
        )
        if of_document and strength == "none":
            # The words of such a question need not stand in the document.
            strength = "weak"
        chances = None if calibration is None else calibration.probabilities(selection)
        hits = [
            self._hit(selection, corpus, chances, strength, page, snippet, beside.get(place))
            for place, page, snippet in zip(places, weighted, snippets, strict=True)
        ]
        spans = None
        if image is None and isinstance(self._encoder, SpanEncoder):
            spans = tuple(self._encoder.question_spans(question))
        found = SearchResult(
            query=replace(query, method=chosen_by.name),
            pages=tuple(hits[: len(shown)]),
            documents=self._corpus.documents,
            left_out=self._left_out,
            pages_searched=len(self._corpus),
            candidates=None if corpus is self._corpus else len(corpus),
            pages_invalid=self._corpus.invalid_pages,
            k=len(chosen),
            match=best,
            about=about,
            strength=strength,
            runner_up=hits[-1] if len(hits) > len(shown) else None,
            encoder=self._corpus.encoder,
            calibration=None if calibration is None else calibration.made_from,
            seconds=time.perf_counter() - started,
            summary="",
            decision=_decision(selection) if chosen_by.name == "visar" else None,
            passages=passages,
            trace=Trace(vectors, corpus.places, selection, spans),
        )
        return replace(found, summary=why_so_many(found))

    def _encode(self, question: str, image: Image | None) -> NDArray[np.float32]:
        if image is not None:
            return encode_image_query(self._encoder, image)
        return self._encoder.encode_query(question)

    def weigh(
        self, question: str, selection: Selection, positions: Sequence[int]
    ) -> list[WeightedPage]:
        """Read pages, by their positions in the corpus, with the weights of a selection."""
        query = self._encoder.encode_query(question)
        places = [self._corpus.places[position] for position in positions]
        return self._weigh(query, selection, self._corpus, places)

    def _is_small(self) -> bool:
        """Whether all pages are compared with every question, and therefore kept loaded."""
        return len(self._corpus.documents) == 1 or len(self._corpus) <= SCANNED

    def _prepare(self, *, exact: bool) -> None:
        """Load what the question will be compared with."""
        if self._is_small():
            _ = self._corpus.pages
        elif self._candidates is not None and not exact:
            self._candidates.prepare(self._corpus)

    def _considered(self, query: Float32, question: str, most: int, *, exact: bool) -> Corpus:
        """The pages that the method chooses from: all of one document, the best of several."""
        corpus = self._corpus
        if len(corpus.documents) == 1 or len(corpus) <= most:
            return corpus
        if self._is_small():
            scores = maxsim(query, corpus.pages.vectors)
        elif exact or self._candidates is None:
            scores = corpus.late_interaction(query)
        else:
            corpus = corpus.only(self._candidates.find(corpus, query, question, most))
            scores = maxsim(query, corpus.pages.vectors)
        best = np.sort(np.argsort(-scores, kind="stable")[:most])
        return self._corpus.only([corpus.places[position] for position in best.tolist()])

    def _weigh(
        self,
        query: NDArray[np.float32],
        selection: Selection,
        corpus: Corpus,
        places: Sequence[PageId],
    ) -> list[WeightedPage]:
        """Read pages with the weights of a selection and the cosines with the question.

        A page that the method did not consider, such as a neighbour, has no weights.
        """
        from visar.retrieval.quotes import WeightedPage

        shown = corpus.only(places)
        weighted = []
        for position, page in enumerate(shown.read()):
            document, number = shown.places[position]
            boxes, words = shown.patches(position)
            vectors = shown.vectors(position).astype(np.float32)
            considered = corpus.find(document, number)
            weighted.append(
                WeightedPage(
                    document=document,
                    page=page,
                    vector_words=words,
                    vector_boxes=boxes,
                    vector_weights=np.zeros(len(vectors), np.float32)
                    if considered is None
                    else selection.patch_weights[considered],
                    similarities=query @ vectors.T,
                    query_weights=selection.token_weights,
                )
            )
        return weighted

    def _neighbors(self, chosen: Sequence[PageId], neighbors: int) -> Iterator[tuple[PageId, int]]:
        """The pages around the chosen ones within their documents, each once.

        Yields a page, and the number of the chosen page it stands beside.
        """
        taken = set(chosen)
        for document, number in chosen:
            first = max(1, number - neighbors)
            last = min(self._corpus.document(document).pages, number + neighbors)
            for place in ((document, other) for other in range(first, last + 1)):
                if place not in taken:
                    taken.add(place)
                    yield place, number

    def _hit(
        self,
        selection: Selection,
        corpus: Corpus,
        chances: Float64 | None,
        strength: Strength,
        weighted: WeightedPage,
        best: Passage | None,
        beside: int | None,
    ) -> PageHit:
        number = weighted.page.number
        position = corpus.find(weighted.document, number)
        score, probability = 0.0, None
        if position is not None:
            score = float(selection.scores[position])
            late = float(selection.late_interaction[position])
            probability = None if chances is None else float(chances[position])
        else:
            cosines = weighted.similarities
            late = float(cosines.max(axis=1).sum()) if cosines is not None and cosines.size else 0.0
        return PageHit(
            document=weighted.document,
            name=self._corpus.document(weighted.document).name,
            page=number,
            label=weighted.page.label,
            score=score,
            late_interaction=late,
            snippet=best.text if best else "",
            boxes=best.boxes if best else (),
            probability=probability,
            likelihood=likelihood(probability, strength),
            beside=beside,
            source=self._source,
        )


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


def _runner_up(selection: Selection, corpus: Corpus, shown: Sequence[PageId]) -> list[PageId]:
    """The first page by s_p or by late interaction if it is not shown anyway; one at most."""
    firsts = selection.ranking[0], selection.late_interaction.argmax()
    return [place for first in firsts if (place := corpus.places[first]) not in shown][:1]


def _strength(match: float, weak: float) -> Strength:
    if match >= weak:
        return "good"
    return "weak" if match >= NO_MATCH * weak else "none"
