"""Tests of the MCP server with the SDK's client, in both modes of the protocol."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, TextResourceContents
from PIL import Image

from tests.conftest import write_pdf
from tests.integrations.mcp_client import Mode, call, noisy_picture, talk, text_of
from tests.server.service import serving
from visar.client import Client as LibraryClient
from visar.documents import Page, ReadOptions, Word
from visar.errors import InvalidOption, StoreError
from visar.index import Index
from visar.integrations.mcp import create_server
from visar.integrations.mcp.tools import MAX_LEFT_OUT, MAX_RESULT, REPORT, make_result
from visar.results import Collection

QUESTION = "How did capital expenditure change between 2020 and 2024?"
READING = {"list_documents", "list_collections", "ask", "search", "read_page", "explain"}
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(scope="module")
def server(library: Index) -> Any:
    """Return a read-only server of the index with the example."""
    return create_server(library)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.open(tmp_path / "hidden place" / "index") as index:
        yield index


def size(result: CallToolResult) -> int:
    return len(result.model_dump_json(by_alias=True).encode())


@both_eras
def test_a_read_only_server_has_no_tools_that_change_anything(server: Any, mode: Mode) -> None:
    async def look(client: Client) -> Any:
        return client.protocol_version, await client.list_tools()

    version, listed = talk(server, look, mode)
    assert version == ("2026-07-28" if mode == "auto" else "2025-11-25")
    assert {tool.name for tool in listed.tools} == READING
    for tool in listed.tools:
        assert tool.annotations.read_only_hint
        assert tool.title
        assert tool.output_schema
        assert "\n " not in tool.description
    for tool in ("add", "remove"):
        assert call(server, tool, mode, path="x", document="x").is_error


@both_eras
def test_documents_and_collections_are_listed(library: Index, server: Any, mode: Mode) -> None:
    (listed,) = call(server, "list_documents", mode).structured_content["documents"]
    stored = library.documents()[0]
    assert stored.id.startswith(listed["id"])
    assert listed["name"] == stored.name
    assert listed["pages"] == 40
    assert call(server, "list_collections", mode).structured_content == {"collections": []}
    after = call(server, "list_documents", mode, offset=1).structured_content
    assert after == {"documents": [], "total": 1}


@both_eras
def test_search_finds_the_same_pages_as_the_library(
    library: Index, server: Any, mode: Mode
) -> None:
    result = call(server, "search", mode, question=QUESTION)
    found = library.search(QUESTION)
    data = result.structured_content
    assert json.loads(text_of(result)) == data
    assert [page["page"] for page in data["pages"]] == [hit.page for hit in found.pages]
    assert data["pages"][0]["boxes"] == [
        [pytest.approx(side, abs=1e-4) for side in box] for box in found.pages[0].boxes
    ]
    links = [block for block in result.content if block.type == "resource_link"]
    assert [link.uri for link in links] == [
        f"visar://{page['document']}/{page['page']}" for page in data["pages"]
    ]

    async def follow(client: Client) -> Any:
        return await client.read_resource(links[0].uri)

    (page,) = talk(server, follow, mode).contents
    assert page.mime_type == "image/jpeg"
    with Image.open(io.BytesIO(base64.b64decode(page.blob))) as image:
        assert image.format == "JPEG"


@pytest.mark.parametrize("tool", ["search", "ask", "explain"])
def test_a_remote_server_can_replace_the_index(library: Index, server: Any, tool: str) -> None:
    with serving(library) as address, LibraryClient(address) as client:
        there = call(create_server(client), tool, question=QUESTION)
        here = call(server, tool, question=QUESTION)
        read = call(create_server(client), "read_page", document=library.documents()[0].id, page=4)
    assert without_times(there.structured_content) == without_times(here.structured_content)
    assert [block.type for block in read.content] == ["text", "image", "resource_link"]
    assert [REPORT in (result.meta or {}) for result in (here, there)] == [tool == "explain"] * 2


def without_times(value: Any) -> Any:
    """Return a result without times and encoder, which can differ between searches."""
    if isinstance(value, dict):
        different = ("seconds", "summary", "numbers", "encoder")
        return {name: without_times(value[name]) for name in value if name not in different}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def test_the_error_of_an_unreachable_server_hides_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with LibraryClient(address) as client:
        result = call(create_server(client), "list_documents")
    assert result.is_error
    assert text_of(result)
    assert address not in text_of(result)


def test_details_for_programs_are_omitted(index: Index, make_pdf: Callable[..., Path]) -> None:
    """Neither the data nor its schema has them; the client validates the data."""
    path = make_pdf("manual.pdf", "The warranty is seven years.", "The end.")
    stored = index.add(path, metadata={"id": "x" * 40, "share": 0.123456789})
    server = create_server(index)

    async def look(client: Client) -> Any:
        return {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}

    schemas = talk(server, look)
    listed = call(server, "list_documents").structured_content["documents"][0]
    assert listed["id"] == stored.id[:16]
    assert listed["metadata"] == stored.metadata, "an id of the user's own is not cut"
    found = call(server, "search", question="How long is the warranty?").structured_content
    for shown, described in (
        (listed, schemas["list_documents"]["$defs"]["Document"]),
        (found, schemas["search"]),
        (found["decision"], schemas["search"]["$defs"]["Decision"]),
    ):
        assert set(shown) == set(described["properties"])
    assert not {"source", "encoders"} & set(listed)
    assert not {"trace", "documents"} & set(found)
    assert not {"timings", "cost"} & set(found["decision"])
    assert found["pages"][0]["score"] == round(found["pages"][0]["score"], 4)
    assert schemas["search"]["properties"]["k"]["description"]


def test_documents_that_were_not_searched_are_counted_and_some_listed(
    index: Index, make_pdf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = index.add(make_pdf("manual.pdf", "The warranty is seven years."))
    found = index.search("How long is the warranty?")
    many = tuple(replace(added, name=f"{number}.pdf") for number in range(5_000))
    monkeypatch.setattr(index, "search", lambda *_, **__: replace(found, left_out=many))
    result = call(create_server(index), "search", question="How long is the warranty?")
    assert not result.is_error
    assert "5,000 documents" in result.structured_content["summary"]
    names = [document["name"] for document in result.structured_content["left_out"]]
    assert names == [f"{number}.pdf" for number in range(MAX_LEFT_OUT)]


def test_max_pages_limits_the_pages(server: Any) -> None:
    data = call(server, "search", question=QUESTION, max_pages=1).structured_content
    assert len(data["pages"]) == 1
    assert data["decision"]["k_star"] == 3


@both_eras
def test_an_answer_quotes_its_pages(server: Any, mode: Mode) -> None:
    result = call(server, "ask", mode, question="How long is the warranty on the Aurora 4 lantern?")
    data = result.structured_content
    found = data["search"]
    assert "seven years" in data["text"]
    assert "seven years" in found["passages"][0]["text"]
    assert found["passages"][0]["boxes"]
    assert found["pages"][0]["page"] == 10
    nothing = call(server, "ask", mode, question="Which vaccines does the company produce?")
    assert nothing.structured_content["text"] == ""
    assert not nothing.is_error


def test_documents_and_collections_limit_a_question(
    index: Index, make_pdf: Callable[..., Path]
) -> None:
    server = create_server(index)
    empty = call(server, "ask", question="What?")
    assert empty.is_error
    assert "empty" in text_of(empty)
    first = index.add(make_pdf("first.pdf", "The warranty of the lamp is seven years."))
    index.add(make_pdf("second.pdf", "The warranty of the lantern is two years."))
    index.collect("lamps", [first.id])
    assert call(server, "list_collections").structured_content == {
        "collections": [{"name": "lamps", "documents": 1}]
    }
    asked = {"question": "How long is the warranty?"}
    by_collection = call(server, "search", **asked, collection="lamps").structured_content
    assert [page["name"] for page in by_collection["pages"]] == ["first.pdf"]
    by_name = call(server, "search", **asked, documents=["second.pdf"]).structured_content
    assert [page["name"] for page in by_name["pages"]] == ["second.pdf"]
    both = call(server, "search", **asked, documents=["second.pdf"], collection="lamps")
    assert "'lamps'" in text_of(both)
    missing = call(server, "search", **asked, collection="x")
    assert "'x'" in text_of(missing)
    assert "lamps" in text_of(missing)


@both_eras
def test_read_page_returns_image_lines_and_positions(
    library: Index, server: Any, mode: Mode
) -> None:
    name = library.documents()[0].name
    result = call(server, "read_page", mode, document=name, page=10)
    text, picture, link = result.content
    data = result.structured_content
    assert text.type == "text"
    assert json.loads(text.text) == data
    assert picture.type == "image"
    assert picture.mime_type == "image/jpeg"
    with Image.open(io.BytesIO(base64.b64decode(picture.data))) as image:
        assert image.width * image.height <= 1_200_000
        assert data["image"] == f"{image.width} × {image.height}"
    assert link.type == "resource_link"
    assert link.uri == f"visar://{data['document']['id']}/10"
    assert (data["document"]["name"], data["number"]) == (name, 10)
    (line,) = [line for line in data["lines"] if "warranty of seven" in line["text"]]
    words = library.page(name, 10).words
    word = next(word for word in words if word.text == "warranty")
    left, top, right, bottom = line["box"]
    assert left - 1e-4 <= word.box[0] <= word.box[2] <= right + 1e-4
    assert top - 1e-4 <= word.box[1] <= word.box[3] <= bottom + 1e-4
    assert not data["cut_off"]

    async def follow(client: Client) -> Any:
        return await client.read_resource(f"{link.uri}/text")

    (words_only,) = talk(server, follow, mode).contents
    assert isinstance(words_only, TextResourceContents)
    assert words_only.text.splitlines() == [line["text"] for line in data["lines"]]


def test_max_pixels_limits_the_image(library: Index, server: Any) -> None:
    name = library.documents()[0].name
    sizes = []
    for pixels in (10_000, 200_000, 3_000_000):
        read = call(server, "read_page", document=name, page=4, max_pixels=pixels)
        width, height = map(int, read.structured_content["image"].split(" × "))
        assert width * height <= pixels
        sizes.append(width * height)
        assert size(read) <= MAX_RESULT
    assert sizes[0] > 9_000
    assert sizes[1] > 190_000
    assert sizes[2] > 2_500_000


def test_no_result_is_larger_than_a_mebibyte(index: Index, tmp_path: Path) -> None:
    """JPEG can't compress this image."""
    index.add(noisy_picture(tmp_path / "noise.png"), options=ReadOptions(ocr="never"))
    server = create_server(index)
    result = call(server, "read_page", document="noise.png", page=1, max_pixels=8_000_000)
    assert 300_000 < size(result) <= MAX_RESULT < 2**20
    assert [block.type for block in result.content] == ["text", "image", "resource_link"]

    async def resource(client: Client) -> Any:
        assert result.content[2].type == "resource_link"
        return await client.read_resource(result.content[2].uri)

    (page,) = talk(server, resource).contents
    assert len(page.blob) <= MAX_RESULT


