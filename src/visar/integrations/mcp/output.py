"""Output of the tools: results of the library as data, as text, and within a size limit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic import TypeAdapter

from visar.errors import InvalidOption
from visar.results import Answer, Decision, Document, SearchResult
from visar.serialization import Result, to_plain

MAX_RESULT = 1_000_000
"""Maximum size of a result, in bytes of JSON. Claude Desktop accepts 1 MiB with its envelope."""
MAX_LEFT_OUT = 20
"""Maximum number of documents listed as not searched; a library may have thousands."""
# Models don't need these fields, and they can be long.
_OMITTED: Mapping[type, Sequence[str]] = {
    SearchResult: ("documents", "encoder", "calibration"),
    Decision: ("cost", "timings"),
    Document: ("encoders", "invalid"),
    Answer: ("passages",),  # its search has the same
}
# Every tool takes the beginning of a document's id.
_IDS = ("id", "document")
_ID_LENGTH = 16
_DECIMALS = 4


def output_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a result, without the fields that `shorten` omits."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    omitted = {one.__name__: names for one, names in _OMITTED.items()}
    for described in (schema, *schema.get("$defs", {}).values()):
        for name in omitted.get(described.get("title"), ()):
            described["properties"].pop(name)
            described["required"] = [one for one in described["required"] if one != name]
    return schema


def shorten(value: Any) -> Any:
    """Convert a result to JSON values, with short ids and numbers and without long details."""
    return _shorten(value, to_plain(value, public=True))


def _shorten(value: Any, plain: Any) -> Any:
    if isinstance(plain, dict) and not isinstance(value, Mapping):
        shown = {name: plain[name] for name in plain if name not in _OMITTED.get(type(value), ())}
        short = {name: _shorten(getattr(value, name), item) for name, item in shown.items()}
        ids = {name: short[name][:_ID_LENGTH] for name in _IDS if isinstance(short.get(name), str)}
        return short | ids
    if isinstance(plain, list):
        return [_shorten(one, item) for one, item in zip(value, plain, strict=True)]
    return round(plain, _DECIMALS) if isinstance(plain, float) else plain


def limit_left_out(found: SearchResult) -> SearchResult:
    """Return a result that lists few of the documents left out, and counts them in its summary."""
    if not found.left_out:
        return found
    documents = "1 document" if len(found.left_out) == 1 else f"{len(found.left_out):,} documents"
    summary = f"{found.summary} · {documents} not searched: no vectors of this encoder"
    return replace(found, left_out=found.left_out[:MAX_LEFT_OUT], summary=summary)


def page_link(document: str, name: str, page: int) -> ResourceLink:
    """Return the resource of a page's image."""
    uri = f"visar://{document[:_ID_LENGTH]}/{page}"
    return ResourceLink(uri=uri, name=f"{name}, page {page}", mime_type="image/jpeg")


def page_links(found: SearchResult) -> list[ResourceLink]:
    """Return the pages of a search as resources."""
    return [page_link(hit.document, hit.name, hit.page) for hit in found.pages]


def make_result(
    value: Result, *more: ContentBlock, meta: dict[str, Any] | None = None
) -> CallToolResult:
    """Return a tool's result: data, the same as text, then other content; ``meta`` is for an app.

    Raises InvalidOption if it has more than `MAX_RESULT` bytes.
    """
    data = shorten(value)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    result = CallToolResult(
        content=[TextContent(text=text), *more], structured_content=data, _meta=meta
    )
    if len(result.model_dump_json(by_alias=True).encode()) > MAX_RESULT:
        raise InvalidOption("The result is too long to send. Ask for fewer pages or documents.")
    return result
