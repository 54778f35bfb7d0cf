"""An OpenAI-compatible API, in which the library and its collections are models.

Answers are Markdown, for chat programs: quotes, tables, and links to pages.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import iterate_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visar.errors import InvalidOption, VisarError
from visar.generation import extractive
from visar.generation.answering import USUAL_BUDGET, Budget
from visar.generation.generator import change_pieces, ignore_text, read_pieces
from visar.library import AnswerStream
from visar.results import NO_CITATION, Answer, Citation, Passage, QuotedCell, Turn
from visar.retrieval.wording import nothing_found
from visar.server.context import Context, Library, State
from visar.server.questions import stream_answer
from visar.server.schemas import AskQuery
from visar.server.view import LibraryView
from visar.serving import PROBLEM_TYPE, refusal
from visar.text import clean_line

PREFIX = "/v1"
LIBRARY = "visar"
"""Name of the model that searches the whole library; ``visar/NAME`` searches a collection."""
PageUrl = Callable[[str, int], str]
"""Function that returns the URL of a page, given the document's id and the page number."""
# Quotes may be hostile: they must not become links, images or HTML.
_SPECIAL = re.compile(r"([\\`*_\[\]<>!#|~&])")
_LINK = re.compile(
    r"(?:^- \[\d+\] )?\[(?:\\.|[^\]\\])*\]\(\S+/api/v1/documents/\w+/pages/\d+/image\)"
    r"(?: \(unverified[^)]*\))?|^- \[\d+\] page \S+ \(unverified[^)]*\)",
    re.MULTILINE,
)
_UNCITED = f"*{NO_CITATION}*"


class ContentPart(BaseModel):
    """A part of a message."""

    type: str
    text: str = ""


class ChatMessage(BaseModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None

    def text(self) -> str:
        """Return the text of the message; raises InvalidOption if it contains anything else."""
        if isinstance(self.content, list):
            for part in self.content:
                if part.type != "text":
                    raise InvalidOption(
                        f"Can't read a message part of type {part.type!r:.40}: only send text."
                    )
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """A request for an answer. Other options of language models are ignored."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)

    def budget(self) -> Budget:
        """Return the budget for the answer: the requested tokens, up to the usual budget."""
        requested = self.max_completion_tokens or self.max_tokens or USUAL_BUDGET.answer_tokens
        return Budget(answer_tokens=min(requested, USUAL_BUDGET.answer_tokens))


# OpenAI documents them.
routes = APIRouter(include_in_schema=False, tags=["questions"])


@routes.get("/models")
def models(library: Library) -> dict[str, Any]:
    """List the library and its collections as models."""
    return {"object": "list", "data": [_model(name) for name in _models(library)]}


@routes.get("/models/{name:path}")
def model(library: Library, name: str) -> dict[str, Any]:
    """Return a model by its name."""
    _check_model(library, name)
    return _model(name)


@routes.post("/chat/completions")
def chat(library: Library, context: State, request: Request, body: ChatRequest) -> Response:
    """Answer the last message of a conversation."""
    _check_model(library, body.model)
    if body.n not in (None, 1):
        raise InvalidOption(f"n must be 1, not {body.n}: each question has one answer.")
    history, question = _conversation(body.messages)
    _, _, collection = body.model.partition("/")
    query = AskQuery(question=question, collection=collection or None, history=history)
    base = f"{str(request.base_url).rstrip('/')}/api/v1/documents"
    completion = _Completion(
        body.model, MarkdownAnswer(lambda document, page: f"{base}/{document}/pages/{page}/image")
    )
    with ExitStack() as stack:
        stack.enter_context(context.question())
        stream = stack.enter_context(stream_answer(context, library, query, body.budget()))
        if not body.stream:
            return JSONResponse(completion.whole(stream))
        options = body.stream_options or StreamOptions()
        events = _events(
            context,
            completion.chunks(stream, include_usage=bool(options.include_usage)),
            stack.pop_all(),
        )
    # Enter the generator: closing it now frees the slot, even if no event was sent.
    first = next(events)
    return StreamingResponse(_send_all(first, events), media_type="text/event-stream")


def _models(library: LibraryView) -> list[str]:
    return [LIBRARY, *(f"{LIBRARY}/{one.name}" for one in library.collections())]


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": LIBRARY}


def _check_model(library: LibraryView, name: str) -> None:
    known = _models(library)
    if name not in known:
        names = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        message = f"No model {name!r:.250}. This server offers: {names}."
        raise refusal(404, "model_not_found", message)


def _conversation(messages: Sequence[ChatMessage]) -> tuple[tuple[Turn, ...], str]:
    dialog = [one for one in messages if one.role in ("user", "assistant")]
    texts = [
        (role, "\n\n".join(filter(None, (one.text() for one in group))))
        for role, group in groupby(dialog, key=lambda one: one.role)
    ]
    if not texts or texts[-1][0] != "user":
        raise InvalidOption("The last message must be the user's question.")
    turns = tuple(
        Turn(question, without_links(answer))
        for (role, question), (_, answer) in pairwise(texts)
        if role == "user"
    )
    return turns, texts[-1][1]


class _Completion:
    """An answer as a chat completion, whole or in chunks."""

    def __init__(self, model: str, answer: MarkdownAnswer) -> None:
        self._answer = answer
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, stream: AnswerStream) -> dict[str, Any]:
        answer = read_pieces(self._answer.write(stream), ignore_text)
        message = {"role": "assistant", "content": self._answer.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message | {"annotations": self._answer.annotations},
            "finish_reason": _finish(answer),
            "logprobs": None,
        }
        usage = _usage(answer)
        whole = {**self._head, "object": "chat.completion", "choices": [choice]}
        return whole if usage is None else whole | {"usage": usage}

    def chunks(self, stream: AnswerStream, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})
        pieces = self._answer.write(stream)
        answer = yield from change_pieces(pieces, lambda piece: self._chunk({"content": piece}))
        yield self._chunk({"annotations": self._answer.annotations})
        yield self._chunk({}, _finish(answer))
        if include_usage:
            yield self._chunk(None) | {"usage": _usage(answer)}

    def _chunk(self, delta: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        choices = [] if delta is None else [choice]
        return {**self._head, "object": "chat.completion.chunk", "choices": choices}


def _finish(answer: Answer) -> str:
    generation = answer.generation
    return "length" if generation is not None and generation.finish == "length" else "stop"


def _usage(answer: Answer) -> dict[str, int] | None:
    """Return the tokens used for an answer; None if the generator doesn't report them."""
    read: int | None = 0
    written: int | None = 0
    if answer.generation is not None:
        read, written = answer.generation.input_tokens, answer.generation.output_tokens
    if read is None or written is None:
        return None
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }


