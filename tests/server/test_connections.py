"""Many clients, slow clients and proxies: who gets an answer through real connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.conftest import write_pdf
from tests.programs import server_program
from tests.server.service import (
    QUESTION,
    TOKEN,
    ask,
    assert_problem,
    client,
    finished,
    running,
    send,
    serving,
    upload,
    wait_until,
)
from visar import serving as http_serving
from visar.index import Index
from visar.server import Settings, app

STREAMS = 100


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    """Connect to a server, from an address of this machine."""
    parts = urlsplit(address)
    place = (parts.hostname or "", parts.port or 0)
    return socket.create_connection(place, timeout=60, source_address=(source, 0))


def start(line: socket.socket, request: str, *headers: str) -> None:
    """Send the head of a request."""
    line.sendall("\r\n".join([f"{request} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode())


def read_head(line: socket.socket) -> bytes:
    """Read the status and the headers of an answer, and no byte more."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += line.recv(1)
    return head


def open_stream(address: str) -> socket.socket:
    """Listen to the events of jobs, as each open page does."""
    line = connect(address)
    start(line, "GET /api/v1/jobs/events")
    assert read_head(line).startswith(b"HTTP/1.1 200 ")
    return line


def start_upload(address: str) -> socket.socket:
    """Begin an upload whose body does not come."""
    line = connect(address)
    kind = "Content-Type: application/octet-stream"
    start(line, "POST /api/v1/documents?name=slow.pdf", kind, "Content-Length: 1000000")
    line.sendall(b"%PDF-1.7")
    return line


def test_open_pages_do_not_shut_the_server_to_others(tmp_path: Path, manual: Path) -> None:
    other = write_pdf(tmp_path / "other.pdf", "The lighthouse has a green door.")
    with (
        Index.open(tmp_path / "index") as index,
        serving(index) as address,
        contextlib.ExitStack() as stack,
    ):
        index.add(manual)
        streams = [stack.enter_context(open_stream(address)) for _ in range(STREAMS)]
        with client(address) as http:
            assert http.get("health").status_code == 200
            assert ask(http, "ask")["text"]
            job = upload(http, other)["id"]
            assert finished(http, job)["state"] == "done"
        for line in (streams[0], streams[-1]):
            with line.makefile("rb") as events:
                assert any(job.encode() in event for event in events)


def test_more_streams_than_allowed_are_refused_until_one_ends(index: Index) -> None:
    settings = Settings(max_streams=2, requests_per_minute=1_000_000)
    with serving(index, settings) as address, client(address) as http, open_stream(address):
        with open_stream(address):
            refused = http.get("jobs/events")
            assert_problem(refused, 503, "busy")
            assert int(refused.headers["retry-after"]) > 0
            assert http.get("health").status_code == 200

        def is_admitted() -> bool:
            with http.stream("GET", "jobs/events") as response:
                return response.status_code == 200

        wait_until(is_admitted, "the place of the stream that has ended is free")


def test_streams_end_in_order_when_the_server_does(index: Index) -> None:
    with serving(index) as address:
        line = open_stream(address)
    with line, line.makefile("rb") as events:
        # The last chunk of an answer that is complete, not a connection that breaks.
        assert events.read().endswith(b"0\r\n\r\n")


