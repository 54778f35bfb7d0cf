"""Options of uploads: metadata, collections and encoders."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from tests.conftest import write_pdf
from tests.server.service import assert_problem, finished, send, upload
from tests.server.test_api import tar
from visar.index import Index
from visar.samples import REPORT


def test_an_upload_can_have_metadata(http: httpx2.Client, index: Index, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "tide.pdf", "The tide comes at six.")
    metadata = {"year": 2024, "kind": "Bericht ü", "final": True, "part": 1.5, "editor": None}
    job = upload(http, path, metadata=json.dumps(metadata), collection="tides")
    assert (job["metadata"], job["collection"]) == (metadata, "tides")
    done = finished(http, job["id"])
    assert (done["state"], done["metadata"]) == ("done", metadata)
    (document,) = index.documents(where='year = 2024 and kind = "Bericht ü" and final = true')
    assert (document.id, document.collections) == (done["document"], ("tides",))
    assert document.metadata.items() >= metadata.items()
    index.remove(document.id)


def test_a_batch_can_have_metadata(http: httpx2.Client, index: Index, tmp_path: Path) -> None:
    files = [
        (name, write_pdf(tmp_path / name, f"About {name}.").read_bytes())
        for name in ("ebb.pdf", "flood.pdf")
    ]
    response = http.post(
        "documents/batch",
        params={"metadata": '{"year": 1999}'},
        content=tar(*files),
        headers={"Content-Type": "application/x-tar"},
    )
    assert response.status_code == 202
    jobs = [finished(http, one["job"]["id"]) for one in response.json()]
    assert [(job["state"], job["metadata"]) for job in jobs] == [("done", {"year": 1999})] * 2
    found = index.documents(where="year = 1999")
    assert sorted(document.name for document in found) == ["ebb.pdf", "flood.pdf"]
    for document in found:
        index.remove(document.id)


@pytest.mark.parametrize(
    "metadata",
    [
        "year=2024",
        "[]",
        "null",
        '{"year": [2024]}',
        '{"year": {"of": 2024}}',
        '{"year": NaN}',
        '{"year": 1e999}',
        '{"and": 1}',
        '{"a=b": 1}',
        '{" year": 1}',
        '{"": 1}',
        '{"year": "\\ud800"}',
        "[" * 9_000,
        f'{{"year": "{"x" * 10_000}"}}',
    ],
)
def test_invalid_metadata_are_refused(http: httpx2.Client, metadata: str) -> None:
    assert_problem(send(http, b"%PDF-", "a.pdf", metadata=metadata), 422, "invalid")
    headers = {"Content-Type": "application/x-tar"}
    params = {"metadata": metadata}
    response = http.post("documents/batch", params=params, content=tar(), headers=headers)
    assert_problem(response, 422, "invalid")


def test_an_unknown_encoder_is_refused(http: httpx2.Client) -> None:
    assert_problem(send(http, b"%PDF-", "a.pdf", encoder="nothing"), 422, "invalid")


def test_the_sample_report_is_added_without_an_upload(http: httpx2.Client) -> None:
    response = http.post("documents/sample", params={"collection": "samples"})
    assert response.status_code == 202, response.text
    job = response.json()
    assert response.headers["Location"].endswith(f"/api/v1/jobs/{job['id']}")
    assert job["name"] == REPORT.name
    done = finished(http, job["id"])
    assert done["state"] == "done"
    document = http.get(f"documents/{done['document']}").json()
    assert (document["pages"], document["collections"]) == (40, ["samples"])
    # What is served is the packaged file, which stays where it is.
    assert http.get(f"documents/{document['id']}/original").content == REPORT.read_bytes()
