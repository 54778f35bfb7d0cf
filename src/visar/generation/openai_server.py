"""Models behind servers with OpenAI's chat API: vLLM, Ollama, llama.cpp, LM Studio, OpenAI.

Requests, streams and retries are those of OpenAI's client. This module adds what the client lacks:
who gets the key, limits on what is read, parameters that a server doesn't know, and clear errors.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, cast

from visar._version import __version__
from visar.errors import GenerationError, InvalidOption, PromptTooLong
from visar.generation.generator import (
    OnText,
    Pieces,
    Prompt,
    Reads,
    Reply,
    ignore_text,
    read_pieces,
)
from visar.generation.openai_http import (
    ABOUT_IMAGES,
    KEY_VARIABLE,
    NO_QUOTA,
    Body,
    Endpoint,
    HttpClient,
    UnusableReply,
    httpx2,
    openai,
)
from visar.generation.parsing import choice_text, find_choice
from visar.generation.registry import sampled_in_paper
from visar.text import encodable

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from PIL.Image import Image

# A large model that reads many pages on a CPU is silent for minutes before it replies.
SECONDS_OF_SILENCE = 600.0
RETRIES = 5
_SECONDS_TO_CONNECT = 10.0
# An event with one token takes about 300 bytes, with everything that servers add.
_BYTES_PER_TOKEN = 4096
# Most servers know the first, OpenAI's newer models only the second.
_LIMITS = ("max_tokens", "max_completion_tokens")
# Parameters that a request can do without.
_OPTIONAL = ("stream_options", "response_format", "seed", "temperature")
# Words in the errors of servers that don't support constrained decoding.
_SCHEMA = re.compile(r"json_schema|structured output|guided|grammar", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)"
    r"|(exceed|larger|longer|too long|too many).{0,80}\b(context|tokens)"
    r"|(prompt|input|request) (is |was )?too (long|large)",
    re.IGNORECASE | re.DOTALL,
)
_NO_MODEL = re.compile(
    r"model\b.{0,200}(not found|does not exist|not exist|not loaded|unknown)"
    r"|(unknown|invalid|no such) model",
    re.IGNORECASE | re.DOTALL,
)
_WORD = re.compile(r" ?[A-Za-z]+")
_MODELS_SHOWN = 12
# Images with more colors are smaller as JPEG; others are sent as PNG, without loss.
_MAX_PNG_COLORS = 64


class OpenAIGenerator:
    """A model behind an OpenAI-compatible server, given the images or the text of pages.

    The key comes from ``OPENAI_API_KEY``, and the address by default from ``OPENAI_BASE_URL``, or
    else it is OpenAI's own. A request fails after ``timeout`` seconds without any output; it is
    sent again up to ``retries`` times if the server is busy, fails or can't be reached. All threads
    share one pool of connections.

    Raises InvalidOption if an argument is out of range or the address is invalid, and
    GeneratorUnavailable if the key is missing or malformed, or must not be sent to that address.
    """

    def __init__(
        self,
        model: str,
        *,
        reads: Reads = "images",
        base_url: str | None = None,
        timeout: float = SECONDS_OF_SILENCE,
        retries: int = RETRIES,
    ) -> None:
        if not model.strip():
            raise InvalidOption("The model has no name: use openai:MODEL.")
        if not 0 < timeout < inf or retries < 0:
            raise InvalidOption(
                f"timeout is {timeout} and retries is {retries}: timeout must be a positive number "
                "of seconds, and retries at least 0."
            )
        self.name = f"openai:{model}" if reads == "images" else f"openai-text:{model}"
        self.reads: Reads = reads
        self._model = model
        self._endpoint = Endpoint.of(base_url)
        self._timeout = timeout
        self._retries = retries
        self._lock = threading.Lock()
        self._shared_client: openai.OpenAI | None = None
        self._refused: frozenset[str] = frozenset()
        """Parameters that the server doesn't support."""

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self.name!r}, at={self._endpoint.base_url!r})"

    def count_tokens(self, text: str) -> int:
        """Return an upper estimate: a token per two letters of a word, and per other byte.

        On reports, code and tables, this is 1.1 to 2.2 times the count of a small model's
        tokenizer. It is too low, by up to a quarter, only for strings of random letters.

        >>> generator = OpenAIGenerator("any", base_url="http://127.0.0.1:1/v1")
        >>> generator.count_tokens("Warranty: 60 months")
        11
        """
        words = _WORD.findall(text)
        others = _WORD.sub("", text).encode("utf-8", "surrogatepass")
        return len(others) + sum((len(word.strip()) + 1) // 2 for word in words)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        """Write a reply; see `Generator.generate`."""
        return read_pieces(self.stream(prompt, max_tokens=max_tokens, choices=choices), on_text)

    def stream(self, prompt: Prompt, *, max_tokens: int, choices: Sequence[str] = ()) -> Pieces:
        """Yield the pieces of a reply and return it; closing the iterator closes the connection."""
        whole = self._request(prompt, max_tokens, choices)
        with self._lock:
            refused = self._refused
        kind = GenerationError
        while True:
            request = _without(refused, whole, choices)
            partial, failure, unknown = _PartialReply(), None, None
            # The client's exceptions contain the key, so they are not chained to ours.
            try:
                yield from self._pieces(request, partial, max_tokens)
            except openai.APIStatusError as error:
                unknown = _unknown_parameter(error, request)
                if unknown is None or {*_LIMITS} <= refused | {unknown}:
                    failure = self._about_refusal(error, with_images=bool(prompt.images))
                    kind = PromptTooLong if _is_too_long(error) else GenerationError
            except Exception as error:  # a server can send anything
                failure = self._about_failure(error, partial)
            if failure is not None or unknown is None:
                break
            refused |= {unknown}
        if failure := failure or self._about_reply(partial, max_tokens, choices):
            raise kind(f"{self._model} at {self._endpoint.base_url} {failure}.")
        with self._lock:
            self._refused |= refused
        text, model = "".join(partial.pieces), partial.model or self._model
        # A stream without a finish reason was cut off.
        interrupted = partial.finish_reason is None
        complete = partial.finish_reason not in (None, "length", "max_tokens")
        if choices:
            # A choice is complete even if the model wrote more, up to the limit.
            text, complete = choice_text(find_choice(text, choices) or ""), True
        used = partial.input_tokens, partial.output_tokens
        return Reply(text, model, *used, complete, interrupted and not complete)

    def _request(self, prompt: Prompt, max_tokens: int, choices: Sequence[str]) -> dict[str, Any]:
        """Return a request with every parameter, and both names of the limit, likelier first."""
        content = [_part(part) for part in prompt.parts]
        limits = reversed(_LIMITS) if self._endpoint.is_openai else _LIMITS
        system = {"role": "system", "content": encodable(prompt.system)}
        user = {"role": "user", "content": content}
        request = {
            "model": self._model,
            "messages": [system, user] if prompt.system else [user],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "seed": 0,
            **dict.fromkeys(limits, max_tokens),
        }
        if prompt.as_in_paper and sampled_in_paper(self._model):
            del request["temperature"]  # the server's default is that of the checkpoint
        return request | ({"response_format": _choice_format(choices)} if choices else {})

    def _pieces(
        self, request: dict[str, Any], partial: _PartialReply, max_tokens: int
    ) -> Iterator[str]:
        """Send a request and yield the pieces of the reply, which is collected in ``partial``."""
        with self._client().chat.completions.create(**request) as stream:
            cast("Body", stream.response.stream).most += _BYTES_PER_TOKEN * max_tokens
            kind = stream.response.headers.get("Content-Type", "")
            for event in [_whole(stream.response)] if "json" in kind else stream:
                if piece := partial.take(event):
                    yield piece
        if not partial.has_begun and "json" not in kind and "event-stream" not in kind:
            raise UnusableReply(f"doesn't respond like OpenAI's API (content type {kind!r})")

    def _client(self) -> openai.OpenAI:
        with self._lock:
            if self._shared_client is None:
                self._shared_client = openai.OpenAI(
                    base_url=self._endpoint.base_url,
                    api_key=self._endpoint.key or "no-key",  # the client always sends one
                    timeout=openai.Timeout(self._timeout, connect=_SECONDS_TO_CONNECT),
                    max_retries=self._retries,
                    default_headers={
                        "User-Agent": f"visar/{__version__}",
                        "Accept-Encoding": "identity",
                    },
                    http_client=HttpClient(self._timeout, is_near=self._endpoint.is_near),
                )
                weakref.finalize(self, self._shared_client.close)
            return self._shared_client

    def _about_reply(
        self, partial: _PartialReply, max_tokens: int, choices: Sequence[str]
    ) -> str | None:
        """Return what is wrong with a reply; None if nothing is."""
        text, quoted = "".join(partial.pieces), self._endpoint.quoted
        if partial.refusal:
            return f"refused to answer ({quoted(partial.refusal)})"
        if partial.finish_reason == "content_filter":
            return "withheld its reply (content filter): rephrase, or use another model"
        if not text.strip() and partial.reasoned:
            return (
                f"used all {max_tokens} tokens for reasoning: allow more, or turn reasoning off at "
                "the server"
            )
        if not text.strip():
            return "returned an empty reply: ask again, or use another model"
        if choices and find_choice(text, choices) is None:
            return (
                f"replied with none of {', '.join(choices)} ({quoted(text)}): use a server that "
                "supports response_format with json_schema, or another model"
            )
        return None

    def _about_failure(self, error: Exception, partial: _PartialReply) -> str | None:
        """Explain an error other than a refusal; None if the reply was complete before it."""
        *others, first = _causes(error)
        message = self._endpoint.quoted(str(first))
        if "[SSL" in message:
            return f"failed the TLS handshake ({message})"
        if any(isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout) for cause in others):
            return f"can't be reached ({message}). Start the server, or check the address"
        if isinstance(error, UnusableReply):
            return str(error)
        if isinstance(error, openai.APITimeoutError):
            return (
                f"timed out after {self._timeout:g} s: it may be overloaded or loading the model. "
                "Ask again, or with fewer pages"
            )
        if isinstance(error, openai.APIConnectionError):
            if partial.finish_reason is not None:  # only the token counts are lost
                return None
            when = "in the middle of its reply" if partial.has_begun else "without a reply"
            return f"broke off {when} ({type(first).__name__}): ask again"
        if isinstance(error, openai.APIError):
            return f"broke off with an error ({self._endpoint.quoted(_reason(error.body))})"
        return f"doesn't respond like OpenAI's API ({type(error).__name__})"

    def _about_refusal(self, error: openai.APIStatusError, *, with_images: bool) -> str:
        """Explain a refusal, and what to do."""
        status, reason, headers = error.status_code, _reason(error.body), error.response.headers
        details = f"({status}: {self._endpoint.quoted(reason)})"
        if 300 <= status < 400:
            target = self._endpoint.quoted(headers.get("Location", "elsewhere"))
            return f"redirects to {target}, which is not followed: use that address if you trust it"
        if status in (401, 403):
            needs = "needs a key" if self._endpoint.key is None else "rejected the key"
            return f"{needs} {details}: check the environment variable {KEY_VARIABLE}"
        if _is_too_long(error):
            return (
                f"was sent too much {details}: lower --max-k or --send-megapixels, or serve the "
                "model with a longer context"
            )
        if status == 404 or (status in (400, 422) and _NO_MODEL.search(reason)):
            return f"was not found {details}: {self._about_models()}"
        if status == 429 and NO_QUOTA in _everything(error):
            return f"has no quota left for this key {details}: check your account"
        if status == 429:
            seconds = headers.get("Retry-After", "")
            when = f"in {seconds} s" if re.fullmatch("[0-9]{1,9}", seconds) else "later"
            return f"has reached its rate limit {details}: try again {when}"
        if with_images and ABOUT_IMAGES.search(reason):
            return (
                f"doesn't accept these page images {details}: lower --max-k if there are too many, "
                f"or use openai-text:{self._model}, which gets their text"
            )
        if status >= 500:
            return f"failed {details}: see its log"
        return f"rejected the request {details}"

    def _about_models(self) -> str:
        offered: list[str] = []
        with suppress(Exception):  # servers may not have this route, or return anything
            client = self._client().with_options(max_retries=0, timeout=_SECONDS_TO_CONNECT)
            offered = [str(model.id) for model in client.models.list().data]
        if offered and self._model not in offered:
            more = ", …" if len(offered) > _MODELS_SHOWN else ""
            listed = ", ".join(map(self._endpoint.quoted, offered[:_MODELS_SHOWN]))
            return f"the server offers {listed}{more}"
        if not self._endpoint.base_url.endswith("/v1"):
            return "most server addresses end in /v1"
        return "check the name of the model and the address of the server"