def test_slow_uploads_hold_no_places_but_those_of_uploads(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_REQUESTS", 2)
    settings = Settings(max_questions=1, requests_per_minute=1_000_000)
    with (
        serving(index, settings) as address,
        client(address) as http,
        start_upload(address) as first,
        start_upload(address),
    ):
        wait_until(
            lambda: send(http, b"%PDF-", "third.pdf").status_code == 503, "both have been taken"
        )
        refused = send(http, b"%PDF-", "third.pdf")
        assert_problem(refused, 503, "busy")
        assert int(refused.headers["retry-after"]) > 0
        assert http.get("health").status_code == 200
        assert ask(http, "search")["pages"]
        assert http.post("session", json={}).status_code == 204
        first.close()
        wait_until(
            lambda: send(http, b"", "empty.pdf").status_code == 422,
            "the place of the first is free",
        )


def test_an_upload_that_stops_is_given_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "SECONDS_PER_READ", 0.2)
    with serving(index) as address, start_upload(address) as line:
        answer = b"".join(iter(lambda: line.recv(10_000), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["code"] == "timeout"


def test_an_upload_that_trickles_is_given_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every byte comes in time, but does not pay for the wait.
    monkeypatch.setattr(http_serving, "SECONDS_PER_READ", 1.0)
    with serving(index) as address, start_upload(address) as line:
        while not select.select([line], [], [], 0.05)[0]:
            line.sendall(b" ")
        assert read_head(line).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_never_reads_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "SECONDS_WITHOUT_PROGRESS", 0.3)
    ended = threading.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        """Answer with bytes until nobody takes them any more."""
        if scope["type"] != "http":
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.ensure_future(receive())
        while not leaving.done():
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            await asyncio.sleep(0)
        assert leaving.result()["type"] == "http.disconnect"
        ended.set()

    with running(http_serving.http_server(application)) as address, connect(address) as line:
        start(line, "GET /")
        assert ended.wait(60)


@contextlib.contextmanager
def reverse_proxy(target: str) -> Iterator[str]:
    """Run a proxy as one that ends TLS: it says from whom a request comes, and how."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = dict(self.headers.items()) | {
                "X-Forwarded-For": self.client_address[0],
                "X-Forwarded-Proto": "https",
            }
            inner = HTTPConnection(urlsplit(target).netloc, timeout=60)
            with contextlib.closing(inner):
                inner.request(self.command, self.path, body or None, headers)
                answer = inner.getresponse()
                content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing: tests look at the answers."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def coming_from(source: str, address: str) -> httpx2.Client:
    """A client with another address of this machine, and the token."""
    transport = httpx2.HTTPTransport(local_address=source)
    return client(address, transport=transport, headers={"Authorization": f"Bearer {TOKEN}"})


@contextlib.contextmanager
def behind_proxy(folder: Path, *options: str) -> Iterator[tuple[str, str]]:
    """Run ``visar serve`` with two requests a minute; gives its address, and that of a proxy."""
    arguments = ("--index", str(folder), "--port", "0", "--requests-per-minute", "2", *options)
    with (
        server_program("serve", *arguments, VISAR_TOKEN=TOKEN) as (address, _),
        reverse_proxy(address) as proxy,
    ):
        yield address, proxy


def statuses(http: httpx2.Client, count: int) -> list[int]:
    return [http.get("health").status_code for _ in range(count)]


def test_clients_behind_a_trusted_proxy_are_told_apart(tmp_path: Path) -> None:
    with (
        behind_proxy(tmp_path / "index", "--proxy", "127.0.0.1") as (address, proxy),
        coming_from("127.0.0.2", proxy) as first,
        coming_from("127.0.0.3", proxy) as second,
        coming_from("127.0.0.4", address) as liar,
    ):
        assert statuses(first, 3) == [200, 200, 429]
        cookie = second.post("session", json={}).headers["set-cookie"]
        assert "; Secure" in cookie
        assert statuses(second, 2) == [200, 429]
        # From an address that is not trusted the headers mean nothing.
        told = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
        cookie = liar.post("session", json={}, headers=told).headers["set-cookie"]
        assert "; Secure" not in cookie
        told["X-Forwarded-For"] = "192.0.2.2"
        assert liar.get("health", headers=told).status_code == 200
        told["X-Forwarded-For"] = "192.0.2.3"
        assert liar.get("health", headers=told).status_code == 429


def test_without_the_option_a_proxy_is_a_client_as_any_other(tmp_path: Path) -> None:
    with (
        behind_proxy(tmp_path / "index") as (_, proxy),
        coming_from("127.0.0.2", proxy) as first,
        coming_from("127.0.0.3", proxy) as second,
    ):
        assert statuses(first, 1) == [200]
        assert "; Secure" not in second.post("session", json={}).headers["set-cookie"]
        assert statuses(second, 1) == [429]


@pytest.mark.parametrize("proxy", ["", "*", "proxy.example", "127.0.0.1,", "10.0.0.1/8"])
def test_a_proxy_is_an_address_or_a_network(visar: Visar, proxy: str) -> None:
    ran = visar("serve", "--port", "0", "--proxy", proxy)
    assert ran.code == 2
    assert "--proxy" in ran.err


def test_a_base_url_concerns_served_models_only(tmp_path: Path, manual: Path) -> None:
    with Index.open(tmp_path / "index") as index:
        index.add(manual)
    arguments = ("--index", str(tmp_path / "index"), "--port", "0")
    generators = ("--generator", "openai:small", "--generator", "extractive")
    environment = {"OPENAI_API_KEY": "none"} | dict(os.environ)
    with (
        server_program(
            "serve", *arguments, *generators, "--base-url", "http://127.0.0.1:9/v1", **environment
        ) as (address, _),
        client(address) as http,
    ):
        assert http.get("generators").json()["names"] == ["openai:small", "extractive"]
        answer = http.post("ask", json={"question": QUESTION, "generator": "extractive"})
        assert answer.status_code == 200, answer.text
        # The other one is asked at that address, where nobody listens.
        answer = http.post("ask", json={"question": QUESTION, "generator": "openai:small"})
        assert_problem(answer, 502, "generator")
