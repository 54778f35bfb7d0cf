"""The encoder service over real connections: responses, errors and limits."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.encoders.samples import PixelEncoder, page_with, picture
from tests.encoders.servers import serving
from visar import serving as http
from visar.documents.page import Page
from visar.encoders import remote, service
from visar.encoders.encoder import PageEmbedding
from visar.errors import EmptyQuestion, OutOfMemory, ServiceError

TOKEN = "correct-horse-battery-staple"  # noqa: S105
JSON = "application/json"
QUESTION = b'{"question": "where is it?"}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(PixelEncoder(), max_body=100_000) as address:
        yield address


def ask(
    url: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Send a request; return the status and the body, decoded if it is JSON."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    sent = {"Content-Type": JSON} if body is not None else {}
    connection.request(method, path, body, sent | (headers or {}))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = str(response.getheader("Content-Type")).endswith("json")
    return response.status, json.loads(content) if is_json else content


def place(url: str) -> tuple[str, int]:
    address = urlsplit(url)
    return str(address.hostname), int(address.port or 0)


def wait_until_closed(line: socket.socket) -> bool:
    """Wait until the connection is closed."""
    line.settimeout(10)
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True


def pages_message(count: int = 1) -> bytes:
    return remote.pack_pages([remote.pack_page(page_with("a b"), picture(n)) for n in range(count)])


def test_the_service_describes_its_encoder(url: str) -> None:
    assert ask(url, "GET", "/v1/encoder") == (
        200,
        {
            "visar_wire": 3,
            "name": "pixels",
            "version": "1",
            "dimension": 48,
            "reads": "image",
            "weak_match": 0.25,
            "max_body": 100_000,
        },
    )


def test_the_service_returns_the_encoder_s_vectors(url: str) -> None:
    status, answer = ask(url, "POST", "/v1/pages", pages_message(2))
    assert status == 200
    received = [
        page.unpack() for page in remote.PagesReply.model_validate(answer, strict=False).pages
    ]
    expected = PixelEncoder().encode_pages([page_with("a b")] * 2, [picture(0), picture(1)])
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors, strict=True)
        np.testing.assert_array_equal(one.boxes, other.boxes, strict=True)
    status, answer = ask(url, "POST", "/v1/query", QUESTION)
    assert status == 200
    np.testing.assert_array_equal(
        remote.QueryReply.model_validate(answer, strict=False).vectors.unpack(),
        PixelEncoder().encode_query("where is it?"),
        strict=True,
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", "/", None, {}, 404, "not_found"),
        ("GET", "/openapi.json", None, {}, 404, "not_found"),
        ("POST", "/v1/elsewhere", b"{}", {}, 404, "not_found"),
        ("DELETE", "/v1/encoder", None, {}, 405, "method_not_allowed"),
        ("POST", "/v1/pages", b"garbage", {}, 400, "malformed"),
        ("POST", "/v1/pages", QUESTION, {"Content-Type": JSON}, 400, "malformed"),
        ("POST", "/v1/pages", remote.pack_pages([remote.pack_page(page_with("a"))]), {}, 400,
         "malformed"),
        ("POST", "/v1/query", b"garbage", {}, 422, "invalid"),
        ("POST", "/v1/query", b"[" * 40_000, {}, 400, "bad_request"),
        ("POST", "/v1/query", b'{"question": 1}', {}, 422, "invalid"),
        ("POST", "/v1/query", json.dumps({"question": "é" * 4_001}).encode(), {}, 422, "invalid"),
        ("POST", "/v1/query", bytes(300_000), {}, 413, "too_large"),
        ("POST", "/v1/pages", bytes(100_001), {}, 413, "too_large"),
        ("POST", "/v1/pages", b"x", {"Content-Length": "9" * 19}, 413, "too_large"),
        ("POST", "/v1/query", QUESTION, {"Content-Type": "text/plain"}, 415, "content_type"),
        ("POST", "/v1/query", QUESTION, {"Content-Type": ""}, 415, "content_type"),
        ("GET", "/v1/encoder", None, {"Host": "evil.example"}, 403, "host"),
        ("GET", "/v1/encoder", None, {"Host": "localhost.evil.example:80"}, 403, "host"),
        ("POST", "/v1/query", QUESTION, {"Host": "evil.example:8765"}, 403, "host"),
    ],
)  # fmt: skip
def test_invalid_requests_get_error_responses(
    url: str,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    received, reply = ask(url, method, path, body, headers)
    assert (received, reply["code"]) == (status, code)
    assert len(reply["detail"]) < 300


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "[::1]"])
def test_all_names_of_localhost_are_accepted(url: str, host: str) -> None:
    assert ask(url, "GET", "/v1/encoder", headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"POST /v1/pages HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/pages HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
        + b"9" * 5000
        + b"\r\n\r\n",
        b"GET /v1/encoder HTTP/1.1\r\nX: " + b"x" * 200_000,
    ],
    ids=["noise", "negative", "digits", "long"],
)
def test_malformed_http_does_not_stop_the_service(url: str, sent: bytes) -> None:
    with socket.create_connection(place(url)) as line:
        line.sendall(sent)
        assert line.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert ask(url, "GET", "/v1/encoder")[0] == 200


def test_the_response_to_an_oversized_body_arrives(url: str) -> None:
    """The response must arrive while the body is still being sent."""
    status, reply = ask(url, "POST", "/v1/pages", bytes(20_000_000))
    assert (status, reply["code"]) == (413, "too_large")


def test_the_size_of_a_chunked_body_is_limited(url: str) -> None:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    parts = iter([bytes(60_000)] * 5)
    connection.request("POST", "/v1/pages", parts, {"Content-Type": JSON})
    response = connection.getresponse()
    assert (response.status, json.load(response)["code"]) == (413, "too_large")
    connection.request("POST", "/v1/query", iter([QUESTION]), {"Content-Type": JSON})
    assert connection.getresponse().status == 200
    connection.close()


def test_an_incomplete_body_times_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SECONDS_TO_WAIT", 0.2)
    status, reply = ask(url, "POST", "/v1/query", b"half", {"Content-Length": "8"})
    assert (status, reply["code"]) == (408, "timeout")


def test_a_client_that_disconnects_is_not_an_error(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(place(url)) as line:
        line.sendall(b"POST /v1/pages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n")
        line.sendall(f"Content-Type: {JSON}\r\n\r\nhalf".encode())
    for _ in range(3):
        assert ask(url, "POST", "/v1/query", QUESTION)[0] == 200
    assert "Traceback" not in caplog.text


def test_requests_without_the_token_are_rejected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(PixelEncoder(), token=TOKEN) as url:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            status, reply = ask(url, "GET", "/v1/encoder", headers=headers)
            assert (status, reply["code"]) == (401, "token")
        status, _ = ask(url, "POST", "/v1/pages", b"garbage")
        assert status == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert ask(url, "GET", "/v1/encoder", headers=right)[0] == 200
    assert "/v1/encoder" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("token", [None, "", "fifteen letters"])
def test_a_public_address_requires_a_token(token: str | None) -> None:
    with pytest.raises(ServiceError, match=r"VISAR_TOKEN.*at least 16 random characters"):
        http.listen("0.0.0.0", 0, token=token)  # noqa: S104


def test_a_public_address_works_with_a_token() -> None:
    http.listen("0.0.0.0", 0, token=TOKEN).close()  # noqa: S104


def test_small_responses_are_sent_without_delay() -> None:
    with http.listen("127.0.0.1", 0, token=None) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with client, accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_error_for_a_port_in_use_names_it(url: str) -> None:
    with pytest.raises(ServiceError, match=rf"port {place(url)[1]}.*--port"):
        http.listen(*place(url), token=None)


class ScriptedEncoder(PixelEncoder):
    """An encoder that calls a function of the test instead of encoding."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        return self._act() or super().encode_pages(pages, images)

    def encode_query(self, question: str) -> NDArray[np.float32]:
        given: NDArray[np.float32] | None = self._act()
        return super().encode_query(question) if given is None else given


