"""The requests of the API, for programs that wait and for those that do not.

Each is written once, as a coroutine over `_Api._send` and `_Api._pause`. Where these block, a
coroutine never waits, and `Client` runs it to its end in one step.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tarfile
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar
from urllib.parse import quote

from visar._version import __version__
from visar.client.results import (
    Additions,
    Answer,
    Document,
    Event,
    Job,
    Search,
    read_answer,
    read_document,
    read_event,
    read_job,
    read_page,
    read_search,
)
from visar.errors import DocumentError, ServiceError
from visar.network import TOKEN_VARIABLE, parse_address
from visar.results import Refusal
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

    from visar.documents.page import Page

OnJob: TypeAlias = Callable[[Job], None]
AnyPath: TypeAlias = str | os.PathLike[str]
Chunks: TypeAlias = Generator[bytes, None, None]
P = ParamSpec("P")
T = TypeVar("T")
SECONDS_PER_ANSWER = 900.0
_CHUNK = 1 << 20
_SECONDS_PER_LOOK = 0.3
# How many documents one request lists.
_PART = 1000


class _Batch:
    """Files that are sent in one request, and what becomes of each."""

    def __init__(self, paths: Iterable[AnyPath]) -> None:
        self.refused: list[Refusal] = []
        self._paths: list[Path] = []
        for path in map(Path, paths):
            if path.is_file():
                self._paths.append(path)
            else:
                self.refused.append(Refusal(str(path), f"{path} is no file."))
        self._jobs: list[tuple[Path, Job]] = []

    def __bool__(self) -> bool:
        return bool(self._paths)

    def chunks(self) -> Chunks:
        """The files as a tar stream; the stream ends early if one becomes shorter meanwhile."""
        for path in self._paths:
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            yield member.tobuf(tarfile.PAX_FORMAT)
            yield from _chunks(path)
            if padding := bytes(-member.size % tarfile.BLOCKSIZE):
                yield padding
        yield bytes(2 * tarfile.BLOCKSIZE)

    def take(self, answers: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Note what the server says of each file; returns the jobs."""
        # Names that begin with a dot are not answered.
        sent = [path for path in self._paths if not path.name.startswith(".")]
        for path, answer in zip(sent, answers, strict=False):
            if answer["job"] is None:
                self.refused.append(Refusal(str(path), answer["problem"]["detail"]))
            else:
                self._jobs.append((path, read_job(answer["job"])))
        return [job for _, job in self._jobs]

    def result(self, ended: Sequence[Job], documents: Sequence[Document]) -> Additions:
        """The result, given how the jobs ended and the documents of those that ended well."""
        for (path, _), job in zip(self._jobs, ended, strict=True):
            if job.state != "done":
                self.refused.append(Refusal(str(path), job.reason or "It was cancelled."))
        return Additions(tuple(documents), tuple(self.refused))