def _events(
    context: Context, chunks: Iterator[dict[str, Any]], resources: ExitStack
) -> Generator[bytes, None, None]:
    with resources:
        try:
            for chunk in chunks:
                yield _event(chunk)
        except (VisarError, HTTPException) as error:
            # The status has been sent already, so the error becomes an event.
            problem = json.loads(bytes(context.problem(error).body))
            yield _event(_openai_error(problem))
        yield b"data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


async def _send_all(first: bytes, events: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
    try:
        yield first
        async with aclosing(iterate_in_threadpool(events)) as rest:  # type: ignore[type-var]
            async for event in rest:
                yield event
    finally:
        events.close()


def _openai_error(problem: dict[str, Any]) -> dict[str, Any]:
    """Convert an RFC 9457 problem to the format of OpenAI's errors."""
    status = problem["status"]
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status)
    if kind is None:
        kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": problem["detail"], "type": kind, "param": None, "code": problem["code"]}
    return {"error": error}


class OpenAIErrors:
    """ASGI middleware that converts errors under `PREFIX` to the format of OpenAI's errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", "")).removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or not path.startswith(f"{PREFIX}/"):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_converted(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message  # wait for the body, which comes in one message, for its length
                return
            if start is not None and message["type"] == "http.response.body":
                body = json.dumps(_openai_error(json.loads(message["body"]))).encode()
                own = {b"content-type": b"application/json", b"content-length": b"%d" % len(body)}
                others = [(n, v) for n, v in start["headers"] if n.lower() not in own]
                await send({**start, "headers": [*others, *own.items()]})
                start, message = None, {**message, "body": body}
            await send(message)

        await self._app(scope, receive, send_converted)


def _is_problem(message: Message) -> bool:
    headers = dict(message.get("headers", ()))
    return bool(headers.get(b"content-type") == PROBLEM_TYPE.encode())


@dataclass(slots=True)
class MarkdownAnswer:
    """The Markdown of an answer that is being written."""

    page_url: PageUrl
    text: str = ""
    annotations: list[dict[str, Any]] = field(default_factory=list)
    """Links to pages in the text, in the format of OpenAI."""

    def write(self, stream: AnswerStream) -> Generator[str, None, Answer]:
        """Yield pieces of Markdown while the answer is written, and return the answer."""
        first = next(stream, "")
        # Quotes come as one piece. It is replaced by the passages, with their tables and links.
        second = next(stream, None)
        if second is not None:
            for piece in chain((first, second), stream):
                yield self._add(piece)
        answer = stream.answer
        if answer.problem is not None:
            yield self._add(f"{self._gap()}*{escape(clean_line(answer.problem))}*")
        if not answer.found:
            nearest = answer.search.closest
            message = nothing_found(answer.search)
            yield self._add(f"{self._gap()}{escape(message)}\n\n")
            yield self._link(nearest.name, nearest.document, nearest.page)
        elif answer.generator == extractive.NAME:
            names = {one.id: one.name for one in answer.search.documents}
            for passage in answer.passages:
                yield self._add(f"{self._gap()}{quote(passage)}\n\n")
                yield self._link(names[passage.document], passage.document, passage.page)
        else:
            yield from self._name_sources(answer)
        return answer

    def _name_sources(self, answer: Answer) -> Iterator[str]:
        """Yield the rest of a generator's answer, and a list of the pages it cites."""
        if answer.text.startswith(self.text) and len(answer.text) > len(self.text):
            yield self._add(answer.text[len(self.text) :])
        names = {one.id: one.name for one in answer.search.documents}
        separator = "\n\n"
        if answer.lacks_citations:
            yield self._add(f"{separator}{_UNCITED}")
        sources: dict[int, list[Citation]] = {}
        for cited in answer.citations:
            sources.setdefault(cited.number, []).append(cited)
        for number, citations in sources.items():
            document, page = citations[0].document, citations[0].page
            yield self._add(f"{separator}- [{number}] ")
            separator = "\n"
            if document is None or page is None:
                label = escape(clean_line(citations[0].label))
                yield self._add(f"page {label}")
            else:
                yield self._link(names[document], document, page)
            if doubt := next(filter(None, (one.doubt for one in citations)), ""):
                yield self._add(f" ({doubt})")

    def _add(self, piece: str) -> str:
        self.text += piece
        return piece

    def _gap(self) -> str:
        return "\n\n" if self.text else ""

    def _link(self, name: str, document: str, page: int) -> str:
        title, url = f"{clean_line(name)}, page {page}", self.page_url(document, page)
        start = len(self.text)
        link = self._add(f"[{escape(title)}]({url})")
        place = {"start_index": start, "end_index": len(self.text)}
        cited = place | {"title": title, "url": url}
        self.annotations.append({"type": "url_citation", "url_citation": cited})
        return link


