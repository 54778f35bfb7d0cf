"""Routes that take files: one as the body of a request, or several as a tar stream.

A file is written to disk while it arrives, and its job is on disk before the response is sent.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

from visar.errors import InvalidOption, VisarError
from visar.results import Job
from visar.serialization import Result
from visar.server.context import Context
from visar.server.responses import as_json
from visar.serving import refusal
from visar.store.filters import parse_metadata
from visar.text import clean_line

# After visar.serving, which says what to install if they are missing.
import anyio  # isort: skip
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response  # isort: skip
from starlette.requests import ClientDisconnect  # isort: skip

LONGEST_NAME = 200
MAX_FILES = 1_000
"""Maximum number of files in a request."""
MAX_BATCHES = 8
"""Maximum number of batches that are read at the same time; others wait."""
_CHUNK = 1 << 18
# What may stand before a file: its header, and the names that do not fit into it.
_LONGEST_HEADER = 2 * _CHUNK
Name = Annotated[str, Query(min_length=1, max_length=1_000, description="Name of the file.")]
Collection = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="Collection to put documents into.")
]
Metadata = Annotated[
    str | None,
    Query(
        max_length=10_000,
        description="JSON object of texts, numbers, true, false or null, usable in `where`.",
        examples=['{"year": 2024, "kind": "report"}'],
    ),
]
# Queues an upload of some size under a name.
Submit: TypeAlias = Callable[[Path, int, str], Job]


@dataclass(frozen=True, slots=True)
class Uploaded(Result):
    """The outcome for one file of several: a job, or a problem."""

    name: str
    job: Job | None = None
    problem: Mapping[str, Any] | None = None
    """As in the body of an error: RFC 9457."""


def router(context: Context) -> APIRouter:
    """Return the routes, on the jobs of an index."""
    routes = APIRouter(tags=["documents"])
    # Slow networks keep them waiting: they may not take those that answer questions.
    threads = anyio.CapacityLimiter(MAX_BATCHES)

    async def submission(
        encoder: str | None = None, collection: Collection = None, metadata: Metadata = None
    ) -> Submit:
        """Return a function that queues an upload with these options."""
        context.encoder(encoder)
        given, limit = _read_metadata(metadata), context.settings.options.limits.max_bytes

        def submit(upload: Path, size: int, name: str) -> Job:
            if not size:
                raise _FileRefused(422, "empty", "The file is empty.")
            if size > limit:
                raise _FileRefused(413, "too_large", f"The file has more than {limit} bytes.")
            chosen = encoder or next(iter(context.settings.encoders))
            return context.jobs.submit(
                upload, _shown(name), encoder=chosen, collection=collection or None, metadata=given
            )

        return submit

    options = Depends(submission)

    @routes.post(
        "/documents",
        status_code=202,
        response_model=Job,
        openapi_extra=_body("application/octet-stream"),
    )
    async def upload(request: Request, name: Name, submit: Submit = options) -> Response:
        """Upload a file as the body, and add it. Returns the job that does so."""
        with context.jobs.upload() as path:
            size = 0
            with path.open("wb") as file:
                async for part in request.stream():
                    size += len(part)
                    await asyncio.to_thread(file.write, part)
                await asyncio.to_thread(_sync, file)
            if await request.is_disconnected():  # cancelled, and nobody waits for the job
                raise ClientDisconnect
            job = await asyncio.to_thread(submit, path, size, name)
        location = f"{request.url.path.rpartition('/')[0]}/jobs/{job.id}"
        return as_json(job, 202, {"Location": location})

    @routes.post(
        "/documents/batch",
        status_code=202,
        response_model=list[Uploaded],
        openapi_extra=_body("application/x-tar"),
    )
    async def upload_several(request: Request, submit: Submit = options) -> Response:
        """Upload files as a tar stream, and add them. One that is refused does not stop the others.

        Returns a job or a problem for each, in the order of the stream. Files in folders are taken
        too; links, and names that begin with a dot, are left out.
        """
        run, body = anyio.to_thread.run_sync, _Body(request.stream())
        return as_json(await run(_take_all, context, body, submit, limiter=threads), 202)

    return routes


def _take_all(context: Context, body: _Body, submit: Submit) -> list[Uploaded]:
    """Take the files of a tar stream, in a thread that waits for its parts."""
    taken: list[Uploaded] = []
    name, members = "", 0
    try:
        with tarfile.open(fileobj=body, mode="r|", bufsize=_CHUNK) as archive:
            while (member := _next(archive, body)) is not None:
                members += 1
                if members > MAX_FILES:
                    raise refusal(413, "too_many", f"More than {MAX_FILES} files in a request.")
                name = _shown(member.name)
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if name.startswith("."):
                    _drop(content)
                    continue
                taken.append(_take(context, content, name, submit))
    except tarfile.TarError as error:
        broken = _FileRefused(422, "invalid", "The body isn't a tar stream, or it breaks off.")
        if not taken:
            raise broken from error
        taken.append(Uploaded(name, problem=_problem(broken, context)))
    if not taken:
        raise refusal(422, "empty", "The tar stream contains no files.")
    return taken


def _next(archive: tarfile.TarFile, body: _Body) -> tarfile.TarInfo | None:
    """Return the next member; headers are read into memory, and so may not be long."""
    body.left = _LONGEST_HEADER
    try:
        return archive.next()
    finally:
        body.left = None


def _take(context: Context, content: IO[bytes], name: str, submit: Submit) -> Uploaded:
    limit = context.settings.options.limits.max_bytes
    try:
        with context.jobs.upload() as path:
            size = 0
            with path.open("wb") as file:
                while size <= limit and (part := content.read(_CHUNK)):
                    size += len(part)
                    file.write(part)
                _sync(file)
            return Uploaded(name, submit(path, size, name))
    except (VisarError, _FileRefused) as error:
        _drop(content)
        return Uploaded(name, problem=_problem(error, context))


def _read_metadata(text: str | None) -> dict[str, Any]:
    """Read metadata from a query parameter; raises InvalidOption if they are wrong."""
    wrong = InvalidOption(
        "metadata must be a JSON object of texts, numbers, true, false or null, such as "
        f'{{"year": 2024}}, not {text!r:.100}.'
    )
    try:
        given = json.loads(text or "{}")
        # JSON can name characters that no text can hold.
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise wrong from error
    if not isinstance(given, dict) or any(isinstance(one, dict | list) for one in given.values()):
        raise wrong
    if parse_metadata(f"{name}=" for name in given).keys() != given.keys():
        raise wrong
    return given


def _shown(name: str) -> str:
    """Return the last part of the name of a file, without control characters."""
    return clean_line(name.replace("\\", "/").rpartition("/")[2], LONGEST_NAME) or "document"


def _drop(content: IO[bytes]) -> None:
    while content.read(_CHUNK):
        pass


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _problem(error: Exception, context: Context) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(bytes(context.problem(error).body))
    return said


def _body(kind: str) -> dict[str, Any]:
    """Return how OpenAPI describes a body that is a stream of bytes."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


class _FileRefused(HTTPException):
    """A problem with one file, whatever becomes of the others."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, {"code": code, "message": message})


class _Body(io.RawIOBase):
    """The body of a request as a file, for threads of the event loop that receives it."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self.left: int | None = _LONGEST_HEADER
        """Number of bytes that may be read before this is set again; None for any number."""

    def read(self, size: int = -1) -> bytes:  # noqa: ARG002 - tarfile keeps what it does not need
        """Read the next part, as it arrives; empty at the end."""
        part = anyio.from_thread.run(self._receive)
        if self.left is not None:
            self.left -= len(part)
            if self.left < 0:
                raise refusal(422, "invalid", "The header of a file is too long.")
        return part

    async def _receive(self) -> bytes:
        async for part in self._parts:
            if part:
                return part
        return b""
