"""Output of the tools: results of the library as data, as text, and within a size limit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic import TypeAdapter

from visar.documents.page import Box
from visar.errors import InvalidOption
from visar.results import (
    Answer,
    Collection,
    Decision,
    Document,
    Generation,
    QuestionWord,
    SearchResult,
)
from visar.serialization import Result, to_plain

MAX_RESULT = 1_000_000
"""Maximum size of a result, in bytes of JSON. Claude Desktop accepts 1 MiB with its envelope."""
MAX_LEFT_OUT = 20
"""Maximum number of documents listed as not searched; a library may have thousands."""
# A model doesn't need them, and they can be long.
_OMITTED: Mapping[type, Sequence[str]] = {
    SearchResult: ("documents",),
    Decision: ("cost", "timings"),
    Document: ("encoders", "invalid"),
    Answer: ("passages",),  # those of its search
    Generation: ("prompt_sha256", "raw"),
}
# The beginning of a document's id is enough for every tool.
_IDS = ("id", "document")
_ID_LENGTH = 16
_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class DocumentList(Result):
    """Documents in the order they were added."""

    documents: tuple[Document, ...]
    total: int
    """Number of documents, including those before and after these."""


@dataclass(frozen=True, slots=True)
class CollectionList(Result):
    """All collections."""

    collections: tuple[Collection, ...]


@dataclass(frozen=True, slots=True)
class Explained(Result):
    """An answer, and the reasons for its pages."""

    answer: Answer
    words: tuple[QuestionWord, ...]
    """Words of the question with their influence."""
    cuts: Mapping[str, int]
    """Number of pages that each method would take."""
    numbers: tuple[str, ...]
    """Numbers behind the choice of pages, as sentences."""


@dataclass(frozen=True, slots=True)
class Line(Result):
    """A line of a page."""

    text: str
    box: Box
    """Left, top, right, bottom as shares of the page."""


@dataclass(frozen=True, slots=True)
class PageContent(Result):
    """A page with its text."""

    document: Document
    number: int
    """Page number, from 1."""
    label: str
    """Printed page number if it differs, otherwise empty."""
    lines: tuple[Line, ...]
    cut_off: bool
    """Whether the page has more lines than fit in a result."""
    image: str = ""
    """Size of the image in pixels, or the reason why there is none."""


def output_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a tool's output: that of a result, as `shorten` leaves it."""
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
    count = len(found.left_out)
    documents = "document" if count == 1 else "documents"
    summary = f"{found.summary} · {count} {documents} not searched: no vectors of this encoder"
    return replace(found, left_out=found.left_out[:MAX_LEFT_OUT], summary=summary)


def page_link(document: str, name: str, page: int) -> ResourceLink:
    """Return the resource of a page's image."""
    uri = f"visar://{document[:_ID_LENGTH]}/{page}"
    return ResourceLink(uri=uri, name=f"{name}, page {page}", mime_type="image/jpeg")


def page_links(found: SearchResult) -> list[ResourceLink]:
    """Return the pages of a search as resources."""
    return [page_link(hit.document, hit.name, hit.page) for hit in found.pages]


def make_result(
    value: Result,
    *more: ContentBlock,
    links: Iterable[ResourceLink] = (),
    meta: dict[str, Any] | None = None,
) -> CallToolResult:
    """Return a tool's result: data, the same as text, then images and links; ``meta`` for an app.

    Raises
    ------
    InvalidOption
        If it has more than `MAX_RESULT` bytes.
    """
    data = shorten(value)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    result = CallToolResult(
        content=[TextContent(text=text), *more, *links], structured_content=data, _meta=meta
    )
    if size_of(result) > MAX_RESULT:
        raise InvalidOption("The result is too long to send. Ask for fewer pages or documents.")
    return result


def size_of(result: CallToolResult) -> int:
    """Return the size of a result, in bytes of JSON."""
    return len(result.model_dump_json(by_alias=True).encode())