@dataclass(slots=True)
class _PartialReply:
    """A reply as far as the server has sent it."""

    pieces: list[str] = field(default_factory=list)
    refusal: str = ""
    reasoned: bool = False
    """Whether the model sent reasoning in a separate field, which isn't part of the reply."""
    model: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self.pieces or self.refusal or self.reasoned)

    def take(self, event: ChatCompletionChunk | ChatCompletion) -> str:
        """Add an event of a stream, or a whole reply; return its text."""
        # The client doesn't validate what servers send: fields can have any type.
        if event.model:
            self.model = str(event.model)
        if event.usage:
            counts: tuple[Any, ...] = event.usage.prompt_tokens, event.usage.completion_tokens
            self.input_tokens, self.output_tokens = (
                count if isinstance(count, int) else None for count in counts
            )
        if not event.choices:  # the event with the token counts has none
            return ""
        choice: Any = event.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        message = getattr(choice, "delta", None) or getattr(choice, "message", None)
        if message is None:
            return ""
        thoughts = ("reasoning_content", "reasoning")
        self.reasoned = self.reasoned or any(getattr(message, name, None) for name in thoughts)
        self.refusal += message.refusal or ""
        text = message.content or ""
        if isinstance(text, list):  # some servers send parts
            text = "".join(part["text"] for part in text if part.get("type") == "text")
        self.pieces += [str(text)] if text else []
        return str(text)


