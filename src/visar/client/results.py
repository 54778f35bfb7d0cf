"""What a server answers, as frozen dataclasses. Their fields are named as those of the library."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

from visar.documents.page import Page, Word
from visar.errors import ServiceError
from visar.results import Citation, EncoderRef, PageHit, Passage, Refusal, Strength

State: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
Values: TypeAlias = Mapping[str, Any]
"""A JSON object."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the server's index."""

    id: str
    """Made from its content."""
    name: str
    pages: int
    size: int
    """Of the file, in bytes."""
    added: datetime
    encoders: tuple[EncoderRef, ...]
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A document that is being added, or was."""

    id: str
    name: str
    encoder: str
    created: datetime
    state: State
    stage: str | None
    """What is done with its pages now: reading, ocr or encoding."""
    pages_done: int
    pages: int
    """0 while it is not known."""
    collection: str | None
    document: str | None
    """The id of the document, once it is in the index."""
    code: str | None
    """Why it failed, for programs: "password", "document" or "failed"."""
    reason: str | None
    """Why it failed, for people."""

    @property
    def is_finished(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Search:
    """The pages a question needs, best first, and why so many."""

    question: str
    method: str
    pages: tuple[PageHit, ...]
    """Their pictures come from `Client.image`."""
    runner_up: PageHit | None
    pages_searched: int
    pages_invalid: int
    k: int
    k_star: int
    strength: Strength
    about: float | None
    seconds: float
    documents: tuple[Document, ...]
    left_out: tuple[Document, ...]
    summary: str
    """How many pages, and why, in a sentence."""
    candidates: int | None = None
    """Of a large library: how many pages the method chose from."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with the pages it rests on."""

    question: str
    text: str
    """Empty if the documents do not hold an answer."""
    found: bool
    generator: str
    passages: tuple[Passage, ...]
    citations: tuple[Citation, ...]
    search: Search
    model: str | None
    """That has written it; None for an extractive answer."""
    input_tokens: int | None
    output_tokens: int | None

    @property
    def pages(self) -> tuple[PageHit, ...]:
        """The pages it rests on, best first."""
        return self.search.pages


@dataclass(frozen=True, slots=True)
class Additions:
    """The result of adding several documents."""

    added: tuple[Document, ...]
    refused: tuple[Refusal, ...]


Event: TypeAlias = Search | str | Answer
"""A part of a streamed answer: the pages first, then pieces of text, then the whole."""


def read_document(values: Values) -> Document:
    encoders = tuple(_made(EncoderRef, one) for one in values.get("encoders", ()))
    return _made(
        Document,
        values,
        added=datetime.fromisoformat(values["added"]),
        encoders=encoders,
        collections=tuple(values.get("collections", ())),
    )


def read_job(values: Values) -> Job:
    return _made(Job, values, created=datetime.fromisoformat(values["created"]))


def read_search(values: Values) -> Search:
    return _made(
        Search,
        values,
        pages=tuple(map(_hit, values["pages"])),
        runner_up=values["runner_up"] and _hit(values["runner_up"]),
        documents=tuple(map(read_document, values["documents"])),
        left_out=tuple(map(read_document, values["left_out"])),
    )


def read_page(values: Values) -> Page:
    words = tuple(Word(one["text"], tuple(one["box"]), one["line"]) for one in values["words"])
    # A server does not tell how the page is turned, and where its words come from.
    size = values["width"], values["height"]
    return Page(values["number"], *size, 0, words, "none", values["label"])


def read_answer(values: Values) -> Answer:
    return _made(
        Answer,
        values,
        passages=tuple(
            _made(Passage, one, boxes=_boxes(one), answer=one["answer"] and tuple(one["answer"]))
            for one in values["passages"]
        ),
        citations=tuple(_made(Citation, one) for one in values["citations"]),
        search=read_search(values["search"]),
    )


def read_event(name: str, data: Any) -> Event:
    """Raises ServiceError for a problem."""
    if name == "problem":
        raise ServiceError(str(data["detail"]))
    if name == "text":
        return str(data)
    return read_search(data) if name == "search" else read_answer(data)


def _hit(values: Values) -> PageHit:
    return _made(PageHit, values, boxes=_boxes(values))


def _boxes(values: Values) -> tuple[Any, ...]:
    return tuple(tuple(box) for box in values["boxes"])


def _made(kind: type[T], values: Values, **converted: Any) -> T:
    """Make a result of what a server says; what it says beyond that, a newer one, is left out."""
    names = [one.name for one in dataclasses.fields(kind)]  # type: ignore[arg-type]
    known = {name: values[name] for name in names if name in values}
    try:
        return kind(**{**known, **converted})
    except TypeError as error:
        raise ServiceError(
            f"The server says less than this version expects ({error}): update the older of both."
        ) from error
