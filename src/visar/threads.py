"""Saved conversations of an index."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from visar.errors import InvalidOption, NotInIndex, StoreError
from visar.query import check_collection
from visar.results import Answer, Exchange, Thread, Turn
from visar.serialization import from_plain, to_plain
from visar.store import Store
from visar.text import clean_line

MAX_NAME_LENGTH = 200
"""Maximum length of the name of a conversation."""
_DEFAULT_NAME_LENGTH = 60
# An answer about more documents only keeps those with pages or citations.
_MAX_DOCUMENTS = 20
_THREADS = "thread"
_EXCHANGES = "exchange"
_logger = logging.getLogger(__name__)


class Threads:
    """The saved conversations of an index. Each exchange is stored as an item of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Thread]:
        """Return all conversations without their exchanges, latest first."""
        threads = [from_plain(Thread, one) for one in self._store.items(_THREADS).values()]
        return sorted(threads, key=lambda one: one.updated, reverse=True)

    def get(self, thread: str) -> Thread:
        """Return a conversation with its exchanges, by its id or a prefix of its id."""
        found = self._find(thread)
        stored = self._store.items(_EXCHANGES, f"{found.id}/").values()
        exchanges = tuple(from_plain(Exchange, one) for one in stored)
        return replace(found, length=len(exchanges), exchanges=exchanges)

    def _find(self, thread: str) -> Thread:
        matches = self._store.items(_THREADS, thread) if thread else {}
        if len(matches) != 1 and thread not in matches:
            raise unknown_thread(thread)
        return from_plain(Thread, matches.get(thread) or next(iter(matches.values())))

    def collection_for(self, thread: str | None, collection: str | None) -> str | None:
        """Return the collection to search: that of the conversation, if it has one.

        Everyone with access to its collection can read a conversation, so its answers must not come
        from other collections.
        """
        own = None if thread is None else self._find(thread).collection
        if own is not None and collection not in (None, own):
            raise InvalidOption(
                f"This conversation is about the collection {own!r}, not {collection!r}. Start "
                "another one, or leave out the collection."
            )
        return own or collection

    def create(self, name: str = "", collection: str | None = None) -> Thread:
        """Save a new conversation. Without a name, it is named after its first question."""
        if collection is not None:
            check_collection(collection)
        now = datetime.now(UTC)
        thread = Thread(uuid.uuid4().hex, _check_name(name), now, now, collection)
        self._store.change_item(_THREADS, thread.id, lambda _: to_plain(thread))
        return thread

    def rename(self, thread: str, name: str) -> Thread:
        """Rename a saved conversation."""
        new_name = _check_name(name)
        if not new_name:
            raise InvalidOption("The name of a conversation can't be empty.")
        return self._change(thread, lambda one: replace(one, name=new_name))

    def delete(self, thread: str) -> None:
        """Delete a saved conversation."""

        def delete(content: Any) -> None:
            if content is None:
                raise unknown_thread(thread)

        self._store.change_item(_THREADS, thread, delete)
        for id_ in self._store.items(_EXCHANGES, f"{thread}/"):
            self._store.change_item(_EXCHANGES, id_, lambda _: None)

    def previous_turns(
        self, question: str, history: Sequence[Turn], thread: str | None
    ) -> Sequence[Turn]:
        """Return the turns before a question: the given history, or that of a conversation.

        A repeated question will replace the last exchange, which is therefore left out.
        """
        if thread is None:
            return history
        if history:
            raise InvalidOption(
                "thread and history can't be combined: a saved conversation has its own history."
            )
        exchanges = self.get(thread).exchanges
        if exchanges and exchanges[-1].question == question:
            exchanges = exchanges[:-1]
        return [Turn(one.answer.question, one.answer.text) for one in exchanges]

    def save_answer(
        self, thread: str, question: str, pieces: Generator[str, None, Answer]
    ) -> Generator[str, None, Answer]:
        """Yield the pieces of an answer, and save it when it is complete.

        An answer that can't be saved is still returned.
        """
        answer = yield from pieces
        try:
            self._save(thread, Exchange(question, _condense(answer), datetime.now(UTC)))
        except StoreError as error:
            _logger.warning("Can't save an answer to its conversation: %s", error)
        return answer

    def _save(self, thread: str, exchange: Exchange) -> None:
        thread = self._find(thread).id
        known = self._store.items(_EXCHANGES, f"{thread}/")
        last = max(known, default="")
        is_repeated = bool(last) and known[last]["question"] == exchange.question

        def count(one: Thread) -> Thread:
            name = one.name or clean_line(exchange.question, _DEFAULT_NAME_LENGTH)
            length = one.length if is_repeated else one.length + 1
            return replace(one, name=name, length=length, updated=exchange.asked)

        number = self._change(thread, count).length
        id_ = last if is_repeated else f"{thread}/{number:06d}"
        self._store.change_item(_EXCHANGES, id_, lambda _: to_plain(exchange))

    def _change(self, thread: str, change: Callable[[Thread], Thread]) -> Thread:
        def apply(content: Any) -> Any:
            if content is None:
                raise unknown_thread(thread)
            return to_plain(change(from_plain(Thread, content)))

        return from_plain(Thread, self._store.change_item(_THREADS, thread, apply))


def unknown_thread(thread: str) -> NotInIndex:
    """Return the error for a conversation that doesn't exist."""
    return NotInIndex(f"No conversation with the id {clean_line(thread, 40)!r}.")


def _check_name(name: str) -> str:
    """Return the name of a conversation as one line; raises InvalidOption if it is too long."""
    line = clean_line(name)
    if len(line) > MAX_NAME_LENGTH:
        raise InvalidOption(
            f"The name of a conversation can have at most {MAX_NAME_LENGTH} characters, "
            f"not {len(line)}."
        )
    return line


def _condense(answer: Answer) -> Answer:
    """Return an answer without the parts that grow with the library, to save space."""
    search = answer.search
    documents = search.documents
    if len(documents) > _MAX_DOCUMENTS:
        used = {hit.document for hit in search.pages}
        used |= {citation.document for citation in answer.citations if citation.document}
        documents = tuple(one for one in documents if one.id in used)
    decision = search.decision and replace(search.decision, cost=())
    return replace(
        answer, search=replace(search, documents=documents, left_out=(), decision=decision)
    )
