"""Clients of a ViSAR server: one for programs that wait, one for those that do not.

Results are what the API answers, as plain values; ``/api/v1/openapi.json`` describes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import quote

from visar._version import __version__
from visar.errors import DocumentError, ServiceError
from visar.network import TOKEN_VARIABLE, parse_address
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

Values: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[str, Any]
"""The name of a server-sent event, and its data."""
OnJob: TypeAlias = Callable[[Values], None]
SECONDS_PER_ANSWER = 900.0
_CHUNK = 1 << 20
_SECONDS_PER_LOOK = 0.3
_FINISHED = ("done", "failed", "cancelled")


class _Requests:
    """The requests of the API, and what its answers mean; how they are sent is another matter."""

    def __init__(self, address: str, token: str | None, timeout: float) -> None:
        import httpx2

        parse_address(address)
        self.address = address.rstrip("/")
        token = token or os.environ.get(TOKEN_VARIABLE)
        self._options: Values = {
            "base_url": f"{self.address}/api/v1",
            "headers": {"User-Agent": f"visar/{__version__}"}
            | ({"Authorization": f"Bearer {token}"} if token else {}),
            "timeout": httpx2.Timeout(timeout, connect=10.0),
            # What is sent goes to the address given.
            "trust_env": False,
        }

    def _checked(self, response: httpx2.Response) -> httpx2.Response:
        """Raise what an answer that is an error says."""
        if response.is_success:
            return response
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

    @staticmethod
    def _upload(path: Path, name: str | None, options: Values) -> Values:
        given = {key: value for key, value in options.items() if value is not None}
        return {
            "params": {"name": name or path.name, **given},
            "headers": {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(path.stat().st_size),
            },
        }

    @staticmethod
    def _document(job: Values) -> str:
        if job["state"] != "done":
            reason = job["reason"] or "it was cancelled"
            raise DocumentError(job["name"], f"was not added: {reason.rstrip('.')}")
        return str(job["document"])


class Client(_Requests):
    """Asks a server, and waits for each answer. Safe for threads.

    Parameters
    ----------
    address
        Such as ``http://127.0.0.1:8765``.
    token
        The server's; by default ``VISAR_TOKEN`` of the environment.
    timeout
        Seconds to wait for an answer.

    All methods raise :class:`~visar.errors.ServiceError` with what the server says is wrong.
    """

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = SECONDS_PER_ANSWER
    ) -> None:
        import httpx2

        super().__init__(address, token, timeout)
        self._http = httpx2.Client(**self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _request(self, method: str, path: str, **options: Any) -> Any:
        import httpx2

        try:
            response = self._http.request(method, path, **options)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        content = self._checked(response)
        is_json = content.headers.get("content-type", "").endswith("json")
        return content.json() if is_json else content.content

    def ask(self, question: str, **options: Any) -> Values:
        """Answer a question; options are those of ``POST /ask``, such as documents and max_k."""
        answer: Values = self._request("POST", "/ask", json={"question": question, **options})
        return answer

    def stream(self, question: str, **options: Any) -> Iterator[Event]:
        """Yield the events of an answer: ``search``, ``text`` again and again, ``answer``."""
        import httpx2

        body = {"question": question, **options}
        try:
            with self._http.stream("POST", "/ask/stream", json=body) as response:
                if not response.is_success:
                    response.read()
                self._checked(response)
                events = _Events()
                for line in response.iter_lines():
                    yield from events.take(line)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def search(self, question: str, **options: Any) -> Values:
        """Find the pages a question needs."""
        found: Values = self._request("POST", "/search", json={"question": question, **options})
        return found

    def add(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        collection: str | None = None,
        encoder: str | None = None,
        on_job: OnJob | None = None,
    ) -> Values:
        """Upload a file, wait until it is in the index, and return the document.

        Raises
        ------
        DocumentError
            If the server cannot read it.
        """
        path = Path(path)
        options = self._upload(path, name, {"collection": collection, "encoder": encoder})
        with closing(_chunks(path)) as content:
            job = self._request("POST", "/documents", content=content, **options)
        while job["state"] not in _FINISHED:
            time.sleep(_SECONDS_PER_LOOK)
            job = self._request("GET", f"/jobs/{job['id']}")
            if on_job is not None:
                on_job(job)
        return self.document(self._document(job))

    def documents(self, collection: str | None = None) -> list[Values]:
        """All documents, or those of a collection, in the order they were added."""
        found: list[Values] = []
        chosen = {"collection": collection} if collection is not None else {}
        while True:
            params = {**chosen, "offset": len(found), "limit": 1000}
            part = self._request("GET", "/documents", params=params)
            found += part
            if len(part) < 1000:
                return found

    def document(self, document: str) -> Values:
        """A document by its id or name."""
        found: Values = self._request("GET", f"/documents/{quote(document, safe='')}")
        return found

    def remove(self, document: str) -> Values:
        """Remove a document from the index."""
        removed: Values = self._request("DELETE", f"/documents/{quote(document, safe='')}")
        return removed

    def page(self, document: str, page: int) -> Values:
        """A page with its words."""
        path = f"/documents/{quote(document, safe='')}/pages/{page}"
        found: Values = self._request("GET", path)
        return found

    def image(self, document: str, page: int, dpi: float = 144) -> bytes:
        """A page as PNG."""
        path = f"/documents/{quote(document, safe='')}/pages/{page}/image"
        picture: bytes = self._request("GET", path, params={"dpi": dpi})
        return picture


class AsyncClient(_Requests):
    """The same as :class:`Client` for programs with an event loop."""

    def __init__(
        self, address: str, *, token: str | None = None, timeout: float = SECONDS_PER_ANSWER
    ) -> None:
        import httpx2

        super().__init__(address, token, timeout)
        self._http = httpx2.AsyncClient(**self._options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _request(self, method: str, path: str, **options: Any) -> Any:
        import httpx2

        try:
            response = await self._http.request(method, path, **options)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        return self._checked(response).json()

    async def ask(self, question: str, **options: Any) -> Values:
        """Answer a question."""
        body = {"question": question, **options}
        answer: Values = await self._request("POST", "/ask", json=body)
        return answer

    async def stream(self, question: str, **options: Any) -> AsyncIterator[Event]:
        """Yield the events of an answer: ``search``, ``text`` again and again, ``answer``."""
        import httpx2

        body = {"question": question, **options}
        try:
            async with self._http.stream("POST", "/ask/stream", json=body) as response:
                if not response.is_success:
                    await response.aread()
                self._checked(response)
                events = _Events()
                async for line in response.aiter_lines():
                    for event in events.take(line):
                        yield event
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def search(self, question: str, **options: Any) -> Values:
        """Find the pages a question needs."""
        body = {"question": question, **options}
        found: Values = await self._request("POST", "/search", json=body)
        return found

    async def add(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        collection: str | None = None,
        encoder: str | None = None,
    ) -> Values:
        """Upload a file, wait until it is in the index, and return the document."""
        path = Path(path)
        options = self._upload(path, name, {"collection": collection, "encoder": encoder})
        job = await self._request("POST", "/documents", content=_async_chunks(path), **options)
        while job["state"] not in _FINISHED:
            await asyncio.sleep(_SECONDS_PER_LOOK)
            job = await self._request("GET", f"/jobs/{job['id']}")
        document: Values = await self._request("GET", f"/documents/{self._document(job)}")
        return document

    async def documents(self, collection: str | None = None) -> list[Values]:
        """The first thousand documents, or those of a collection."""
        chosen = {"collection": collection} if collection is not None else {}
        params = {**chosen, "limit": 1000}
        found: list[Values] = await self._request("GET", "/documents", params=params)
        return found


class _Events:
    """Puts lines of server-sent events together. Raises ServiceError for a problem."""

    def __init__(self) -> None:
        self._name = ""

    def take(self, line: str) -> Iterator[Event]:
        field, _, value = line.partition(": ")
        if field == "event":
            self._name = value
        elif field == "data":
            data = json.loads(value)
            if self._name == "problem":
                raise ServiceError(str(data["detail"]))
            yield self._name, data


def _chunks(path: Path) -> Generator[bytes, None, None]:
    with path.open("rb") as file:
        while part := file.read(_CHUNK):
            yield part


async def _async_chunks(path: Path) -> AsyncIterable[bytes]:
    with closing(_chunks(path)) as chunks:
        while part := await asyncio.to_thread(next, chunks, b""):
            yield part
