"""Schemas of request bodies, and of responses that aren't library results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from visar.query import MAX_COLLECTION_NAME_LENGTH, Query, check_collection
from visar.results import Turn
from visar.serialization import to_plain
from visar.threads import MAX_NAME_LENGTH

CollectionName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_COLLECTION_NAME_LENGTH),
    AfterValidator(check_collection),
]


class Body(BaseModel):
    """Base class for request bodies, which refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """An error in the format of RFC 9457."""

    type: str = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["No document named report.pdf."])
    code: str = Field(description="Stable error code for programs.", examples=["not_found"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AskQuery(Query):
    """A question, the generator for its answer, and the conversation before it."""

    generator: str | None = None
    """Name of the generator, from ``/generators``; the first one by default."""
    history: tuple[Turn, ...] = ()
    """Earlier questions and answers, with which a follow-up is rewritten."""
    thread: str | None = None
    """Id of a saved conversation to continue, instead of ``history``. The answer is saved to it.
    Repeating the last question replaces its answer."""
    standalone: bool = field(default=False, metadata={"strict": True})
    """Search for the question as typed, even if it could be a follow-up."""


class PageOf(Body):
    """A page of a document."""

    document: str = Field(description="Id of the document.")
    page: int = Field(ge=1, strict=True, description="Page number, from 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery(Query):
    """A question, and one of the pages searched."""

    document: str
    """Id of the document."""
    page: int = field(metadata={"minimum": 1, "strict": True})
    """Page number, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuery(Query):
    """A question, and two of the pages searched."""

    first: PageOf
    second: PageOf


class NewThread(Body):
    """A conversation to save."""

    name: str = Field(default="", max_length=MAX_NAME_LENGTH)
    collection: CollectionName | None = None


class ThreadName(Body):
    """The new name of a conversation."""

    name: str = Field(min_length=1, max_length=MAX_NAME_LENGTH)


class Members(Body):
    """Documents of a collection."""

    documents: list[str] = Field(max_length=10_000)


class NewName(Body):
    """The new name of a collection."""

    name: CollectionName


class Password(Body):
    """The password of an encrypted document, if it needs one. It is only kept in memory."""

    password: str | None = Field(default=None, max_length=1_000)


class Unlock(Body):
    """The password of an encrypted document. It is only kept in memory."""

    password: str = Field(min_length=1, max_length=1_000)


class Available(BaseModel):
    """Names that requests may choose from; the first is the default."""

    names: list[str]


class Health(BaseModel):
    """The state of the server."""

    status: Literal["ok"] = "ok"
    version: str


class Readiness(Health):
    """The state of the index, disk and job queue. Adding documents needs all three to be ok."""

    index: Literal["ok"] = "ok"
    disk: Literal["ok", "disk_full", "read_only"]
    """State of the disk for uploads."""
    jobs: Literal["ok", "stopped"]
    """State of the job queue, which adds uploads to the index."""


def as_json(
    value: Any, status_code: int = 200, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return a JSON response with a result, without fields that must not leave the server."""
    return JSONResponse(to_plain(value, public=True), status_code, headers)