class _Api(ABC):
    """The requests of the API, and what its answers mean; subclasses send them."""

    def __init__(self, address: str, *, token: str | None, timeout: float) -> None:
        import httpx2

        parse_address(address)
        self.address = address.rstrip("/")
        token = token or os.environ.get(TOKEN_VARIABLE)
        self._options: dict[str, Any] = {
            "base_url": f"{self.address}/api/v1",
            "headers": {"User-Agent": f"visar/{__version__}"}
            | ({"Authorization": f"Bearer {token}"} if token else {}),
            "timeout": httpx2.Timeout(timeout, connect=10.0),
            # What is sent goes to the address given.
            "trust_env": False,
        }

    @abstractmethod
    async def _send(
        self, method: str, path: str, content: Chunks | None, **options: Any
    ) -> httpx2.Response:
        """Send a request and return the answer."""

    @abstractmethod
    async def _pause(self) -> None:
        """Wait before the next look at a job."""

    async def ask(self, /, question: str, **options: Any) -> Answer:
        """Answer a question; options are those of ``POST /ask``, such as documents and max_k."""
        body = {"question": question, **options}
        return read_answer(await self._request("POST", "/ask", json=body))

    async def search(self, /, question: str, **options: Any) -> Search:
        """Find the pages a question needs."""
        body = {"question": question, **options}
        return read_search(await self._request("POST", "/search", json=body))

    async def add(
        self,
        path: AnyPath,
        *,
        name: str | None = None,
        collection: str | None = None,
        encoder: str | None = None,
        on_job: OnJob | None = None,
    ) -> Document:
        """Upload a file, wait until it is in the index, and return the document.

        Raises
        ------
        DocumentError
            If the server cannot read it.
        """
        path = Path(path)
        answer = await self._request(
            "POST",
            "/documents",
            content=_chunks(path),
            params=_given(
                {"name": name or path.name, "collection": collection, "encoder": encoder}
            ),
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(path.stat().st_size),
            },
        )
        job = await self._ended(read_job(answer), on_job)
        if job.state != "done":
            reason = job.reason or "it was cancelled"
            raise DocumentError(job.name, f"was not added: {reason.rstrip('.')}")
        return await self.document(str(job.document))

    async def add_all(
        self,
        paths: Iterable[AnyPath],
        *,
        collection: str | None = None,
        encoder: str | None = None,
        on_job: OnJob | None = None,
    ) -> Additions:
        """Upload files in one request, and wait until they are in the index.

        One that is refused does not stop the others: the result names it with the reason.
        """
        batch = _Batch(paths)
        if not batch:
            return batch.result([], [])
        answers = await self._request(
            "POST",
            "/documents/batch",
            content=batch.chunks(),
            params=_given({"collection": collection, "encoder": encoder}),
            headers={"Content-Type": "application/x-tar"},
        )
        ended = [await self._ended(job, on_job) for job in batch.take(answers)]
        added = [await self.document(str(job.document)) for job in ended if job.state == "done"]
        return batch.result(ended, added)

    async def documents(self, collection: str | None = None) -> list[Document]:
        """All documents, or those of a collection, in the order they were added."""
        found: list[Document] = []
        while True:
            params = _given({"collection": collection}) | {"offset": len(found), "limit": _PART}
            part = await self._request("GET", "/documents", params=params)
            found += map(read_document, part)
            if len(part) < _PART:
                return found

    async def document(self, document: str) -> Document:
        """A document by its id or name."""
        return read_document(await self._request("GET", _place(document)))

    async def remove(self, document: str) -> Document:
        """Remove a document from the index."""
        return read_document(await self._request("DELETE", _place(document)))

    async def unlock(self, document: str, password: str) -> None:
        """Give the password of an encrypted document, which the server forgets when it ends."""
        await self._request("POST", f"{_place(document)}/unlock", json={"password": password})

    async def page(self, document: str, page: int) -> Page:
        """A page with its words."""
        return read_page(await self._request("GET", f"{_place(document)}/pages/{page}"))

    async def image(self, document: str, page: int, dpi: float = 144) -> bytes:
        """A page as PNG."""
        path = f"{_place(document)}/pages/{page}/image"
        picture: bytes = await self._request("GET", path, params={"dpi": dpi})
        return picture

    async def _request(
        self, method: str, path: str, *, content: Chunks | None = None, **options: Any
    ) -> Any:
        """The values or bytes of an answer, or None if it has none."""
        import httpx2

        with nullcontext() if content is None else closing(content):
            try:
                response = await self._send(method, path, content, **options)
            except httpx2.TransportError as error:
                raise self._unreachable(error) from error
        self._check(response)
        is_json = response.headers.get("content-type", "").endswith("json")
        return response.json() if is_json and response.content else response.content or None

    async def _ended(self, job: Job, on_job: OnJob | None) -> Job:
        while not job.is_finished:
            await self._pause()
            job = read_job(await self._request("GET", f"/jobs/{job.id}"))
            if on_job is not None:
                on_job(job)
        return job

    def _check(self, response: httpx2.Response) -> None:
        """Raise what an answer that is an error says."""
        if response.is_success:
            return
        try:
            said = response.json()
            reason = clean_line(str(said["detail"]), 500)
        except (ValueError, TypeError, KeyError):
            reason = f"answers {response.status_code}. Does visar serve run there?"
        raise ServiceError(f"The server at {self.address}: {reason}")

    def _unreachable(self, error: Exception) -> ServiceError:
        return ServiceError(
            f"No server answers at {self.address} ({clean_line(str(error), 200)}): is "
            "visar serve running there?"
        )


