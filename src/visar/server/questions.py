"""Routes for questions: pages, answers, explanations, and saved conversations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, HTTPException, Response
from fastapi import Query as Parameter
from fastapi.sse import EventSourceResponse, ServerSentEvent

from visar.errors import InvalidOption, VisarError
from visar.explain.report import thread_html, thread_markdown
from visar.generation.answering import Budget
from visar.library import AnswerStream, SearchOptions
from visar.query import Query
from visar.results import Answer, Explanation, Patches, PatchPair, SearchResult, Thread
from visar.retrieval.methods import METHODS
from visar.serialization import to_plain
from visar.server.context import Context, Library, State
from visar.server.schemas import AskQuery, NewThread, PageQuery, PairQuery, ThreadName, as_json
from visar.server.view import LibraryView
from visar.serving import refusal

METHOD_NAMES = tuple(name for name, method in METHODS.items() if not method.needs_evidence)
MAX_NEIGHBORS = 10


routes = APIRouter(tags=["questions"])
conversations = APIRouter(tags=["conversations"], prefix="/threads")


@routes.post("/search", response_model=SearchResult)
def search(library: Library, context: State, query: Query) -> Response:
    """Find the pages a question needs."""
    with context.question():
        return as_json(library.search(query, **_options(context, query)))


@routes.post("/ask", response_model=Answer)
def ask(library: Library, context: State, query: AskQuery) -> Response:
    """Answer a question from the pages it needs."""
    with context.question(), stream_answer(context, library, query) as stream:
        return as_json(stream.answer)


@routes.post("/ask/stream", response_class=EventSourceResponse)
def stream(library: Library, context: State, query: AskQuery) -> Iterator[ServerSentEvent]:
    """Answer a question and stream the text.

    Server-sent events: ``search`` with the pages, ``text`` with each piece of the answer, then
    ``answer`` with the whole; or ``problem``.
    """
    try:
        with context.question(), stream_answer(context, library, query) as pieces:
            yield _event("search", pieces.search)
            for piece in pieces:
                yield _event("text", piece)
            yield _event("answer", pieces.answer)
    except (VisarError, HTTPException) as error:
        # The status has been sent already, so the error becomes an event.
        problem = context.problem(error).body
        yield ServerSentEvent(event="problem", raw_data=bytes(problem).decode())


@routes.post("/explain", response_model=Explanation)
def explain(library: Library, context: State, query: Query) -> Response:
    """Explain a search: weights, similarities, cost, and the choices of other methods."""
    with context.question():
        return as_json(library.explain(query, **_options(context, query)))


@routes.post("/explain/pair", response_model=list[PatchPair])
def pair(library: Library, context: State, query: PairQuery) -> Response:
    """Return the best matching patches of two searched pages."""
    first, second = ((one.document, one.page) for one in (query.first, query.second))
    with context.question():
        return as_json(library.pairs(query, first, second, **_options(context, query)))


@routes.post("/explain/patches", response_model=Patches)
def patches(library: Library, context: State, query: PageQuery) -> Response:
    """Return the patches of a searched page with their weights: its heat map."""
    page = query.document, query.page
    with context.question():
        return as_json(library.patches(query, page, **_options(context, query)))


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


def stream_answer(
    context: Context, library: LibraryView, query: AskQuery, budget: Budget | None = None
) -> AnswerStream:
    """Answer a question with a generator that requests may choose."""
    return library.stream(
        query,
        generator=context.writer(query.generator),
        budget=budget,
        history=query.history,
        thread=query.thread,
        standalone=query.standalone,
        **_options(context, query),
    )


def _event(name: str, value: Any) -> ServerSentEvent:
    return ServerSentEvent(event=name, data=to_plain(value, public=True))


@conversations.get("", response_model=list[Thread])
def list_threads(library: Library) -> Response:
    """List conversations without their exchanges, latest first."""
    return as_json(library.threads())


@conversations.post("", response_model=Thread, status_code=201)
def create_thread(library: Library, given: NewThread) -> Response:
    """Create a conversation. Without a name, it is named after its first question."""
    return as_json(library.create_thread(given.name, given.collection), 201)


@conversations.get("/{thread}", response_model=Thread)
def get_thread(library: Library, thread: str) -> Response:
    """Return a conversation with its questions and answers."""
    return as_json(library.thread(thread))


@conversations.patch("/{thread}", response_model=Thread)
def rename_thread(library: Library, thread: str, given: ThreadName) -> Response:
    """Rename a conversation."""
    return as_json(library.rename_thread(thread, given.name))


@conversations.delete("/{thread}", status_code=204)
def delete_thread(library: Library, thread: str) -> None:
    """Delete a conversation."""
    library.delete_thread(thread)


@conversations.get("/{thread}/export", response_class=Response)
def export_thread(
    library: Library,
    thread: str,
    kind: Annotated[Literal["markdown", "html"], Parameter(alias="format")] = "markdown",
) -> Response:
    """Return a conversation as a file: Markdown, or HTML with the cited pages as images."""
    found = library.thread(thread)
    content = thread_markdown(found) if kind == "markdown" else thread_html(library, found)
    name = f"conversation-{found.id[:8]}.{'md' if kind == 'markdown' else 'html'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=f"text/{kind}", headers=headers)
