"""Saved conversations, in both kinds of index and behind a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import write_pdf
from tests.generation.scripted import replies, scripted
from tests.server.conftest import manual as manual
from tests.server.service import serving
from tests.store.samples import KINDS, open_kind
from visar.client import Client
from visar.errors import InvalidOption, NotInIndex
from visar.explain.report import thread_html, thread_markdown
from visar.generation.openai_server import OpenAIGenerator
from visar.index import Index
from visar.library import Library
from visar.results import Turn

QUESTION = "How long is the warranty of the Aurora lantern?"


@pytest.fixture(scope="module", params=[*KINDS, "server"])
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, manual: Path
) -> Iterator[Library]:
    kind = "sqlite" if request.param == "server" else request.param
    with Index(open_kind(kind, tmp_path_factory.mktemp("threads") / "index")) as index:
        index.add(manual, collection="manuals")
        if request.param != "server":
            yield index
            return
        with serving(index) as address, Client(address) as client:
            yield client


def test_a_conversation_is_saved_with_its_answers(library: Library) -> None:
    thread = library.create_thread()
    assert (thread.name, thread.length, thread.exchanges) == ("", 0, ())
    answer = library.ask(QUESTION, thread=thread.id)
    library.ask("And are repairs free under it?", thread=thread.id)

    saved = library.thread(thread.id)
    first, second = saved.exchanges
    assert (saved.length, saved.name) == (2, QUESTION)
    assert (first.question, first.answer.text) == (QUESTION, answer.text)
    assert second.question == "And are repairs free under it?"
    assert "warranty of the Aurora lantern" in second.answer.question
    # Pages of saved answers have images, too.
    assert first.answer.pages[0].image(30).size == answer.pages[0].image(30).size
    assert library.thread(thread.id[:8]).id == thread.id
    (listed,) = [one for one in library.threads() if one.id == thread.id]
    assert (listed.length, listed.exchanges) == (2, ())


def test_repeating_the_last_question_replaces_its_answer(library: Library) -> None:
    thread = library.create_thread("Again", collection="manuals")
    assert thread.collection == "manuals"
    for question in ("What cleans the glass?", QUESTION, QUESTION):
        library.ask(question, thread=thread.id)
    exchanges = library.thread(thread.id).exchanges
    assert [one.question for one in exchanges] == ["What cleans the glass?", QUESTION]
    # The answer that is replaced isn't part of the history.
    assert exchanges[1].answer.question == QUESTION


def test_conversations_can_be_renamed_and_deleted(library: Library) -> None:
    older, newer = library.create_thread("Older"), library.create_thread("Newer")
    library.ask(QUESTION, thread=older.id)
    names = [one.name for one in library.threads()]
    assert names.index("Older") < names.index("Newer")  # the last one used comes first
    assert library.rename_thread(newer.id, "  Renamed\n").name == "Renamed"
    library.delete_thread(older.id)
    assert older.id not in [one.id for one in library.threads()]
    for unknown in (older.id, "", "no such id"):
        with pytest.raises(NotInIndex):
            library.thread(unknown)
    with pytest.raises(NotInIndex):
        library.delete_thread(older.id)
    with pytest.raises(NotInIndex):
        library.ask(QUESTION, thread=older.id)
    with pytest.raises(InvalidOption):
        library.rename_thread(newer.id, "x" * 1_000)


def test_a_follow_up_needs_no_saved_conversation(library: Library) -> None:
    history = [Turn(QUESTION, "Seven years.")]
    answer = library.ask("And are repairs free under it?", history=history)
    assert "warranty" in answer.question
    as_typed = library.ask("And are repairs free under it?", history=history, standalone=True)
    assert as_typed.question == "And are repairs free under it?"
    thread = library.create_thread()
    with pytest.raises(InvalidOption):
        library.ask("And then?", history=history, thread=thread.id)
    assert library.thread(thread.id).length == 0


def test_an_answer_that_is_stopped_is_not_saved(library: Library) -> None:
    thread = library.create_thread()
    with library.stream(QUESTION, thread=thread.id) as stream:
        assert stream.search.pages
    if isinstance(library, Index):  # a server may have finished the answer
        assert library.thread(thread.id).length == 0
    complete = library.stream(QUESTION, thread=thread.id)
    assert "".join(complete)
    assert library.thread(thread.id).length == 1


def test_a_conversation_can_be_exported(tmp_path: Path, manual: Path) -> None:
    reply = "The warranty is **seven years** [2] <script>alert(1)</script>. It is 99 in Mars [4]."
    rewrites = '{"question": "Is the lantern blue?"}'
    with (
        Index.open(tmp_path / "index") as index,
        scripted(replies(reply), replies(rewrites), replies("Not answerable")) as server,
    ):
        index.add(manual)
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        thread = index.create_thread()
        index.ask(f"{QUESTION} <b>", thread=thread.id, generator=generator)
        index.ask("And blue?", thread=thread.id, generator=generator)
        saved = index.thread(thread.id)
        text, page = thread_markdown(saved), thread_html(index, saved)
        gone = index.remove("manual.pdf").id
        assert "data:image" not in thread_html(index, replace(saved))
    assert gone
    assert "**seven years** [1]" in text
    assert "[1] manual.pdf, page 2" in text
    assert "Is the lantern blue?" in text
    assert "[2] page 4 (unverified" in text
    assert "<strong>seven years</strong>" in page
    assert not re.search("<script|<b>|https?://", page)
    (link,) = set(re.findall(r'href="#([^"]+)"', page)[:1])
    assert f'id="{link}"' in page
    assert page.count("data:image/jpeg") == len(re.findall("<figure", page)) >= 1


def test_a_conversation_stays_within_its_collection(library: Library) -> None:
    """Everyone with access to the collection can read the conversation."""
    thread = library.create_thread(collection="manuals")
    assert library.ask(QUESTION, thread=thread.id).search.query.collection == "manuals"
    with pytest.raises(InvalidOption, match="'manuals'"):
        library.ask(QUESTION, thread=thread.id, collection="others")


def test_a_conversation_can_be_continued_by_a_prefix_of_its_id(library: Library) -> None:
    thread = library.create_thread()
    library.ask(QUESTION, thread=thread.id[:8])
    assert library.thread(thread.id).length == 1


def test_a_saved_answer_names_the_documents_that_were_searched(
    tmp_path: Path,
) -> None:
    with Index.open(tmp_path / "index") as index:
        for town in ("Arran", "Bute", "Islay"):
            index.add(write_pdf(tmp_path / f"{town}.pdf", f"The ferry to {town} leaves at noon."))
        thread = index.create_thread()
        asked = index.ask("When does the ferry to Bute leave?", thread=thread.id, max_k=1)
        (exchange,) = index.thread(thread.id).exchanges
    assert len(asked.search.pages) == 1
    saved = [document.name for document in exchange.answer.search.documents]
    assert saved == ["Arran.pdf", "Bute.pdf", "Islay.pdf"]
