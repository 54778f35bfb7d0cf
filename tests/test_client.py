"""The clients against a real server: what they send, and what they make of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import serving
from visar.client import AsyncClient, Client
from visar.errors import DocumentError, ServiceError
from visar.index import Index
from visar.server import Settings

TOKEN = "correct-horse-battery-staple"  # noqa: S105
QUESTION = "Which colour has the door of the lighthouse?"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("client")
    path = write_pdf(folder / "door.pdf", "The lighthouse has a green door.", "The end.")
    with Index.open(folder / "index") as index:
        index.add(path)
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
        assert (added["name"], added["collections"]) == ("wall?#1.pdf", ["walls"])
        assert seen[-1]["state"] == "done"
        assert client.document("wall?#1.pdf") == added
        assert [each["id"] for each in client.documents("walls")] == [added["id"]]
        assert client.image("wall?#1.pdf", 1).startswith(b"\x89PNG")
        assert client.remove("wall?#1.pdf")["id"] == added["id"]
        assert "green" in client.ask(QUESTION)["text"]
        assert client.search(QUESTION, max_k=1)["pages"][0]["page"] == 1
        names = [name for name, _ in client.stream(QUESTION)]
        assert (names[0], names[-1]) == ("search", "answer")


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
            assert [each["id"] for each in await client.documents("roofs")] == [added["id"]]
            assert "green" in (await client.ask(QUESTION))["text"]
            assert (await client.search("Which colour has the roof?"))["pages"][0]["name"] == (
                "roof.pdf"
            )
            names = [name async for name, _ in client.stream(QUESTION)]
            assert (names[0], names[-1]) == ("search", "answer")
            with pytest.raises(ServiceError, match=r"nothing\.pdf"):
                await client.ask(QUESTION, documents=["nothing.pdf"])

    asyncio.run(use())
