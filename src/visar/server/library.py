"""Routes of documents, their pages, collections and jobs; uploads have a module of their own."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from typing import Annotated

from visar.errors import NotInIndex
from visar.results import Job
from visar.serialization import to_plain
from visar.server.context import Context
from visar.server.responses import as_json
from visar.server.schemas import (
    Collection,
    Document,
    Members,
    NewName,
    Page,
    Password,
    Unlock,
    to_schema,
)
from visar.serving import ENDLESS

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

    @routes.get("/documents", tags=["documents"])
    def list_documents(
        collection: str | None = None,
        offset: Annotated[int, _FROM_START] = 0,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> list[Document]:
        """Documents in the order they were added."""
        documents = index.documents(collection=collection)
        return [to_schema(Document, one) for one in documents[offset : offset + limit]]

    @routes.get("/documents/{document}", tags=["documents"])
    def get_document(document: str) -> Document:
        """A document by its id or name."""
        return to_schema(Document, index.get(document))

    @routes.delete("/documents/{document}", tags=["documents"])
    def delete_document(document: str) -> Document:
        """Remove a document with everything that belongs to it."""
        return to_schema(Document, index.remove(index.get(document).id))

    @routes.post("/documents/{document}/unlock", tags=["documents"], status_code=204)
    def unlock(document: str, given: Unlock) -> None:
        """Give the password of an encrypted document again, so that its pages can be shown.

        It is kept in memory until the server ends.
        """
        index.unlock(document, given.password)

    @routes.get(
        "/documents/{document}/original",
        tags=["documents"],
        response_class=FileResponse,
    )
    def original(document: str) -> Response:
        """The file, as it was uploaded."""
        stored = index.get(document)
        path = index.original(stored.id)
        if path is None or not path.is_file():
            raise NotInIndex(f"The index keeps no file of {stored.name}.")
        # A PDF is shown, in a sandbox as all answers; nothing else is more than a download.
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

    @routes.get("/documents/{document}/pages/{number}", tags=["pages"])
    def words(document: str, number: int) -> Page:
        """The words of a page with their places."""
        return to_schema(Page, index.page(document, number))

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
        headers = {"ETag": tag, "Cache-Control": _FOREVER}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        picture = io.BytesIO()
        index.image(stored.id, number, dpi).save(picture, "PNG")
        return Response(picture.getvalue(), media_type="image/png", headers=headers)


def _collections(routes: APIRouter, context: Context) -> None:
    index = context.index

    @routes.get("/collections", tags=["collections"])
    def list_collections() -> list[Collection]:
        """All collections. One begins with its first document, and ends with its last."""
        found = index.collections().items()
        return [Collection(name=name, documents=count) for name, count in found]

    @routes.put("/collections/{name}/documents", tags=["collections"])
    def collect(name: str, members: Members) -> Collection:
        """Put documents into a collection; those that are in it stay."""
        index.collect(name, [index.get(one).id for one in members.documents])
        return _collection(name)

    @routes.delete("/collections/{name}/documents/{document}", tags=["collections"])
    def uncollect(name: str, document: str) -> Collection:
        """Take a document out of a collection; the document stays."""
        _collection(name)
        index.uncollect(name, [index.get(document).id])
        return Collection(name=name, documents=index.collections().get(name, 0))

    @routes.patch("/collections/{name}", tags=["collections"])
    def rename(name: str, renamed: NewName) -> Collection:
        """Call a collection by another name; one of that name takes its documents too."""
        _collection(name)
        index.collect(renamed.name, [one.id for one in index.documents(collection=name)])
        if renamed.name != name:
            index.uncollect(name)
        return _collection(renamed.name)

    @routes.delete("/collections/{name}", tags=["collections"], status_code=204)
    def delete_collection(name: str) -> None:
        """End a collection; its documents stay."""
        _collection(name)
        index.uncollect(name)

    def _collection(name: str) -> Collection:
        found = index.collections()
        if name not in found:
            raise NotInIndex(f"There is no collection {name!r}.")
        return Collection(name=name, documents=found[name])


def _job_events(routes: APIRouter, context: Context) -> None:
    @routes.get("/jobs/events", tags=["jobs"], response_class=EventSourceResponse)
    async def events(request: Request) -> AsyncIterator[ServerSentEvent]:
        """All jobs now, then each that changes, as server-sent events named ``job``."""
        request.scope[ENDLESS] = True
        known: dict[str, Job] = {}
        seen = -1
        while not await request.is_disconnected():
            if seen != context.jobs.changes:
                seen = context.jobs.changes
                now = {job.id: job for job in reversed(context.jobs.jobs())}
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
        """Return the jobs, the newest first."""
        return as_json(context.jobs.jobs())

    @routes.get("/jobs/{job}", tags=["jobs"], response_model=Job)
    def get_job(job: str) -> Response:
        """Return a job by its id."""
        return as_json(context.jobs.get(job))

    @routes.post("/jobs/{job}/cancel", tags=["jobs"], response_model=Job)
    def cancel(job: str) -> Response:
        """Stop a job that waits or runs. The pages that are done are kept for a retry."""
        return as_json(context.jobs.cancel(job))

    @routes.post("/jobs/{job}/retry", tags=["jobs"], response_model=Job)
    def retry(job: str, given: Password) -> Response:
        """Queue a job again that failed or was cancelled, with a password if it needs one."""
        return as_json(context.jobs.retry(job, given.password))

    @routes.delete("/jobs/{job}", tags=["jobs"], status_code=204)
    def forget(job: str) -> None:
        """Drop a finished job with its upload."""
        context.jobs.forget(job)