class AsyncClient(_Api):
    """The same as `Client` for programs with an event loop."""

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = SECONDS_PER_ANSWER
    ) -> None:
        import httpx2

        super().__init__(address, token=token, timeout=timeout)
        self._http = httpx2.AsyncClient(**self._options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def stream(self, question: str, **options: Any) -> AsyncIterator[Event]:
        """Yield the parts of an answer: a Search, pieces of text, and the whole Answer."""
        import httpx2

        body = {"question": question, **options}
        try:
            async with self._http.stream("POST", "/ask/stream", json=body) as response:
                if not response.is_success:
                    await response.aread()
                self._check(response)
                async for event in httpx2.EventSource(response, max_event_size=None):
                    yield read_event(event.event, event.json())
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def _send(
        self, method: str, path: str, content: Chunks | None, **options: Any
    ) -> httpx2.Response:
        body = None if content is None else _read_in_threads(content)
        return await self._http.request(method, path, content=body, **options)

    async def _pause(self) -> None:
        await asyncio.sleep(_SECONDS_PER_LOOK)


class _BlockingApi(_Api):
    """Requests that block, so that what awaits them never waits."""

    def __init__(self, address: str, *, token: str | None, timeout: float) -> None:
        import httpx2

        super().__init__(address, token=token, timeout=timeout)
        self.http = httpx2.Client(**self._options)

    def stream(self, question: str, **options: Any) -> Iterator[Event]:
        import httpx2

        body = {"question": question, **options}
        try:
            with self.http.stream("POST", "/ask/stream", json=body) as response:
                if not response.is_success:
                    response.read()
                self._check(response)
                for event in httpx2.EventSource(response, max_event_size=None):
                    yield read_event(event.event, event.json())
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def _send(
        self, method: str, path: str, content: Chunks | None, **options: Any
    ) -> httpx2.Response:
        return self.http.request(method, path, content=content, **options)

    async def _pause(self) -> None:
        time.sleep(_SECONDS_PER_LOOK)


def _waiting(
    method: Callable[Concatenate[_Api, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of `Client` that does what this one does, and returns its result."""

    @functools.wraps(method)
    def call(client: Client, /, *args: P.args, **options: P.kwargs) -> T:
        try:
            method(client._api, *args, **options).send(None)  # noqa: SLF001
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError("A request that blocks has waited.")

    return call


class Client:
    """Asks a server, and waits for each answer. Safe for threads.

    Its methods are those of `AsyncClient`, without ``await``. All raise `ServiceError` with what
    the server says is wrong.

    Parameters
    ----------
    address
        Such as ``http://127.0.0.1:8765``.
    token
        The server's; by default ``VISAR_TOKEN`` of the environment.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = SECONDS_PER_ANSWER
    ) -> None:
        self._api = _BlockingApi(address, token=token, timeout=timeout)

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._api.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._api.http.close()

    def stream(self, question: str, **options: Any) -> Iterator[Event]:
        """Yield the parts of an answer: a Search, pieces of text, and the whole Answer."""
        return self._api.stream(question, **options)

    ask = _waiting(_Api.ask)
    search = _waiting(_Api.search)
    add = _waiting(_Api.add)
    add_all = _waiting(_Api.add_all)
    documents = _waiting(_Api.documents)
    document = _waiting(_Api.document)
    remove = _waiting(_Api.remove)
    unlock = _waiting(_Api.unlock)
    page = _waiting(_Api.page)
    image = _waiting(_Api.image)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _place(document: str) -> str:
    return f"/documents/{quote(document, safe='')}"


def _chunks(path: Path) -> Chunks:
    with path.open("rb") as file:
        while part := file.read(_CHUNK):
            yield part


async def _read_in_threads(chunks: Chunks) -> AsyncIterable[bytes]:
    while (part := await asyncio.to_thread(next, chunks, None)) is not None:
        yield part
