"""`LibraryView`: the library as one request may see and change it, by its access rights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fastapi import Request

from visar.documents.page import Page
from visar.errors import NotInIndex
from visar.generation.answering import Budget
from visar.generation.generator import Generator as TextGenerator
from visar.index import Index
from visar.ingest.jobs import unknown_job
from visar.library import AnswerStream, SearchOptions
from visar.query import Query
from visar.results import (
    Answer,
    Collection,
    Document,
    Explanation,
    Job,
    Patches,
    PatchPair,
    SearchResult,
    Thread,
    Turn,
)
from visar.server.jobs import JobQueue
from visar.serving import GRANT, refusal
from visar.store.checks import find_document
from visar.threads import unknown_thread
from visar.trace import PageId

if TYPE_CHECKING:
    from PIL.Image import Image

READING_TAGS = ("questions", "session")
"""Tags of routes that change nothing, even if their method is POST."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access rights of a request."""

    token: str | None = None
    """Id of the stored token; None for the operator."""
    collection: str | None = None
    """The only accessible collection; None for the whole library."""
    writes: bool = True
    """Whether the request may change anything."""

    @property
    def is_operator(self) -> bool:
        """True for the server's own token, or if no token is needed."""
        return self.token is None

    def check_writes(self) -> None:
        """Refuse the request if its token is read-only."""
        if not self.writes:
            message = "This token is read-only: use one with write access to make changes."
            # Clients raise ReadOnlyIndex for this code.
            raise refusal(403, "read_only", message)


OPERATOR = Access()


