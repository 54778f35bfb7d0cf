"""Clients for ``visar serve``: `Client`, and `AsyncClient` for asyncio.

`visar.requests` builds the requests; the clients send them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
)
from contextlib import contextmanager
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
)

from visar import requests
from visar._version import __version__
from visar.errors import ServiceError, VisarError, error_from_code
from visar.library import AnswerStream, AskOptions
from visar.network import TOKEN_VARIABLE, network_reason, parse_address
from visar.results import (
    Answer,
    SearchResult,
    with_source,
)
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2


P = ParamSpec("P")
T = TypeVar("T")
DEFAULT_TIMEOUT = 900.0
_CHUNK = 1 << 20


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


async def _async_file_chunks(path: Path) -> AsyncIterator[bytes]:
    chunks = _file_chunks(path)
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


class _Connection:
    """Base class of the clients: connection settings and error handling."""

    def __init__(self, address: str, token: str | None, timeout: float) -> None:
        import httpx2

        parse_address(address)
        self.location = address.rstrip("/")
        token = token or os.environ.get(TOKEN_VARIABLE)
        self._settings: dict[str, Any] = {
            "base_url": f"{self.location}/api/v1",
            "headers": {"User-Agent": f"visar/{__version__}"}
            | ({"Authorization": f"Bearer {token}"} if token else {}),
            "timeout": httpx2.Timeout(timeout, connect=10.0),
            # Ignore proxies in the environment: requests only go to this address.
            "trust_env": False,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    @contextmanager
    def _network_errors(self) -> Iterator[None]:
        """Context manager: raise ServiceError for errors of the network."""
        import httpx2

        try:
            yield
        except httpx2.TransportError as error:
            raise ServiceError(
                f"Can't reach {self.location}: {network_reason(error)}. Is visar serve running "
                "there?"
            ) from error

    def _raise_for_error(self, response: httpx2.Response) -> None:
        """Raise the error that a response reports, if any."""
        if response.is_success:
            return
        try:
            problem = response.json()
            code, detail = str(problem["code"]), clean_line(str(problem["detail"]), 500)
        except (ValueError, TypeError, KeyError):
            raise ServiceError(
                f"Unexpected response from {self.location}, with status {response.status_code}: "
                "is it visar serve? Check the address and any proxy in between."
            ) from None
        raise error_from_code(code, detail)


def _method(
    build: Callable[P, requests.Call[T] | requests.Steps[T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return a method of `Client` that sends the requests of a function."""

    @functools.wraps(build)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._run(build(*args, **kwargs))  # noqa: SLF001

    return method


