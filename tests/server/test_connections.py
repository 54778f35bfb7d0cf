"""Limits on connections: many clients, slow clients and proxies."""

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
    serving,
    upload,
    wait_until,
)
from visar import serving as http_serving
from visar.index import Index
from visar.server import Settings, app, create_app

STREAMS = 100


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    """Connect to a server from one of this machine's addresses."""
    parts = urlsplit(address)
    target = (parts.hostname or "", parts.port or 0)
    return socket.create_connection(target, timeout=60, source_address=(source, 0))


def start(line: socket.socket, request: str, *headers: str) -> None:
    """Send the head of a request."""
    line.sendall("\r\n".join([f"{request} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode())


def read_head(line: socket.socket) -> bytes:
    """Read the status and the headers of a response, without the body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += line.recv(1)
    return head


def open_stream(address: str, source: str = "127.0.0.1") -> socket.socket:
    """Open a stream of job events, like an open web page."""
    line = connect(address, source)
    start(line, "GET /api/v1/jobs/events")
    assert read_head(line).startswith(b"HTTP/1.1 200 ")
    return line


def start_body(
    address: str, route: str = "documents?name=slow.pdf", kind: str = "octet-stream"
) -> socket.socket:
    """Start a request without sending its body."""
    line = connect(address, "127.0.0.2")
    start(
        line, f"POST /api/v1/{route}", f"Content-Type: application/{kind}", "Content-Length: 10000"
    )
    line.sendall(b" ")
    return line


def is_cut(line: socket.socket) -> bool:
    """Wait until the server closes a connection, and return True."""
    with contextlib.suppress(ConnectionError):
        while line.recv(10_000):
            pass
    return True


def test_open_pages_do_not_block_other_clients(tmp_path: Path, manual: Path) -> None:
    other = write_pdf(tmp_path / "other.pdf", "The lighthouse has a green door.")
    with (
        Index.open(tmp_path / "index") as index,
        serving(index) as address,
        contextlib.ExitStack() as stack,
    ):
        index.add(manual)
        sources = [f"127.0.0.{2 + number % 4}" for number in range(STREAMS)]
        streams = [stack.enter_context(open_stream(address, source)) for source in sources]
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

        wait_until(is_admitted, "the slot of the stream that has ended is free")


def test_streams_end_properly_when_the_server_stops(index: Index) -> None:
    with serving(index) as address:
        line = open_stream(address)
    with line, line.makefile("rb") as events:
        # The last chunk of a complete response.
        assert events.read().endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("route", "kind"), [("documents?name=slow.pdf", "octet-stream"), ("search", "json")]
)
def test_slow_bodies_lose_their_slots_to_others(
    index: Index, monkeypatch: pytest.MonkeyPatch, route: str, kind: str
) -> None:
    monkeypatch.setattr(app, "MAX_REQUESTS", 2)
    settings = Settings(max_questions=1, requests_per_minute=1_000_000)
    body = {"octet-stream": b"", "json": json.dumps({"question": QUESTION}).encode()}[kind]

    def is_answered() -> bool:
        headers = {"Content-Type": f"application/{kind}"}
        response = http.post(route, content=body, headers=headers)
        if response.status_code == 503:  # the others don't count as slow yet
            assert_problem(response, 503, "busy")
            assert int(response.headers["retry-after"]) > 0
        return response.status_code in (200, 422)

    with (
        serving(index, settings) as address,
        client(address) as http,
        start_body(address, route, kind) as first,
        start_body(address, route, kind) as second,
    ):
        assert http.get("health").status_code == 200
        wait_until(is_answered, "the slowest client loses its slot")
        assert is_cut(first)
        assert not select.select([second], [], [], 0)[0]
        # Other kinds of requests have their own limit.
        if kind != "json":
            assert ask(http, "search")["pages"]


def test_the_connections_of_a_client_are_limited(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_serving, "MAX_PER_CLIENT", 2)
    with serving(index) as address, client(address) as http, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(start_body(address)) for _ in range(3)]
        (refused, *_), _, _ = select.select(slow, [], [], 10)
        assert read_head(refused).startswith(b"HTTP/1.1 429 ")
        idle = [stack.enter_context(connect(address, "127.0.0.3")) for _ in range(3)]
        (cut, *_), _, _ = select.select(idle, [], [], 10)
        assert is_cut(cut)
        assert http.get("health").status_code == 200
        kept = {*slow, *idle} - {refused, cut}
        assert not select.select(kept, [], [], 0)[0]


def test_the_requests_of_a_client_behind_a_trusted_proxy_are_limited(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_serving, "MAX_PER_CLIENT", 1)
    server = http_serving.http_server(create_app(index), proxies="127.0.0.1")

    def begin(client: str) -> socket.socket:
        line = stack.enter_context(connect(address))
        headers = "Content-Type: application/json", "Content-Length: 10"
        start(line, "POST /api/v1/search", f"X-Forwarded-For: {client}", *headers)
        return line

    with running(server) as address, contextlib.ExitStack() as stack:
        first, second = begin("192.0.2.1"), begin("192.0.2.2")
        refused = begin("192.0.2.1")
        assert select.select([first, refused], [], [], 10)[0]
        # The server may have received the two in any order.
        (refused,) = select.select([first, refused], [], [], 0)[0]
        assert read_head(refused).startswith(b"HTTP/1.1 429 ")
        second.sendall(b" " * 10)
        assert read_head(second).startswith(b"HTTP/1.1 422 ")


def test_a_stalled_upload_times_out(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "SECONDS_TO_WAIT", 0.2)
    with serving(index) as address, start_body(address) as line:
        response = b"".join(iter(lambda: line.recv(10_000), b""))
        head, _, body = response.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["code"] == "timeout"


def test_a_very_slow_upload_times_out(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each byte arrives in time, but doesn't make up for the wait.
    monkeypatch.setattr(http_serving, "SECONDS_TO_WAIT", 1.0)
    with serving(index) as address, start_body(address) as line:
        while not select.select([line], [], [], 0.05)[0]:
            line.sendall(b" ")
        assert read_head(line).startswith(b"HTTP/1.1 408 ")


@contextlib.contextmanager
def endless(ended: threading.Event) -> Iterator[str]:
    """Run a server that sends bytes until the client disconnects, and then sets the event."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        disconnect = asyncio.ensure_future(receive())
        while not disconnect.done():
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            await asyncio.sleep(0)
        assert disconnect.result()["type"] == "http.disconnect"
        ended.set()

    guarded = http_serving.RequestGuard(application, token=None, max_bytes={})
    with running(http_serving.http_server(guarded)) as address:
        yield address


def test_a_client_that_never_reads_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "SECONDS_TO_WAIT", 0.3)
    ended = threading.Event()
    with endless(ended) as address, connect(address) as line:
        start(line, "GET /")
        assert ended.wait(60)


def test_a_client_that_never_reads_loses_its_slot_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_serving, "MAX_READS", 1)
    ended = threading.Event()
    with endless(ended) as address, connect(address) as line:
        start(line, "GET /")
        assert read_head(line).startswith(b"HTTP/1.1 200 ")

        def is_answered() -> bool:
            with connect(address) as other:
                start(other, "GET /")
                return read_head(other).startswith(b"HTTP/1.1 200 ")

        wait_until(is_answered, "the first client counts as slow")
        assert ended.wait(60)


@contextlib.contextmanager
def reverse_proxy(target: str) -> Iterator[str]:
    """Run a proxy like one that terminates TLS: it adds X-Forwarded headers."""

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
                response = inner.getresponse()
                content = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Keep stderr quiet."""

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
    """Return a client that uses another address of this machine, and the token."""
    transport = httpx2.HTTPTransport(local_address=source)
    return client(address, transport=transport, headers={"Authorization": f"Bearer {TOKEN}"})


@contextlib.contextmanager
def behind_proxy(folder: Path, *options: str) -> Iterator[tuple[str, str]]:
    """Run ``visar serve`` with a limit of two requests per minute, behind a proxy.

    Yields the address of the server and that of the proxy.
    """
    arguments = ("--index", str(folder), "--port", "0", "--requests-per-minute", "2", *options)
    with (
        server_program("serve", *arguments, VISAR_TOKEN=TOKEN) as (address, _),
        reverse_proxy(address) as proxy,
    ):
        yield address, proxy


def statuses(http: httpx2.Client, count: int) -> list[int]:
    """Send requests and return the status of each."""
    return [http.get("health").status_code for _ in range(count)]


def test_clients_behind_a_trusted_proxy_have_separate_limits(tmp_path: Path) -> None:
    with (
        behind_proxy(tmp_path / "index", "--proxy", "127.0.0.1") as (address, proxy),
        coming_from("127.0.0.2", proxy) as first,
        coming_from("127.0.0.3", proxy) as second,
        coming_from("127.0.0.4", address) as spoofer,
    ):
        assert statuses(first, 3) == [200, 200, 429]
        cookie = second.post("session", json={}).headers["set-cookie"]
        assert "; Secure" in cookie
        assert statuses(second, 2) == [200, 429]
        # The headers are ignored if they come from another address.
        headers = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
        cookie = spoofer.post("session", json={}, headers=headers).headers["set-cookie"]
        assert "; Secure" not in cookie
        headers["X-Forwarded-For"] = "192.0.2.2"
        assert spoofer.get("health", headers=headers).status_code == 200
        headers["X-Forwarded-For"] = "192.0.2.3"
        assert spoofer.get("health", headers=headers).status_code == 429


def test_without_the_option_a_proxy_counts_as_one_client(tmp_path: Path) -> None:
    with (
        behind_proxy(tmp_path / "index") as (_, proxy),
        coming_from("127.0.0.2", proxy) as first,
        coming_from("127.0.0.3", proxy) as second,
    ):
        assert statuses(first, 1) == [200]
        assert "; Secure" not in second.post("session", json={}).headers["set-cookie"]
        assert statuses(second, 1) == [429]


@pytest.mark.parametrize("proxy", ["", "*", "proxy.example", "127.0.0.1,", "10.0.0.1/8"])
def test_a_proxy_must_be_an_address_or_a_network(visar: Visar, proxy: str) -> None:
    ran = visar("serve", "--port", "0", "--proxy", proxy)
    assert ran.code == 2
    assert "--proxy" in ran.err


def test_a_base_url_only_applies_to_served_models(tmp_path: Path, manual: Path) -> None:
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
        # The other generator uses the base URL, where nothing listens.
        answer = http.post("ask", json={"question": QUESTION, "generator": "openai:small"})
        assert "http://127.0.0.1:9/v1" in answer.json()["problem"]
