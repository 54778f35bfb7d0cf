"""Tests of the library protocol, run for an index and for both clients of a server."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self, cast

import pytest

import visar
from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import serving
from visar.client import AsyncClient, Client
from visar.documents import Limits, ReadOptions
from visar.errors import (
    DocumentError,
    EmptyQuestion,
    EncryptedDocument,
    InvalidOption,
    NotInIndex,
)
from visar.explain.pictures import pages_with_heat
from visar.explain.report import html_report
from visar.index import Index
from visar.integrations.pages import retrieve
from visar.library import Library
from visar.results import Collection, Document, Refusal, SearchResult
from visar.serialization import from_plain, to_plain

QUESTION = "How long is the warranty of the Aurora lantern?"
PAGES = (
    "Lantern manual.\nThis book is about the Aurora lantern.",
    "Warranty. The warranty of the Aurora lantern is seven years.\nKeep the bill.",
    "Cleaning. Wipe the glass with a dry cloth every month.",
    "Repairs. Repairs under the warranty of seven years are free.",
)
SECRET = ReadOptions(password="sesame")  # noqa: S106


class BlockingAsyncClient:
    """An `AsyncClient` whose methods block, so that it can be tested like the other libraries."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = AsyncClient(address)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *args, **options: self._run(method(*args, **options))

    def stream(self, question: str, **options: Any) -> Any:
        async def read() -> tuple[Any, list[str], Any]:
            stream = await self._client.stream(question, **options)
            return stream.search, [piece async for piece in stream], await stream.answer()

        search, pieces, answer = self._run(read())

        class Stream(list[str]):
            pass

        result = Stream(pieces)
        result.search, result.answer = search, answer  # type: ignore[attr-defined]
        return result

    def add_all(self, *args: Any, each: Any = None, **options: Any) -> Any:
        result = self._run(self._client.add_all(*args, **options))
        for one in (*result.added, *result.refused) if each else ():
            each("", one)
        return result

    def _run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def behind_server(index: Index, client: Callable[[str], Any]) -> Iterator[Any]:
    with serving(index) as address, client(address) as library:
        yield library


@pytest.fixture(scope="module", params=["Index", "Client", "AsyncClient"])
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("library")
    with Index.open(folder / "index") as index:
        index.add(write_pdf(folder / "manual.pdf", *PAGES), metadata={"year": 2021})
        if request.param == "Index":
            yield index
            return
        client: Any = Client if request.param == "Client" else BlockingAsyncClient
        opened = cast("AbstractContextManager[Library]", behind_server(index, client))
        with opened as library:
            yield library


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """Return the result of the search in an index."""
    folder = tmp_path_factory.mktemp("expected")
    with Index.open(folder / "index") as index:
        index.add(write_pdf(folder / "manual.pdf", *PAGES))
        return index.search(QUESTION, max_k=2)


def test_a_search_has_the_same_result_in_every_library(
    library: Library, expected: SearchResult
) -> None:
    found = library.search(QUESTION, max_k=2)
    assert found.pages[0].page == 2
    assert found.query.max_k == 2
    assert (found.question, found.method) == (QUESTION, "visar")
    assert found.decision is not None
    assert found.k_star == found.decision.k_star
    assert found.k == len(found.pages) <= 2
    assert [one.name for one in found.documents] == ["manual.pdf"]
    assert found.summary
    # JSON doesn't round numbers.
    assert found.pages == expected.pages
    assert found.passages == expected.passages
    assert expected.decision is not None
    assert found.decision.cost == expected.decision.cost


def test_options_choose_documents_and_method(library: Library) -> None:
    assert library.search(QUESTION, where="year = 2021").pages
    with pytest.raises(NotInIndex):
        library.search(QUESTION, where="year = 1999")
    with pytest.raises(NotInIndex):
        library.search(QUESTION, documents=["other.pdf"])
    with pytest.raises(NotInIndex):
        library.search(QUESTION, collection="nothing")
    top = library.search(QUESTION, method="top-k", k=3, documents=["manual.pdf"])
    assert (top.k, top.decision, top.k_star) == (3, None, None)
    assert len(library.search(QUESTION, max_k=1, neighbors=1).pages) == 3
    assert library.search(QUESTION, exact=True).query.exact


