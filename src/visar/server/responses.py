"""JSON responses from results."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from visar.serialization import to_plain


def as_json(
    value: Any, status_code: int = 200, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return a JSON response with a result, without fields that must not leave the server."""
    return JSONResponse(to_plain(value, public=True), status_code, headers)
