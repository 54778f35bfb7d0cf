"""Models behind any server that speaks as OpenAI's does: vLLM, Ollama, llama.cpp, LM Studio, …."""

from __future__ import annotations

import json
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from visar.errors import GenerationError, InvalidOption
from visar.generation.choices import choice_text, find_choice
from visar.generation.dialect import LIMITS, Dialect, sendable
from visar.generation.endpoint import SECONDS_TO_CONNECT, Endpoint, TooMuch, require_client
from visar.generation.event_stream import StreamError, Written
from visar.generation.page_images import data_uri
from visar.generation.protocol import OnText, Prompt, Reply, unheard
from visar.generation.refusals import Refusal, explain

if TYPE_CHECKING:
    import openai

# A large model that reads many pages on a processor is silent for minutes before it speaks.
SECONDS_OF_SILENCE = 600.0
RETRIES = 5
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# An event of one token, with all that servers add to it, takes some 300 bytes; a reply that is
# larger than this allows will not end.
_BYTES_PER_TOKEN = 4096
_BYTES_AROUND = 2**20
_ENDED_EARLY = {"length", "max_tokens"}
_WORD = re.compile(r" ?[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class _Broken:
    """A request that came to nothing, and whether it is worth another try."""

    what: str
    said: str = ""
    passing: bool = False
    absent: bool = False
    """Whether there was nobody to answer."""


class OpenAIGenerator:
    """A model behind an OpenAI-compatible server, given the images or the text of pages.

    The key comes from ``OPENAI_API_KEY``; the address from ``base_url`` or ``OPENAI_BASE_URL``.
    """

    name: str
    reads: Literal["images", "text"]

    def __init__(
        self,
        model: str,
        *,
        reads: Literal["images", "text"] = "images",
        base_url: str | None = None,
        timeout: float = SECONDS_OF_SILENCE,
        retries: int = RETRIES,
    ) -> None:
        if not model.strip():
            raise InvalidOption("The server's model has no name: write openai:MODEL.")
        if not 0 < timeout < inf:
            raise InvalidOption(f"timeout is {timeout}; give the seconds of silence to bear.")
        if retries < 0:
            raise InvalidOption(f"retries is {retries}; it cannot be below 0.")
        require_client()
        self.reads = reads
        self.name = f"openai:{model}" if reads == "images" else f"openai-text:{model}"
        self._model = model
        self._endpoint = Endpoint.of(base_url)
        self._timeout = timeout
        self._retries = retries
        # What the server was found to want is kept for the next request.
        self._dialect = Dialect(
            "max_completion_tokens" if self._endpoint.is_openai else "max_tokens"
        )
        self._has_answered = False

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self.name!r}, at={self._endpoint.base_url!r})"

    def count_tokens(self, text: str) -> int:
        """An upper estimate: one for every two letters of a word, one for every other byte.

        No tokenizer in use needs more than one token for a byte, so digits, signs and letters
        beyond ASCII are counted as they are at worst, and the space before a word belongs to it.
        Words are one token or few: on reports, code and tables this is 1.1 to 2.2 times what a
        small model's tokenizer counts. Only strings of random letters come out up to a quarter too
        low; a page of nothing else is no page.

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
        on_text: OnText = unheard,
    ) -> Reply:
        """Write a reply, streamed to ``on_text``; raises `GenerationError` if none is to be had."""
        content = _as_content(prompt)
        limit = _BYTES_AROUND + _BYTES_PER_TOKEN * max_tokens
        with self._endpoint.client(timeout=self._timeout, most_bytes=limit) as client:

            def ask(dialect: Dialect) -> Written | Refusal | _Broken:
                asked = dialect.request(self._model, prompt.system, content, max_tokens, choices)
                return self._once(client, asked, on_text)

            written = self._persist(client, ask, with_images=bool(prompt.images))
        return self._as_reply(written, max_tokens, choices)

    def _persist(
        self,
        client: openai.OpenAI,
        ask: Callable[[Dialect], Written | Refusal | _Broken],
        *,
        with_images: bool,
    ) -> Written:
        """Ask until there is a reply, in the way the server turns out to understand."""
        dialect, failures = self._dialect, 0
        while True:
            outcome = ask(dialect)
            if isinstance(outcome, Written):
                self._dialect = dialect.settled()
                return outcome
            if isinstance(outcome, Refusal):
                other = dialect.without_what_is_named(outcome)
                if other is not None:
                    dialect = other
                    continue
            pause = self._pause_after(outcome, failures, with_images=with_images)
            if pause is None:
                raise self._failure(client, outcome, with_images=with_images)
            time.sleep(pause)
            failures += 1

    def _pause_after(
        self, outcome: Refusal | _Broken, failures: int, *, with_images: bool
    ) -> float | None:
        """How long to wait before asking again; None if that is no use."""
        usual = min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        if failures == self._retries:
            return None
        if isinstance(outcome, _Broken):
            return usual if outcome.passing else None
        wanted = outcome.seconds_to_wait()
        pause = usual if wanted is None else wanted
        return (
            pause
            if outcome.is_passing(with_images=with_images) and pause <= LONGEST_PAUSE
            else None
        )

    def _once(
        self, client: openai.OpenAI, request: dict[str, Any], on_text: OnText
    ) -> Written | Refusal | _Broken:
        """Ask once. Nothing the server or the client said is raised: both may hold the key."""
        import httpx2
        import openai

        written = Written(on_text)
        try:
            with client.chat.completions.with_streaming_response.create(**request) as response:
                self._has_answered = True
                kind = response.headers.get("Content-Type", "")
                if "json" in kind:
                    written.take_whole(response.iter_bytes())
                else:
                    written.take_stream(response.iter_bytes(), patience=self._timeout)
        except openai.APIStatusError as error:
            self._has_answered = True
            return Refusal(error.status_code, error.body, error.response.headers)
        except openai.APIConnectionError as error:
            return self._broken(error.__cause__)
        except httpx2.TransportError as error:
            if written.finish_reason is None:
                return self._broken(error, begun=written.begun)
        except TooMuch as error:
            return _Broken(f"{error}, for a reply of at most {_limit_of(request)} tokens")
        except StreamError as error:
            return _Broken(error.what, error.said)
        else:
            if not written.ended:
                return self._unfinished(written, kind)
        return written

    def _broken(self, error: BaseException | None, *, begun: bool = False) -> _Broken:
        """What a failure of the connection means."""
        import httpx2

        causes = list(_causes(error))
        for cause in causes:
            if isinstance(cause, ssl.SSLError):
                return _Broken("cannot be trusted", cause.reason or str(cause))
        if isinstance(error, httpx2.ReadTimeout):
            return _Broken(
                f"has said nothing for {self._timeout:g} s: it may be overloaded, or loading the "
                "model; ask again, or with fewer pages"
            )
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            said = str(causes[-1]) or type(error).__name__
            return _Broken("", said, passing=self._has_answered, absent=True)
        if begun:
            return _Broken("broke off in the middle of its reply: ask again")
        return _Broken("breaks off without a reply", type(error).__name__, passing=True)

    def _unfinished(self, written: Written, kind: str) -> _Broken:
        """What the end of a stream means in which no end was said."""
        if written.begun:
            return _Broken("broke off in the middle of its reply: ask again")
        if "event-stream" in kind:
            return _Broken("breaks off without a reply", passing=True)
        return _Broken(f"does not answer as OpenAI's API does (but with {kind or 'nothing'!r})")

    def _failure(
        self, client: openai.OpenAI, outcome: Refusal | _Broken, *, with_images: bool
    ) -> GenerationError:
        if isinstance(outcome, _Broken):
            said = self._endpoint.quoted(outcome.said)
            if outcome.absent:
                return GenerationError(
                    f"No server answers at {self._endpoint.base_url} ({said}): is it running "
                    "there? docs/generators.md says how to start one."
                )
            return self._failed(f"{outcome.what} ({said})" if said else outcome.what)
        offered = self._offered(client) if outcome.is_model_missing() else []
        meaning = explain(
            outcome, self._endpoint, self._model, with_images=with_images, offered=offered
        )
        return self._failed(meaning)

    def _failed(self, what: str) -> GenerationError:
        return GenerationError(f"{self._model} at {self._endpoint.base_url} {what}.")

    def _offered(self, client: openai.OpenAI) -> list[str]:
        """The models of the server, if it tells."""
        import httpx2
        import openai

        with suppress(
            openai.OpenAIError, httpx2.TransportError, TooMuch, ValueError, RecursionError
        ):
            with client.models.with_streaming_response.list(timeout=SECONDS_TO_CONNECT) as response:
                listed = json.loads(b"".join(response.iter_bytes()))
            models = listed.get("data") if isinstance(listed, dict) else None
            each = models if isinstance(models, list) else []
            names = [model.get("id") for model in each if isinstance(model, dict)]
            return [name for name in names if isinstance(name, str)]
        return []

    def _as_reply(self, written: Written, max_tokens: int, choices: Sequence[str]) -> Reply:
        text = written.text
        if written.refusals:
            said = self._endpoint.quoted("".join(written.refusals))
            raise self._failed(f"refuses to answer ({said})")
        if written.finish_reason == "content_filter":
            raise self._failed(
                "withheld its reply: the server's content filter stopped it. Ask otherwise, or use "
                "another model"
            )
        complete = written.finish_reason not in _ENDED_EARLY
        if not text.strip():
            raise self._failed(_about_nothing(written, max_tokens, complete=complete))
        if choices:
            choice = find_choice(text, choices)
            if choice is None:
                said = self._endpoint.quoted(text)
                raise self._failed(
                    f"answers with none of {', '.join(choices)} but ({said}): "
                    "use a server that knows response_format with json_schema, or another model"
                )
            # A choice that was made is whole, whatever blanks the model added up to the limit.
            text, complete = choice_text(choice), True
        return Reply(
            text=text,
            model=written.model or self._model,
            input_tokens=written.input_tokens,
            output_tokens=written.output_tokens,
            complete=complete,
        )


def _about_nothing(written: Written, max_tokens: int, *, complete: bool) -> str:
    if written.reasoned and not complete:
        return (
            f"spent all of {max_tokens} tokens on reasoning and wrote no answer: allow it more, or "
            "turn its reasoning off at the server"
        )
    return "gave an empty reply: ask again, or use another model"


def _as_content(prompt: Prompt) -> list[dict[str, Any]]:
    """A prompt's texts and images in their order, as a user's message."""
    return [
        {"type": "text", "text": sendable(part)}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": data_uri(part)}}
        for part in prompt.parts
    ]


def _limit_of(request: dict[str, Any]) -> int:
    return next(int(request[name]) for name in LIMITS if name in request)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, back to the first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