@pytest.mark.parametrize(
    "options", [{"max_k": 0}, {"k": 3}, {"method": "no-such"}, {"where": "year >"}]
)
def test_invalid_options_are_refused(library: Library, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        library.search(QUESTION, **options)


def test_an_empty_question_is_refused(library: Library) -> None:
    with pytest.raises(EmptyQuestion):
        library.search("")


def test_an_answer_can_be_complete_or_streamed(library: Library) -> None:
    answer = library.ask(QUESTION)
    assert "seven years" in answer.text
    assert (answer.found, answer.generation, answer.citations) == (True, None, ())
    assert answer.question == QUESTION
    stream = library.stream(QUESTION)
    assert stream.search.pages == answer.pages
    assert "".join(stream).strip() == answer.text
    assert stream.answer.passages == answer.passages


def test_an_answer_uses_at_most_ten_pages_by_default(library: Library, tmp_path: Path) -> None:
    """Searches don't have this limit."""
    pages = [f"Part {number}. The warranty is seven years." for number in range(24)]
    pages += [f"Recipe {number}. Boil water and add salt." for number in range(60)]
    document = library.add(write_pdf(tmp_path / "parts.pdf", *pages)).id
    question = "How long is the warranty?"
    try:
        found = library.search(question, documents=[document])
        assert found.k > 10
        answer = library.ask(question, documents=[document])
        assert (len(answer.pages), answer.search.query.max_k) == (10, 10)
        assert answer.search.decision is not None
        assert answer.search.decision.k_star > 10
        assert str(answer.search.decision.k_star) in answer.search.summary
        assert library.explain(answer.search).k_star == found.k_star
        assert library.stream(question, documents=[document]).search.k == 10
        assert library.ask(question, documents=[document], max_k=50).search.k == found.k
        fixed = library.ask(question, documents=[document], method="top-k", k=12)
        assert len(fixed.pages) == 12
        assert len(retrieve(library, question, search_kwargs={"documents": [document]})) == 10
        gap = library.ask(question, documents=[document], method="largest-gap").search
        assert gap.k == 10
        assert "maximum" in gap.summary
    finally:
        library.remove(document)


def test_explanations_cover_the_pages_searched(library: Library) -> None:
    found = library.search(QUESTION)
    explained = library.explain(found)
    assert [one.page for one in explained.pages] == [1, 2, 3, 4]
    assert explained.k_star == found.k_star
    assert len(explained.similarity) == len(explained.similarity[0])
    assert explained.cuts["visar"] == found.k_star
    hit = found.pages[0]
    patches = library.patches(found, hit.document, hit.page)
    assert len(patches.boxes) == len(patches.weights) == len(patches.cosines[0])
    assert max(patches.weights) > 0
    page_id = (hit.document, hit.page)
    assert all(pair.shared > 0 for pair in library.pairs(found, page_id, page_id))
    with pytest.raises(NotInIndex):
        library.patches(found, hit.document, 99)


def test_heat_and_report_work_with_every_library(library: Library) -> None:
    answer = library.ask(QUESTION)
    hit, picture = next(iter(pages_with_heat(library, answer.search, dpi=36)))
    assert hit.page == 2
    assert picture.size == (200, 250)
    report = html_report(library, answer, library.explain(answer.search))
    assert QUESTION in report


def test_pages_and_images_can_be_read(library: Library) -> None:
    page = library.page("manual.pdf", 3)
    assert page.words[0].text == "Cleaning."
    assert (page.width, page.height, page.text_source) == (400, 500, "text layer")
    assert library.image("manual.pdf", 3, dpi=36).size == (200, 250)
    with pytest.raises(NotInIndex):
        library.page("manual.pdf", 5)
    with pytest.raises(NotInIndex):
        library.image("other.pdf", 1)


def test_a_document_without_text_is_marked(library: Library, tmp_path: Path) -> None:
    blank = library.add(write_pdf(tmp_path / "blank.pdf", "", ""))
    partly = library.add(write_pdf(tmp_path / "partly.pdf", "", "Chapter two. The wall is white."))
    try:
        assert (blank.no_text, partly.no_text) == (True, False)
        assert [one.number for one in blank.invalid] == [1, 2]
        assert library.get(blank.id).no_text
        answer = library.ask("What colour is the wall?", documents=[blank.id])
        assert (answer.text, answer.search.strength) == ("", "none")
        assert answer.search.documents[0].no_text
        # Blank pages don't count as failures.
        found = library.search("What colour is the wall?", documents=[partly.id])
        assert (found.pages[0].page, found.pages_invalid) == (2, 0)
    finally:
        for document in (blank, partly):
            library.remove(document.id)


def test_documents_can_be_added_found_and_removed(library: Library, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "wall.pdf", "The wall is white.")
    added = library.add(
        path,
        # These characters have a meaning in URLs.
        name="wall?#1 50%.pdf",
        metadata={"year": 1999, "kind": "note", "draft": True},
        collection="walls",
        encoder="embedded",
    )
    assert isinstance(added, Document)
    assert (added.name, added.pages, added.collections) == ("wall?#1 50%.pdf", 1, ("walls",))
    assert added.metadata["year"] == 1999
    assert library.get(added.name) == added
    assert library.get(added.id[:10]) == added
    assert library.documents(collection="walls") == [added]
    assert library.documents(where='kind = "note"') == [added]
    assert len(library.documents()) == 2
    assert library.remove(added.name) == added
    with pytest.raises(NotInIndex):
        library.get(added.id)
    with pytest.raises(NotInIndex):
        library.remove(added.id)


def test_a_file_that_cannot_be_read_does_not_stop_others(library: Library, tmp_path: Path) -> None:
    good = [write_pdf(tmp_path / f"{name}.pdf", f"A {name}.") for name in ("oak", "b" * 120)]
    bad = tmp_path / "notes.pdf"
    bad.write_text("no document")
    paths = [good[0], bad, tmp_path / "missing.pdf", good[1]]
    reported: list[Document | Refusal] = []
    result = library.add_all(
        paths, collection="trees", each=lambda _, one: reported.append(one), metadata={"n": 1}
    )
    assert [one.name for one in result.added] == [path.name for path in good]
    assert sorted(one.path for one in result.refused) == sorted(map(str, paths[1:3]))
    assert all(one.reason for one in result.refused)
    assert sorted(map(str, reported)) == sorted(map(str, (*result.added, *result.refused)))
    found = library.documents(where="n = 1", collection="trees")
    assert sorted(found, key=str) == sorted(result.added, key=str)
    for one in result.added:
        library.remove(one.id)
    with pytest.raises(DocumentError):
        library.add(bad)


def test_documents_can_be_added_to_and_removed_from_collections(library: Library) -> None:
    library.collect("manuals", ["manual.pdf"])
    library.collect("others", [library.get("manual.pdf").id])
    assert library.collections() == [Collection("manuals", 1), Collection("others", 1)]
    assert library.search(QUESTION, collection="manuals").pages
    library.uncollect("manuals", ["manual.pdf"])
    library.uncollect("others")
    assert library.collections() == []


def test_a_password_opens_an_encrypted_document(library: Library, tmp_path: Path) -> None:
    locked = encrypt(write_pdf(tmp_path / "a.pdf", "A secret."), "sesame")
    with pytest.raises(DocumentError):
        library.add(locked)
    added = library.add(locked, options=SECRET)
    assert library.image(added.id, 1, dpi=36).size == (200, 250)
    with pytest.raises(EncryptedDocument):
        library.unlock(added.id, "simsalabim")
    library.remove(added.id)


def test_only_servers_have_jobs(library: Library, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "roof.pdf", "The roof is blue.")
    added = library.add(path, metadata={"year": 3})
    finished = [job for job in library.jobs() if job.document == added.id]
    assert [(job.state, job.name, job.metadata) for job in finished] == (
        [] if isinstance(library, Index) else [("done", "roof.pdf", {"year": 3})]
    )
    library.remove(added.id)


def test_results_can_be_converted_to_json_and_back(library: Library) -> None:
    answer = library.ask(QUESTION, max_k=2)
    again = from_plain(visar.Answer, to_plain(answer))
    assert to_plain(again) == to_plain(answer)
    assert from_plain(Document, to_plain(library.get("manual.pdf"))) == library.get("manual.pdf")
    assert "source" not in to_plain(library.get("manual.pdf"), public=True)
    explained = library.explain(answer.search)
    assert to_plain(from_plain(type(explained), to_plain(explained))) == to_plain(explained)


@pytest.mark.parametrize(
    ("method", "given", "option"),
    [
        ("search", {"encoder": object()}, "encoder"),
        ("search", {"method": lambda _: 1}, "method"),
        ("ask", {"budget": object()}, "budget"),
        ("ask", {"generator": object()}, "generator"),
        ("add_all", {"ray": "local"}, "ray"),
        ("add", {"options": ReadOptions(ocr="never")}, "ocr"),
        ("add", {"options": ReadOptions(limits=Limits(max_pages=1))}, "limits"),
    ],
)
def test_a_client_refuses_options_that_it_does_not_support(
    tmp_path: Path, method: str, given: dict[str, Any], option: str
) -> None:
    path = write_pdf(tmp_path / "a.pdf", "A.")
    argument: Any = {"add": path, "add_all": [path]}.get(method, QUESTION)
    with (
        Client("http://127.0.0.1:9") as client,  # nothing listens there, and nothing must be sent
        pytest.raises(InvalidOption, match=option),
    ):
        getattr(client, method)(argument, **given)


def test_both_clients_have_every_method_of_the_protocol() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if name[0] != "_"}

    assert methods(Library) <= methods(Index)
    assert methods(Library) <= methods(Client)
    assert methods(Library) <= methods(AsyncClient)


def check_types(index: Index, client: Client) -> tuple[Library, Library]:
    """Let mypy compare the signatures. Never called."""
    return index, client
