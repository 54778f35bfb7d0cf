"""A library behind ``visar serve``, for programs that wait and for those that don't.

`visar.requests` builds the requests; `Client` and `AsyncClient` send them.
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
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
)

from visar import requests
from visar._version import __version__
from visar.documents.options import ReadOptions
from visar.errors import DocumentError, ServiceError, error_from_code
from visar.library import AnswerStream, AskOptions
from visar.network import TOKEN_VARIABLE, parse_address
from visar.results import (
    Additions,
    Answer,
    Document,
    Job,
    Refusal,
    SearchResult,
)
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

    from visar.encoders.protocol import Encoder
    from visar.ingest.pipeline import Progress

P = ParamSpec("P")
T = TypeVar("T")
SECONDS_PER_ANSWER = 900.0
_SECONDS_PER_POLL = 0.3
_CHUNK = 1 << 20


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


async def _read_in_threads(path: Path) -> AsyncIterator[bytes]:
    chunks = _file_chunks(path)
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


def _added(job: Job) -> str:
    """Return the id of the document that a job added; raises DocumentError if it failed."""
    if job.state != "done" or job.document is None:
        reason = job.reason or "the job was cancelled"
        raise DocumentError(job.name, f"was not added: {reason.rstrip('.')}")
    return job.document


def _report(job: Job, progress: Progress | None) -> None:
    if progress is not None and job.stage and job.pages:
        progress(job.stage, job.pages_done, job.pages)  # type: ignore[arg-type]


def _additions(results: Iterable[Document | Refusal]) -> Additions:
    results = list(results)
    return Additions(
        tuple(one for one in results if isinstance(one, Document)),
        tuple(one for one in results if isinstance(one, Refusal)),
    )


class _Connection:
    """The address of a server, and what its errors mean."""

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
            # Requests go to the address given, whatever proxy the environment names.
            "trust_env": False,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise ServiceError where the network fails."""
        import httpx2

        try:
            yield
        except httpx2.TransportError as error:
            reason = clean_line(str(error), 200) or type(error).__name__
            raise ServiceError(
                f"Can't reach {self.location}: {reason}. Is visar serve running there?"
            ) from error

    def _check(self, response: httpx2.Response) -> None:
        """Raise the error that a response reports."""
        if response.is_success:
            return
        try:
            problem = response.json()
            code, detail = str(problem["code"]), clean_line(str(problem["detail"]), 500)
        except (ValueError, TypeError, KeyError):
            raise ServiceError(
                f"{self.location} answers {response.status_code}, but not as visar serve does. "
                "Check the address, and any proxy in between."
            ) from None
        raise error_from_code(code, detail)


