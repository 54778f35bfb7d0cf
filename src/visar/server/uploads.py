"""Routes that take files: one as the body of a request, or several as a tar stream.

A file is written to disk while it arrives, and its job is on disk before the response is sent.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import anyio
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from starlette.requests import ClientDisconnect

from visar.errors import InvalidOption, VisarError
from visar.results import Job
from visar.samples import REPORT
from visar.serialization import Result
from visar.server.context import Context, Library, State
from visar.server.schemas import CollectionName, as_json
from visar.server.view import LibraryView
from visar.serving import refusal
from visar.store.filters import parse_metadata
from visar.text import clean_line

_MAX_NAME_LENGTH = 200
MAX_FILES = 1_000
"""Maximum number of files in a request."""
_CHUNK = 1 << 18
# Maximum size of a file's header, with a name that needs an extended header.
_MAX_HEADER_SIZE = 2 * _CHUNK
Name = Annotated[str, Query(min_length=1, max_length=1_000, description="Name of the file.")]
Collection = Annotated[
    CollectionName | None, Query(description="Collection to add the documents to.")
]
Metadata = Annotated[
    str | None,
    Query(
        max_length=10_000,
        description="JSON object of strings, numbers, booleans or nulls, usable in `where`.",
        examples=['{"year": 2024, "kind": "report"}'],
    ),
]
Submit: TypeAlias = Callable[[Path, int, str], Job]
"""Function that queues an upload, given its path, size and name."""


@dataclass(frozen=True, slots=True)
class BatchUpload(Result):
    """The result for one file of a batch: a job or a problem."""

    name: str
    job: Job | None = None
    problem: Mapping[str, Any] | None = None
    """Error in the format of RFC 9457."""


def _body(kind: str) -> dict[str, Any]:
    """Return the OpenAPI description of a body of bytes."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


routes = APIRouter(tags=["documents"])


async def _submission(
    library: Library,
    context: State,
    request: Request,
    encoder: str | None = None,
    collection: Collection = None,
    metadata: Metadata = None,
) -> Submit:
    """Return a function that queues an upload with these options."""
    context.encoder(encoder)
    into = library.collection_for(collection)
    size = int(request.headers.get("content-length", 0))
    await asyncio.to_thread(context.check_disk, size)
    values, limit = _read_metadata(metadata), context.settings.options.limits.max_bytes

    def submit(upload: Path, size: int, name: str) -> Job:
        if not size:
            raise _FileError(422, "empty", "The file is empty.")
        if size > limit:
            raise _FileError(413, "too_large", f"The file has more than {limit} bytes.")
        chosen = encoder or next(iter(context.settings.encoders))
        return library.submit(
            upload, _display_name(name), encoder=chosen, collection=into, metadata=values
        )

    return submit


Submission = Annotated[Submit, Depends(_submission)]


@routes.post(
    "/documents",
    status_code=202,
    response_model=Job,
    openapi_extra=_body("application/octet-stream"),
)
async def upload(library: Library, request: Request, name: Name, submit: Submission) -> Response:
    """Upload a file as the request body. Returns the job that adds it."""
    with library.upload() as path:
        size = 0
        with path.open("wb") as file:
            async for part in request.stream():
                size += len(part)
                await asyncio.to_thread(file.write, part)
            await asyncio.to_thread(_sync, file)
        if await request.is_disconnected():  # the upload was cancelled
            raise ClientDisconnect
        job = await asyncio.to_thread(submit, path, size, name)
    return _accepted(request, job)


@routes.post("/documents/sample", status_code=202, response_model=Job)
def add_sample(library: Library, request: Request, submit: Submission) -> Response:
    """Add the sample report, to try ViSAR with. Returns the job that does so."""
    with library.upload() as path:
        shutil.copyfile(REPORT, path)
        return _accepted(request, submit(path, path.stat().st_size, REPORT.name))


@routes.post(
    "/documents/batch",
    status_code=202,
    response_model=list[BatchUpload],
    openapi_extra=_body("application/x-tar"),
)
async def upload_several(
    library: Library, context: State, request: Request, submit: Submission
) -> Response:
    """Upload several files as a tar stream. A file that is refused doesn't stop the others.

    Returns a job or a problem for each file, in the order of the stream. Files in folders are
    included; links, and names that start with a dot, are skipped.
    """
    run, body = anyio.to_thread.run_sync, _Body(request.stream())
    return as_json(
        await run(_add_all, context, library, body, submit, limiter=context.batches), 202
    )


