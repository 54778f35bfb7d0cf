"""What the routes of a server share."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from visar.errors import (
    DocumentError,
    EmptyQuestion,
    EncryptedDocument,
    GenerationError,
    InvalidOption,
    NotInIndex,
    StoreError,
    VisarError,
)
from visar.index import Index
from visar.ingest.sources import source_text
from visar.server.jobs import JobQueue, TooManyJobs
from visar.server.settings import Settings
from visar.serving import problem

# After visar.serving, which says what to install if they are missing.
from fastapi.responses import JSONResponse  # isort: skip


class TooManyQuestions(VisarError):
    """More questions at once than the operator allows."""

    code = "busy"


_STATUS = {
    "busy": 429,
    "not_found": 404,
    "password": 409,
    "document": 409,
    "empty_question": 422,
    "invalid": 422,
    "generator": 502,
    "index": 503,
}
_REPORTED: tuple[type[VisarError], ...] = (
    TooManyJobs,
    TooManyQuestions,
    NotInIndex,
    EncryptedDocument,
    DocumentError,
    EmptyQuestion,
    InvalidOption,
    GenerationError,
    StoreError,
)
ERRORS: Mapping[type[Exception], tuple[int, str]] = {
    kind: (_STATUS[kind.code], kind.code) for kind in _REPORTED
}
"""Errors whose message is sent, with status and code; the first that fits counts."""


def public_message(error: object, index: Index) -> str:
    """Return the message of an error with local paths removed."""
    hint = "Its pages are shown once it is unlocked with its password"
    said = str(error).replace(EncryptedDocument.HINT, hint)
    location = index.location
    said = said.replace(f"index {location}", "index").replace(location, "the index")
    if os.sep in said:  # perhaps of the path of a document
        with contextlib.suppress(StoreError):  # which may be what there is to tell
            for document in index.documents():
                if document.source:
                    said = said.replace(source_text(document.source), document.name)
    return said


class QuestionGate:
    """Counts the questions that are being answered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold a place; raises TooManyQuestions if there is none."""
        with self._lock:
            if self._running >= self._most:
                raise TooManyQuestions("Too many questions at once: ask again in a moment.")
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1


@dataclass(slots=True)
class Context:
    """The index, the settings, and what runs."""

    index: Index
    settings: Settings
    gate: QuestionGate
    jobs: JobQueue = field(init=False)
    """There from the start of the application to its end."""

    def problem(self, error: Exception) -> JSONResponse:
        """The answer to a request that failed with this error."""
        return problem(error, ERRORS, self.message)

    def message(self, error: Exception) -> str:
        """What is said of an error of `ERRORS`."""
        return public_message(error, self.index)

    def encoder(self, name: str | None) -> str:
        """What the index knows an encoder by that a request has named."""
        return _chosen("encoder", self.settings.encoders, name)

    def generator(self, name: str | None) -> str:
        """What the index knows a generator by that a request has named."""
        return _chosen("generator", self.settings.generators, name)


def _chosen(what: str, allowed: Mapping[str, str], name: str | None) -> str:
    if name is None:
        return next(iter(allowed.values()))
    if name not in allowed:
        raise InvalidOption(f"There is no {what} {name!r} here, but {', '.join(allowed)}.")
    return allowed[name]
