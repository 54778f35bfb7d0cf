"""What the routes of a server share."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
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
from visar.explain.explanation import Explanation
from visar.index import Index
from visar.public import public_message
from visar.results import SearchResult
from visar.server.jobs import JobQueue, TooManyJobs
from visar.server.settings import Settings
from visar.serving import problem

# After visar.serving, which says what to install if they are missing.
from fastapi.responses import JSONResponse  # isort: skip


class TooManyQuestions(VisarError):
    """More questions at once than the operator allows."""


# The first that fits counts. Of these `public_message` is told.
ERRORS: Mapping[type[Exception], tuple[int, str]] = {
    TooManyJobs: (429, "busy"),
    TooManyQuestions: (429, "busy"),
    NotInIndex: (404, "not_found"),
    EncryptedDocument: (409, "password"),
    DocumentError: (409, "document"),
    EmptyQuestion: (422, "empty_question"),
    InvalidOption: (422, "invalid"),
    GenerationError: (502, "generator"),
    StoreError: (503, "index"),
}


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


class RecentQuestions:
    """What was found for the questions asked last, and why. Safe for threads.

    The views of one question are several requests; each would search anew.
    """

    def __init__(self, index: Index, size: int = 8) -> None:
        self._index = index
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Recent] = OrderedDict()

    def put(self, key: Hashable, found: SearchResult) -> Recent:
        """Keep what was found; of more than so many questions the oldest goes."""
        with self._lock:
            recent = self._kept[key] = Recent(self._index, found)
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return recent

    def get(self, key: Hashable) -> Recent | None:
        """What is kept under a key, if anything is."""
        with self._lock:
            return self._kept.get(key)


class Recent:
    """A search, and its explanation once that is asked for."""

    def __init__(self, index: Index, found: SearchResult) -> None:
        self.found = found
        self._index = index
        self._lock = threading.Lock()
        self._explanation: Explanation | None = None

    @property
    def explanation(self) -> Explanation:
        with self._lock:
            if self._explanation is None:
                self._explanation = self._index.explain(self.found)
            return self._explanation


@dataclass(slots=True)
class Context:
    """The index, the settings, and what runs."""

    index: Index
    settings: Settings
    gate: QuestionGate
    recent: RecentQuestions
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
