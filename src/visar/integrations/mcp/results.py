"""What tools give back: as data, as text for clients that read no data, and within a size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic import AfterValidator, BaseModel, Field

from visar.errors import InvalidOption
from visar.retrieval.wording import why_so_many
from visar.results import SearchResult
from visar.server.schemas import (
    Box,
    Collection,
    Document,
    Found,
    Hit,
    Passage,
    QuestionWord,
    to_schema,
)

MAX_RESULT = 1_000_000
"""Bytes of a result, as JSON. Claude Desktop takes 1 MiB with what is around it."""
_DECIMALS = 4

ShortId = Annotated[str, AfterValidator(lambda id_: id_[:16])]
"""The beginning of a document's id, which every tool takes: whole ones are long for a model."""


class FoundPage(Hit):
    """A page that the question needs."""

    document: ShortId
    uri: str = Field(description="The resource with the page's image.")


class FoundPages(Found):
    """The pages that a question needs, best first."""

    question: str
    summary: str = Field(description="How many pages, and why, in a sentence.")
    strength: str = Field(description="good, weak or none: whether the documents speak of it.")
    pages: list[FoundPage]
    left_out: list[str] = Field(description="Documents that could not be searched.")


class Quotation(Passage):
    """A quotation from a page."""

    document: ShortId


class Answered(FoundPages):
    """An answer with the pages it rests on."""

    found: bool
    text: str = Field(description="Empty if the documents do not hold an answer.")
    passages: list[Quotation] = Field(description="What is quoted, or what comes nearest.")


class Explained(Answered):
    """An answer, and why it rests on these pages."""

    words: list[QuestionWord]
    cuts: dict[str, int] = Field(description="How many pages other methods would take.")
    numbers: list[str]


class Line(BaseModel):
    """A line of a page."""

    text: str
    box: Box


class PageContent(BaseModel):
    """A page with its words."""

    document: ShortId
    name: str
    page: int
    pages: int = Field(description="Of the document.")
    label: str = Field(description="The number printed on it, if it is another; else empty.")
    lines: list[Line]
    cut_off: bool = Field(description="Whether there are more lines than a result can hold.")
    image: str = Field(description="Its size in pixels, or why there is none.")
    uri: str


class ListedDocument(Document):
    """A document of the index."""

    id: ShortId


class DocumentList(BaseModel):
    """Documents in the order they were added."""

    documents: list[ListedDocument]
    total: int


class CollectionList(BaseModel):
    """All collections."""

    collections: list[Collection]


class Refused(BaseModel):
    """A document that was not added."""

    path: str
    reason: str


class Added(BaseModel):
    """What was added, and what was not."""

    added: list[ListedDocument]
    refused: list[Refused]


def page_uri(document: str, page: int) -> str:
    """The resource of a page.

    >>> page_uri("4f1c", 12)
    'visar://4f1c/12'
    """
    return f"visar://{document[:16]}/{page}"


def found_pages(found: SearchResult) -> dict[str, Any]:
    """What `FoundPages` has of a search."""
    pages = [to_schema(FoundPage, hit, uri=page_uri(hit.document, hit.page)) for hit in found.pages]
    return {
        "summary": why_so_many(found),
        "strength": found.strength,
        "pages": pages,
        "left_out": [document.name for document in found.left_out],
    }


def page_link(document: str, name: str, page: int) -> ResourceLink:
    """A page as a resource."""
    return ResourceLink(
        uri=page_uri(document, page), name=f"{name}, page {page}", mime_type="image/jpeg"
    )


def page_links(found: SearchResult) -> list[ResourceLink]:
    """The pages of a search as resources."""
    return [page_link(hit.document, hit.name, hit.page) for hit in found.pages]


def make_result(
    value: BaseModel,
    *more: ContentBlock,
    links: Sequence[ResourceLink] = (),
    meta: dict[str, Any] | None = None,
) -> CallToolResult:
    """Make a result with what comes beside its data: pictures, resources, and data of an app.

    Raises
    ------
    InvalidOption
        If it has more than `MAX_RESULT` bytes.
    """
    data = _rounded(value.model_dump(mode="json"))
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    made = CallToolResult(
        content=[TextContent(text=text), *more, *links], structured_content=data, _meta=meta
    )
    if size_of(made) > MAX_RESULT:
        raise InvalidOption("The result is too long to be sent: ask for fewer at once.")
    return made


def size_of(result: CallToolResult) -> int:
    """How many bytes a result has as JSON."""
    return len(result.model_dump_json(by_alias=True).encode())


def _rounded(value: Any) -> Any:
    """Numbers with as many decimals as tell anything."""
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
