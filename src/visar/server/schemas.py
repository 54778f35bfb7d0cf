"""Bodies of requests, and the responses that are not results of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from visar.query import Query
from visar.results import Job


class Body(BaseModel):
    """Base class for request bodies: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["No document named report.pdf."])
    code: str = Field(description="For programs; never changes.", examples=["not_found"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AskQuery(Query):
    """A question, and the generator that writes its answer."""

    generator: str | None = None
    """One of /generators; the first by default."""


class PageOf(Body):
    """A page of a document."""

    document: str = Field(description="Id of the document.")
    page: int = Field(ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery(Query):
    """A question, and a page that was searched for it."""

    document: str
    """Id of the document."""
    page: int
    """Page number, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuery(Query):
    """A question, and two pages that were searched for it."""

    first: PageOf
    second: PageOf


class Members(Body):
    """Documents of a collection."""

    documents: list[str] = Field(max_length=10_000)


class NewName(Body):
    """New name of a collection."""

    name: str = Field(min_length=1, max_length=200)


class Password(Body):
    """Password of an encrypted document, kept in memory only."""

    password: str | None = Field(default=None, max_length=1_000)


class Unlock(Body):
    """Password of an encrypted document, kept in memory only."""

    password: str = Field(min_length=1, max_length=1_000)


class Uploaded(BaseModel):
    """One file of several that were uploaded: its job, or a problem."""

    name: str
    job: Job | None = None
    problem: Problem | None = None


class Available(BaseModel):
    """Names that requests may choose from; the first is the default."""

    names: list[str]


class Health(BaseModel):
    """State of the server."""

    status: Literal["ok"] = "ok"
    version: str
