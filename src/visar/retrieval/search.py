"""From a question to the pages it needs, over one document or several."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, Selection
from visar.core.vectors import Float64
from visar.documents.page import Page
from visar.encoders.protocol import Encoder, SpanEncoder
from visar.errors import InvalidOption, NotInIndex
from visar.results import PageHit, PageSource, Passage, SearchResult, Strength, likelihood
from visar.retrieval.calibration import best_cosine, find_calibration
from visar.retrieval.methods import DocumentPages, Method, MethodFunction, ScoredPages, get_method
from visar.store import DocumentVectors, EncoderRef, Store, StoredDocument

if TYPE_CHECKING:
    from visar.retrieval.quotes import WeightedPage

# Of what an encoder calls a weak match: below it there is none. For encoders without calibration;
# of questions to the embedded encoder it refused 21 % that had an answer.
NO_MATCH = 5 / 6
# Corpora kept loaded: questions mostly come back to the same documents.
KEPT_CORPORA = 4


class Corpus:
    """The pages of some documents under one encoder, as one sequence counted from 0.

    Vectors are loaded when first needed, once, whichever thread asks.
    """

    def __init__(
        self, store: Store, documents: Sequence[StoredDocument], encoder: EncoderRef
    ) -> None:
        self.documents = tuple(documents)
        self.encoder = encoder
        self._store = store
        self._starts = np.cumsum([0, *(document.pages for document in self.documents)])
        self._numbers = {document.id: place for place, document in enumerate(self.documents)}
        self._lock = threading.Lock()
        self._loaded: tuple[list[DocumentVectors], DocumentPages] | None = None

    @property
    def pages(self) -> DocumentPages:
        """The vectors of all pages."""
        return self._load()[1]

    @property
    def invalid_pages(self) -> int:
        """The number of pages the encoder could not encode."""
        return sum(document.count_invalid(self.encoder.name) for document in self.documents)

    def place(self, position: int) -> tuple[StoredDocument, int]:
        """Return the document a page belongs to, and its number there from 1."""
        document = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self.documents[document], position - int(self._starts[document]) + 1

    def position(self, document: str, number: int) -> int:
        """Return the position of a page, by its document's id and its number from 1.

        Raises NotInIndex if the document is not searched, or has no such page.
        """
        place = self._numbers.get(document)
        if place is None or not 1 <= number <= self.documents[place].pages:
            raise NotInIndex(f"Page {number} of {document} was not searched.")
        return int(self._starts[place]) + number - 1

    def patches(self, position: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the boxes and word indices of a page's vectors."""
        part, rows = self._rows(position)
        return part.boxes[rows], part.words[rows]

    def vectors(self, position: int) -> NDArray[np.float16]:
        """Return the vectors of a page."""
        part, rows = self._rows(position)
        return part.vectors[rows]

    def read(self, positions: Iterable[int]) -> dict[int, Page]:
        """Read pages with their words, with one request to the store per document."""
        wanted: dict[str, list[int]] = {}
        for position in positions:
            document, number = self.place(position)
            wanted.setdefault(document.id, []).append(number)
        return {
            self.position(document, page.number): page
            for document, numbers in wanted.items()
            for page in self._store.pages(document, numbers)
        }

    def _rows(self, position: int) -> tuple[DocumentVectors, slice]:
        document, number = self.place(position)
        part = self._load()[0][self._numbers[document.id]]
        return part, slice(part.offsets[number - 1], part.offsets[number])

    def _load(self) -> tuple[list[DocumentVectors], DocumentPages]:
        with self._lock:
            if self._loaded is None:
                parts = [self._store.vectors(known.id, self.encoder) for known in self.documents]
                if len(parts) == 1:
                    vectors = PageVectors(parts[0].vectors, parts[0].offsets)
                else:
                    vectors = PageVectors(
                        [page for p in parts for page in np.split(p.vectors, p.offsets[1:-1])]
                    )
                self._loaded = parts, DocumentPages(vectors)
            return self._loaded


class CorpusCache:
    """The corpora asked about last. Safe for threads."""

    def __init__(self, store: Store, size: int = KEPT_CORPORA) -> None:
        self._store = store
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Corpus] = OrderedDict()

    def get(self, documents: Sequence[StoredDocument], encoder: EncoderRef) -> Corpus:
        """Return the corpus of these documents as they are now."""
        key = tuple((known.id, known.added, known.encoders) for known in documents), encoder
        with self._lock:
            corpus = self._kept.pop(key, None)
            if corpus is None:
                corpus = Corpus(self._store, documents, encoder)
            self._kept[key] = corpus
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return corpus

    def clear(self) -> None:
        """Drop all corpora and their memory."""
        with self._lock:
            self._kept.clear()


