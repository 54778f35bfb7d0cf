"""Routes of questions: pages, answers, and the reasons."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import closing

from visar.errors import VisarError
from visar.retrieval.wording import why_so_many
from visar.generation import extractive
from visar.generation.answering import AnswerStream
from visar.results import Answer as FoundAnswer
from visar.results import Document, SearchResult
from visar.retrieval.methods import METHODS
from visar.retrieval.search import SearchOptions
from visar.server.context import Context, Recent
from visar.server.schemas import (
    Answer,
    AnswerQuestion,
    Explanation,
    PageQuestion,
    PairQuestion,
    Patches,
    PatchPair,
    Question,
    Search,
    to_schema,
)
from visar.serving import refusal

# After visar.serving, which says what to install if they are missing.
from fastapi import APIRouter, HTTPException, Response  # isort: skip
from fastapi.sse import EventSourceResponse, ServerSentEvent  # isort: skip

METHOD_NAMES = tuple(name for name, method in METHODS.items() if not method.needs_evidence)


def router(context: Context) -> APIRouter:
    """The routes, on an index."""
    routes = APIRouter(tags=["questions"])

    @routes.post("/search")
    def search(asked: Question) -> Search:
        """The pages a question needs."""
        with context.gate.entered():
            return _search(_find(context, asked).found)

    @routes.post("/ask")
    def ask(asked: AnswerQuestion) -> Answer:
        """An answer from the pages it needs."""
        with context.gate.entered(), closing(_stream(context, asked)) as stream:
            return _answer(stream.answer)

    @routes.post("/ask/stream", response_class=EventSourceResponse)
    def stream(asked: AnswerQuestion) -> Iterator[ServerSentEvent]:
        """An answer while it is written.

        Server-sent events: ``search`` with the pages, ``text`` with each piece of the answer, then
        ``answer`` with the whole; or ``problem``.
        """
        try:
            with context.gate.entered(), closing(_stream(context, asked)) as pieces:
                yield ServerSentEvent(event="search", data=_search(pieces.search))
                for piece in pieces:
                    yield ServerSentEvent(event="text", data=piece)
                yield ServerSentEvent(event="answer", data=_answer(pieces.answer))
        except (VisarError, HTTPException) as error:
            # The status has been sent: what is wrong is an event.
            said = context.problem(error).body
            yield ServerSentEvent(event="problem", raw_data=bytes(said).decode())

    @routes.post("/explain")
    def explain(asked: Question) -> Explanation:
        """What the method saw: the weights of words and pages, J(k), and other methods' cuts."""
        with context.gate.entered():
            explanation = _known(context, asked).explanation
            return to_schema(Explanation, explanation, matrix_size=len(explanation.similarity))

    @routes.post(
        "/explain/matrix",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    def matrix(asked: Question) -> Response:
        """Sim(p, q) of the best pages in rank order: float32, little-endian, row by row."""
        with context.gate.entered():
            similarity = _known(context, asked).explanation.similarity
            return Response(
                similarity.astype("<f4").tobytes(), media_type="application/octet-stream"
            )

    @routes.post("/explain/pair")
    def pair(asked: PairQuestion) -> list[PatchPair]:
        """What makes two searched pages alike: their best matching patches."""
        first, second = ((one.document, one.page) for one in (asked.first, asked.second))
        with context.gate.entered():
            pairs = context.index.pairs(_known(context, asked).found, first, second)
            return [to_schema(PatchPair, one) for one in pairs]

    @routes.post("/explain/patches")
    def patches(asked: PageQuestion) -> Patches:
        """The patches of a searched page with their weights: its heat."""
        with context.gate.entered():
            found = _known(context, asked).found
            boxes, weights = context.index.patches(found, asked.document, asked.page)
            return Patches(
                boxes=boxes.tolist(), weights=weights[0].tolist(), cosines=weights[1:].tolist()
            )

    return routes


def _options(context: Context, asked: Question) -> SearchOptions:
    """The options of ``Index.search`` that a request means."""
    longest = context.settings.max_question_length
    if len(asked.question) > longest:
        message = f"The question has {len(asked.question)} characters: {longest} are allowed."
        raise refusal(422, "too_long", message)
    if asked.method not in METHOD_NAMES:
        message = f"There is no method {asked.method!r} here, but {', '.join(METHOD_NAMES)}."
        raise refusal(422, "invalid", message)
    if asked.collection is not None and asked.documents is not None:
        raise refusal(422, "invalid", "Name documents or a collection, not both.")
    return {
        "documents": asked.documents,
        "collection": asked.collection,
        "where": asked.where,
        "exact": asked.exact,
        "encoder": context.encoder(asked.encoder),
        "method": asked.method,
        "k": asked.k,
        "max_k": asked.max_k,
        "neighbors": asked.neighbors,
    }


def _find(context: Context, asked: Question) -> Recent:
    options = _options(context, asked)
    return _kept(context, options, context.index.search(asked.question, **options))


def _known(context: Context, asked: Question) -> Recent:
    """What was found for the question, searched for again only if that is long ago."""
    options = _options(context, asked)
    names, index = options["documents"], context.index
    documents = index.documents() if names is None else [index.get(name) for name in names]
    return context.recent.get(_key(asked.question, documents, options)) or _find(context, asked)


def _kept(context: Context, options: SearchOptions, found: SearchResult) -> Recent:
    """Keep what was found for the next requests about the same question."""
    searched = [*found.documents, *found.left_out]
    return context.recent.put(_key(found.question, searched, options), found)


def _key(question: str, documents: Sequence[Document], options: SearchOptions) -> Hashable:
    """A question about documents as they are now, and how its pages are chosen."""
    known = frozenset((one.id, one.added, one.encoders) for one in documents)
    choice = (options[name] for name in ("encoder", "method", "k", "max_k", "neighbors"))
    return question, known, *choice


def _stream(context: Context, asked: AnswerQuestion) -> AnswerStream:
    name = context.generator(asked.generator)
    generator = (
        name
        if name == extractive.NAME
        else context.index.generator(name, base_url=context.settings.base_url)
    )
    options = _options(context, asked)
    stream = context.index.stream(asked.question, generator=generator, **options)
    _kept(context, options, stream.search)  # the reasons are asked for next
    return stream


def _search(found: SearchResult) -> Search:
    return to_schema(Search, found, summary=why_so_many(found))


def _answer(answer: FoundAnswer) -> Answer:
    generation = answer.generation
    return to_schema(
        Answer,
        answer,
        search=_search(answer.search),
        model=generation and generation.model,
        input_tokens=generation and generation.input_tokens,
        output_tokens=generation and generation.output_tokens,
    )
