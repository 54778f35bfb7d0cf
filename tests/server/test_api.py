"""The routes for documents, pages, collections and jobs, over real connections."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from PIL import Image

from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import (
    QUESTION,
    ask,
    assert_problem,
    client,
    events,
    finished,
    send,
    upload,
    wait_until,
)
from visar.index import Index


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
    # The original file is unchanged, and opens in a browser under its name.
    original = http.get(f"documents/{document['id']}/original")
    assert original.content == path.read_bytes()
    assert original.headers["content-type"] == "application/pdf"
    assert original.headers["content-disposition"] == 'inline; filename="harbour.pdf"'
    # A document can be named by its name or its id.
    assert http.delete("documents/harbour.pdf").json()["id"] == document["id"]
    for route in ("", "/original", "/pages/1", "/pages/1/image"):
        assert_problem(http.get(f"documents/{document['id']}{route}"), 404, "not_found")
    assert "ports" not in [each["name"] for each in http.get("collections").json()]


def test_documents_can_be_listed_in_parts(
    http: httpx2.Client, tmp_path: Path, index: Index
) -> None:
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


def test_pages_have_words_and_images(http: httpx2.Client, document: str) -> None:
    page = http.get(f"documents/{document}/pages/2").json()
    assert (page["number"], page["width"], page["height"]) == (2, 400, 500)
    assert [word["text"] for word in page["words"][:3]] == ["Warranty.", "The", "warranty"]
    for word in page["words"]:
        left, top, right, bottom = word["box"]
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1
    # 400 × 500 points at 144 dpi are 800 × 1000 pixels.
    image = http.get(f"documents/{document}/pages/2/image", params={"dpi": 144})
    assert image.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(image.content)).size == (800, 1000)
    thumbnail = http.get(f"documents/{document}/pages/2/thumbnail")
    assert max(Image.open(io.BytesIO(thumbnail.content)).size) < 200
    assert_problem(http.get(f"documents/{document}/pages/6"), 404, "not_found")
    assert_problem(http.get(f"documents/{document}/pages/0/image"), 404, "not_found")
    assert_problem(http.get(f"documents/{document}/pages/one"), 422, "invalid")
    assert_problem(
        http.get(f"documents/{document}/pages/1/image", params={"dpi": 3000}), 422, "invalid"
    )


@pytest.mark.parametrize("route", ["image", "thumbnail"])
def test_a_cached_image_is_not_sent_again(http: httpx2.Client, document: str, route: str) -> None:
    path = f"documents/{document}/pages/1/{route}"
    first = http.get(path)
    tag = first.headers["etag"]
    assert "immutable" in first.headers["cache-control"]
    again = http.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = http.get(f"documents/{document}/pages/2/{route}", headers={"If-None-Match": tag})
    assert other.status_code == 200
    assert other.headers["etag"] != tag


def test_collections_can_be_created_renamed_and_deleted(http: httpx2.Client, document: str) -> None:
    def sizes() -> dict[str, int]:
        return {each["name"]: each["documents"] for each in http.get("collections").json()}

    members = {"documents": ["manual.pdf"]}
    created = http.put("collections/old books/documents", json=members)
    assert created.json() == {"name": "old books", "documents": 1}
    # Doing it again changes nothing.
    assert http.put("collections/old books/documents", json=members).json()["documents"] == 1
    renamed = http.patch("collections/old books", json={"name": "books"})
    assert renamed.json() == {"name": "books", "documents": 1}
    assert sizes() == {"books": 1}
    # Renaming it to its own name changes nothing.
    assert http.patch("collections/books", json={"name": "books"}).status_code == 200
    assert sizes() == {"books": 1}
    assert ask(http, "search", collection="books")["documents"][0]["id"] == document
    http.put("collections/others/documents", json=members)
    removed = http.delete("collections/others/documents", params={"document": document})
    assert removed.status_code == 204
    assert http.delete("collections/books").status_code == 204
    assert sizes() == {}
    assert http.get(f"documents/{document}").json()["collections"] == []
    for response in (
        http.delete("collections/books"),
        http.patch("collections/books", json={"name": "x"}),
        http.delete("collections/books/documents", params={"document": document}),
        http.put("collections/books/documents", json={"documents": ["nothing.pdf"]}),
        http.post("search", json={"question": QUESTION, "collection": "books"}),
    ):
        assert_problem(response, 404, "not_found")
    assert_problem(http.patch("collections/books", json={"name": ""}), 422, "invalid")


@pytest.mark.parametrize("name", ["2024/reports", "/", "documents", "a/documents/b"])
def test_the_name_of_a_collection_may_contain_slashes(
    http: httpx2.Client, document: str, name: str
) -> None:
    path = f"collections/{quote(name, safe='')}"
    created = http.put(f"{path}/documents", json={"documents": [document]})
    assert created.json() == {"name": name, "documents": 1}
    assert ask(http, "search", collection=name)["documents"][0]["id"] == document
    assert http.patch(path, json={"name": f"{name}s"}).json()["name"] == f"{name}s"
    assert http.patch(f"{path}s", json={"name": name}).status_code == 200
    removed = http.delete(f"{path}/documents", params={"document": document})
    assert removed.status_code == 204
    http.put(f"{path}/documents", json={"documents": [document]})
    assert http.delete(path).status_code == 204
    assert http.get("collections").json() == []
    assert http.request("PATCH", f"{path}/documents").headers["allow"] == "PUT, DELETE"


def test_an_encrypted_document_waits_for_its_password(http: httpx2.Client, tmp_path: Path) -> None:
    path = encrypt(write_pdf(tmp_path / "secret.pdf", "The key is under the mat."), "sesame")
    failed = finished(http, upload(http, path, "secret.pdf")["id"])
    assert (failed["state"], failed["code"]) == ("failed", "password")
    assert failed["reason"].startswith("secret.pdf")
    wrong = http.post(f"jobs/{failed['id']}/retry", json={"password": "simsalabim"}).json()
    assert finished(http, wrong["id"])["code"] == "password"
    http.post(f"jobs/{failed['id']}/retry", json={"password": "sesame"})
    done = finished(http, failed["id"])
    assert done["state"] == "done"
    assert done["reason"] is None
    # The server keeps the password to show the pages.
    image = http.get(f"documents/{done['document']}/pages/1/image")
    assert image.headers["content-type"] == "image/png"
    assert http.delete(f"documents/{done['document']}").status_code == 200


def test_deleting_a_failed_job_deletes_its_upload(http: httpx2.Client, index: Index) -> None:
    job = send(http, b"not a document", "notes.pdf").json()
    failed = finished(http, job["id"])
    assert (failed["state"], failed["code"], failed["document"]) == ("failed", "document", None)
    assert failed["reason"].startswith("notes.pdf")
    assert failed["id"] in [each["id"] for each in http.get("jobs").json()]
    uploaded = Path(index.location) / "jobs" / "uploads" / job["id"]
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


def test_events_report_every_change_of_a_job(
    http: httpx2.Client, address: str, tmp_path: Path
) -> None:
    path = write_pdf(tmp_path / "book.pdf", *(f"Page {number} of a story." for number in range(40)))
    changes: list[Any] = []
    with client(address) as listener, listener.stream("GET", "jobs/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        job = upload(http, path)
        for name, data in events(response):
            if json.loads(data)["id"] != job["id"]:
                continue
            changes.append((name, json.loads(data)))
            if name == "forgotten":
                break
            if changes[-1][1]["state"] == "done":
                http.delete(f"jobs/{job['id']}")
    states = [data["state"] for name, data in changes if name == "job"]
    assert states == sorted(states, key=["waiting", "running", "done"].index)
    assert states[-1] == "done"
    stages = {data["stage"] for _, data in changes[:-1]} - {None}
    assert stages <= {"reading", "ocr", "encoding"}
    assert stages
    http.delete("documents/book.pdf")


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


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("prices.csv", b"lamp,price\nDesk lamp,149.00\nFloor lamp,279.50\n", "279.50"),
        ("plan.html", b"<p>The <b>harbour</b> opens.</p><script>alert(1)</script>", "harbour"),
    ],
)
def test_an_uploaded_text_has_pages_and_is_never_run_by_browsers(
    http: httpx2.Client, name: str, content: bytes, word: str
) -> None:
    done = finished(http, send(http, content, name).json()["id"])
    assert (done["state"], done["pages"]) == ("done", 1)
    route = f"documents/{done['document']}"
    assert word in [one["text"] for one in http.get(f"{route}/pages/1").json()["words"]]
    assert http.get(f"{route}/pages/1/image").headers["content-type"] == "image/png"
    original = http.get(f"{route}/original")
    assert original.content == content
    # A browser must not run its scripts with the server's origin.
    assert original.headers["content-type"] == "application/octet-stream"
    assert original.headers["content-disposition"].startswith("attachment")
    http.delete(route)


def test_several_files_can_be_uploaded_as_a_tar_stream(http: httpx2.Client, tmp_path: Path) -> None:
    def post(content: bytes) -> httpx2.Response:
        headers = {"Content-Type": "application/x-tar"}
        params = {"collection": "batch"}
        return http.post("documents/batch", params=params, content=content, headers=headers)

    red = write_pdf(tmp_path / "r.pdf", "Red.").read_bytes()
    names = ["red.pdf", "empty.pdf", f"{'n' * 150}ü.pdf", "song.mp3"]
    response = post(
        tar(
            ("folder/red.pdf", red),
            ("folder/.hidden", b"x" * 1_000_000),
            ("empty.pdf", b""),
            (names[2], write_pdf(tmp_path / "n.pdf", "Long.").read_bytes()),
            ("song.mp3", b"ID3\x04 not a document"),
        )
    )
    assert response.status_code == 202
    results = response.json()
    assert [one["name"] for one in results] == names
    assert (results[1]["job"], results[1]["problem"]["code"]) == (None, "empty")
    # If the stream breaks off, the files before that are still added.
    broken = post(tar(("red.pdf", red), ("cut.pdf", bytes(100_000)))[:50_000]).json()
    assert [(one["name"], one["job"] is None) for one in broken] == [
        ("red.pdf", False), ("cut.pdf", True),
    ]  # fmt: skip
    ended = [finished(http, one["job"]["id"]) for one in results + broken if one["job"]]
    assert [job["state"] for job in ended] == ["done", "done", "failed", "done"]
    documents = http.get("documents", params={"collection": "batch"}).json()
    assert {one["name"] for one in documents} == {names[0], names[2]}
    assert_problem(post(b"no tar stream" * 1_000), 422, "invalid")
    assert_problem(post(tar()), 422, "empty")
    # The size of headers is limited, since they are read into memory.
    long = tarfile.TarInfo("a.pdf")
    long.pax_headers = {"comment": "x" * 2_000_000}
    assert_problem(post(long.tobuf(tarfile.PAX_FORMAT)), 422, "invalid")
    for one in documents:
        http.delete(f"documents/{one['id']}")


def test_encoders_generators_and_methods_are_listed(http: httpx2.Client) -> None:
    assert http.get("encoders").json() == {"names": ["embedded"]}
    assert http.get("generators").json() == {"names": ["extractive"]}
    methods = http.get("methods").json()["names"]
    assert methods[0] == "visar"
    assert {"top-k", "largest-gap"} <= set(methods)
    assert "oracle" not in methods  # it needs to know the evidence


def test_health_and_metrics_are_reported(http: httpx2.Client) -> None:
    assert http.get("health").json()["status"] == "ok"
    assert http.get("ready").json()["status"] == "ok"
    metrics = http.get("metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'visar_requests_total{route="/health",status="200"}' in metrics.text.replace(
        "/api/v1", ""
    )
    assert "visar_request_seconds_bucket" in metrics.text


def test_the_openapi_description_has_models_and_errors(http: httpx2.Client) -> None:
    description = http.get("openapi.json").json()
    assert {"Document", "Job", "Answer", "SearchResult", "Problem"} <= set(
        description["components"]["schemas"]
    )
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            content = responses["default"]["content"]
            assert content["application/problem+json"]["schema"] == {
                "$ref": "#/components/schemas/Problem"
            }, (path, method)
            # Validation errors have the same format, not the framework's own.
            assert "HTTPValidationError" not in json.dumps(responses), (path, method)


def test_a_cancelled_job_stops_and_can_be_retried(http: httpx2.Client, report: Path) -> None:
    job = upload(http, report)["id"]
    wait_until(lambda: http.get(f"jobs/{job}").json()["pages_done"] > 0, "it runs")
    assert_problem(http.delete(f"jobs/{job}"), 409, "unfinished")
    assert http.post(f"jobs/{job}/cancel").status_code == 200
    cancelled = finished(http, job)
    assert (cancelled["state"], cancelled["document"]) == ("cancelled", None)
    assert http.post(f"jobs/{job}/cancel", json={}).json()["state"] == "cancelled"
    again = http.post(f"jobs/{job}/retry").json()
    assert again["state"] in ("waiting", "running")
    done = finished(http, job)
    assert (done["state"], done["pages"]) == ("done", 40)
    # A job that is done stays done.
    assert http.post(f"jobs/{job}/retry", json={}).json()["state"] == "done"
    assert http.post(f"jobs/{job}/cancel", json={}).json()["state"] == "done"
    http.delete(f"documents/{done['document']}")


def test_an_image_is_only_cached_forever_by_the_documents_id(
    http: httpx2.Client, document: str
) -> None:
    """Another document may get the same name later."""
    by_id = http.get(f"documents/{document}/pages/1/thumbnail")
    by_name = http.get("documents/manual.pdf/pages/1/thumbnail")
    assert "immutable" in by_id.headers["cache-control"]
    assert by_name.headers["cache-control"] == "no-cache"
    assert by_id.headers["etag"] == by_name.headers["etag"]
