"""The MCP server of a library, over standard input and output or HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from anyio import to_thread
from mcp.server.apps import Apps
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
)
from mcp.server.mcpserver.tools import Tool
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ToolAnnotations
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from visar._version import __version__
from visar.errors import NotInIndex
from visar.explain.report import html_app
from visar.generation.generator import Generator
from visar.integrations.mcp.tools import Roots, Tools, output_schema
from visar.library import Library
from visar.serving import RequestGuard, answer_errors, first_mistake, problem, refusal

PATH = "/mcp"
"""Path that streamable HTTP is served at."""
MAX_BODY = 1_000_000
EXPLAIN_APP = "ui://visar/explain.html"
PAGE = "visar://{document}/{page}"
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_REMOVES = _ADDS.model_copy(update={"destructive_hint": True})
_INSTRUCTIONS = (
    "Finds the pages of the user's own long documents that a question needs. Use ask for an "
    "answer in quotations with its pages, search for the pages only, and read_page to see a page "
    "with its charts and tables before relying on it. Name documents and pages when you answer."
)


def create_server(
    library: Library,
    *,
    encoder: str | None = None,
    generator: str | Generator | None = None,
    roots: Sequence[Path] | None = None,
) -> MCPServer[Any]:
    """Create an MCP server for a library, which the caller closes.

    ``encoder`` and ``generator`` are the library's defaults if None. Documents may be added from
    the folders in ``roots``; without them, the server has no tools that change the library. Raises
    InvalidOption if one isn't a folder.
    """
    tools = Tools(library, encoder, generator, Roots(roots or ()))
    offered = [
        _tool(tools.list_documents, "List documents", _READS),
        _tool(tools.list_collections, "List collections", _READS),
        _tool(tools.ask, "Ask", _READS),
        _tool(tools.search, "Search", _READS),
        _tool(tools.read_page, "Read a page", _READS),
        _tool(tools.explain, "Explain", _READS, meta={"ui": {"resourceUri": EXPLAIN_APP}}),
    ]
    if roots:
        offered.append(_tool(tools.add, "Add documents", _ADDS))
        offered.append(_tool(tools.remove, "Remove a document", _REMOVES))
    apps = Apps()
    apps.add_html_resource(EXPLAIN_APP, html_app(), name="explain", title="Why these pages")
    server = _Server(
        tools,
        name="visar",
        title="ViSAR",
        version=__version__,
        instructions=_INSTRUCTIONS,
        tools=offered,
        extensions=[apps],
        log_level="WARNING",
        # Subscriptions would keep streams open, but resources rarely change.
        subscriptions=False,
    )
    server.resource(PAGE, mime_type="image/jpeg")(tools.page_image)
    server.resource(f"{PAGE}/text", mime_type="text/plain")(tools.page_words)
    return server


def _tool(function: Callable[..., Any], title: str, hints: ToolAnnotations, **more: Any) -> Tool:
    """Describe a tool; its return annotation names the class of its output."""
    text = inspect.getdoc(function)
    tool = Tool.from_function(
        function, title=title, description=text, annotations=hints, structured_output=False, **more
    )
    returned = get_type_hints(function, include_extras=True)["return"]
    tool.fn_metadata.output_schema = output_schema(returned.__metadata__[0])
    return tool


def http_app(
    server: MCPServer[Any], *, token: str | None = None, hosts: Container[str] = ()
) -> ASGIApp:
    """Return the application that serves an MCP server as streamable HTTP, at `PATH`.

    ``token`` and ``hosts`` are options of `visar.serving.RequestGuard`: requests must name the
    server by an address or by one of these hosts, also off loopback.
    """
    inner = server.streamable_http_app(
        streamable_http_path=PATH,
        # Sessions could be hijacked or exhausted, and tools don't need them.
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        # The guard does this, also off loopback.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    answer_errors(inner, {})  # for errors of the guard while it reads a body

    async def posts(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] != "POST":
            message = "Only POST is allowed: this server has no sessions."
            refused = problem(refusal(405, "method", message, {"Allow": "POST"}))
            await refused(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return RequestGuard(posts, token=token, max_bytes={"application/json": MAX_BODY}, hosts=hosts)


class _Server(MCPServer[Any]):
    """An MCP server that only shows clients the messages of ViSAR's own errors."""

    def __init__(self, offered: Tools, **options: Any) -> None:
        self._offered = offered
        super().__init__(**options)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ToolError(first_mistake(cause.errors())) from None
            if self._offered.is_public(cause):
                raise ToolError(await to_thread.run_sync(self._offered.clean, cause)) from None
            raise

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        try:
            return await super().read_resource(uri, context)
        except UnexpectedResourceError as error:
            cause = error.__cause__
            if isinstance(cause, NotInIndex | ValidationError):
                raise ResourceNotFoundError(f"No resource {uri}.") from None
            if self._offered.is_public(cause):
                raise ResourceError(await to_thread.run_sync(self._offered.clean, cause)) from None
            raise

    async def get_prompt(self, name: str, *_: Any) -> Any:
        raise MCPError(INVALID_PARAMS, f"No prompt {name!r}: use a tool.")
