"""Routes for saved conversations."""

from __future__ import annotations

from typing import Annotated, Literal

from visar.explain.conversation import thread_html, thread_markdown
from visar.results import Thread
from visar.server.responses import as_json
from visar.server.schemas import NewThread, ThreadName
from visar.server.view import Library

# After visar.serving, which says what to install if they are missing.
from fastapi import APIRouter, Query, Response  # isort: skip


router = APIRouter(tags=["conversations"], prefix="/threads")
"""Routes for saved conversations, on the library as the sender may see it."""


@router.get("", response_model=list[Thread])
def list_threads(library: Library) -> Response:
    """List conversations without their exchanges, latest first."""
    return as_json(library.threads())


@router.post("", response_model=Thread, status_code=201)
def create_thread(library: Library, given: NewThread) -> Response:
    """Create a conversation. Without a name, it is named after its first question."""
    return as_json(library.create_thread(given.name, given.collection), 201)


@router.get("/{thread}", response_model=Thread)
def get_thread(library: Library, thread: str) -> Response:
    """Return a conversation with its questions and answers."""
    return as_json(library.thread(thread))


@router.patch("/{thread}", response_model=Thread)
def rename_thread(library: Library, thread: str, given: ThreadName) -> Response:
    """Rename a conversation."""
    return as_json(library.rename_thread(thread, given.name))


@router.delete("/{thread}", status_code=204)
def delete_thread(library: Library, thread: str) -> None:
    """Delete a conversation."""
    library.delete_thread(thread)


@router.get("/{thread}/export", response_class=Response)
def export_thread(
    library: Library,
    thread: str,
    kind: Annotated[Literal["markdown", "html"], Query(alias="format")] = "markdown",
) -> Response:
    """Return a conversation as a file: Markdown, or HTML with the cited pages as images."""
    found = library.thread(thread)
    content = thread_markdown(found) if kind == "markdown" else thread_html(library, found)
    name = f"conversation-{found.id[:8]}.{'md' if kind == 'markdown' else 'html'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=f"text/{kind}", headers=headers)
