"""A library as tools and resources of the Model Context Protocol, for ``visar mcp``."""

from __future__ import annotations

from visar.errors import extra_needed

with extra_needed("An MCP server", "mcp"):
    import mcp.server.mcpserver  # noqa: F401

from visar.integrations.mcp.server import PATH, create_server, http_app

__all__ = ["PATH", "create_server", "http_app"]
