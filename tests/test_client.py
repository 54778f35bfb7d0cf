"""Clients with real and failing servers. Tests that all libraries share are in test_library.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import write_pdf
from tests.server.service import serving
from visar import client as client_module
from visar.client import AsyncClient, Client
from visar.errors import ServiceError
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


def test_unicode_line_separators_do_not_end_an_event(address: str) -> None:
    """In server-sent events, they are part of a line."""
    question = "Which colour\u2028has the\x85door?"
    with Client(address, token=TOKEN) as client:
        stream = client.stream(question)
        assert stream.search.question == question
        assert "green" in stream.answer.text


def test_pages_of_a_result_load_images_from_the_server(address: str) -> None:
    with Client(address, token=TOKEN) as client:
        hit = client.ask(QUESTION).pages[0]
        assert hit.image(36).size == (200, 250)
        assert hit.words[-1].text == "door."


def test_the_token_in_the_environment_is_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(address) as client, pytest.raises(ServiceError, match="token"):
        client.documents()
    monkeypatch.setenv("VISAR_TOKEN", TOKEN)
    with Client(address) as client:
        assert len(client.documents()) == 1


def test_a_file_that_grows_during_its_upload_does_not_stop_others(
    address: str, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = write_pdf(tmp_path / "log.pdf", "The log.")
    other = write_pdf(tmp_path / "other.pdf", "The other.")
    read = client_module._file_chunks

    def read_growing(path: Path) -> Iterator[bytes]:
        for chunk in read(path):
            if path == growing:
                with growing.open("ab") as file:
                    file.write(b"\n% more")
            yield chunk
            if path == growing and chunk.endswith(b"% more"):
                return

    monkeypatch.setattr(client_module, "_file_chunks", read_growing)
    with Client(address, token=TOKEN) as client:
        result = client.add_all([growing, other])
        assert [one.name for one in result.added] == ["log.pdf", "other.pdf"]
        assert not result.refused
    for one in result.added:
        index.remove(one.id)


def test_documents_are_listed_with_several_requests(
    address: str, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = [
        index.add(write_pdf(tmp_path / f"{n}.pdf", f"Number {n}."), name=f"{n}.pdf")
        for n in range(4)
    ]
    monkeypatch.setattr("visar.requests.PAGE_SIZE", 2)

    async def list_names() -> list[str]:
        async with AsyncClient(address, token=TOKEN) as client:
            return [one.name for one in await client.documents()]

    names = ["door.pdf", "0.pdf", "1.pdf", "2.pdf", "3.pdf"]
    with Client(address, token=TOKEN) as client:
        assert [one.name for one in client.documents()] == names
    assert asyncio.run(list_names()) == names
    for one in added:
        index.remove(one.id)


def test_an_unreachable_server_is_named_in_the_error() -> None:
    nowhere = "http://127.0.0.1:9"
    with Client(nowhere) as client:
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9"):
            client.documents()
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9"):
            client.stream(QUESTION)


class _Proxy(BaseHTTPRequestHandler):
    """Responds like a proxy whose server is down, or with part of a stream."""

    def do_GET(self) -> None:
        self.send_error(502)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.server.content)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[tuple[str, ThreadingHTTPServer]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", server
        finally:
            server.shutdown()
            thread.join()


def test_a_response_of_a_proxy_is_an_error(proxy: tuple[str, ThreadingHTTPServer]) -> None:
    with Client(proxy[0]) as client, pytest.raises(ServiceError, match="502"):
        client.documents()


def test_an_answer_that_breaks_off_is_an_error(
    address: str, proxy: tuple[str, ThreadingHTTPServer]
) -> None:
    """The proxy sends the first events of a real answer and closes the connection."""
    with Client(address, token=TOKEN) as real:
        body = {"question": QUESTION}
        with real._http.stream("POST", "/ask/stream", json=body) as response:
            events = b"".join(response.iter_bytes()).split(b"\n\n")
    first = [event for event in events if b"event: answer" not in event]
    proxy[1].content = b"\n\n".join(first) + b"\n\n"  # type: ignore[attr-defined]
    with Client(proxy[0]) as client:
        stream = client.stream(QUESTION)
        assert stream.search.pages[0].page == 1
        with pytest.raises(ServiceError):
            _ = stream.answer

    async def read_answer() -> None:
        async with AsyncClient(proxy[0]) as client:
            stream = await client.stream(QUESTION)
            await stream.answer()

    with pytest.raises(ServiceError):
        asyncio.run(read_answer())