def _waiting(build: Callable[P, requests.Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Return the method of `Client` that sends the request that a function builds."""

    @functools.wraps(build)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._send(build(*args, **kwargs))  # noqa: SLF001

    return method


def _awaited(
    build: Callable[P, requests.Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    """Return the method of `AsyncClient` that sends the request that a function builds."""

    @functools.wraps(build)
    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._send(build(*args, **kwargs))  # noqa: SLF001

    return method


class Client(_Connection):
    """A library behind a server: the same methods as `visar.Index`. Safe for threads.

    Parameters
    ----------
    address
        Address such as ``http://127.0.0.1:8764``.
    token
        Token of the server; by default the environment variable ``VISAR_TOKEN``.
    timeout
        Seconds to wait for an answer.

    Methods raise the errors of `visar.Index`, and ServiceError if the server can't be reached or
    doesn't answer as ``visar serve`` does.
    """

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = SECONDS_PER_ANSWER
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

    get = _waiting(requests.get)
    remove = _waiting(requests.remove)
    unlock = _waiting(requests.unlock)
    collections = _waiting(requests.collections)
    collect = _waiting(requests.collect)
    uncollect = _waiting(requests.uncollect)
    jobs = _waiting(requests.jobs)
    explain = _waiting(requests.explain)
    patches = _waiting(requests.patches)
    pairs = _waiting(requests.pairs)
    page = _waiting(requests.page)
    image = _waiting(requests.image)
    search = _waiting(requests.search)
    ask = _waiting(requests.ask)

    def documents(
        self, *, where: str | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added: all, or those that match."""
        found: list[Document] = []
        while len(found) % requests.PAGE_SIZE == 0:
            part = self._send(requests.documents(where, collection, len(found)))
            if not part:
                break
            found += part
        return found

    def add(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Progress | None = None,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
    ) -> Document:
        """Upload a file, wait until it is in the index, and return the document.

        Of ``options`` only the password is sent: a server has its own settings for OCR and limits.

        Raises
        ------
        DocumentError
            If the server can't read the file.
        """
        password = requests.password(options)
        job = self._send(requests.upload(path, name, encoder, metadata, collection))
        return self._finish(job, password, progress)

    def add_all(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Callable[[str], Progress] | None = None,
        each: Callable[[str, Document | Refusal], None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
        ray: str | None = None,
    ) -> Additions:
        """Upload files, then wait until they are in the index; a refused one stops no other.

        ``each`` is called with every result. The other options are those of `add`.
        """
        password = requests.password(options, ray)
        uploads: list[tuple[str, Job | DocumentError]] = []
        for path in map(str, paths):
            try:
                call = requests.upload(path, None, encoder, metadata, collection)
                uploads.append((path, self._send(call)))
            except DocumentError as error:
                uploads.append((path, error))
        results: list[Document | Refusal] = []
        for path, job in uploads:
            try:
                if isinstance(job, DocumentError):
                    raise job
                report = None if progress is None else progress(path)
                results.append(self._finish(job, password, report))
            except DocumentError as error:
                results.append(Refusal(path, str(error)))
            if each is not None:
                each(path, results[-1])
        return _additions(results)

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AnswerStream:
        """Answer a question piece by piece; the options are those of `ask`."""
        events = self._events(requests.query_body(question, options))
        search = next(events)
        assert isinstance(search, SearchResult)  # noqa: S101 - every answer begins with it

        def pieces() -> Generator[str, None, Answer]:
            for event in events:
                if isinstance(event, Answer):
                    return event
                yield str(event)
            raise ServiceError(f"The answer of {self.location} broke off.")

        return AnswerStream(search, pieces())

    def _events(self, body: Any) -> Iterator[requests.Event]:
        import httpx2

        with self._reached(), self._http.stream("POST", "/ask/stream", json=body) as response:
            if not response.is_success:
                response.read()
            self._check(response)
            for event in httpx2.EventSource(response, max_event_size=None):
                yield self._sourced(requests.event(event.event, event.json()))

    def _send(self, call: requests.Call[T]) -> T:
        content = None if call.upload is None else _file_chunks(call.upload)
        with self._reached():
            response = self._http.request(call.method, call.path, content=content, **call.options())
        self._check(response)
        return self._sourced(call.read(response))

    def _sourced(self, result: T) -> T:
        """Let the pages of a result get their images and words from here."""
        if isinstance(result, Answer):
            return replace(result, search=self._sourced(result.search))
        if isinstance(result, SearchResult):
            runner_up = result.runner_up and replace(result.runner_up, source=self)
            pages = tuple(replace(hit, source=self) for hit in result.pages)
            return replace(result, pages=pages, runner_up=runner_up)
        return result

    def _finish(self, job: Job, password: str | None, progress: Progress | None) -> Document:
        """Wait for a job, with the password if it needs one, and return the document."""
        job = self._wait(job, progress)
        if job.code == "password" and password is not None:
            job = self._wait(self._send(requests.retry(job.id, password)), progress)
        return self.get(_added(job))

    def _wait(self, job: Job, progress: Progress | None) -> Job:
        while not job.is_finished:
            time.sleep(_SECONDS_PER_POLL)
            job = self._send(requests.job(job.id))
            _report(job, progress)
        return job


class AsyncAnswerStream(AsyncIterator[str]):
    """An answer while it is written: iterate over its pieces, then await `answer`."""

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
        """Return the whole answer; waits for the rest of it."""
        async for _ in self:
            pass
        if self._answer is None:
            raise ServiceError("The server's answer broke off.")
        return self._answer

    async def close(self) -> None:
        """Stop the generator."""
        await self._events.aclose()


class AsyncClient(_Connection):
    """The same as `Client`, for programs with an event loop: every method is awaited."""

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = SECONDS_PER_ANSWER
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

    get = _awaited(requests.get)
    remove = _awaited(requests.remove)
    unlock = _awaited(requests.unlock)
    collections = _awaited(requests.collections)
    collect = _awaited(requests.collect)
    uncollect = _awaited(requests.uncollect)
    jobs = _awaited(requests.jobs)
    explain = _awaited(requests.explain)
    patches = _awaited(requests.patches)
    pairs = _awaited(requests.pairs)
    page = _awaited(requests.page)
    image = _awaited(requests.image)
    search = _awaited(requests.search)
    ask = _awaited(requests.ask)

    async def documents(
        self, *, where: str | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return documents in the order they were added: all, or those that match."""
        found: list[Document] = []
        while len(found) % requests.PAGE_SIZE == 0:
            part = await self._send(requests.documents(where, collection, len(found)))
            if not part:
                break
            found += part
        return found

    async def add(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Progress | None = None,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
    ) -> Document:
        """Upload a file, wait until it is in the index, and return the document."""
        password = requests.password(options)
        uploaded = await self._send(requests.upload(path, name, encoder, metadata, collection))
        job = await self._wait(uploaded, progress)
        if job.code == "password" and password is not None:
            job = await self._wait(await self._send(requests.retry(job.id, password)), progress)
        return await self.get(_added(job))

    async def add_all(self, paths: Iterable[str | os.PathLike[str]], **options: Any) -> Additions:
        """Upload files one after the other; the options are those of `add`."""
        results: list[Document | Refusal] = []
        for path in map(str, paths):
            try:
                results.append(await self.add(path, **options))
            except DocumentError as error:
                results.append(Refusal(path, str(error)))
        return _additions(results)

    async def stream(self, question: str, **options: Unpack[AskOptions]) -> AsyncAnswerStream:
        """Answer a question piece by piece; the options are those of `ask`."""
        events = self._events(requests.query_body(question, options))
        search = await anext(events)
        assert isinstance(search, SearchResult)  # noqa: S101 - every answer begins with it
        return AsyncAnswerStream(search, events)

    async def _events(self, body: Any) -> AsyncGenerator[requests.Event, None]:
        import httpx2

        with self._reached():
            async with self._http.stream("POST", "/ask/stream", json=body) as response:
                if not response.is_success:
                    await response.aread()
                self._check(response)
                async for event in httpx2.EventSource(response, max_event_size=None):
                    yield requests.event(event.event, event.json())

    async def _send(self, call: requests.Call[T]) -> T:
        content = None if call.upload is None else _read_in_threads(call.upload)
        with self._reached():
            response = await self._http.request(
                call.method, call.path, content=content, **call.options()
            )
        self._check(response)
        return call.read(response)

    async def _wait(self, job: Job, progress: Progress | None) -> Job:
        while not job.is_finished:
            await asyncio.sleep(_SECONDS_PER_POLL)
            job = await self._send(requests.job(job.id))
            _report(job, progress)
        return job
