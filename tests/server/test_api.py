"""Every route of the API, through real connections."""

from __future__ import annotations

import io
import json
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
from PIL import Image

from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import (
    client,
    events,
    finished,
    send,
    serving,
    upload,
    wait_until,
)
from visar.documents import Limits, ReadOptions
from visar.index import Index
from visar.server import Settings

QUESTION = "How long is the warranty of the Aurora lantern?"
TOKEN = "correct-horse-battery-staple"  # noqa: S105


def ask(http: httpx2.Client, route: str, **body: Any) -> Any:
    response = http.post(route, json={"question": QUESTION, **body})
    assert response.status_code == 200, response.text
    return response.json()


def assert_problem(response: httpx2.Response, status: int, code: str) -> str:
    """Check that an answer is a problem of RFC 9457 and tells nothing of this machine."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    said = response.json()
    assert set(said) == {"type", "title", "status", "detail", "code"}
    assert (said["type"], said["status"], said["code"]) == ("about:blank", status, code)
    for secret in ("Traceback", "/tmp", "/home", "site-packages", TOKEN):  # noqa: S108
        assert secret not in response.text
    return str(said["detail"])


def test_an_upload_becomes_a_document(http: httpx2.Client, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "harbour.pdf", "The harbour opens at six.", "It closes at nine.")
    response = send(http, path.read_bytes(), "harbour.pdf", collection="ports")
    job = response.json()
    assert response.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert (job["name"], job["collection"], job["encoder"]) == ("harbour.pdf", "ports", "embedded")
    done = finished(http, job["id"])
    assert (done["state"], done["pages"], done["pages_done"], done["reason"]) == (
        "done",
        2,
        2,
        None,
    )
    document = http.get(f"documents/{done['document']}").json()
    assert (document["name"], document["pages"]) == ("harbour.pdf", 2)
    assert document["size"] == path.stat().st_size
    assert document["collections"] == ["ports"]
    assert [encoder["name"] for encoder in document["encoders"]] == ["embedded"]
    # The original is what was sent, and opens in a browser under its name.
    original = http.get(f"documents/{document['id']}/original")
    assert original.content == path.read_bytes()
    assert original.headers["content-type"] == "application/pdf"
    assert original.headers["content-disposition"] == 'inline; filename="harbour.pdf"'
    # A name does as well as an id. What is deleted is gone.
    assert http.delete("documents/harbour.pdf").json()["id"] == document["id"]
    for route in ("", "/original", "/pages/1", "/pages/1/image"):
        assert_problem(http.get(f"documents/{document['id']}{route}"), 404, "not_found")
    assert "ports" not in [each["name"] for each in http.get("collections").json()]


def test_documents_are_listed_in_parts(http: httpx2.Client, tmp_path: Path, index: Index) -> None:
    for number in range(3):
        name = f"part-{number}.pdf"
        added = index.add(write_pdf(tmp_path / name, f"Part {number} of a series."))
        index.collect("series", [added.id])
    params: dict[str, Any] = {"collection": "series"}
    names = [each["name"] for each in http.get("documents", params=params).json()]
    assert names == ["part-0.pdf", "part-1.pdf", "part-2.pdf"]
    middle = http.get("documents", params=params | {"offset": 1, "limit": 1}).json()
    assert [each["name"] for each in middle] == ["part-1.pdf"]
    assert http.get("documents", params=params | {"offset": 3}).json() == []
    for wrong in ({"limit": 0}, {"limit": 1001}, {"offset": -1}):
        assert_problem(http.get("documents", params=wrong), 422, "invalid")
    for name in names:
        http.delete(f"documents/{name}")


def test_pages_have_words_and_pictures(http: httpx2.Client, document: str) -> None:
    page = http.get(f"documents/{document}/pages/2").json()
    assert (page["number"], page["width"], page["height"]) == (2, 400, 500)
    assert [word["text"] for word in page["words"][:3]] == ["Warranty.", "The", "warranty"]
    for word in page["words"]:
        left, top, right, bottom = word["box"]
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1
    # 400 × 500 points at 144 dots an inch are 800 × 1000 dots.
    picture = http.get(f"documents/{document}/pages/2/image", params={"dpi": 144})
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.content)).size == (800, 1000)
    thumbnail = http.get(f"documents/{document}/pages/2/thumbnail")
    assert max(Image.open(io.BytesIO(thumbnail.content)).size) < 200
    assert_problem(http.get(f"documents/{document}/pages/6"), 404, "not_found")
    assert_problem(http.get(f"documents/{document}/pages/0/image"), 404, "not_found")
    assert_problem(http.get(f"documents/{document}/pages/one"), 422, "invalid")
    assert_problem(
        http.get(f"documents/{document}/pages/1/image", params={"dpi": 3000}), 422, "invalid"
    )


@pytest.mark.parametrize("route", ["image", "thumbnail"])
def test_a_picture_that_is_known_is_not_sent_again(
    http: httpx2.Client, document: str, route: str
) -> None:
    place = f"documents/{document}/pages/1/{route}"
    first = http.get(place)
    tag = first.headers["etag"]
    assert "immutable" in first.headers["cache-control"]
    again = http.get(place, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = http.get(f"documents/{document}/pages/2/{route}", headers={"If-None-Match": tag})
    assert other.status_code == 200
    assert other.headers["etag"] != tag


def test_collections(http: httpx2.Client, document: str) -> None:
    def names() -> dict[str, int]:
        return {each["name"]: each["documents"] for each in http.get("collections").json()}

    members = {"documents": ["manual.pdf"]}
    made = http.put("collections/old books/documents", json=members)
    assert made.json() == {"name": "old books", "documents": 1}
    # Again changes nothing.
    assert http.put("collections/old books/documents", json=members).json()["documents"] == 1
    renamed = http.patch("collections/old books", json={"name": "books"})
    assert renamed.json() == {"name": "books", "documents": 1}
    assert names() == {"books": 1}
    # To its own name, too.
    assert http.patch("collections/books", json={"name": "books"}).status_code == 200
    assert names() == {"books": 1}
    assert ask(http, "search", collection="books")["documents"][0]["id"] == document
    http.put("collections/others/documents", json=members)
    taken = http.delete(f"collections/others/documents/{document}")
    assert taken.json() == {"name": "others", "documents": 0}
    assert http.delete("collections/books").status_code == 204
    assert names() == {}
    assert http.get(f"documents/{document}").json()["collections"] == []
    for response in (
        http.delete("collections/books"),
        http.patch("collections/books", json={"name": "x"}),
        http.delete(f"collections/books/documents/{document}"),
        http.put("collections/books/documents", json={"documents": ["nothing.pdf"]}),
        http.post("search", json={"question": QUESTION, "collection": "books"}),
    ):
        assert_problem(response, 404, "not_found")
    assert_problem(http.patch("collections/books", json={"name": ""}), 422, "invalid")


def test_an_encrypted_document_waits_for_its_password(http: httpx2.Client, tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    failed = finished(http, upload(http, path, "secret.pdf")["id"])
    assert (failed["state"], failed["code"]) == ("failed", "password")
    assert "secret.pdf" in failed["reason"]
    wrong = http.post(f"jobs/{failed['id']}/retry", json={"password": "simsalabim"}).json()
    assert finished(http, wrong["id"])["code"] == "password"
    http.post(f"jobs/{failed['id']}/retry", json={"password": "sesame"})
    done = finished(http, failed["id"])
    assert done["state"] == "done"
    assert done["reason"] is None
    # Whoever could add it can see its pages.
    picture = http.get(f"documents/{done['document']}/pages/1/image")
    assert picture.headers["content-type"] == "image/png"
    assert http.delete(f"documents/{done['document']}").status_code == 200


def test_a_job_that_failed_is_dropped_when_it_is_dismissed(
    http: httpx2.Client, index: Index
) -> None:
    job = send(http, b"not a document", "notes.pdf").json()
    failed = finished(http, job["id"])
    assert (failed["state"], failed["code"], failed["document"]) == ("failed", "document", None)
    assert failed["reason"].startswith("notes.pdf")
    assert failed["id"] in [each["id"] for each in http.get("jobs").json()]
    uploaded = Path(index.location) / "server" / "uploads" / job["id"]
    assert uploaded.exists()
    assert http.delete(f"jobs/{job['id']}").status_code == 204
    assert not uploaded.exists()
    for response in (
        http.get(f"jobs/{job['id']}"),
        http.delete(f"jobs/{job['id']}"),
        http.post(f"jobs/{job['id']}/cancel", json={}),
        http.post(f"jobs/{job['id']}/retry", json={}),
    ):
        assert_problem(response, 404, "not_found")


def test_events_tell_every_change_of_a_job(
    http: httpx2.Client, address: str, tmp_path: Path
) -> None:
    path = write_pdf(tmp_path / "told.pdf", *(f"Page {number} of a story." for number in range(9)))
    seen: list[Any] = []
    with client(address) as listening, listening.stream("GET", "jobs/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        job = upload(http, path)
        for name, data in events(response):
            if json.loads(data)["id"] != job["id"]:
                continue
            seen.append((name, json.loads(data)))
            if name == "forgotten":
                break
            if seen[-1][1]["state"] == "done":
                http.delete(f"jobs/{job['id']}")
    states = [data["state"] for name, data in seen if name == "job"]
    assert states == sorted(states, key=["waiting", "running", "done"].index)
    assert states[-1] == "done"
    stages = {data["stage"] for _, data in seen[:-1]} - {None}
    assert stages <= {"reading", "ocr", "encoding"}
    assert stages
    http.delete("documents/told.pdf")


def test_an_answer_quotes_the_page(http: httpx2.Client, document: str) -> None:
    answer = ask(http, "ask")
    assert answer["found"]
    assert "seven years" in answer["text"]
    assert answer["generator"] == "extractive"
    assert (answer["model"], answer["citations"]) == (None, [])
    passage = answer["passages"][0]
    assert passage["document"] == document
    assert passage["page"] in (2, 4)
    assert passage["boxes"]
    search = answer["search"]
    assert {hit["page"] for hit in search["pages"]} <= {1, 2, 4}
    assert (search["pages_searched"], search["k"]) == (5, len(search["pages"]))
    assert search["summary"].startswith(f"{search['k']} of 5 pages")


def test_a_question_can_be_narrowed(http: httpx2.Client, document: str) -> None:
    one = ask(http, "search", documents=[document], method="top-k", k=1)
    assert len(one["pages"]) == 1
    assert one["method"] == "top-k"
    assert len(ask(http, "search", max_k=1)["pages"]) == 1
    beside = ask(http, "search", method="top-k", k=1, neighbors=1)["pages"]
    assert {hit["beside"] for hit in beside} > {None}


def test_an_answer_streams_pages_first(http: httpx2.Client) -> None:
    with http.stream("POST", "ask/stream", json={"question": QUESTION}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        told = [(name, json.loads(data)) for name, data in events(response)]
    names = [name for name, _ in told]
    assert names == ["search", *["text"] * (len(names) - 2), "answer"]
    search, answer = told[0][1], told[-1][1]
    assert answer["search"]["pages"] == search["pages"]
    assert "".join(piece for name, piece in told if name == "text").strip() == answer["text"]
    assert answer["text"] == ask(http, "ask")["text"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"question": "  "}, 422, "empty_question"),
        ({"documents": ["nothing.pdf"]}, 404, "not_found"),
        ({"collection": "nothing"}, 404, "not_found"),
        ({"documents": ["manual.pdf"], "collection": "all"}, 422, "invalid"),
        ({"encoder": "/etc/passwd"}, 422, "invalid"),
        ({"encoder": "http://127.0.0.1:1"}, 422, "invalid"),
        ({"generator": "openai:gpt"}, 422, "invalid"),
        ({"method": "os:system"}, 422, "invalid"),
        ({"method": "oracle"}, 422, "invalid"),
    ],
)
def test_what_is_wrong_with_a_question_is_told(
    http: httpx2.Client, body: dict[str, Any], status: int, code: str
) -> None:
    asked = {"question": QUESTION, **body}
    detail = assert_problem(http.post("ask", json=asked), status, code)
    # Streamed, it is an event: by then the status has been sent.
    with http.stream("POST", "ask/stream", json=asked) as response:
        assert response.status_code == 200
        ((name, data),) = events(response)
    said = json.loads(data)
    assert (name, said["status"], said["code"], said["detail"]) == ("problem", status, code, detail)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"question": ""},
        {"question": "a" * 4001},
        {"question": 7},
        {"question": QUESTION, "base_url": "http://127.0.0.1:1"},
        {"question": QUESTION, "k": 0},
        {"question": QUESTION, "neighbors": 11},
        {"question": QUESTION, "documents": "manual.pdf"},
        [],
    ],
)
@pytest.mark.parametrize("route", ["ask", "ask/stream", "search", "explain", "explain/matrix"])
def test_a_question_of_the_wrong_shape_is_refused(
    http: httpx2.Client, route: str, body: Any
) -> None:
    assert_problem(http.post(route, json=body), 422, "invalid")


def test_an_empty_index_says_so_and_not_where_it_is(tmp_path: Path) -> None:
    with (
        Index.open(tmp_path / "empty") as index,
        serving(index) as address,
        client(address) as http,
    ):
        assert http.get("documents").json() == []
        assert http.get("ready").json()["status"] == "ok"
        response = http.post("ask", json={"question": QUESTION})
        assert_problem(response, 404, "not_found")
        assert str(tmp_path) not in response.text
        with http.stream("POST", "ask/stream", json={"question": QUESTION}) as streamed:
            ((name, data),) = events(streamed)
        assert name == "problem"
        assert str(tmp_path) not in data


def test_the_explanation_holds_words_cost_and_choices(http: httpx2.Client, document: str) -> None:
    explained = ask(http, "explain")
    assert " ".join(word["text"] for word in explained["words"]) == QUESTION
    influences = [word["influence"] for word in explained["words"]]
    assert max(influences) == pytest.approx(1)
    assert min(influences) >= 0
    assert [(page["document"], page["page"]) for page in explained["pages"]] == [
        (document, number) for number in range(1, 6)
    ]
    assert sorted(page["rank"] for page in explained["pages"]) == [1, 2, 3, 4, 5]
    assert max(page["activity"] for page in explained["pages"]) == pytest.approx(1)
    assert explained["cost"][explained["k_star"] - 1] is not None
    search = ask(http, "search")
    assert explained["k_star"] == search["k_star"]
    choices = {one["method"]: one for one in explained["choices"]}
    assert {"visar", "visar-approx", "largest-gap", "top-k"} <= set(choices)
    taken = [explained["pages"][place]["page"] for place in choices["visar"]["pages"]]
    assert taken == [hit["page"] for hit in search["pages"]]
    assert choices["visar"]["tokens"] <= choices["top-k"]["tokens"]


def test_the_matrix_is_square_and_symmetric(http: httpx2.Client) -> None:
    size = ask(http, "explain")["matrix_size"]
    assert size >= 1
    response = http.post("explain/matrix", json={"question": QUESTION})
    assert response.headers["content-type"] == "application/octet-stream"
    matrix = np.frombuffer(response.content, "<f4").reshape(size, size)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-5)
    assert (matrix >= 0).all()
    assert matrix.max() > 0


def test_patches_have_a_weight_and_a_cosine_with_every_vector(
    http: httpx2.Client, document: str
) -> None:
    patches = ask(http, "explain/patches", document=document, page=2)
    count = len(patches["boxes"])
    assert count == len(patches["weights"]) > 0
    vectors = [row for word in ask(http, "explain")["words"] for row in word["vectors"]]
    cosines = np.array(patches["cosines"])
    assert cosines.shape[1] == count
    assert max(vectors) < cosines.shape[0]
    assert np.abs(cosines).max() <= 1.001
    asked = {"question": QUESTION, "document": document, "page": 6}
    assert_problem(http.post("explain/patches", json=asked), 404, "not_found")
    asked = {"question": QUESTION, "document": "0" * 64, "page": 1}
    assert_problem(http.post("explain/patches", json=asked), 404, "not_found")


def test_two_pages_show_what_they_share(http: httpx2.Client, document: str) -> None:
    def pair(first: int, second: int) -> httpx2.Response:
        pages = {
            name: {"document": document, "page": page}
            for name, page in (("first", first), ("second", second))
        }
        return http.post("explain/pair", json={"question": QUESTION, **pages})

    pairs = pair(2, 2).json()
    assert ["warranty", "warranty"] in [
        [word.strip(".").lower() for word in one["words"]] for one in pairs
    ]
    for one in pairs:
        for left, top, right, bottom in (one["first"], one["second"]):
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
    assert pair(2, 3).json() == []  # the other page does not speak of it
    assert_problem(pair(2, 6), 404, "not_found")
    assert_problem(pair(2, 0), 422, "invalid")


def test_the_views_of_a_question_are_computed_once(
    index: Index,
    http: httpx2.Client,
    document: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(index, name)

        def call(*given: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*given, **options)

        return call

    for name in ("search", "explain"):
        monkeypatch.setattr(index, name, counted(name))
    question = "Which cloth cleans the glass?"
    body = {"question": question}
    http.post("ask", json=body)
    for route in ("explain", "explain/matrix", "explain"):
        assert http.post(route, json=body).status_code == 200
    http.post("explain/patches", json={**body, "document": document, "page": 3})
    assert calls == ["search", "explain"]
    # Other documents are another question.
    index.add(write_pdf(tmp_path / "cloth.pdf", "A dry cloth cleans the glass."))
    pages = http.post("explain", json=body).json()["pages"]
    assert calls == ["search", "explain"] * 2
    assert len(pages) == 6
    http.delete("documents/cloth.pdf")


def tar(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("passwd.pdf")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return stream.getvalue()


def test_several_files_come_as_a_stream(http: httpx2.Client, tmp_path: Path) -> None:
    def post(content: bytes) -> httpx2.Response:
        headers = {"Content-Type": "application/x-tar"}
        params = {"collection": "batch"}
        return http.post("documents/batch", params=params, content=content, headers=headers)

    red = write_pdf(tmp_path / "r.pdf", "Red.").read_bytes()
    names = ["red.pdf", "empty.pdf", f"{'n' * 150}ü.pdf", "notes.txt"]
    response = post(
        tar(
            ("folder/red.pdf", red),
            ("folder/.hidden", b"x" * 1_000_000),
            ("empty.pdf", b""),
            (names[2], write_pdf(tmp_path / "n.pdf", "Long.").read_bytes()),
            ("notes.txt", b"not a document"),
        )
    )
    assert response.status_code == 202
    taken = response.json()
    assert [one["name"] for one in taken] == names
    assert (taken[1]["job"], taken[1]["problem"]["code"]) == (None, "empty")
    # What breaks off has lost nothing that came before.
    broken = post(tar(("red.pdf", red), ("cut.pdf", bytes(100_000)))[:50_000]).json()
    assert [(one["name"], one["job"] is None) for one in broken] == [
        ("red.pdf", False), ("cut.pdf", True),
    ]  # fmt: skip
    ended = [finished(http, one["job"]["id"]) for one in taken + broken if one["job"]]
    assert [job["state"] for job in ended] == ["done", "done", "failed", "done"]
    documents = http.get("documents", params={"collection": "batch"}).json()
    assert {one["name"] for one in documents} == {names[0], names[2]}
    assert_problem(post(b"no tar stream" * 1_000), 422, "invalid")
    assert_problem(post(tar()), 422, "empty")
    # Headers are read into memory, and so are bounded.
    long = tarfile.TarInfo("a.pdf")
    long.pax_headers = {"comment": "x" * 2_000_000}
    assert_problem(post(long.tobuf(tarfile.PAX_FORMAT)), 422, "invalid")
    for one in documents:
        http.delete(f"documents/{one['id']}")


def test_what_there_is_to_choose_from(http: httpx2.Client) -> None:
    assert http.get("encoders").json() == {"names": ["embedded"]}
    assert http.get("generators").json() == {"names": ["extractive"]}
    methods = http.get("methods").json()["names"]
    assert methods[0] == "visar"
    assert {"top-k", "largest-gap"} <= set(methods)
    assert "oracle" not in methods  # needs to know the evidence


def test_health_and_metrics(http: httpx2.Client) -> None:
    assert http.get("health").json()["status"] == "ok"
    assert http.get("ready").json()["status"] == "ok"
    metrics = http.get("metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'visar_requests_total{route="/health",status="200"}' in metrics.text.replace(
        "/api/v1", ""
    )
    assert "visar_request_seconds_bucket" in metrics.text


def test_the_description_names_its_models_and_errors(http: httpx2.Client) -> None:
    described = http.get("openapi.json").json()
    assert {"Document", "Job", "Answer", "Search", "Problem"} <= set(
        described["components"]["schemas"]
    )
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            said = operation["responses"]
            content = said["default"]["content"]
            assert content["application/problem+json"]["schema"] == {
                "$ref": "#/components/schemas/Problem"
            }, (path, method)
            # Validation fails with a problem too, not with the framework's own body.
            assert "HTTPValidationError" not in json.dumps(said), (path, method)


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
    assert list((Path(strict[0].location) / "server" / "uploads").iterdir()) == []


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


def test_one_client_has_so_many_requests_a_minute(index: Index) -> None:
    with serving(index, Settings(requests_per_minute=5)) as address, client(address) as http:
        answers = [http.get("health") for _ in range(6)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert_problem(answers[5], 429, "rate")
        assert int(answers[5].headers["retry-after"]) > 0


def test_a_cancelled_job_ends_and_can_be_tried_again(http: httpx2.Client, report: Path) -> None:
    job = upload(http, report)["id"]
    wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
    http.post(f"jobs/{job}/cancel", json={})
    cancelled = finished(http, job)
    assert (cancelled["state"], cancelled["document"]) == ("cancelled", None)
    assert http.post(f"jobs/{job}/cancel", json={}).json()["state"] == "cancelled"
    again = http.post(f"jobs/{job}/retry", json={}).json()
    assert again["state"] in ("waiting", "running")
    done = finished(http, job)
    assert (done["state"], done["pages"]) == ("done", 40)
    # What has ended well stays so.
    assert http.post(f"jobs/{job}/retry", json={}).json()["state"] == "done"
    assert http.post(f"jobs/{job}/cancel", json={}).json()["state"] == "done"
    http.delete(f"documents/{done['document']}")
