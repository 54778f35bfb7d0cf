"""The HTTP server: an index behind an API, and jobs that add documents to it."""

from __future__ import annotations

from visar.server.app import create_app
from visar.server.settings import Settings

__all__ = ["Settings", "create_app"]
