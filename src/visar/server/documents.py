"""Routes of documents, their pages, collections and jobs; uploads have a module of their own."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from typing import Annotated

from visar.documents.page import Page
from visar.errors import NotInIndex
from visar.results import Collection, Document, Job
from visar.serialization import to_plain
from visar.server.context import Context
from visar.server.responses import as_json
from visar.server.schemas import Members, NewName, Password, Unlock
from visar.serving import is_stopping

# After visar.serving, which says what to install if they are missing.
from fastapi import APIRouter, Query, Request, Response  # isort: skip
from fastapi.responses import FileResponse  # isort: skip
from fastapi.sse import EventSourceResponse, ServerSentEvent  # isort: skip

THUMBNAIL_DPI = 20
_SECONDS_PER_LOOK = 0.25
# A page never changes: its document's id is made from the content.
_FOREVER = "private, max-age=31536000, immutable"
_FROM_START = Query(ge=0)
Dpi = Annotated[float, Query(ge=18, le=300)]


def router(context: Context) -> APIRouter:
    """The routes, on an index and its jobs."""
    routes = APIRouter()
    _documents(routes, context)
    _pages(routes, context)
    _collections(routes, context)
    _job_events(routes, context)
    _jobs(routes, context)
    return routes


def _documents(routes: APIRouter, context: Context) -> None:
    index = context.index

    @routes.get("/documents", tags=["documents"], response_model=list[Document])
    def list_documents(
        collection: str | None = None,
        where: str | None = None,
        offset: Annotated[int, _FROM_START] = 0,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> Response:
        """List documents in the order they were added."""
        documents = index.documents(collection=collection, where=where)
        return as_json(documents[offset : offset + limit])

    @routes.get("/documents/{document}", tags=["documents"], response_model=Document)
    def get_document(document: str) -> Response:
        """Return a document by its id, the beginning of its id, or its name."""
        return as_json(index.get(document))

    @routes.delete("/documents/{document}", tags=["documents"], response_model=Document)
    def delete_document(document: str) -> Response:
        """Remove a document with everything that belongs to it."""
        return as_json(index.remove(document))

    @routes.post("/documents/{document}/unlock", tags=["documents"], status_code=204)
    def unlock(document: str, given: Unlock) -> None:
        """Give the password of an encrypted document again, so that its pages can be shown.

        It is kept in memory until the server ends.
        """
        index.unlock(document, given.password)

    @routes.get("/documents/{document}/original", tags=["documents"], response_class=FileResponse)
    def original(document: str) -> Response:
        """Return the file as it was uploaded."""
        stored = index.get(document)
        path = index.original(stored.id)
        if path is None or not path.is_file():
            raise NotInIndex(f"The index keeps no file of {stored.name}.")
        # A PDF is shown, in a sandbox like all responses; anything else is a download.
        with path.open("rb") as file:
            is_pdf = b"%PDF-" in file.read(1024)
        return FileResponse(
            path,
            filename=stored.name,
            media_type="application/pdf" if is_pdf else "application/octet-stream",
            content_disposition_type="inline" if is_pdf else "attachment",
        )


def _pages(routes: APIRouter, context: Context) -> None:
    index = context.index

    @routes.get("/documents/{document}/pages/{number}", tags=["pages"], response_model=Page)
    def words(document: str, number: int) -> Response:
        """Return a page with its words and their boxes."""
        return as_json(index.page(document, number))

    @routes.get(
        "/documents/{document}/pages/{number}/image",
        tags=["pages"],
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}},
    )
    def image(request: Request, document: str, number: int, dpi: Dpi = 144) -> Response:
        """A page as PNG."""
        return _picture(request, document, number, dpi)

    @routes.get(
        "/documents/{document}/pages/{number}/thumbnail",
        tags=["pages"],
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}},
    )
    def thumbnail(request: Request, document: str, number: int) -> Response:
        """A page as a small PNG."""
        return _picture(request, document, number, THUMBNAIL_DPI)

    def _picture(request: Request, document: str, number: int, dpi: float) -> Response:
        stored = index.get(document)
        if not 1 <= number <= stored.pages:
            raise NotInIndex(f"{stored.name} has the pages 1 to {stored.pages}, not {number}.")
        key = f"{stored.id}/{number}/{dpi:g}"
        tag = f'"{hashlib.sha256(key.encode()).hexdigest()[:32]}"'
        # Another document may have the same name one day, but never the same id.
        headers = {"ETag": tag, "Cache-Control": _FOREVER if document == stored.id else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        picture = io.BytesIO()
        index.image(stored.id, number, dpi).save(picture, "PNG")
        return Response(picture.getvalue(), media_type="image/png", headers=headers)


def _collections(routes: APIRouter, context: Context) -> None:
    index = context.index

    @routes.get("/collections", tags=["collections"], response_model=list[Collection])
    def list_collections() -> Response:
        """List collections. One begins with its first document, and ends with its last."""
        return as_json(index.collections())

    @routes.put("/collections/{name}/documents", tags=["collections"], response_model=Collection)
    def collect(name: str, members: Members) -> Response:
        """Put documents into a collection; those that are in it stay."""
        index.collect(name, members.documents)
        return as_json(_collection(name))

    @routes.delete("/collections/{name}/documents", tags=["collections"], status_code=204)
    def uncollect(name: str, document: Annotated[list[str], Query(min_length=1)]) -> None:
        """Take documents out of a collection; the documents stay."""
        _collection(name)
        index.uncollect(name, document)

    @routes.patch("/collections/{name}", tags=["collections"], response_model=Collection)
    def rename(name: str, renamed: NewName) -> Response:
        """Rename a collection; one of the new name takes its documents too."""
        _collection(name)
        index.collect(renamed.name, [one.id for one in index.documents(collection=name)])
        if renamed.name != name:
            index.uncollect(name)
        return as_json(_collection(renamed.name))

    @routes.delete("/collections/{name}", tags=["collections"], status_code=204)
    def delete_collection(name: str) -> None:
        """Delete a collection; its documents stay."""
        _collection(name)
        index.uncollect(name)

    def _collection(name: str) -> Collection:
        for collection in index.collections():
            if collection.name == name:
                return collection
        raise NotInIndex(f"No collection {name!r}.")


def _job_events(routes: APIRouter, context: Context) -> None:
    @routes.get("/jobs/events", tags=["jobs"], response_class=EventSourceResponse)
    async def events(request: Request) -> AsyncIterator[ServerSentEvent]:
        """All jobs now, then each that changes, as server-sent events named ``job``."""
        known: dict[str, Job] = {}
        seen = -1
        while not is_stopping(request):
            changes = await asyncio.to_thread(lambda: context.jobs.changes)
            if seen != changes:
                seen = changes
                jobs = await asyncio.to_thread(context.jobs.jobs)
                now = {job.id: job for job in reversed(jobs)}
                for id_, job in now.items():
                    if known.get(id_) != job:
                        yield ServerSentEvent(event="job", data=to_plain(job))
                for id_ in known.keys() - now.keys():
                    yield ServerSentEvent(event="forgotten", data={"id": id_})
                known = now
            await asyncio.sleep(_SECONDS_PER_LOOK)


def _jobs(routes: APIRouter, context: Context) -> None:
    @routes.get("/jobs", tags=["jobs"], response_model=list[Job])
    def list_jobs() -> Response:
        """List jobs, the newest first."""
        return as_json(context.jobs.jobs())

    @routes.get("/jobs/{job}", tags=["jobs"], response_model=Job)
    def get_job(job: str) -> Response:
        """Return a job by its id."""
        return as_json(context.jobs.get(job))

    @routes.post("/jobs/{job}/cancel", tags=["jobs"], response_model=Job)
    def cancel(job: str) -> Response:
        """Cancel a job that waits or runs. Its work so far is kept for a retry."""
        return as_json(context.jobs.cancel(job))

    @routes.post("/jobs/{job}/retry", tags=["jobs"], response_model=Job)
    def retry(job: str, given: Password) -> Response:
        """Queue a failed or cancelled job again, with a password if it needs one."""
        return as_json(context.jobs.retry(job, given.password))

    @routes.delete("/jobs/{job}", tags=["jobs"], status_code=204)
    def forget(job: str) -> None:
        """Delete a finished job and its uploaded file."""
        context.jobs.forget(job)
