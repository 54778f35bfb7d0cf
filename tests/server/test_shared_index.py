"""Two servers that share an index in object storage, as if on two machines."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_pdf
from tests.server.service import client, finished, program, upload
from tests.storage import bucket as bucket
from visar.index import Index

QUESTION = {"question": "How long is the warranty of the lantern?"}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages = (f"Chapter {number}. " + "The tide comes and goes. " * 20 for number in range(12))
    return write_pdf(tmp_path_factory.mktemp("book") / "book.pdf", *pages)


def content_of(answer: Any) -> Any:
    """Return the content of an answer, without its timings."""
    return answer["passages"], answer["search"]["pages"]


def test_two_servers_share_an_index_and_one_is_killed(
    bucket: str, manual: Path, book: Path, tmp_path: Path
) -> None:
    location = f"{bucket}/served"
    Index.open(location).close()
    with (
        program(location, XDG_DATA_HOME=str(tmp_path / "first")) as (address, server),
        program(location, XDG_DATA_HOME=str(tmp_path / "second")) as (other, _),
        client(address) as here,
        client(other) as there,
    ):
        assert finished(here, upload(here, manual)["id"])["state"] == "done"
        # The other server sees the document immediately.
        assert [one["name"] for one in there.get("documents").json()] == ["manual.pdf"]
        answers = [http.post("ask", json=QUESTION).json() for http in (here, there)]
        assert content_of(answers[0]) == content_of(answers[1])
        assert answers[0]["search"]["pages"][0]["page"] == 2
        # A document that one server removes is gone for the other, too.
        small = write_pdf(tmp_path / "small.pdf", "The lighthouse has a green door.")
        added = finished(there, upload(there, small)["id"])["document"]
        assert here.get(f"documents/{added}").status_code == 200
        assert there.delete(f"documents/{added}").status_code == 200
        assert here.get(f"documents/{added}").status_code == 404
        assert finished(there, upload(there, book)["id"])["state"] == "done"
        # A server that is killed right after accepting an upload adds it after a restart.
        job = upload(here, small, collection="doors")["id"]
        assert job not in [one["id"] for one in there.get("jobs").json()]
        server.send_signal(signal.SIGKILL)
        server.wait()
    with program(location, XDG_DATA_HOME=str(tmp_path / "first")) as (address, _):
        with client(address) as http:
            assert finished(http, job)["state"] == "done"
        with Index.open(location) as index:
            assert [one.name for one in index.documents(collection="doors")] == ["small.pdf"]
            assert index.jobs() == []
