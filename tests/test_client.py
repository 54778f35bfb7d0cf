"""The clients against a real server: what they send, and what they make of its answers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import serving
from visar.client import Additions, Answer, AsyncClient, Client, Search
from visar.documents import ReadOptions
from visar.errors import DocumentError, ServiceError
from visar.index import Index
from visar.server import Settings

TOKEN = "correct-horse-battery-staple"  # noqa: S105
QUESTION = "Which colour has the door of the lighthouse?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("client")
    path = write_pdf(folder / "door.pdf", "The lighthouse has a green door.", "The end.")
    with Index.open(folder / "index") as index:
        index.add(path)
        yield index


@pytest.fixture(scope="module")
def address(index: Index) -> Iterator[str]:
    with serving(index, Settings(token=TOKEN)) as address:
        yield address


def test_a_client_asks_adds_and_removes(address: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    with Client(address, token=TOKEN) as client:
        path = write_pdf(tmp_path / "wall.pdf", "The wall is white.")
        # A name that an address would take for something else.
        added = client.add(
            path, name="50% of a/wall?#1.pdf", collection="walls", on_job=seen.append
        )
        assert (added.name, added.collections) == ("wall?#1.pdf", ("walls",))
        assert seen[-1].state == "done"
        assert client.document("wall?#1.pdf") == added
        assert [each.id for each in client.documents("walls")] == [added.id]
        assert client.image("wall?#1.pdf", 1).startswith(b"\x89PNG")
        assert client.remove("wall?#1.pdf") == added
        assert "green" in client.ask(QUESTION).text
        assert client.search(QUESTION, max_k=1).pages[0].page == 1
        first, *pieces, last = client.stream(QUESTION)
        assert isinstance(first, Search)
        assert isinstance(last, Answer)
        assert "".join(map(str, pieces)).strip() == last.text


def test_other_line_ends_do_not_end_an_event(address: str) -> None:
    """Unicode's separators are part of a line of server-sent events."""
    with Client(address, token=TOKEN) as client:
        first, *_, last = client.stream("Which colour\u2028has the\x85door?")
        assert isinstance(first, Search)
        assert isinstance(last, Answer)


def test_results_are_those_of_the_library(address: str, index: Index) -> None:
    """What one asks of a server reads as what one asks of an index."""
    with Client(address, token=TOKEN) as client:
        asked, answer = client.ask(QUESTION), index.ask(QUESTION)
        assert (asked.text, asked.found) == (answer.text, answer.found)
        assert asked.passages == answer.passages
        # Numbers go over the wire whole; only where they can be seen again is another place.
        assert asked.pages == answer.pages
        assert asked.search.k_star == answer.search.k_star
        assert asked.search.documents[0].encoders == answer.search.documents[0].encoders
        assert asked.search.documents[0].added == answer.search.documents[0].added
        with pytest.raises(dataclasses.FrozenInstanceError):
            asked.text = ""  # type: ignore[misc]


def test_several_files_go_in_one_request(address: str, tmp_path: Path) -> None:
    good = [write_pdf(tmp_path / f"{name}.pdf", f"A {name}.") for name in ("oak", "b" * 120)]
    bad = tmp_path / "notes.pdf"
    bad.write_text("no document")
    empty = tmp_path / "empty.pdf"
    empty.touch()
    paths = [good[0], bad, empty, tmp_path / "missing.pdf", good[1]]

    async def use() -> Additions:
        async with AsyncClient(address, token=TOKEN) as client:
            return await client.add_all(paths, collection="trees")

    with Client(address, token=TOKEN) as client:
        for result in (client.add_all(paths, collection="trees"), asyncio.run(use())):
            assert [one.name for one in result.added] == [path.name for path in good]
            assert {one.path for one in result.refused} == {str(path) for path in paths[1:4]}
            assert all(one.reason for one in result.refused)
        assert {one.name for one in client.documents("trees")} == {path.name for path in good}
        for one in result.added:
            client.remove(one.id)
        assert client.add_all([]) == Additions((), ())


def test_a_password_is_given_again(address: str, index: Index, tmp_path: Path) -> None:
    locked = encrypt(write_pdf(tmp_path / "a.pdf", "A secret."), "sesame")
    with Index.open(index.location) as other:  # as a server that has ended
        document = other.add(locked, options=ReadOptions(password="sesame")).id  # noqa: S106
    with Client(address, token=TOKEN) as client:
        with pytest.raises(ServiceError, match="encrypted"):
            client.image(document, 1)
        with pytest.raises(ServiceError, match="encrypted"):
            client.unlock(document, "simsalabim")
        client.unlock(document, "sesame")
        assert client.image(document, 1).startswith(b"\x89PNG")
        client.remove(document)


def test_the_token_of_the_environment_is_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(address) as client, pytest.raises(ServiceError, match="token"):
        client.documents()
    monkeypatch.setenv("VISAR_TOKEN", TOKEN)
    with Client(address) as client:
        assert len(client.documents()) == 1


def test_what_the_server_refuses_is_said(address: str, tmp_path: Path) -> None:
    locked = encrypt(write_pdf(tmp_path / "a.pdf", "A."), "sesame")
    with Client(address, token=TOKEN) as client:
        with pytest.raises(ServiceError, match=r"nothing\.pdf"):
            client.ask(QUESTION, documents=["nothing.pdf"])
        with pytest.raises(ServiceError, match=r"nothing\.pdf"):
            list(client.stream(QUESTION, documents=["nothing.pdf"]))
        with pytest.raises(ServiceError, match="max_k"):
            list(client.stream(QUESTION, max_k=0))
        with pytest.raises(DocumentError, match=r"locked-a\.pdf .*encrypted"):
            client.add(locked)


def test_a_server_that_is_not_there_is_named() -> None:
    nowhere = "http://127.0.0.1:9"
    with Client(nowhere) as client:
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9 .*visar serve"):
            client.documents()
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9 .*visar serve"):
            list(client.stream(QUESTION))


def test_the_client_of_an_event_loop(address: str, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "roof.pdf", "The roof is blue.")

    async def use() -> None:
        async with AsyncClient(address, token=TOKEN) as client:
            added = await client.add(path, collection="roofs")
            assert [each.id for each in await client.documents("roofs")] == [added.id]
            assert "green" in (await client.ask(QUESTION)).text
            found = await client.search("Which colour has the roof?")
            assert found.pages[0].name == "roof.pdf"
            parts = [part async for part in client.stream(QUESTION)]
            assert isinstance(parts[0], Search)
            assert isinstance(parts[-1], Answer)
            assert (await client.image(added.id, 1)).startswith(b"\x89PNG")
            assert await client.remove(added.id) == added
            with pytest.raises(ServiceError, match=r"nothing\.pdf"):
                await client.ask(QUESTION, documents=["nothing.pdf"])

    asyncio.run(use())