def test_a_page_with_too_many_lines_is_cut_off(
    library: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page must fit in a result together with an image that JPEG can't compress."""
    words = [Word(f'"{line}"' * 10, (0.1, 0.2, 0.3, 0.4), line) for line in range(3_000)]
    drawn = noisy_picture(tmp_path / "noise.png", 1000, 1000)
    monkeypatch.setattr(library, "page", lambda *_: Page(1, 400, 500, 0, tuple(words), "ocr"))
    monkeypatch.setattr(library, "image", lambda *_: Image.open(drawn))
    name = library.documents()[0].name
    result = call(create_server(library), "read_page", document=name, page=1)
    assert result.structured_content["cut_off"]
    assert 500 < len(result.structured_content["lines"]) < 3_000
    assert [block.type for block in result.content] == ["text", "image", "resource_link"]
    assert size(result) <= MAX_RESULT


def test_a_result_that_is_too_long_raises_an_error() -> None:
    make_result(Collection("x", 1))
    with pytest.raises(InvalidOption):
        make_result(Collection("x" * MAX_RESULT, 1))


def test_explain_returns_text_for_the_model_and_data_for_the_app(server: Any) -> None:
    async def look(client: Client) -> Any:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        meta = tools["explain"].meta
        assert meta is not None
        app = meta["ui"]["resourceUri"]
        return app, await client.read_resource(app), await client.list_resources()

    uri, app, listed = talk(server, look)
    assert uri.startswith("ui://")
    assert [resource.uri for resource in listed.resources] == [uri]
    (page,) = app.contents
    assert page.mime_type == "text/html;profile=mcp-app"
    assert page.text.startswith("<!doctype html>")
    result = call(server, "explain", question=QUESTION)
    data = result.structured_content
    assert data["cuts"]["visar"] == 3
    assert {word["text"] for word in data["words"]} == set(QUESTION.split())
    assert result.meta is not None
    report = result.meta[REPORT]
    assert len(report["pictures"]) == 3
    assert report["answer"]["search"]["query"]["question"] == QUESTION
    assert size(result) <= MAX_RESULT
    # The model is not given the pictures of the app.
    assert len(text_of(result)) < 10_000


def test_the_explanation_of_many_pages_has_fewer_images(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add(write_pdf(tmp_path / "manual.pdf", *["The warranty is seven years."] * 8))
    drawn = noisy_picture(tmp_path / "noise.png", 500, 600)
    monkeypatch.setattr(index, "image", lambda *_: Image.open(drawn))
    result = call(create_server(index), "explain", question="How long is the warranty?")
    assert result.meta is not None
    found = result.structured_content["answer"]["search"]["pages"]
    assert 0 < len(result.meta[REPORT]["pictures"]) < len(found)
    assert size(result) <= MAX_RESULT


@both_eras
def test_errors_say_what_is_wrong_without_local_paths(
    index: Index, tmp_path: Path, mode: Mode
) -> None:
    path = write_pdf(tmp_path / "my report.pdf", "The warranty is seven years.")
    index.add(path)
    server = create_server(index)
    for arguments, said in (
        ({"document": "other.pdf", "page": 1}, "other.pdf"),
        ({"document": "my report.pdf", "page": 2}, "no page 2"),
        ({"document": "my report.pdf", "page": 0}, "page: Input should be greater than"),
        ({"document": "my report.pdf"}, "page: Field required"),
    ):
        result = call(server, "read_page", mode, **arguments)
        assert result.is_error
        assert said in text_of(result)
        assert str(tmp_path) not in text_of(result)
        assert "Traceback" not in text_of(result)
    path.unlink()
    kept = index.original("my report.pdf")
    assert kept is not None
    kept.unlink()
    # Its words are in the index all the same.
    gone = call(server, "read_page", mode, document="my report.pdf", page=1)
    assert [block.type for block in gone.content] == ["text", "resource_link"]
    assert "seven years" in text_of(gone)
    assert gone.structured_content["image"]
    assert str(tmp_path) not in text_of(gone)
    explained = call(server, "explain", mode, question="How long is the warranty?")
    assert not explained.is_error
    assert not (explained.meta or {}).get(REPORT)

    async def missing(client: Client) -> None:
        known = f"visar://{gone.structured_content['document']['id']}/1"
        for uri in ("visar://none/1", f"{known[:-1]}7", f"{known[:-1]}x", "visar://x"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.code == -32602
        with pytest.raises(MCPError) as refused:
            await client.read_resource(known)
        assert str(refused.value)
        assert str(tmp_path) not in str(refused.value)
        with pytest.raises(MCPError):
            await client.get_prompt("any")

    talk(server, missing, mode)


def test_internal_errors_are_hidden_from_clients(
    library: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("/secret/place is broken")

    monkeypatch.setattr(library, "search", fail)
    result = call(create_server(library), "search", question="What?")
    assert result.is_error
    assert "search" in text_of(result)
    assert "secret" not in text_of(result)


def test_an_unreadable_index_is_reported(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError(f"The index {index.location} is damaged.")

    monkeypatch.setattr(index, "documents", fail)
    result = call(create_server(index), "list_documents")
    assert result.is_error
    assert "damaged" in text_of(result)
    assert str(index.location) not in text_of(result)


def test_questions_are_answered_in_parallel(
    library: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two searches that wait for each other only finish if neither blocks the server."""
    meeting = threading.Barrier(2, timeout=60)
    search = library.search

    def together(*given: Any, **options: Any) -> Any:
        meeting.wait()
        return search(*given, **options)

    monkeypatch.setattr(library, "search", together)

    async def both(client: Client) -> list[CallToolResult]:
        asked = [client.call_tool("search", {"question": QUESTION}) for _ in range(2)]
        return await asyncio.gather(*asked)

    results = talk(create_server(library), both)
    assert not any(result.is_error for result in results)