class Searcher:
    """Answers questions about one corpus with one encoder. Safe for threads.

    Parameters
    ----------
    corpus
        The pages searched.
    encoder
        Encodes the questions; its reference must be that of the corpus.
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
        left_out: Sequence[StoredDocument] = (),
        source: PageSource | None = None,
    ) -> None:
        self._corpus = corpus
        self._encoder = encoder
        self._left_out = tuple(left_out)
        self._source = source

    @property
    def pages(self) -> PageVectors:
        """The vectors of all pages searched."""
        return self._corpus.pages.vectors

    def search(
        self,
        question: str,
        *,
        method: str | Method | MethodFunction = "visar",
        k: int | None = None,
        max_k: int | None = None,
        neighbors: int = 0,
    ) -> SearchResult:
        """Find the pages a question needs; see :meth:`visar.Index.search`."""
        started = time.perf_counter()
        chosen_by = _with_k(get_method(method), k)
        if neighbors < 0:
            raise InvalidOption(f"neighbors must be at least 0, not {neighbors}.")
        with ThreadPoolExecutor(1) as pool:
            # The question is encoded, and a model loaded for it, while all else is got ready.
            encoding = pool.submit(self._encoder.encode_query, question)
            from visar.retrieval.front_page import about_document
            from visar.retrieval.quotes import choose_quotes

            calibration = find_calibration(self._corpus.encoder)
            pages = self._corpus.pages
            query = encoding.result()
        scored = ScoredPages(query, pages, max_k=max_k, calibration=calibration)
        selection = scored.select()
        chosen = [int(page) for page in chosen_by.choose(scored).pages[:max_k]]
        beside = dict(self._neighbors(chosen, neighbors))
        shown = [*chosen, *beside]
        positions = [*shown, *_runner_up(selection, shown)]
        of_document = about_document(question) is not None
        front = self._first_page(shown) if of_document else []
        weighted = self._weigh(query, selection, [*positions, *front])
        read = [*weighted[: len(shown)], *weighted[len(positions) :]]
        weighted = weighted[: len(positions)]
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
            self._hit(selection, chances, strength, position, page, snippet, beside.get(position))
            for position, page, snippet in zip(positions, weighted, snippets, strict=True)
        ]
        spans = None
        if isinstance(self._encoder, SpanEncoder):
            spans = tuple(self._encoder.question_spans(question))
        return SearchResult(
            question=question,
            method=chosen_by.name,
            pages=tuple(hits[: len(shown)]),
            documents=self._corpus.documents,
            left_out=self._left_out,
            pages_searched=len(scored),
            pages_invalid=self._corpus.invalid_pages,
            k=len(chosen),
            k_star=selection.k_star,
            match=best,
            about=about,
            strength=strength,
            runner_up=hits[-1] if len(hits) > len(shown) else None,
            encoder=self._corpus.encoder,
            calibration=None if calibration is None else calibration.made_from,
            seconds=time.perf_counter() - started,
            passages=passages,
            query=query,
            selection=selection,
            spans=spans,
        )

    def weigh(
        self, question: str, selection: Selection, positions: Sequence[int]
    ) -> list[WeightedPage]:
        """Read pages, by their positions in the corpus, with the weights of a selection."""
        return self._weigh(self._encoder.encode_query(question), selection, positions)

    def _weigh(
        self, query: NDArray[np.float32], selection: Selection, positions: Sequence[int]
    ) -> list[WeightedPage]:
        """Read pages with the weights of a selection and the cosines with the question."""
        from visar.retrieval.quotes import WeightedPage

        pages = self._corpus.read(positions)
        weighted = []
        for position in positions:
            document, _ = self._corpus.place(position)
            boxes, words = self._corpus.patches(position)
            vectors = self._corpus.vectors(position).astype(np.float32)
            weighted.append(
                WeightedPage(
                    document=document.id,
                    page=pages[position],
                    vector_words=words,
                    vector_boxes=boxes,
                    vector_weights=selection.patch_weights[position],
                    similarities=query @ vectors.T,
                    query_weights=selection.token_weights,
                )
            )
        return weighted

    def _first_page(self, shown: Sequence[int]) -> list[int]:
        """The first page of the document that the best page belongs to, if it is not shown."""
        best = shown[0]
        first = best - self._corpus.place(best)[1] + 1
        return [] if first in shown else [first]

    def _neighbors(self, chosen: Sequence[int], neighbors: int) -> Iterator[tuple[int, int]]:
        """The pages around the chosen ones within their documents, each once.

        Yields a page's position, and the number of the chosen page it stands beside.
        """
        taken = set(chosen)
        for position in chosen:
            document, number = self._corpus.place(position)
            first = max(1, number - neighbors)
            for other in range(first, min(document.pages, number + neighbors) + 1):
                beside = position + other - number
                if beside not in taken:
                    taken.add(beside)
                    yield beside, number

    def _hit(
        self,
        selection: Selection,
        chances: Float64 | None,
        strength: Strength,
        position: int,
        weighted: WeightedPage,
        best: Passage | None,
        beside: int | None,
    ) -> PageHit:
        document, number = self._corpus.place(position)
        probability = None if chances is None else float(chances[position])
        return PageHit(
            document=document.id,
            name=document.name,
            page=number,
            label=weighted.page.label,
            score=float(selection.scores[position]),
            late_interaction=float(selection.late_interaction[position]),
            snippet=best.text if best else "",
            boxes=best.boxes if best else (),
            probability=probability,
            likelihood=likelihood(probability, strength),
            beside=beside,
            source=self._source,
        )


def _with_k(method: Method, k: int | None) -> Method:
    if k is None:
        return method
    if method.adaptive:
        raise InvalidOption(
            f"k goes with the method top-k; {method.name} decides k itself (max_k)."
        )
    return method.with_options(k=k)


def _runner_up(selection: Selection, shown: Sequence[int]) -> list[int]:
    """The first page by s_p or by late interaction if it is not shown anyway; one at most."""
    firsts = int(selection.ranking[0]), int(selection.late_interaction.argmax())
    return [first for first in firsts if first not in shown][:1]


def _strength(match: float, weak: float) -> Strength:
    if match >= weak:
        return "good"
    return "weak" if match >= NO_MATCH * weak else "none"
