"""The HTTP server: an index behind an API, and jobs that add documents to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visar.lazy import lazy_names

if TYPE_CHECKING:
    from visar.server.app import create_app
    from visar.server.settings import Settings

__all__ = ["Settings", "create_app"]

# `visar serve --help` needs no FastAPI.
_MODULES = {"visar.server.app": ("create_app",), "visar.server.settings": ("Settings",)}
__getattr__ = lazy_names(__name__, _MODULES)
