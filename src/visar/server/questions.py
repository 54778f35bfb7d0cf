"""Routes for questions: pages, answers, and explanations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, cast

from visar.errors import InvalidOption, VisarError
from visar.generation import extractive
from visar.generation.protocol import Generator
from visar.generation.registry import is_served
from visar.library import AnswerStream, SearchOptions
from visar.query import Query
from visar.results import Answer, Explanation, Patches, PatchPair, SearchResult
from visar.retrieval.methods import METHODS
from visar.serialization import to_plain
from visar.server.context import Context
from visar.server.responses import as_json
from visar.server.schemas import AskQuery, PageQuery, PairQuery
from visar.serving import refusal

# After visar.serving, which says what to install if they are missing.
from fastapi import APIRouter, HTTPException, Response  # isort: skip
from fastapi.sse import EventSourceResponse, ServerSentEvent  # isort: skip

METHOD_NAMES = tuple(name for name, method in METHODS.items() if not method.needs_evidence)
MAX_NEIGHBORS = 10


def router(context: Context) -> APIRouter:
    """Return the routes, on an index."""
    routes = APIRouter(tags=["questions"])
    index = context.index

    @routes.post("/search", response_model=SearchResult)
    def search(query: Query) -> Response:
        """Find the pages a question needs."""
        with context.gate.entered():
            return as_json(_as_asked(_find(context, query), query))

    @routes.post("/ask", response_model=Answer)
    def ask(query: AskQuery) -> Response:
        """Answer a question from the pages it needs."""
        with context.gate.entered(), _stream(context, query) as stream:
            answer = stream.answer
            return as_json(replace(answer, search=_as_asked(answer.search, query)))

    @routes.post("/ask/stream", response_class=EventSourceResponse)
    def stream(query: AskQuery) -> Iterator[ServerSentEvent]:
        """Answer a question while the answer is written.

        Server-sent events: ``search`` with the pages, ``text`` with each piece of the answer, then
        ``answer`` with the whole; or ``problem``.
        """
        try:
            with context.gate.entered(), _stream(context, query) as pieces:
                found = _as_asked(pieces.search, query)
                yield _event("search", found)
                for piece in pieces:
                    yield _event("text", piece)
                yield _event("answer", replace(pieces.answer, search=found))
        except (VisarError, HTTPException) as error:
            # The status has been sent: the error is an event.
            problem = context.problem(error).body
            yield ServerSentEvent(event="problem", raw_data=bytes(problem).decode())

    @routes.post("/explain", response_model=Explanation)
    def explain(query: Query) -> Response:
        """Explain a choice: weights of words and pages, similarity, J(k), other methods' cuts."""
        with context.gate.entered():
            return as_json(index.explain(_find(context, query)))

    @routes.post("/explain/pair", response_model=list[PatchPair])
    def pair(query: PairQuery) -> Response:
        """Return the best matching patches of two searched pages."""
        first, second = ((one.document, one.page) for one in (query.first, query.second))
        with context.gate.entered():
            return as_json(index.pairs(_find(context, query), first, second))

    @routes.post("/explain/patches", response_model=Patches)
    def patches(query: PageQuery) -> Response:
        """Return the patches of a searched page with their weights: its heat map."""
        with context.gate.entered():
            found = _find(context, query)
            return as_json(index.patches(found, query.document, query.page))

    return routes


def _options(context: Context, query: Query) -> SearchOptions:
    """Return the options of ``Index.search`` for a request."""
    longest = context.settings.max_question_length
    if len(query.question) > longest:
        message = f"The question has {len(query.question)} characters; the maximum is {longest}."
        raise refusal(422, "too_long", message)
    if query.method not in METHOD_NAMES:
        raise InvalidOption(f"No method {query.method!r}: choose {', '.join(METHOD_NAMES)}.")
    if query.neighbors > MAX_NEIGHBORS:
        raise InvalidOption(f"neighbors must be at most {MAX_NEIGHBORS}, not {query.neighbors}.")
    names = [one.name for one in fields(Query) if one.name != "question"]
    options: dict[str, Any] = {name: getattr(query, name) for name in names}
    options["encoder"] = context.encoder(query.encoder)
    return cast("SearchOptions", options)


def _find(context: Context, query: Query) -> SearchResult:
    """Search, or return what was found for the same query just before."""
    return context.index.search(query.question, **_options(context, query))


def _as_asked(found: SearchResult, query: Query) -> SearchResult:
    """Return a result with the encoder's name in the request, not its name on this machine."""
    return replace(found, query=replace(found.query, encoder=query.encoder))


def _stream(context: Context, query: AskQuery) -> AnswerStream:
    name = context.generator(query.generator)
    generator: str | Generator = name
    if name != extractive.NAME:
        url = context.settings.base_url if is_served(name) else None
        generator = context.index.generator(name, base_url=url)
    return context.index.stream(query.question, generator=generator, **_options(context, query))


def _event(name: str, value: Any) -> ServerSentEvent:
    return ServerSentEvent(event=name, data=to_plain(value, public=True))
