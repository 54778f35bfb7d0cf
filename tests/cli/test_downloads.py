"""Web addresses in place of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from tests.web import Web
from tests.web import web as web

MakePdf = Callable[..., Path]
QUESTION = "Which colour has the door?"


@pytest.fixture
def url(web: Web, make_pdf: MakePdf) -> str:
    pdf = make_pdf("local.pdf", "The lighthouse has a green door.").read_bytes()
    return web.put("/reports/door", pdf, "application/pdf")


def test_a_url_is_added_listed_and_shown(visar: Visar, url: str) -> None:
    added = visar("add", url)
    assert added.code == 0
    assert "door.pdf" in added.out
    assert "same content" not in added.err
    (document,) = json.loads(visar("list", "--json").out)
    assert (document["name"], document["source"]) == ("door.pdf", url)
    assert url in visar("show", "door.pdf").out


@pytest.mark.parametrize("command", ["ask", "search", "explain"])
def test_a_question_is_asked_of_a_url(visar: Visar, url: str, command: str) -> None:
    ran = visar(command, url, QUESTION)
    assert ran.code == 0
    assert "green door" in ran.out
    ran = visar(command, url, *QUESTION.split())
    assert ran.code == 0


def test_a_chat_is_about_a_url(visar: Visar, url: str) -> None:
    ran = visar("chat", url, typed=f"{QUESTION}\n")
    assert ran.code == 0
    assert "green door" in ran.out


def test_the_known_name_of_the_same_content_is_reported(
    visar: Visar, url: str, tmp_path: Path
) -> None:
    visar("add", tmp_path / "local.pdf")
    assert "local.pdf" in visar("add", url).err
    assert len(json.loads(visar("list", "--json").out)) == 1


def test_a_failed_download_is_an_error(visar: Visar, web: Web, url: str) -> None:
    missing = f"{web.url}/missing.pdf"
    for command in (("add", missing), ("ask", missing, QUESTION)):
        ran = visar(*command)
        assert ran.code == 2
        assert missing in ran.err
        assert "404" in ran.err
        assert "Traceback" not in ran.err
    # As with files: one of several is not the end.
    assert visar("add", missing, url).code == 1
    assert [one["path"] for one in json.loads(visar("add", missing, "--json").out)["refused"]] == [
        missing
    ]


def test_the_limit_of_a_document_is_that_of_a_download(visar: Visar, web: Web) -> None:
    url = web.put("/long.txt", 2_000_000 * b"x", "text/plain")
    ran = visar("add", url, "--max-megabytes", "1")
    assert ran.code == 2
    assert "--max-megabytes" in ran.err


def test_other_addresses_are_refused(visar: Visar) -> None:
    ran = visar("add", "ftp://127.0.0.1/a.pdf")
    assert ran.code == 2
    assert "ftp://" in ran.err


def test_a_url_is_not_added_to_a_server(visar: Visar, web: Web, url: str) -> None:
    for command in (("add", url), ("ask", url, QUESTION)):
        ran = visar(*command, "--server", web.url)
        assert ran.code == 2
        assert url in ran.err
    assert web.requests == []
