"""Tests of the tools that add and remove documents, and of their folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp_types import CallToolResult

from tests.conftest import write_pdf
from tests.integrations.mcp_client import Mode, call, noisy_picture, talk, text_of
from tests.web import Web
from tests.web import web as web
from visar.errors import InvalidOption
from visar.index import Index
from visar.integrations.mcp import create_server
from visar.integrations.mcp.tools import Roots

READING = {"list_documents", "list_collections", "ask", "search", "read_page", "explain"}
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.open(tmp_path / "hidden place" / "index") as index:
        yield index


@both_eras
def test_documents_are_added_and_removed(index: Index, tmp_path: Path, mode: Mode) -> None:
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    write_pdf(root / "deep" / "manual.pdf", "The warranty is seven years.", "The end.")
    (root / "deep" / "broken.pdf").write_bytes(b"no pdf")
    server = create_server(index, roots=[root])
    told: list[str | None] = []

    async def keep(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
        told.append(message)

    async def add(client: Client) -> CallToolResult:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == READING | {"add", "remove"}
        assert tools["remove"].annotations is not None
        assert tools["remove"].annotations.destructive_hint
        assert tools["add"].annotations is not None
        assert not tools["add"].annotations.destructive_hint
        return await client.call_tool("add", {"path": "deep"}, progress_callback=keep)

    result = talk(server, add, mode)
    data = result.structured_content
    assert [document["name"] for document in data["added"]] == ["manual.pdf"]
    assert [refusal["path"] for refusal in data["refused"]] == ["root/deep/broken.pdf"]
    assert "broken.pdf" in data["refused"][0]["reason"]
    assert str(tmp_path) not in text_of(result)
    assert "manual.pdf: encoding, 2 of 2 pages" in told
    asked = call(server, "ask", mode, question="How long is the warranty?")
    assert "seven years" in asked.structured_content["text"]
    removed = call(server, "remove", mode, document="manual.pdf")
    assert removed.structured_content["name"] == "manual.pdf"
    assert not index.documents()
    assert (root / "deep" / "manual.pdf").exists()
    assert call(server, "remove", mode, document="manual.pdf").is_error


def test_documents_outside_the_roots_are_not_added(index: Index, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside, root / "images", root / "mixed", tmp_path / "root-2"):
        folder.mkdir()
    secret = write_pdf(outside / "secret.pdf", "The password is swordfish.")
    write_pdf(tmp_path / "root-2" / "secret.pdf", "The password is swordfish.")
    (root / "link.pdf").symlink_to(secret)
    (root / "folder").symlink_to(outside)
    (root / "circle.pdf").symlink_to(root / "circle.pdf")
    picture = noisy_picture(outside / "1.png", 40, 40)
    (root / "images" / "1.png").symlink_to(picture)
    (root / "mixed" / "link.pdf").symlink_to(secret)
    write_pdf(root / "mixed" / "own.pdf", "The warranty is seven years.")
    server = create_server(index, roots=[root])
    messages = set()
    for path in (
        str(secret), "../outside/secret.pdf", "link.pdf", "folder", "folder/secret.pdf", "..", "/",
        "../root-2/secret.pdf", "circle.pdf", "missing.pdf", "a\0b", "~/x", "/etc/passwd",
    ):  # fmt: skip
        result = call(server, "add", path=path)
        assert result.is_error, path
        # Whether there is something elsewhere is not told.
        messages.add(text_of(result).replace(repr(path), ""))
    assert len(messages) == 1
    data = call(server, "add", path="images").structured_content
    assert data["added"] == []
    assert data["refused"] == [
        {"path": "root/images", "reason": "images links to a file elsewhere."}
    ]
    data = call(server, "add", path=str(root / "mixed")).structured_content
    assert [document["name"] for document in data["added"]] == ["own.pdf"]
    assert [refusal["path"] for refusal in data["refused"]] == ["root/mixed/link.pdf"]
    assert [document.name for document in index.documents()] == ["own.pdf"]


@given(st.text(alphabet="ab./~\\\0é", max_size=30))
def test_paths_cannot_leave_the_roots(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "roots"
    (folder / "a" / "b").mkdir(parents=True, exist_ok=True)
    (folder / "b").mkdir(exist_ok=True)
    root = folder / "a"
    try:
        found = Roots([root]).find(path)
    except InvalidOption:
        return
    assert found.is_relative_to(root.resolve())


def test_web_addresses_are_refused(index: Index, tmp_path: Path, web: Web) -> None:
    url = web.put("/a.pdf", b"%PDF-1.7")
    result = call(create_server(index, roots=[tmp_path]), "add", path=url)
    assert result.is_error
    assert web.requests == []


def test_a_root_must_be_a_folder(index: Index, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="missing"):
        create_server(index, roots=[tmp_path / "missing"])