def failing(error: Exception) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "status", "code", "message"),
    [
        (failing(EmptyQuestion("Ask something.")), 422, "empty_question", "Ask something."),
        (failing(OutOfMemory("Page 1 is too large.")), 500, "memory", "Page 1 is too large."),
        (failing(OSError("/secret/place")), 500, "failed", "log"),
        (failing(ServiceError("/secret/place")), 500, "failed", "log"),
        (failing(MemoryError("x")), 500, "failed", "log"),
    ],
)
def test_encoder_errors_are_responses(
    act: Callable[[], Any], status: int, code: str, message: str
) -> None:
    with serving(ScriptedEncoder(act)) as url:
        received, reply = ask(url, "POST", "/v1/query", QUESTION)
        assert (received, reply["code"]) == (status, code)
        assert message in reply["detail"]
        assert "secret" not in reply["detail"]
        assert ask(url, "GET", "/v1/encoder")[0] == 200


class Turnstile:
    """A gate that lets a test block the encoder, and detects concurrent calls."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self._inside = threading.Lock()

    def __call__(self) -> None:
        assert self._inside.acquire(blocking=False), "two requests are being encoded concurrently"
        self.entered.release()
        assert self.leave.acquire(timeout=10)
        self._inside.release()


def in_background(url: str, results: list[int]) -> threading.Thread:
    def send() -> None:
        results.append(ask(url, "POST", "/v1/query", QUESTION)[0])

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@contextlib.contextmanager
def busy() -> Iterator[str]:
    """Run a service that works on a question during the test, and then responds to it."""
    gate = Turnstile()
    results: list[int] = []
    with serving(ScriptedEncoder(gate)) as url:
        thread = in_background(url, results)
        assert gate.entered.acquire(timeout=10)
        yield url
        gate.leave.release()
        thread.join()
    assert results == [200]


def test_the_encoder_handles_one_request_at_a_time() -> None:
    gate = Turnstile()
    results: list[int] = []
    with serving(ScriptedEncoder(gate)) as url:
        threads = [in_background(url, results) for _ in range(4)]
        for _ in threads:
            assert gate.entered.acquire(timeout=10)
            gate.leave.release()
        for thread in threads:
            thread.join()
    assert results == [200] * 4


def test_too_many_requests_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUESTS", 1)
    with busy() as url:
        status, reply = ask(url, "POST", "/v1/query", QUESTION)
        assert (status, reply["code"]) == (503, "busy")
        assert ask(url, "GET", "/v1/encoder")[0] == 200


def test_shutdown_waits_for_the_current_response() -> None:
    gate = Turnstile()
    results: list[int] = []
    with serving(ScriptedEncoder(gate)) as url:
        thread = in_background(url, results)
        assert gate.entered.acquire(timeout=10)
        release = threading.Timer(0.3, gate.leave.release)
        release.start()
    # It closed after the encoder had finished.
    assert not gate.leave.acquire(blocking=False)
    thread.join()
    assert results == [200]


def test_shutdown_does_not_wait_for_a_hanging_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "SECONDS_TO_STOP", 1)
    gate = Turnstile()
    results: list[int] = []
    with serving(ScriptedEncoder(gate)) as url:
        thread = in_background(url, results)
        assert gate.entered.acquire(timeout=10)
    thread.join()
    assert results == [500]
    gate.leave.release()


def test_shutdown_does_not_wait_for_idle_connections() -> None:
    with serving(PixelEncoder()) as url:
        silent = socket.create_connection(place(url))
        # Connections are accepted in order, so the idle one has been accepted by now.
        assert ask(url, "GET", "/v1/encoder")[0] == 200
    with silent:
        assert wait_until_closed(silent)


def test_excess_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_IDLE_CONNECTIONS", 1)
    with serving(PixelEncoder()) as url, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(place(url))) for _ in range(2)]
        for line in slow:
            line.sendall(b"G")
        (cut, *_), _, _ = select.select(slow, [], [], 10)
        assert wait_until_closed(cut)
        (left,) = [line for line in slow if line is not cut]
        left.sendall(b"ET /v1/encoder HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert left.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_slow_headers_do_not_lock_out_other_clients(url: str) -> None:
    """Uses the default limits, and clients that reconnect when they are closed."""
    head = b"GET /v1/encoder HTTP/1.1\r\nHost: localhost\r\nX: "
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(place(url))) for _ in range(300)]
        for turn in range(10):
            for n, line in enumerate(slow):
                try:
                    line.sendall(head[turn : turn + 1])
                except ConnectionError:
                    slow[n] = stack.enter_context(socket.create_connection(place(url)))
            assert ask(url, "POST", "/v1/query", QUESTION)[0] == 200


def test_a_question_that_is_too_long_is_rejected_before_encoding() -> None:
    with busy() as url:
        for length, status in ((4_001, 422), (4_000_000, 413)):
            long = json.dumps({"question": "w" * length}).encode()
            assert ask(url, "POST", "/v1/query", long)[0] == status


def test_busy_connections_are_not_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with busy() as url:
        monkeypatch.setattr(http, "MAX_IDLE_CONNECTIONS", 0)
        with socket.create_connection(place(url)) as idle:
            assert wait_until_closed(idle)


def test_an_incomplete_header_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SECONDS_TO_WAIT", 0.2)
    with serving(PixelEncoder()) as url, socket.create_connection(place(url)) as line:
        line.sendall(b"GET /v1/enc")
        assert wait_until_closed(line)


def start_pages(url: str) -> socket.socket:
    """Start a message of pages, sending only the first of its two bytes."""
    line = socket.create_connection(place(url), timeout=10)
    head = f"POST /v1/pages HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
    line.sendall(f"{head}Content-Length: 2\r\n\r\na".encode())
    return line


def test_slow_messages_of_pages_leave_room_for_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUESTS", 2)
    monkeypatch.setattr(http, "SECONDS_OF_GRACE", 60)  # no client is considered slow
    with serving(PixelEncoder()) as url, start_pages(url) as first, start_pages(url):
        assert ask(url, "GET", "/v1/encoder")[0] == 200  # both have been accepted by now
        assert ask(url, "POST", "/v1/query", QUESTION)[0] == 200
        status, reply = ask(url, "POST", "/v1/pages", pages_message())
        assert (status, reply["code"]) == (503, "busy")
        first.sendall(b"b")
        assert first.recv(10_000).startswith(b"HTTP/1.1 400 ")  # the body is complete but malformed
        assert ask(url, "POST", "/v1/pages", pages_message())[0] == 200
