"""The service through real connections: what it answers, and whom it turns away."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.encoders.samples import PixelEncoder, page_with, picture
from tests.encoders.servers import serving
from visar.documents.page import Page
from visar.encoders import service, wire
from visar.encoders.protocol import PageEmbedding
from visar.encoders.service import EncoderService
from visar.errors import EmptyQuestion, ServiceError

TOKEN = "correct-horse-battery-staple"  # noqa: S105


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
    """Status, and what was said: decoded if it is JSON."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    sent = {"Content-Type": wire.CONTENT_TYPE} if body is not None else {}
    connection.request(method, path, body, sent | (headers or {}))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.getheader("Content-Type") == "application/json"
    return response.status, json.loads(content) if is_json else content


def pages_message(count: int = 1) -> bytes:
    return wire.join_pages([wire.pack_page(page_with("a b"), picture(n)) for n in range(count)])


def test_it_says_who_it_is(url: str) -> None:
    assert ask(url, "GET", "/v1/encoder") == (
        200,
        {
            "visar_wire": 1,
            "name": "pixels",
            "version": "1",
            "dimension": 48,
            "reads": "image",
            "weak_match": 0.25,
            "max_body": 100_000,
        },
    )


def test_it_encodes_pages_and_questions_as_the_encoder_does(url: str) -> None:
    status, answer = ask(url, "POST", "/v1/pages", pages_message(2))
    assert status == 200
    _, received = wire.unpack_embeddings(answer, [page_with("a b")] * 2)
    expected = PixelEncoder().encode_pages([page_with("a b")] * 2, [picture(0), picture(1)])
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors, strict=True)
        np.testing.assert_array_equal(one.boxes, other.boxes, strict=True)
    status, answer = ask(url, "POST", "/v1/query", wire.pack_question("where is it?"))
    assert status == 200
    np.testing.assert_array_equal(
        wire.unpack_query(answer)[1], PixelEncoder().encode_query("where is it?")
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", "/", None, {}, 404, "not_found"),
        ("POST", "/v1/elsewhere", b"", {}, 404, "not_found"),
        ("DELETE", "/v1/encoder", None, {}, 501, "http"),
        ("POST", "/v1/pages", b"garbage", {}, 400, "malformed"),
        ("POST", "/v1/query", b"garbage", {}, 400, "malformed"),
        ("POST", "/v1/query", wire.pack_query(wire.Identity("a", "b", 1), np.ones((1, 1), "f4")),
         {}, 400, "malformed"),
        ("POST", "/v1/pages", wire.join_pages([wire.pack_page(page_with("a"))]), {}, 400,
         "malformed"),
        ("POST", "/v1/pages", bytes(100_001), {}, 413, "too_large"),
        ("POST", "/v1/pages", b"x", {"Content-Length": "-1"}, 411, "length"),
        ("POST", "/v1/pages", b"x", {"Content-Length": "9" * 5000}, 413, "too_large"),
        ("POST", "/v1/query", b"0\r\n\r\n", {"Transfer-Encoding": "chunked"}, 411, "length"),
        ("POST", "/v1/query", b"{}", {"Content-Type": "text/plain"}, 415, "content_type"),
        ("GET", "/v1/encoder", None, {"Host": "evil.example"}, 403, "host"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_clear_answer(
    url: str,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    answered, said = ask(url, method, path, body, headers)
    assert answered == status
    assert said["error"]["code"] == code
    assert said["error"]["message"].endswith(".")


def test_bytes_that_are_no_http_do_not_stop_it(url: str) -> None:
    address = urlsplit(url)
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as line:
        line.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in line.recv(1000)
    assert ask(url, "GET", "/v1/encoder")[0] == 200


def test_who_refuses_a_long_message_is_still_heard(url: str) -> None:
    """The answer to a message that is too long must arrive while it is still being sent."""
    status, said = ask(url, "POST", "/v1/pages", bytes(20_000_000))
    assert (status, said["error"]["code"]) == (413, "too_large")


def test_a_message_that_does_not_come_is_given_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service._Handler, "timeout", 0.2)
    status, said = ask(url, "POST", "/v1/query", b"half", {"Content-Length": "8"})
    assert (status, said["error"]["code"]) == (408, "timeout")


def test_without_the_token_nothing_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(PixelEncoder(), token=TOKEN) as url:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            status, said = ask(url, "GET", "/v1/encoder", headers=headers)
            assert (status, said["error"]["code"]) == (401, "token")
        status, _ = ask(url, "POST", "/v1/pages", b"garbage")
        assert status == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert ask(url, "GET", "/v1/encoder", headers=right)[0] == 200
    assert "/v1/encoder" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("token", "said"), [(None, "VISAR_TOKEN"), ("", "VISAR_TOKEN"), ("short", "can be guessed")]
)
def test_off_loopback_it_does_not_start_without_a_token(token: str | None, said: str) -> None:
    with pytest.raises(ServiceError, match=said):
        EncoderService(PixelEncoder(), host="0.0.0.0", port=0, token=token)  # noqa: S104


def test_with_a_token_it_starts_off_loopback() -> None:
    EncoderService(PixelEncoder(), host="0.0.0.0", port=0, token=TOKEN).close()  # noqa: S104


def test_a_port_that_is_taken_is_named(url: str) -> None:
    port = int(urlsplit(url).port or 0)
    with pytest.raises(ServiceError, match=rf"port {port}.*--port"):
        EncoderService(PixelEncoder(), port=port)


class ScriptedEncoder(PixelEncoder):
    """Does what a test tells it instead of encoding."""

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
        (failing(OSError("/secret/place")), 500, "encoder", "log of the service"),
        (failing(MemoryError("x")), 500, "encoder", "log of the service"),
        (lambda: np.full((1, 48), np.nan, np.float32), 500, "encoder", "not finite"),
        (lambda: np.ones((1, 47), np.float32), 500, "encoder", "shape"),
    ],
)
def test_an_encoder_that_fails_is_an_answer_too(
    act: Callable[[], Any], status: int, code: str, message: str
) -> None:
    with serving(ScriptedEncoder(act)) as url:
        answered, said = ask(url, "POST", "/v1/query", wire.pack_question("why?"))
        assert (answered, said["error"]["code"]) == (status, code)
        assert message in said["error"]["message"]
        assert "secret" not in said["error"]["message"]
        assert ask(url, "GET", "/v1/encoder")[0] == 200


