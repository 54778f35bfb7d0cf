"""`Context`: the state that all routes of a server share."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Annotated

from anyio import CapacityLimiter, Lock, to_thread
from fastapi import Depends, Request
from fastapi.responses import JSONResponse

from visar.access import AccessTokens
from visar.errors import (
    DiskFull,
    DocumentError,
    EmptyQuestion,
    EncryptedDocument,
    GenerationError,
    InvalidOption,
    NotInIndex,
    ReadOnlyIndex,
    StoreError,
    VisarError,
)
from visar.generation import extractive
from visar.generation.generator import Generator
from visar.generation.registry import is_served
from visar.index import Index
from visar.library import public_message
from visar.server import Settings
from visar.server.jobs import JobQueue, TooManyJobs, job_folders
from visar.server.view import Access, LibraryView, access_of
from visar.serving import problem, refusal

MAX_BATCHES = 8
"""Maximum number of batches of uploads to read at the same time; others wait."""
RESERVED_BYTES = 16_000_000
"""Disk space that uploads leave free, so that the index and the job queue can still be written."""

# Tokens of an index in object storage are cached for this time.
_SECONDS_PER_READ = 1.0
_logger = logging.getLogger(__name__)


class TooManyQuestions(VisarError):
    """The maximum number of concurrent questions is reached."""

    code = "busy"


_STATUS: Mapping[type[VisarError], int] = {
    TooManyJobs: 429,
    TooManyQuestions: 429,
    NotInIndex: 404,
    EncryptedDocument: 409,
    DocumentError: 409,
    EmptyQuestion: 422,
    InvalidOption: 422,
    GenerationError: 502,
    DiskFull: 507,
    ReadOnlyIndex: 503,
    StoreError: 503,
}
ERRORS: Mapping[type[Exception], tuple[int, str]] = {
    kind: (status, kind.code) for kind, status in _STATUS.items()
}
"""Status and code of the errors whose message is sent. The first matching class applies."""


class StoredTokens:
    """The tokens that are stored in the index.

    They are read for every request, so that a revoked token is refused immediately; if
    ``is_remote``, only once a second. If ``needed``, requests need a token even if there are none.
    """

    def __init__(self, tokens: AccessTokens, *, is_remote: bool, needed: bool) -> None:
        self._tokens = tokens
        self._max_age = _SECONDS_PER_READ if is_remote else 0.0
        self._needed = needed
        # A thread of its own, since questions and images may take all others.
        self._thread = CapacityLimiter(1)
        self._lock = Lock()
        self._cached: tuple[float, Mapping[str, Access]] | None = None

    async def grants(self) -> Mapping[str, Access] | None:
        """Return the access that each token grants, by its hash; None if no token is needed.

        Once the server has seen a token, requests need one until it stops: revoking the last token
        must not open the library to everyone.
        """
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] >= self._max_age:
                now = time.monotonic()
                self._cached = now, await to_thread.run_sync(self._load, limiter=self._thread)
            grants = self._cached[1]
        self._needed = self._needed or bool(grants)
        return grants if self._needed else None

    def _load(self) -> Mapping[str, Access]:
        try:
            tokens = self._tokens.all()
        except VisarError as error:
            _logger.warning("Can't read the tokens of the index: %s", error)
            message = "Can't read the tokens of the index: try again in a moment."
            raise refusal(503, "index", message, {"Retry-After": "2"}) from error
        hashes = [(one, key) for one in tokens for key in (one.sha256, one.session_sha256)]
        return {
            key: Access(one.id, one.collection, writes=one.access == "write") for one, key in hashes
        }


class Context:
    """The settings and the shared state of a server. Routes access the index through `library`."""

    def __init__(self, index: Index, settings: Settings) -> None:
        self.settings = settings
        self._questions = threading.BoundedSemaphore(settings.max_questions)
        self.tokens = StoredTokens(
            index.tokens, is_remote="://" in index.location, needed=settings.needs_token
        )
        # A thread of its own for health checks, since questions and images may take all others.
        self.checks = CapacityLimiter(1)
        # Separate threads, since batches on slow networks must not block those of questions.
        self.batches = CapacityLimiter(MAX_BATCHES)
        self._index = index
        self._jobs: JobQueue | None = None
        self._lock = threading.Lock()

    def library(self, access: Access) -> LibraryView:
        """Return the library as a request with these access rights may see and change it."""
        return LibraryView(self._index, self.job_queue, access)

    @contextlib.contextmanager
    def question(self) -> Iterator[None]:
        """Context manager: answer a question; raises TooManyQuestions if the limit is reached."""
        if not self._questions.acquire(blocking=False):
            raise TooManyQuestions("Too many concurrent questions: try again in a moment.")
        try:
            yield
        finally:
            self._questions.release()

    async def still_has(self, access: Access) -> bool:
        """Return whether the token of a request that is in progress is still valid."""
        grants = await self.tokens.grants()
        if access.is_operator:
            return self.settings.token is not None or grants is None
        return access in (grants or {}).values()

    def job_queue(self) -> JobQueue:
        """Return the queue of all jobs; raises StoreError while the disk can't be written."""
        with self._lock:
            if self._jobs is None:
                self._jobs = JobQueue(self._index, self.settings)
            return self._jobs

    def check_index(self) -> None:
        self._index.collections()

    def close(self) -> None:
        if self._jobs is not None:
            self._jobs.close()

    def check_disk(self, size: int = 0) -> None:
        """Raise DiskFull or ReadOnlyIndex if the disk can't take an upload of this size."""
        folder, _ = job_folders(self._index.location, self.settings.folder)
        while not folder.exists():
            folder = folder.parent
        # It detects a read-only disk even for root, unlike the permissions of files.
        if not os.access(folder, os.W_OK):
            raise ReadOnlyIndex("The server's disk is read-only: nothing can be added or changed.")
        if shutil.disk_usage(folder).free < RESERVED_BYTES + size:
            raise DiskFull("The server's disk is full: free some space to add documents.")

    def problem(self, error: Exception) -> JSONResponse:
        if type(error) is StoreError:
            # SQLite only says "disk I/O error" if it can't create or extend a file.
            try:
                self.check_disk()
            except StoreError as reason:
                error = reason
        return problem(error, ERRORS, self.message)

    def message(self, error: Exception) -> str:
        """Return the message of an error in `ERRORS`, without local paths."""
        return public_message(error, self._index)

    def encoder(self, name: str | None) -> str:
        return _choose("encoder", self.settings.encoders, name)

    def writer(self, name: str | None) -> str | Generator:
        """Return the generator that a request names, loaded unless it only quotes pages."""
        full_name = _choose("generator", self.settings.generators, name)
        if full_name == extractive.NAME:
            return full_name
        url = self.settings.base_url if is_served(full_name) else None
        return self._index.generator(full_name, base_url=url)


def _choose(kind: str, allowed: Mapping[str, str], name: str | None) -> str:
    if name is None:
        return next(iter(allowed.values()))
    if name not in allowed:
        raise InvalidOption(f"No {kind} {name!r}. This server offers: {', '.join(allowed)}.")
    return allowed[name]


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


State = Annotated[Context, Depends(_context)]
"""Route parameter: the settings and the state of the server."""


async def _library(request: Request, context: State) -> LibraryView:
    return context.library(access_of(request))


Library = Annotated[LibraryView, Depends(_library)]
"""Route parameter: the library as the request may see and change it."""