def _accepted(request: Request, job: Job) -> Response:
    prefix = request.url.path.partition("/documents")[0]
    return as_json(job, 202, {"Location": f"{prefix}/jobs/{job.id}"})


def _add_all(
    context: Context, library: LibraryView, body: _Body, submit: Submit
) -> list[BatchUpload]:
    """Queue the files of a tar stream, in a thread that waits for its parts."""
    results: list[BatchUpload] = []
    name, members = "", 0
    try:
        with tarfile.open(fileobj=body, mode="r|", bufsize=_CHUNK) as archive:
            while (member := _next(archive, body)) is not None:
                members += 1
                if members > MAX_FILES:
                    message = (
                        f"A request can have at most {MAX_FILES} files. Send several requests."
                    )
                    raise refusal(413, "too_many", message)
                name = _display_name(member.name)
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if name.startswith("."):
                    _skip(content)
                    continue
                results.append(_add(context, library, content, name, submit))
    except tarfile.TarError as error:
        message = "The request body isn't a tar stream, or is incomplete."
        file_error = _FileError(422, "invalid", message)
        if not results:
            raise file_error from error
        results.append(BatchUpload(name, problem=_problem(file_error, context)))
    if not results:
        raise refusal(422, "empty", "The tar stream contains no files.")
    return results


def _next(archive: tarfile.TarFile, body: _Body) -> tarfile.TarInfo | None:
    """Return the next member; its header is limited in size, since tarfile reads it into memory."""
    body.bytes_left = _MAX_HEADER_SIZE
    try:
        return archive.next()
    finally:
        body.bytes_left = None


def _add(
    context: Context, library: LibraryView, content: IO[bytes], name: str, submit: Submit
) -> BatchUpload:
    limit = context.settings.options.limits.max_bytes
    try:
        with library.upload() as path:
            size = 0
            with path.open("wb") as file:
                while size <= limit and (part := content.read(_CHUNK)):
                    size += len(part)
                    file.write(part)
                _sync(file)
            return BatchUpload(name, submit(path, size, name))
    except (VisarError, _FileError) as error:
        _skip(content)
        return BatchUpload(name, problem=_problem(error, context))


def _read_metadata(text: str | None) -> dict[str, Any]:
    """Parse metadata from a query parameter; raises InvalidOption if they aren't valid."""
    invalid = InvalidOption(
        "metadata must be a JSON object of strings, numbers, booleans or nulls, such as "
        f'{{"year": 2024}}, not {text!r:.100}.'
    )
    try:
        values = json.loads(text or "{}")
        # JSON can contain surrogates, which can't be encoded.
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid from error
    if not isinstance(values, dict) or any(isinstance(one, dict | list) for one in values.values()):
        raise invalid
    if parse_metadata(f"{name}=" for name in values).keys() != values.keys():
        raise invalid
    return values


def _display_name(name: str) -> str:
    """Return the last part of a file's path, without control characters."""
    return clean_line(name.replace("\\", "/").rpartition("/")[2], _MAX_NAME_LENGTH) or "document"


def _skip(content: IO[bytes]) -> None:
    while content.read(_CHUNK):
        pass


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _problem(error: Exception, context: Context) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(context.problem(error).body))
    return content


class _FileError(HTTPException):
    """An error of one file, which doesn't stop the others."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, {"code": code, "message": message})


class _Body(io.RawIOBase):
    """A request body as a file, to read from another thread than that of the event loop."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self.bytes_left: int | None = _MAX_HEADER_SIZE
        """Maximum number of bytes to read from now on; None for no limit."""

    def read(self, size: int = -1) -> bytes:  # noqa: ARG002 - tarfile buffers what it doesn't need
        """Wait for the next part and return it; returns b"" at the end."""
        part = anyio.from_thread.run(self._receive)
        if self.bytes_left is not None:
            self.bytes_left -= len(part)
            if self.bytes_left < 0:
                message = f"The tar header of a file has more than {_MAX_HEADER_SIZE} bytes."
                raise refusal(422, "invalid", message)
        return part

    async def _receive(self) -> bytes:
        async for part in self._parts:
            if part:
                return part
        return b""