class Turnstile:
    """Lets a test hold the encoder, and notices when two are in it at once."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self._inside = threading.Lock()

    def __call__(self) -> None:
        assert self._inside.acquire(blocking=False), "two requests are being encoded at once"
        self.entered.release()
        assert self.leave.acquire(timeout=10)
        self._inside.release()


def in_background(url: str, results: list[int]) -> threading.Thread:
    def send() -> None:
        results.append(ask(url, "POST", "/v1/query", wire.pack_question("why?"))[0])

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_the_encoder_works_on_one_request_at_a_time() -> None:
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


def test_too_many_requests_are_sent_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUESTS", 1)
    gate = Turnstile()
    results: list[int] = []
    with serving(ScriptedEncoder(gate)) as url:
        first = in_background(url, results)
        assert gate.entered.acquire(timeout=10)
        status, said = ask(url, "POST", "/v1/query", wire.pack_question("why?"))
        assert (status, said["error"]["code"]) == (503, "busy")
        assert ask(url, "GET", "/v1/encoder")[0] == 200
        gate.leave.release()
        first.join()
    assert results == [200]


def test_closing_waits_for_the_answer_that_is_under_way() -> None:
    gate = Turnstile()
    results: list[int] = []
    with serving(ScriptedEncoder(gate)) as url:
        asked = in_background(url, results)
        assert gate.entered.acquire(timeout=10)
        release = threading.Timer(0.3, gate.leave.release)
        release.start()
    # Closed: the encoder had been let go by then.
    assert not gate.leave.acquire(blocking=False)
    asked.join()
    assert results == [200]


def test_silent_connections_do_not_keep_it_from_closing() -> None:
    with serving(PixelEncoder()) as url:
        address = urlsplit(url)
        silent = socket.create_connection((str(address.hostname), int(address.port or 0)))
        # Connections are taken in turn: the silent one has been by now.
        assert ask(url, "GET", "/v1/encoder")[0] == 200
    silent.setblocking(False)
    with silent, pytest.raises(BlockingIOError):
        silent.recv(1)


def test_more_connections_than_it_can_hold_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS", 1)
    with serving(PixelEncoder()) as url:
        address = urlsplit(url)
        place = (str(address.hostname), int(address.port or 0))
        with socket.create_connection(place), pytest.raises(ConnectionError):
            ask(url, "GET", "/v1/encoder")
        # The place is free as soon as the service notices.
        for _ in range(500):
            try:
                status, _ = ask(url, "GET", "/v1/encoder")
            except ConnectionError:
                time.sleep(0.01)
            else:
                break
        assert status == 200