def quote(passage: Passage) -> str:
    """Return a passage as a Markdown quote, or as a table if it is from one."""
    if passage.cells:
        title = extractive.table_title(passage)
        return f"{escape(title)}\n\n{table(passage.cells)}".lstrip()
    return "\n".join(f"> {escape(line)}" for line in passage.text.splitlines())


def table(cells: Sequence[QuotedCell]) -> str:
    """Return quoted cells as a Markdown table. A wide cell is in the first of its columns."""
    width = max(cell.column + cell.span for cell in cells)
    header = [""] * width
    body: dict[int, list[str]] = {}
    for cell in sorted(cells, key=lambda one: (one.row, one.column)):
        text = escape(clean_line(cell.text))
        if cell.header:
            # Markdown has a single header row: repeat a wide header above each of its columns.
            for column in range(cell.column, cell.column + cell.span):
                header[column] = f"{header[column]} {text}".strip()
        else:
            row = body.setdefault(cell.row, [""] * width)
            row[cell.column] = f"**{text}**" if cell.answer else text
    rows = [header, ["---"] * width, *body.values()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escape(text: str) -> str:
    r"""Escape a text, so that Markdown shows it unchanged.

    >>> escape("a [link](x) <b> 2*3")
    'a \\[link\\](x) \\<b\\> 2\\*3'
    """
    return _SPECIAL.sub(r"\\\1", text)


def without_links(text: str) -> str:
    r"""Return the text of an answer without the links and quote marks of `MarkdownAnswer`.

    >>> without_links("Seven years [1].\n\n- [1] [a, page 2](http://h/api/v1/documents/f0/pages/2/image)")
    'Seven years [1].'
    >>> without_links("> Seven\\* years.\n\n[a, page 2](http://h/api/v1/documents/f0/pages/2/image)")
    'Seven* years.'
    """
    text = _LINK.sub("", text).replace(_UNCITED, "")
    text = re.sub(r"^> ", "", text, flags=re.MULTILINE)
    return re.sub(r"\\([\\`*_\[\]<>!#|~&])", r"\1", text).strip()
