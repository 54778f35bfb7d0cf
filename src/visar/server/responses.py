"""Results as JSON responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visar.serialization import to_plain

from fastapi.responses import JSONResponse  # isort: skip


def as_json(
    value: Any, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return a response with a result, or several, as JSON."""
    return JSONResponse(to_plain(value, public=True), status_code, headers)
