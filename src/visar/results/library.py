"""Result types for documents, collections, jobs and access tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from visar.encoders.encoder import EncoderRef
from visar.serialization import LOCAL, Result

JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
AccessKind: TypeAlias = Literal["read", "write"]
NO_TEXT = "no text was found"
"""Reason why a text encoder has no vectors for a page, such as a blank one."""


@dataclass(frozen=True, slots=True)
class InvalidPage(Result):
    """A page that couldn't be read or encoded, or has no text. Searches never find it."""

    encoder: str
    number: int
    """Page number, from 1."""
    reason: str


@dataclass(frozen=True, slots=True)
class Document(Result):
    """A document in a library."""

    id: str
    """Hash of the content: the same content has the same id."""
    name: str
    pages: int
    """Number of pages."""
    size: int
    """Size of the file in bytes."""
    added: datetime = field(default_factory=lambda: datetime.now(UTC))
    encoders: tuple[EncoderRef, ...] = ()
    """Encoders that the document has vectors from, sorted by name."""
    source: str = field(default="", metadata=LOCAL)
    """Location of the file. Adding changed content from there replaces the document."""
    invalid: tuple[InvalidPage, ...] = ()
    """Pages without vectors, by encoder: damaged, not encoded, or without text."""
    no_text: bool = False
    """True if no page has text, even after OCR. Text questions then find nothing."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Values for filters: text, numbers, booleans or null, by name."""
    collections: tuple[str, ...] = ()
    """Names of the collections that the document is in."""

    def has(self, encoder: EncoderRef) -> bool:
        """Return whether the document has vectors from exactly this version of an encoder."""
        return encoder in self.encoders

    def failed_pages(self, encoder: str | None = None) -> tuple[InvalidPage, ...]:
        """Return the pages that couldn't be read or encoded, by one encoder or by any."""
        return tuple(
            one for one in self.invalid if one.reason != NO_TEXT and encoder in (None, one.encoder)
        )


@dataclass(frozen=True, slots=True)
class Collection(Result):
    """A named group of documents."""

    name: str
    documents: int
    """Number of documents in it."""


@dataclass(frozen=True, slots=True)
class Refusal(Result):
    """A document that couldn't be added."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Additions(Result):
    """The result of adding several documents."""

    added: tuple[Document, ...]
    refused: tuple[Refusal, ...]
    skipped: tuple[str, ...] = ()
    """Files in folders whose type isn't supported."""


@dataclass(frozen=True, slots=True)
class Job(Result):
    """A job of a server, which adds an uploaded document to the library."""

    id: str
    name: str
    """Name of the document, as it was uploaded."""
    encoder: str
    created: datetime
    state: JobState = "waiting"
    stage: str | None = None
    """Current stage of a running job: reading, ocr or encoding."""
    pages_done: int = 0
    pages: int = 0
    """Number of pages; 0 until it is known."""
    collection: str | None = None
    """Collection to add the document to."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Metadata for the document."""
    document: str | None = None
    """Id of the document, once it is in the library."""
    invalid: tuple[InvalidPage, ...] = ()
    """Pages that couldn't be read or encoded, once the document is in the library."""
    code: str | None = None
    """Code of a failure: "password", "document", "failed", or "upload" if the file was deleted."""
    reason: str | None = None
    """Error message of a failure."""

    @property
    def is_finished(self) -> bool:
        """True if the job is done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class AccessToken(Result):
    """A token for access to the library over HTTP, without its secret."""

    id: str
    name: str
    """Name for display; may be empty."""
    collection: str | None
    """The only collection that it gives access to; null for the whole library."""
    access: AccessKind
    created: datetime
    sha256: str = field(repr=False, metadata=LOCAL)
    """Hash of the token."""
    session_sha256: str = field(repr=False, metadata=LOCAL)
    """Hash of the session key, which the web page keeps instead of the token."""
