"""Routes that take files: one as the body of a request, or several as a tar stream.

A file is written to disk while it arrives, and its job is on disk before the answer is sent.
"""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from typing import IO, Annotated, Any

from visar.errors import VisarError
from visar.results import Job
from visar.server import jobs
from visar.server.context import Context
from visar.server.schemas import Problem, Uploaded
from visar.serving import refusal
from visar.text import clean_line

# After visar.serving, which says what to install if they are missing.
import anyio  # isort: skip
from fastapi import APIRouter, HTTPException, Query, Request, Response  # isort: skip
from starlette.requests import ClientDisconnect  # isort: skip

LONGEST_NAME = 200
MAX_FILES = 1_000
"""Of one request."""
MAX_BATCHES = 8
"""Read at once; others wait."""
_CHUNK = 1 << 18
# What may stand before a file: its header, and the names that do not fit into it.
_LONGEST_HEADER = 2 * _CHUNK
Name = Annotated[str, Query(min_length=1, max_length=1_000, description="Of the file.")]
Collection = Annotated[str | None, Query(max_length=LONGEST_NAME)]


def router(context: Context) -> APIRouter:
    """The routes, on the jobs of an index."""
    routes = APIRouter(tags=["documents"])
    # Slow networks keep them waiting: they may not take those that answer questions.
    threads = anyio.CapacityLimiter(MAX_BATCHES)

    @routes.post("/documents", status_code=202, openapi_extra=_body("application/octet-stream"))
    async def upload(
        request: Request,
        response: Response,
        name: Name,
        collection: Collection = None,
        encoder: str | None = None,
    ) -> Job:
        """Upload a file as the body, and add it. The answer is the job that does so."""
        context.encoder(encoder)
        with context.jobs.upload() as place:
            size = 0
            path = await asyncio.to_thread(place.create)
            with path.open("wb") as file:
                async for part in request.stream():
                    size += len(part)
                    await asyncio.to_thread(file.write, part)
                await asyncio.to_thread(_sync, file)
            if await request.is_disconnected():  # cancelled, and nobody waits for the job
                raise ClientDisconnect
            job = await asyncio.to_thread(_submit, context, place, size, name, encoder, collection)
        response.headers["Location"] = f"{request.url.path.rpartition('/')[0]}/jobs/{job.id}"
        return job

    @routes.post("/documents/batch", status_code=202, openapi_extra=_body("application/x-tar"))
    async def upload_several(
        request: Request, collection: Collection = None, encoder: str | None = None
    ) -> list[Uploaded]:
        """Upload files as a tar stream, and add them. One that is refused stops no other.

        Each is answered by its job, or by what is wrong with it, in the order of the stream. Files
        in folders are taken too; links, and names that begin with a dot, are left out.
        """
        context.encoder(encoder)
        body = _Body(request.stream())
        return await anyio.to_thread.run_sync(
            _take_all, context, body, encoder, collection, limiter=threads
        )

    return routes


def _take_all(
    context: Context, body: _Body, encoder: str | None, collection: str | None
) -> list[Uploaded]:
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
                taken.append(_take(context, content, name, encoder, collection))
    except tarfile.TarError as error:
        broken = _FileRefused(422, "invalid", "The body is no tar stream, or breaks off.")
        if not taken:
            raise broken from error
        taken.append(Uploaded(name=name, problem=_problem(broken, context)))
    if not taken:
        raise refusal(422, "empty", "There is no file in the tar stream.")
    return taken


def _next(archive: tarfile.TarFile, body: _Body) -> tarfile.TarInfo | None:
    """The next member; headers are read into memory, and so may not be long."""
    body.left = _LONGEST_HEADER
    try:
        return archive.next()
    finally:
        body.left = None


def _take(
    context: Context, content: IO[bytes], name: str, encoder: str | None, collection: str | None
) -> Uploaded:
    limit = context.settings.options.limits.max_bytes
    try:
        with context.jobs.upload() as place, place.create().open("wb") as file:
            size = 0
            while size <= limit and (part := content.read(_CHUNK)):
                size += len(part)
                file.write(part)
            _sync(file)
            job = _submit(context, place, size, name, encoder, collection)
        return Uploaded(name=name, job=job)
    except (VisarError, _FileRefused) as error:
        _drop(content)
        return Uploaded(name=name, problem=_problem(error, context))


def _submit(
    context: Context,
    place: jobs.Upload,
    size: int,
    name: str,
    encoder: str | None,
    collection: str | None,
) -> Job:
    if not size:
        raise _FileRefused(422, "empty", "The file is empty.")
    if size > (limit := context.settings.options.limits.max_bytes):
        raise _FileRefused(413, "too_large", f"The file has more than {limit} bytes.")
    chosen = encoder or next(iter(context.settings.encoders))
    return context.jobs.submit(place, _shown(name), encoder=chosen, collection=collection)


def _shown(name: str) -> str:
    """What a file is called here: the last part of its name, without control characters."""
    return clean_line(name.replace("\\", "/").rpartition("/")[2], LONGEST_NAME) or "document"


def _drop(content: IO[bytes]) -> None:
    while content.read(_CHUNK):
        pass


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _problem(error: Exception, context: Context) -> Problem:
    said = context.problem(error).body
    return Problem.model_validate_json(bytes(said))


def _body(kind: str) -> dict[str, Any]:
    """How OpenAPI describes a body that is a stream of bytes."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


class _FileRefused(HTTPException):
    """What is wrong with one file, whatever becomes of the others."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, {"code": code, "message": message})


class _Body(io.RawIOBase):
    """The body of a request as a file, for threads of the event loop that receives it."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self.left: int | None = _LONGEST_HEADER
        """How many bytes may be read before this is set again; None for any number."""

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
