"""Access control and limits of a server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import (
    QUESTION,
    TOKEN,
    assert_problem,
    client,
    finished,
    send,
    serving,
    wait_until,
)
from visar.documents import Limits, ReadOptions
from visar.errors import InvalidOption
from visar.index import Index
from visar.server import Settings, app


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "nothing", 404, "not_found"),
        ("GET", "../../nothing.js", 404, "not_found"),
        ("GET", "../../../../../../../../etc/passwd", 404, "not_found"),
        ("GET", "../../%2e%2e/%2e%2e/app.py", 404, "not_found"),
        ("DELETE", "health", 405, "method_not_allowed"),
        ("GET", "documents/nothing", 404, "not_found"),
        ("GET", "documents/..%2F..%2Fetc", 404, "not_found"),
        ("GET", "documents/%00", 404, "not_found"),
        ("GET", "jobs/nothing", 404, "not_found"),
    ],
)
def test_unknown_paths_are_not_found(
    address: str, method: str, path: str, status: int, code: str
) -> None:
    # Use a socket, since an HTTP client would normalize the path.
    line = socket.create_connection((urlsplit(address).hostname, urlsplit(address).port or 0))
    with line, line.makefile("rb") as response:
        host = urlsplit(address).netloc
        line.sendall(f"{method} /api/v1/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = response.readline().split()
        headers = dict(iter(lambda: response.readline().strip().partition(b": ")[::2], (b"", b"")))
        body = response.read(int(headers[b"content-length"]))
    assert int(head[1]) == status
    assert headers[b"content-type"] == b"application/problem+json"
    assert json.loads(body)["code"] == code


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "ask", {"POST"}),
        ("POST", "documents/manual.pdf", {"GET", "DELETE"}),
        ("PUT", "jobs/one", {"GET", "DELETE"}),
        ("OPTIONS", "collections/one", {"PATCH", "DELETE"}),
        ("HEAD", "health", {"GET"}),
        ("DELETE", "openapi.json", {"GET", "HEAD"}),
    ],
)
def test_the_response_to_a_wrong_method_lists_the_allowed_ones(
    http: httpx2.Client, method: str, path: str, allowed: set[str]
) -> None:
    response = http.request(method, path)
    assert response.status_code == 405
    assert {*response.headers["allow"].split(", ")} == allowed


@pytest.mark.parametrize(
    ("field", "value"),
    [("k", True), ("max_k", 1.5), ("neighbors", False), ("exact", "yes"), ("page", True)],
)
def test_values_of_the_wrong_type_are_refused(
    http: httpx2.Client, document: str, field: str, value: object
) -> None:
    body = {"question": QUESTION, "document": document, "page": 1, field: value}
    if field != "page":
        del body["document"], body["page"]
    route = "explain/patches" if field == "page" else "search"
    detail = assert_problem(http.post(route, json=body), 422, "invalid")
    assert field in detail


@pytest.mark.parametrize("name", ["n" * 201, "two\nlines", "\x1b[2J", "\u202ederised"])
def test_every_route_refuses_invalid_collection_names(
    http: httpx2.Client, index: Index, document: str, name: str
) -> None:
    path = f"collections/{quote(name)}"
    members = {"documents": [document]}
    for response in (
        http.get("documents", params={"collection": name}),
        http.put(f"{path}/documents", json=members),
        http.delete(f"{path}/documents", params={"document": document}),
        http.patch(path, json={"name": "new"}),
        http.patch("collections/old", json={"name": name}),
        http.delete(path),
        http.post("search", json={"question": QUESTION, "collection": name}),
        send(http, b"%PDF-", "a.pdf", collection=name),
    ):
        assert_problem(response, 422, "invalid")
    for wrong in (name, ".", "..", "a/documents"):  # ambiguous in paths
        with pytest.raises(InvalidOption):
            index.collect(wrong, [document])


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 403, "host"),
        ({"Host": "127.0.0.1.evil.example:80"}, 403, "host"),
        ({"Origin": "http://evil.example"}, 403, "origin"),
        ({"Origin": "null"}, 403, "origin"),
        ({"Content-Type": "text/plain"}, 415, "content_type"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415, "content_type"),
    ],
)
def test_other_websites_cannot_send_requests(
    http: httpx2.Client, headers: dict[str, str], status: int, code: str
) -> None:
    body = json.dumps({"question": QUESTION}).encode()
    headers = {"Content-Type": "application/json", **headers}
    assert_problem(http.post("search", content=body, headers=headers), status, code)


def test_the_servers_own_page_can_send_requests(http: httpx2.Client, address: str) -> None:
    origin = {"Origin": address}
    assert http.post("search", json={"question": QUESTION}, headers=origin).status_code == 200


def test_responses_are_never_run_or_framed_by_browsers(
    http: httpx2.Client, address: str, document: str
) -> None:
    for path in ("health", f"documents/{document}", "nothing", f"documents/{document}/original"):
        headers = http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
    page = http.get(f"{address}/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, manual: Path) -> Iterator[tuple[Index, str]]:
    """A server with small limits and a token."""
    settings = Settings(
        token=TOKEN,
        options=ReadOptions(limits=Limits(max_bytes=20_000)),
        max_questions=1,
        max_waiting=1,
        requests_per_minute=1_000_000,
    )
    with Index.open(tmp_path_factory.mktemp("strict") / "index") as index:
        index.add(manual)
        with serving(index, settings) as address:
            yield index, address


def test_every_request_needs_the_token(strict: tuple[Index, str]) -> None:
    _, address = strict
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        with client(address, headers=headers) as http:
            for path in ("documents", "health", "metrics", "openapi.json", "jobs/events"):
                response = http.get(path)
                assert_problem(response, 401, "token")
                assert response.headers["www-authenticate"] == "Bearer"
            assert_problem(http.post("ask", json={"question": QUESTION}), 401, "token")
    with client(address, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        assert http.get("documents").json()[0]["name"] == "manual.pdf"
        # With a token, other host names are safe.
        assert http.get("documents", headers={"Host": "visar.example"}).status_code == 200


@pytest.fixture
def known(strict: tuple[Index, str]) -> Iterator[httpx2.Client]:
    with client(strict[1], headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        yield http


def test_an_upload_that_is_too_large_is_refused(
    known: httpx2.Client, strict: tuple[Index, str]
) -> None:
    assert_problem(send(known, b"%PDF-" + b"a" * 20_000, "large.pdf"), 413, "too_large")
    # Without Content-Length, it is refused once it exceeds the limit.
    parts = (b"%PDF-" + b"a" * 1_000 for _ in range(100))
    assert_problem(send(known, parts, "large.pdf"), 413, "too_large")
    assert_problem(known.post("ask", json={"question": "a" * 1_000_000}), 413, "too_large")
    assert known.get("jobs").json() == []
    folder = Path(strict[0].location) / "jobs"
    assert list((folder / "uploads").iterdir()) == []
    assert [path.name for path in folder.glob("owners/*/*")] == ["lock"]


def test_too_many_concurrent_questions_are_refused(
    known: httpx2.Client, strict: tuple[Index, str]
) -> None:
    responses: list[httpx2.Response] = []

    def ask_until_refused() -> None:
        with client(strict[1], headers=dict(known.headers)) as http:
            while not any(response.status_code == 429 for response in responses):
                responses.append(http.post("explain", json={"question": QUESTION}))

    threads = [threading.Thread(target=ask_until_refused) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {response.status_code for response in responses} <= {200, 429}
    refused = next(response for response in responses if response.status_code == 429)
    assert_problem(refused, 429, "busy")
    assert int(refused.headers["retry-after"]) > 0
    assert known.post("search", json={"question": QUESTION}).status_code == 200


def test_too_many_waiting_uploads_are_refused(known: httpx2.Client, tmp_path: Path) -> None:
    jobs = []
    for number in range(6):
        path = write_pdf(tmp_path / f"{number}.pdf", f"Number {number}.")
        response = send(known, path.read_bytes(), path.name)
        if response.status_code == 202:
            jobs.append(response.json()["id"])
        else:
            assert_problem(response, 429, "busy")
            assert int(response.headers["retry-after"]) > 0
    # One job runs, and one waits. More are accepted only if the first one is done very quickly.
    assert 1 <= len(jobs) < 6
    for job in jobs:
        assert finished(known, job)["state"] == "done"


def test_a_document_can_be_unlocked_after_a_restart(tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    with Index.open(tmp_path / "index") as index:
        document = index.add(path, options=ReadOptions(password="sesame")).id  # noqa: S106
    # Like after a restart, this index doesn't have the password.
    with (
        Index.open(tmp_path / "index") as index,
        serving(index, Settings(max_question_length=10)) as address,
        client(address) as http,
    ):
        picture = f"documents/{document}/pages/1/image"
        assert_problem(http.get(picture), 409, "password")
        unlock = f"documents/{document}/unlock"
        assert_problem(http.post(unlock, json={"password": "simsalabim"}), 409, "password")
        assert "simsalabim" not in http.post(unlock, json={"password": ["simsalabim"]}).text
        assert_problem(http.get(picture), 409, "password")
        assert http.post(unlock, json={"password": "sesame"}).status_code == 204
        assert http.get(picture).headers["content-type"] == "image/png"
        assert_problem(
            http.post("documents/nothing/unlock", json={"password": "x"}), 404, "not_found"
        )
        # The operator's limit on questions.
        assert http.post("search", json={"question": "The key?"}).status_code == 200
        assert_problem(http.post("search", json={"question": "Where is it?"}), 422, "too_long")


def test_the_error_for_a_missing_file_has_its_name_but_not_its_path(tmp_path: Path) -> None:
    (tmp_path / "kept here").mkdir()
    path = write_pdf(tmp_path / "kept here" / "gone.pdf", "The tide.")
    with Index.open(tmp_path / "index") as index:
        document = index.add(path).id
        original = index.original(document)
        assert original is not None
        original.unlink()
        path.unlink()
        with serving(index) as address, client(address) as http:
            response = http.get(f"documents/{document}/pages/1/image")
    detail = assert_problem(response, 409, "document")
    assert "gone.pdf" in detail
    assert "kept here" not in detail


def test_the_requests_of_a_client_per_minute_are_limited(index: Index) -> None:
    with serving(index, Settings(requests_per_minute=5)) as address, client(address) as http:
        responses = [http.get("health") for _ in range(6)]
        assert [response.status_code for response in responses[:5]] == [200] * 5
        assert_problem(responses[5], 429, "rate")
        assert int(responses[5].headers["retry-after"]) > 0


def test_setting_the_clock_back_does_not_extend_the_rate_limit(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "RATE_SECONDS", 0.5)
    now = time.time
    with serving(index, Settings(requests_per_minute=1)) as address, client(address) as http:
        monkeypatch.setattr(time, "time", lambda: now() + 3600)
        assert http.get("health").status_code == 200
        monkeypatch.setattr(time, "time", now)
        wait_until(lambda: http.get("health").status_code == 200, "the limit ends", 30)
