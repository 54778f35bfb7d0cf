"""The server: tools and resources of an index, over standard input and output or HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from mcp.server.apps import Apps
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ToolAnnotations
from pydantic import ValidationError

from visar._version import __version__
from visar.errors import MissingExtra, NotInIndex
from visar.explain.report import html_app
from visar.generation import extractive
from visar.generation.protocol import Generator
from visar.index import Index
from visar.integrations.mcp.tools import Roots, Tools
from visar.server.context import ERRORS
from visar.serving import RequestGuard, answer_errors, first_mistake, problem, refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
"""Of the address that streamable HTTP is served at."""
MAX_BODY = 1_000_000
EXPLAIN_APP = "ui://visar/explain.html"
PAGE = "visar://{document}/{page}"
_TOLD = (*ERRORS, MissingExtra)
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_REMOVES = _ADDS.model_copy(update={"destructive_hint": True})
_INSTRUCTIONS = (
    "Finds the pages of the user's own long documents that a question needs, however many those "
    "are. Use ask for an answer in quotations with its pages, search for the pages alone, and "
    "read_page to see a page with its charts and tables before relying on it. Name documents and "
    "pages when you answer."
)


def create_server(
    index: Index,
    *,
    encoder: str = "embedded",
    generator: str | Generator = extractive.NAME,
    roots: Sequence[Path] | None = None,
) -> MCPServer[Any]:
    """Make an MCP server of an index.

    Parameters
    ----------
    index
        Stays the caller's: it is not closed with the server.
    encoder
        What questions are searched with.
    generator
        What writes the answers of ``ask``.
    roots
        The folders that documents may be added from. Without them the server only reads: there are
        no tools that change the index.

    Raises
    ------
    InvalidOption
        If a root is no folder.
    """
    tools = Tools(index, encoder, generator, Roots(roots or ()))
    apps = Apps()
    apps.add_html_resource(EXPLAIN_APP, html_app(), name="explain", title="Why these pages")
    apps.tool(resource_uri=EXPLAIN_APP, **_described(tools.explain, "Explain", _READS))(
        tools.explain
    )
    server = _Server(
        tools.clean,
        name="visar",
        title="ViSAR",
        version=__version__,
        instructions=_INSTRUCTIONS,
        extensions=[apps],
        log_level="WARNING",
        # Their streams would stay open for nothing: what changes, changes by a tool.
        subscriptions=False,
    )
    offered: list[tuple[Callable[..., Any], str, ToolAnnotations]] = [
        (tools.list_documents, "List documents", _READS),
        (tools.list_collections, "List collections", _READS),
        (tools.ask, "Ask", _READS),
        (tools.search, "Search", _READS),
        (tools.read_page, "Read a page", _READS),
    ]
    if roots:
        offered += [
            (tools.add, "Add documents", _ADDS),
            (tools.remove, "Remove a document", _REMOVES),
        ]
    for tool, title, hints in offered:
        server.add_tool(tool, **_described(tool, title, hints))
    for resource, uri, mime_type in (
        (tools.page_image, PAGE, "image/jpeg"),
        (tools.page_words, f"{PAGE}/text", "text/plain"),
    ):
        server.resource(uri, mime_type=mime_type)(resource)
    return server


def _described(tool: Callable[..., Any], title: str, hints: ToolAnnotations) -> dict[str, Any]:
    return {"title": title, "annotations": hints, "description": inspect.getdoc(tool)}


def http_app(
    server: MCPServer[Any], *, token: str | None = None, hosts: Container[str] = ()
) -> ASGIApp:
    """Make the application that serves an MCP server as streamable HTTP, at `PATH`.

    Parameters
    ----------
    token, hosts
        As `visar.serving.RequestGuard` takes them: off loopback too, requests are answered
        to addresses and to these names only, and none that comes from another site's web page.
    """
    inner = server.streamable_http_app(
        streamable_http_path=PATH,
        # Every request is whole in itself: no session to keep, to steal or to use up.
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        # The guard does this, and off loopback too.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    answer_errors(inner, {})  # the guard's, while a body arrives

    async def posts(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] != "POST":
            message = "There is nothing to read or to end here: only POST is answered."
            refused = problem(refusal(405, "method", message, {"Allow": "POST"}))
            await refused(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return RequestGuard(posts, token=token, max_bytes={"application/json": MAX_BODY}, hosts=hosts)


class _Server(MCPServer[Any]):
    """A server that tells clients what our own errors say, and nothing of any other."""

    def __init__(self, clean: Callable[[object], str], **options: Any) -> None:
        self._clean = clean
        super().__init__(**options)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ToolError(first_mistake(cause.errors())) from None
            if isinstance(cause, _TOLD):
                raise ToolError(await to_thread.run_sync(self._clean, cause)) from None
            raise

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        try:
            return await super().read_resource(uri, context)
        except UnexpectedResourceError as error:
            cause = error.__cause__
            if isinstance(cause, NotInIndex | ValidationError):
                raise ResourceNotFoundError(f"There is no {uri}.") from None
            if isinstance(cause, _TOLD):
                raise ResourceError(await to_thread.run_sync(self._clean, cause)) from None
            raise

    async def get_prompt(self, name: str, *_: Any) -> Any:
        raise MCPError(INVALID_PARAMS, f"There is no prompt {name!r}: use a tool.")