def _whole(response: httpx2.Response) -> ChatCompletion:
    """Read the reply of a server that doesn't stream."""
    from openai.types.chat import ChatCompletion

    content = json.loads(response.read())
    if content.get("error"):
        raise openai.APIError("", response.request, body=content["error"])
    return ChatCompletion.construct(**content)


def _unknown_parameter(error: openai.APIStatusError, request: dict[str, Any]) -> str | None:
    """Return the parameter that a refusal names, if the request can do without it."""
    if error.status_code not in (400, 422, 501) or _is_too_long(error):
        return None
    text = _everything(error)
    for name in (*_LIMITS, *_OPTIONAL):
        if name in request and re.search(rf"\b{name}\b", text):
            return name
    return "response_format" if "response_format" in request and _SCHEMA.search(text) else None


def _is_too_long(error: openai.APIStatusError) -> bool:
    status = error.status_code
    return status == 413 or (status < 429 and bool(_TOO_LONG.search(_everything(error))))


def _everything(error: openai.APIStatusError) -> str:
    return error.body if isinstance(error.body, str) else json.dumps(error.body)


def _reason(body: Any) -> str:
    """Return a server's error message, which can be in several fields."""
    reason = body.get("message") or body.get("detail") or body if isinstance(body, dict) else body
    if not reason:
        return "no reason given"
    return reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _choice_format(choices: Sequence[str]) -> dict[str, Any]:
    """Return the response format of ``{"choice": …}`` with one of the choices."""
    schema = {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": list(choices)}},
        "required": ["choice"],
        "additionalProperties": False,
    }
    named = {"name": "choice", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def _without(
    refused: frozenset[str], request: dict[str, Any], choices: Sequence[str]
) -> dict[str, Any]:
    """Return a request without the parameters that the server refused."""
    known = {name: value for name, value in request.items() if name not in refused}
    for other in [name for name in known if name in _LIMITS][1:]:
        del known[other]
    *before, user = request["messages"]
    content = user["content"]
    if choices and "response_format" in refused:
        listed = " or ".join(map(choice_text, choices))
        instruction = f"Reply with one of these JSON objects and nothing else: {listed}"
        content = [*content, _part(instruction)]
    if all(part["type"] == "text" for part in content):  # text servers may not support lists
        content = "\n".join(part["text"] for part in content)
    return known | {"messages": [*before, {"role": "user", "content": content}]}


def _part(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": encodable(part)}
    return {"type": "image_url", "image_url": {"url": _data_uri(part)}}


def _data_uri(image: Image) -> str:
    """Return an image as a data URI, without transparency, which servers show as black."""
    if image.mode not in ("L", "RGB"):
        from PIL import Image as Images

        white = Images.new("RGBA", image.size, "white")
        image = Images.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    kind = "jpeg" if image.getcolors(_MAX_PNG_COLORS) is None else "png"
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=90)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
