"""An index as tools and resources of the Model Context Protocol, for ``visar mcp``."""

from __future__ import annotations

from visar.errors import MissingExtra

try:
    import mcp.server.mcpserver  # noqa: F401
except ImportError as error:
    raise MissingExtra("An MCP server", "mcp") from error

from visar.integrations.mcp.server import PATH, create_server, http_app

__all__ = ["PATH", "create_server", "http_app"]
