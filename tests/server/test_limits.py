"""Who may ask a server, for what, how much and how often."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

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
)
from visar.documents import Limits, ReadOptions
from visar.index import Index
from visar.server import Settings


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
def test_what_is_not_there(address: str, method: str, path: str, status: int, code: str) -> None:
    # As it stands: a client would tidy the dots away.
    line = socket.create_connection((urlsplit(address).hostname, urlsplit(address).port or 0))
    with line, line.makefile("rb") as answer:
        host = urlsplit(address).netloc
        line.sendall(f"{method} /api/v1/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = answer.readline().split()
        headers = dict(iter(lambda: answer.readline().strip().partition(b": ")[::2], (b"", b"")))
        body = answer.read(int(headers[b"content-length"]))
    assert int(head[1]) == status
    assert headers[b"content-type"] == b"application/problem+json"
    assert json.loads(body)["code"] == code


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
def test_websites_cannot_drive_it(
    http: httpx2.Client, headers: dict[str, str], status: int, code: str
) -> None:
    body = json.dumps({"question": QUESTION}).encode()
    sent = {"Content-Type": "application/json", **headers}
    assert_problem(http.post("search", content=body, headers=sent), status, code)


def test_its_own_page_may_ask(http: httpx2.Client, address: str) -> None:
    origin = {"Origin": address}
    assert http.post("search", json={"question": QUESTION}, headers=origin).status_code == 200


def test_answers_are_never_run_or_framed(http: httpx2.Client, address: str, document: str) -> None:
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


def test_without_the_token_nothing_is_told(strict: tuple[Index, str]) -> None:
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
        # Which makes other names of the machine safe.
        assert http.get("documents", headers={"Host": "visar.example"}).status_code == 200


@pytest.fixture
def known(strict: tuple[Index, str]) -> Iterator[httpx2.Client]:
    with client(strict[1], headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        yield http


def test_an_upload_that_is_too_large_is_refused(
    known: httpx2.Client, strict: tuple[Index, str]
) -> None:
    assert_problem(send(known, b"%PDF-" + b"a" * 20_000, "large.pdf"), 413, "too_large")
    # Without a length, once the limit is passed.
    parts = (b"%PDF-" + b"a" * 1_000 for _ in range(100))
    assert_problem(send(known, parts, "large.pdf"), 413, "too_large")
    assert_problem(known.post("ask", json={"question": "a" * 1_000_000}), 413, "too_large")
    assert known.get("jobs").json() == []
    folder = Path(strict[0].location) / "jobs"
    assert list((folder / "uploads").iterdir()) == []
    assert [path.name for path in folder.glob("owners/*/*")] == ["lock"]


def test_more_questions_than_allowed_are_turned_away(
    known: httpx2.Client, strict: tuple[Index, str]
) -> None:
    answers: list[httpx2.Response] = []

    def insist() -> None:
        with client(strict[1], headers=dict(known.headers)) as http:
            while not any(answer.status_code == 429 for answer in answers):
                answers.append(http.post("explain", json={"question": QUESTION}))

    threads = [threading.Thread(target=insist) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert_problem(refused, 429, "busy")
    assert int(refused.headers["retry-after"]) > 0
    assert known.post("search", json={"question": QUESTION}).status_code == 200


def test_more_uploads_than_may_wait_are_turned_away(known: httpx2.Client, tmp_path: Path) -> None:
    jobs = []
    for number in range(6):
        path = write_pdf(tmp_path / f"{number}.pdf", f"Number {number}.")
        response = send(known, path.read_bytes(), path.name)
        if response.status_code == 202:
            jobs.append(response.json()["id"])
        else:
            assert_problem(response, 429, "busy")
            assert int(response.headers["retry-after"]) > 0
    # One runs, one waits; the others came too soon, unless the first was very quick.
    assert 1 <= len(jobs) < 6
    for job in jobs:
        assert finished(known, job)["state"] == "done"


def test_a_password_is_given_again_after_a_restart(tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    with Index.open(tmp_path / "index") as index:
        document = index.add(path, options=ReadOptions(password="sesame")).id  # noqa: S106
    # It stands for a server that was started again: its index knows no password.
    with (
        Index.open(tmp_path / "index") as index,
        serving(index, Settings(max_question_length=10)) as address,
        client(address) as http,
    ):
        picture = f"documents/{document}/pages/1/image"
        told = assert_problem(http.get(picture), 409, "password")
        assert "unlocked with its password" in told
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


def test_a_file_that_is_gone_is_named_without_its_place(tmp_path: Path) -> None:
    (tmp_path / "kept here").mkdir()
    path = write_pdf(tmp_path / "kept here" / "gone.pdf", "The tide.")
    with Index.open(tmp_path / "index") as index:
        document = index.add(path).id
        kept = index.original(document)
        assert kept is not None
        kept.unlink()
        path.unlink()
        with serving(index) as address, client(address) as http:
            told = assert_problem(http.get(f"documents/{document}/pages/1/image"), 409, "document")
    assert told.startswith("gone.pdf cannot be shown: its file gone.pdf does not exist any more")


def test_one_client_has_so_many_requests_a_minute(index: Index) -> None:
    with serving(index, Settings(requests_per_minute=5)) as address, client(address) as http:
        answers = [http.get("health") for _ in range(6)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert_problem(answers[5], 429, "rate")
        assert int(answers[5].headers["retry-after"]) > 0
