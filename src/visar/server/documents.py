"""Routes for documents, their pages, collections and jobs; `uploads` has those that take files."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import unicodedata
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.convertors import StringConvertor, register_url_convertor

from visar.documents.page import Box, Page, Word
from visar.errors import NotInIndex, StoreError
from visar.results import Collection, Document, Job
from visar.serialization import Result, to_plain
from visar.server.context import Library, State
from visar.server.schemas import CollectionName, Members, NewName, Password, Unlock, as_json
from visar.server.view import LibraryView, access_of
from visar.serving import is_stopping, refusal

THUMBNAIL_DPI = 20
_SECONDS_PER_LOOK = 0.25
_SECONDS_PER_TRY = 1.0
# A page never changes, because the id of its document is a hash of the content.
_FOREVER = "private, max-age=31536000, immutable"
_NO_PASSWORD = Password()
_PNG: dict[str, Any] = {
    "tags": ["pages"],
    "response_class": Response,
    "responses": {200: {"content": {"image/png": {}}}},
}
MAX_PLACED = 2_000
"""Maximum number of matches whose boxes are returned; the others are only counted."""
Dpi = Annotated[float, Query(ge=18, le=300)]


class _NameInPath(StringConvertor):
    """The name of a collection in a path. It may contain slashes."""

    regex = r"(?s:(?!/documents\Z).)+"


register_url_convertor("collection", _NameInPath())


routes = APIRouter()
"""Routes for documents, pages, collections and jobs."""


@dataclass(frozen=True, slots=True)
class PageMatches(Result):
    """The matches of a phrase on one page."""

    page: int
    """Page number, from 1."""
    count: int
    """Number of matches."""
    boxes: tuple[tuple[Box, ...], ...]
    """The boxes of each match, one for each line that it is on. In a document with more than
    2,000 matches, those of the first 2,000."""


def find_phrase(pages: Iterable[Page], phrase: str) -> list[PageMatches]:
    """Return the pages that contain a phrase, in their order."""
    folded = " ".join(_fold(phrase).split())
    found: list[PageMatches] = []
    left = MAX_PLACED
    for page in pages if folded else ():
        # Folding the page is the same as folding each word, since nothing combines with a space.
        text = _fold(" ".join(word.text for word in page.words))
        starts = [found.start() for found in re.finditer(re.escape(folded), text)]
        if not starts:
            continue
        # Start of each word in the text of the page.
        begins = [0, *accumulate(len(_fold(word.text)) + 1 for word in page.words if left)]
        boxes = []
        for start in islice(starts, left):
            first, last = (bisect_right(begins, at) for at in (start, start + len(folded) - 1))
            boxes.append(_boxes(page.words[first - 1 : last]))
        left -= len(boxes)
        found.append(PageMatches(page.number, len(starts), tuple(boxes)))
    return found


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _boxes(words: Sequence[Word]) -> tuple[Box, ...]:
    """Return one box around the words of each line."""
    lines = [[word.box for word in line] for _, line in groupby(words, key=lambda word: word.line)]
    return tuple(
        (
            min(box[0] for box in line),
            min(box[1] for box in line),
            max(box[2] for box in line),
            max(box[3] for box in line),
        )
        for line in lines
    )


@routes.get("/documents", tags=["documents"], response_model=list[Document])
def list_documents(
    library: Library,
    collection: CollectionName | None = None,
    where: str | None = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """List documents in the order they were added."""
    documents = library.documents(collection=collection, where=where)
    return as_json(documents[offset : offset + limit])


@routes.get("/documents/{document}", tags=["documents"], response_model=Document)
def get_document(library: Library, document: str) -> Response:
    """Return a document by its id, a prefix of its id, or its name."""
    return as_json(library.get(document))


@routes.delete("/documents/{document}", tags=["documents"], response_model=Document)
def delete_document(library: Library, document: str) -> Response:
    """Remove a document and everything stored for it."""
    return as_json(library.remove(document))


@routes.post("/documents/{document}/unlock", tags=["documents"], status_code=204)
def unlock(library: Library, document: str, given: Unlock) -> None:
    """Send the password of an encrypted document, so that its pages can be shown.

    It is kept in memory until the server ends.
    """
    library.unlock(document, given.password)


@routes.get("/documents/{document}/original", tags=["documents"], response_class=FileResponse)
def original(library: Library, document: str) -> Response:
    """Return the file as it was uploaded."""
    stored = library.get(document)
    path = library.original(stored.id)
    if path is None or not path.is_file():
        raise NotInIndex(f"The index has no copy of the file {stored.name}.")
    # A PDF is shown, in a sandbox like all responses; anything else is a download.
    with path.open("rb") as file:
        is_pdf = b"%PDF-" in file.read(1024)
    return FileResponse(
        path,
        filename=stored.name,
        media_type="application/pdf" if is_pdf else "application/octet-stream",
        content_disposition_type="inline" if is_pdf else "attachment",
    )


@routes.get("/documents/{document}/find", tags=["pages"], response_model=list[PageMatches])
def find(
    library: Library, document: str, q: Annotated[str, Query(min_length=1, max_length=200)]
) -> Response:
    """Find words or a phrase in a document: the pages that contain it, and where.

    Upper and lower case are the same, and so are line breaks and spaces.
    """
    return as_json(find_phrase(library.pages(document), q))


@routes.get("/documents/{document}/pages/{number}", tags=["pages"], response_model=Page)
def words(library: Library, document: str, number: int) -> Response:
    """Return a page with its words and their boxes."""
    return as_json(library.page(document, number))


@routes.get("/documents/{document}/pages/{number}/image", **_PNG)
def image(
    library: Library, request: Request, document: str, number: int, dpi: Dpi = 144
) -> Response:
    """Render a page as a PNG image."""
    return _picture(library, request, document, number, dpi)


@routes.get("/documents/{document}/pages/{number}/thumbnail", **_PNG)
def thumbnail(library: Library, request: Request, document: str, number: int) -> Response:
    """Render a page as a small PNG image."""
    return _picture(library, request, document, number, THUMBNAIL_DPI)


def _picture(
    library: LibraryView, request: Request, document: str, number: int, dpi: float
) -> Response:
    stored = library.get(document)
    if not 1 <= number <= stored.pages:
        raise NotInIndex(f"{stored.name} has the pages 1 to {stored.pages}, not {number}.")
    key = f"{stored.id}/{number}/{dpi:g}"
    tag = f'"{hashlib.sha256(key.encode()).hexdigest()[:32]}"'
    # Another document may have the same name one day, but never the same id.
    headers = {"ETag": tag, "Cache-Control": _FOREVER if document == stored.id else "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    picture = io.BytesIO()
    library.image(stored.id, number, dpi).save(picture, "PNG")
    return Response(picture.getvalue(), media_type="image/png", headers=headers)


@routes.get("/collections", tags=["collections"], response_model=list[Collection])
def list_collections(library: Library) -> Response:
    """List collections. A collection exists as long as it has documents."""
    return as_json(library.collections())


@routes.put(
    "/collections/{name:collection}/documents", tags=["collections"], response_model=Collection
)
def collect(library: Library, name: CollectionName, members: Members) -> Response:
    """Add documents to a collection, and create it if needed."""
    return as_json(library.collect(name, members.documents))


@routes.delete("/collections/{name:collection}/documents", tags=["collections"], status_code=204)
def uncollect(
    library: Library, name: CollectionName, document: Annotated[list[str], Query(min_length=1)]
) -> None:
    """Remove documents from a collection. The library keeps them."""
    library.uncollect(name, document)


@routes.patch("/collections/{name:collection}", tags=["collections"], response_model=Collection)
def rename(library: Library, name: CollectionName, renamed: NewName) -> Response:
    """Rename a collection. If the new name exists, the two are merged."""
    return as_json(library.rename(name, renamed.name))


@routes.delete("/collections/{name:collection}", tags=["collections"], status_code=204)
def delete_collection(library: Library, name: CollectionName) -> None:
    """Delete a collection. The library keeps its documents."""
    library.uncollect(name)


@routes.get("/jobs/events", tags=["jobs"], response_class=EventSourceResponse)
async def events(
    library: Library, context: State, request: Request
) -> AsyncIterator[ServerSentEvent]:
    """Stream all jobs, then each change, as server-sent events named ``job``."""
    known: dict[str, Job] = {}
    seen = -1
    while not is_stopping(request):
        try:
            changes = await asyncio.to_thread(lambda: library.changes)
            jobs = None if seen == changes else await asyncio.to_thread(library.jobs)
            if jobs is not None and not await context.still_has(access_of(request)):
                return  # the token was revoked
        except (StoreError, HTTPException):  # the disk can't be written, or not even read
            await asyncio.sleep(_SECONDS_PER_TRY)
            continue
        if jobs is not None:
            seen = changes
            now = {job.id: job for job in reversed(jobs)}
            for id_, job in now.items():
                if known.get(id_) != job:
                    yield ServerSentEvent(event="job", data=to_plain(job))
            for id_ in known.keys() - now.keys():
                yield ServerSentEvent(event="forgotten", data={"id": id_})
            known = now
        await asyncio.sleep(_SECONDS_PER_LOOK)


@routes.get("/jobs", tags=["jobs"], response_model=list[Job])
def list_jobs(library: Library) -> Response:
    """List jobs, newest first."""
    return as_json(library.jobs())


@routes.get("/jobs/{job}", tags=["jobs"], response_model=Job)
def get_job(library: Library, job: str) -> Response:
    """Return a job by its id."""
    return as_json(library.job(job))


@routes.post("/jobs/{job}/cancel", tags=["jobs"], response_model=Job)
def cancel(library: Library, job: str) -> Response:
    """Cancel a waiting or running job. Its work so far is kept for a retry."""
    return as_json(library.cancel(job))


@routes.post("/jobs/{job}/retry", tags=["jobs"], response_model=Job)
def retry(library: Library, job: str, given: Password = _NO_PASSWORD) -> Response:
    """Retry a failed or cancelled job, with a password if it needs one."""
    return as_json(library.retry(job, given.password))


@routes.delete("/jobs/{job}", tags=["jobs"], status_code=204)
def forget(library: Library, job: str) -> None:
    """Delete a finished job and its uploaded file."""
    if not library.job(job).is_finished:
        raise refusal(409, "unfinished", "The job is waiting or running. Cancel it first.")
    library.forget(job)