def _async_method(
    build: Callable[P, requests.Call[T] | requests.Steps[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    """Return a method of `AsyncClient` that sends the requests of a function."""

    @functools.wraps(build)
    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._run(build(*args, **kwargs))  # noqa: SLF001

    return method


class Client(_Connection):
    """A library behind ``visar serve``, with the methods of `visar.Library`. Thread-safe.

    Use it in a ``with`` block, or call `close`, to close its connections.

    Methods raise the same errors as those of `visar.Index`. They also raise ServiceError if the
    server can't be reached, rejects the token, or isn't ``visar serve``.

    Parameters
    ----------
    address
        Address of the server, such as ``http://127.0.0.1:8764``.
    token
        Access token; by default the environment variable ``VISAR_TOKEN``.
    timeout
        Seconds to wait for a response.
    """

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        import httpx2

        super().__init__(address, token, timeout)
        self._http = httpx2.Client(**self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    documents = _method(requests.documents)
    get = _method(requests.get)
    add = _method(requests.add)
    add_all = _method(requests.add_all)
    remove = _method(requests.remove)
    unlock = _method(requests.unlock)
    collections = _method(requests.collections)
    collect = _method(requests.collect)
    uncollect = _method(requests.uncollect)
    jobs = _method(requests.jobs)
    explain = _method(requests.explain)
    patches = _method(requests.patches)
    pairs = _method(requests.pairs)
    page = _method(requests.page)
    image = _method(requests.image)
    search = _method(requests.search)
    ask = _method(requests.ask)
    threads = _method(requests.threads)
    thread = _method(requests.thread)
    create_thread = _method(requests.create_thread)
    rename_thread = _method(requests.rename_thread)
    delete_thread = _method(requests.delete_thread)

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AnswerStream:
        """Answer a question and stream the text; the options are those of `ask`."""
        events = self._events(requests.query_body(question, options))
        search = next(events)
        assert isinstance(search, SearchResult)  # noqa: S101 - always the first event

        def pieces() -> Generator[str, None, Answer]:
            for event in events:
                if isinstance(event, Answer):
                    return event
                yield str(event)
            raise ServiceError(f"The answer from {self.location} broke off. Ask again.")

        return AnswerStream(search, pieces())

    def _events(self, body: Any) -> Iterator[requests.Event]:
        import httpx2

        with (
            self._network_errors(),
            self._http.stream("POST", "/ask/stream", json=body) as response,
        ):
            if not response.is_success:
                response.read()
            self._raise_for_error(response)
            for event in httpx2.EventSource(response, max_event_size=None):
                yield with_source(requests.event(event.event, event.json()), self)

    def _send(self, call: requests.Call[T]) -> T:
        content = None if call.upload is None else _file_chunks(call.upload)
        with self._network_errors():
            response = self._http.request(call.method, call.path, content=content, **call.options())
        self._raise_for_error(response)
        return with_source(call.read(response), self)

    def _run(self, request: requests.Call[T] | requests.Steps[T]) -> T:
        steps = requests.steps(request)
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, float):
                        time.sleep(step)
                        result = None
                    else:
                        result = self._send(step)
                except VisarError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return cast("T", end.value)


class AsyncAnswerStream(AsyncIterator[str]):
    """An answer that is being written: iterate over pieces of its text, then await `answer`.

    `search` holds the pages before the first piece arrives.
    """

    def __init__(self, search: SearchResult, events: AsyncGenerator[requests.Event, None]) -> None:
        self.search = search
        self._events = events
        self._answer: Answer | None = None

    async def __anext__(self) -> str:
        async for event in self._events:
            if isinstance(event, str):
                return event
            self._answer = event if isinstance(event, Answer) else None
        raise StopAsyncIteration

    async def answer(self) -> Answer:
        """Wait for the rest of the answer and return all of it."""
        async for _ in self:
            pass
        if self._answer is None:
            raise ServiceError("The server's answer broke off. Ask again.")
        return self._answer

    async def close(self) -> None:
        """Stop generating the answer."""
        await self._events.aclose()


class AsyncClient(_Connection):
    """`Client` for asyncio: await every method, and use it in an ``async with`` block."""

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        import httpx2

        super().__init__(address, token, timeout)
        self._http = httpx2.AsyncClient(**self._settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    documents = _async_method(requests.documents)
    get = _async_method(requests.get)
    add = _async_method(requests.add)
    add_all = _async_method(requests.add_all)
    remove = _async_method(requests.remove)
    unlock = _async_method(requests.unlock)
    collections = _async_method(requests.collections)
    collect = _async_method(requests.collect)
    uncollect = _async_method(requests.uncollect)
    jobs = _async_method(requests.jobs)
    explain = _async_method(requests.explain)
    patches = _async_method(requests.patches)
    pairs = _async_method(requests.pairs)
    page = _async_method(requests.page)
    image = _async_method(requests.image)
    search = _async_method(requests.search)
    ask = _async_method(requests.ask)
    threads = _async_method(requests.threads)
    thread = _async_method(requests.thread)
    create_thread = _async_method(requests.create_thread)
    rename_thread = _async_method(requests.rename_thread)
    delete_thread = _async_method(requests.delete_thread)

    async def stream(self, question: str, **options: Unpack[AskOptions]) -> AsyncAnswerStream:
        """Answer a question and stream the text; the options are those of `ask`."""
        events = self._events(requests.query_body(question, options))
        search = await anext(events)
        assert isinstance(search, SearchResult)  # noqa: S101 - always the first event
        return AsyncAnswerStream(search, events)

    async def _events(self, body: Any) -> AsyncGenerator[requests.Event, None]:
        import httpx2

        with self._network_errors():
            async with self._http.stream("POST", "/ask/stream", json=body) as response:
                if not response.is_success:
                    await response.aread()
                self._raise_for_error(response)
                async for event in httpx2.EventSource(response, max_event_size=None):
                    yield requests.event(event.event, event.json())

    async def _send(self, call: requests.Call[T]) -> T:
        content = None if call.upload is None else _async_file_chunks(call.upload)
        with self._network_errors():
            response = await self._http.request(
                call.method, call.path, content=content, **call.options()
            )
        self._raise_for_error(response)
        return call.read(response)

    async def _run(self, request: requests.Call[T] | requests.Steps[T]) -> T:
        steps = requests.steps(request)
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, float):
                        await asyncio.sleep(step)
                        result = None
                    else:
                        result = await self._send(step)
                except VisarError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return cast("T", end.value)