class LibraryView:
    """The library as a request may see and change it. Routes only access the index through this.

    The methods are those of `visar.Library` and `JobQueue`. For a token that is limited to a
    collection, nothing outside that collection exists, not even the names of other collections
    that a document is in.
    """

    def __init__(self, index: Index, queue: Callable[[], JobQueue], access: Access) -> None:
        self._index = index
        self._queue = queue
        self._access = access
        self._only = access.collection

    # Documents

    def documents(
        self, *, where: str | None = None, collection: str | None = None
    ) -> list[Document]:
        if self._only is not None and collection not in (None, self._only):
            return []
        documents = self._index.documents(where=where, collection=self._only or collection)
        return self._hide_collections(documents)

    def get(self, document: str) -> Document:
        if self._only is None:
            return self._index.get(document)
        known = {one.id: one for one in self.documents()}
        return find_document(known, document, self._index.location)

    def remove(self, document: str) -> Document:
        """Remove a document, or, if it is also in a hidden collection, only from this one."""
        stored = self.get(document)
        if self._only is None:
            return self._index.remove(stored.id)
        # Uncollect it first: if someone adds it to another collection meanwhile, it must stay.
        self._index.uncollect(self._only, [stored.id])
        if not self._index.get(stored.id).collections:
            self._index.remove(stored.id)
        return stored

    def unlock(self, document: str, password: str) -> None:
        self._index.unlock(self.get(document).id, password)

    def original(self, document: str) -> Path | None:
        return self._index.original(self.get(document).id)

    def page(self, document: str, number: int) -> Page:
        return self._index.page(self.get(document).id, number)

    def pages(self, document: str) -> tuple[Page, ...]:
        return self._index.pages(self.get(document).id)

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        return self._index.image(self.get(document).id, number, dpi)

    def _hide_collections(self, documents: Iterable[Document]) -> list[Document]:
        """Return documents without the names of hidden collections."""
        if self._only is None:
            return list(documents)
        return [replace(one, collections=(self._only,)) for one in documents]

    # Collections

    def collections(self) -> list[Collection]:
        return [one for one in self._index.collections() if self._only in (None, one.name)]

    def collection(self, name: str) -> Collection:
        for collection in self.collections():
            if collection.name == name:
                return collection
        raise _unknown_collection(name)

    def collect(self, name: str, documents: Iterable[str]) -> Collection:
        self._check_collection(name)
        self._index.collect(name, [self.get(one).id for one in documents])
        return self.collection(name)

    def uncollect(self, name: str, documents: Iterable[str] | None = None) -> None:
        self.collection(name)
        chosen = None if documents is None else [self.get(one).id for one in documents]
        self._index.uncollect(name, chosen)

    def rename(self, name: str, new: str) -> Collection:
        self.collection(name)
        self._check_collection(new)
        self._index.collect(new, [one.id for one in self._index.documents(collection=name)])
        if new != name:
            self._index.uncollect(name)
        return self.collection(new)

    def _check_collection(self, name: str) -> None:
        if self._only not in (None, name):
            raise _unknown_collection(name)

    # Jobs

    @property
    def changes(self) -> int:
        return self._queue().changes

    def jobs(self) -> list[Job]:
        return [job for job in self._queue().jobs() if self._only in (None, job.collection)]

    def job(self, id_: str) -> Job:
        job = self._queue().get(id_)
        if self._only not in (None, job.collection):
            raise unknown_job(id_)
        return job

    def cancel(self, id_: str) -> Job:
        return self._queue().cancel(self.job(id_).id)

    def retry(self, id_: str, password: str | None) -> Job:
        return self._queue().retry(self.job(id_).id, password)

    def forget(self, id_: str) -> None:
        self._queue().forget(self.job(id_).id)

    def upload(self) -> AbstractContextManager[Path]:
        return self._queue().upload()

    def collection_for(self, name: str | None) -> str | None:
        """Return the collection for a request that names one, or none.

        Raises NotInIndex if the collection is hidden.
        """
        if name is not None:
            self._check_collection(name)
        return self._only or name

    def submit(self, upload: Path, name: str, *, collection: str | None, **more: Any) -> Job:
        into = self.collection_for(collection)
        return self._queue().submit(upload, name, collection=into, **more)

    # Conversations

    def threads(self) -> list[Thread]:
        return [one for one in self._index.threads() if self._only in (None, one.collection)]

    def thread(self, thread: str) -> Thread:
        stored = self._index.thread(self._find_thread(thread).id)
        exchanges = [
            replace(one, answer=replace(one.answer, search=self._hide_others(one.answer.search)))
            for one in stored.exchanges
        ]
        return replace(stored, exchanges=tuple(exchanges))

    def create_thread(self, name: str, collection: str | None) -> Thread:
        return self._index.create_thread(name, self.collection_for(collection))

    def rename_thread(self, thread: str, name: str) -> Thread:
        return self._index.rename_thread(self._find_thread(thread).id, name)

    def delete_thread(self, thread: str) -> None:
        self._index.delete_thread(self._find_thread(thread).id)

    def _find_thread(self, thread: str) -> Thread:
        """Return a conversation without its exchanges, by its id or a prefix of its id."""
        matches = [one for one in self.threads() if thread and one.id.startswith(thread)]
        if len(matches) != 1:
            raise unknown_thread(thread)
        return matches[0]

    # Questions. Their results contain the query as it was sent, even if a cached result is used
    # that came from another query.

    def search(self, query: Query, **options: Unpack[SearchOptions]) -> SearchResult:
        return self._with_query(self._search(query, options), query)

    def stream(
        self,
        query: Query,
        *,
        generator: str | TextGenerator,
        budget: Budget | None = None,
        history: Sequence[Turn] = (),
        thread: str | None = None,
        standalone: bool = False,
        **options: Unpack[SearchOptions],
    ) -> AnswerStream:
        """Answer a question and stream the text.

        A conversation about a collection only searches that collection, and is saved as the sender
        sees it.
        """
        conversations, question = self._index.conversations, query.question
        self.collection_for(query.collection)
        if thread is not None:
            self._access.check_writes()
            thread = self._find_thread(thread).id
            options["collection"] = conversations.collection_for(thread, query.collection)
            query = replace(query, collection=options["collection"])
        stream = self._index.stream(
            question,
            generator=generator,
            budget=budget,
            history=conversations.previous_turns(question, history, thread),
            standalone=standalone,
            **self._restrict(options),
        )
        found = self._with_query(stream.search, query)

        def pieces() -> Generator[str, None, Answer]:
            with contextlib.closing(stream):
                yield from stream
                return replace(stream.answer, search=found)

        if thread is None:
            return AnswerStream(found, pieces())
        return AnswerStream(found, conversations.save_answer(thread, question, pieces()))

    def explain(self, query: Query, **options: Unpack[SearchOptions]) -> Explanation:
        return self._index.explain(self._search(query, options))

    def pairs(
        self, query: Query, first: PageId, second: PageId, **options: Unpack[SearchOptions]
    ) -> tuple[PatchPair, ...]:
        return self._index.pairs(self._search(query, options), first, second)

    def patches(self, query: Query, page: PageId, **options: Unpack[SearchOptions]) -> Patches:
        return self._index.patches(self._search(query, options), *page)

    def _search(self, query: Query, options: SearchOptions) -> SearchResult:
        return self._index.search(query.question, **self._restrict(options))

    def _restrict(self, options: SearchOptions) -> SearchOptions:
        """Return options that only search documents of the visible collection."""
        if self._only is None:
            return options
        self.collection_for(options.get("collection"))
        names = options.get("documents")
        chosen = self.documents() if names is None else [self.get(one) for one in names]
        if not chosen and names is None:
            raise NotInIndex("The library is empty: add a document first.")
        return {**options, "collection": None, "documents": [one.id for one in chosen]}

    def _with_query(self, found: SearchResult, query: Query) -> SearchResult:
        """Return a result with the options as sent. A cached result may have those of others."""
        names = ("documents", "collection", "where", "encoder")
        sent = replace(found.query, **{name: getattr(query, name) for name in names})
        return self._hide_others(replace(found, query=sent))

    def _hide_others(self, found: SearchResult) -> SearchResult:
        """Return a result without the names of hidden collections."""
        return replace(
            found,
            documents=tuple(self._hide_collections(found.documents)),
            left_out=tuple(self._hide_collections(found.left_out)),
        )


def _unknown_collection(name: str) -> NotInIndex:
    return NotInIndex(f"No collection {name!r}.")


def access_of(request: Request) -> Access:
    """Return the access rights of a request, from the token that `RequestGuard` has checked."""
    grant = request.scope[GRANT]
    return grant if isinstance(grant, Access) else OPERATOR


async def check_rights(request: Request) -> None:
    """Refuse requests with a read-only token, except reads and questions."""
    tags = request.scope["route"].tags
    if request.method in ("GET", "HEAD") or not {*READING_TAGS}.isdisjoint(tags):
        return
    access_of(request).check_writes()


async def check_operator(request: Request) -> None:
    """Refuse requests that don't come from the operator."""
    if not access_of(request).is_operator:
        raise refusal(403, "operator", "Only the operator may do this: use the server's own token.")
