"""A server never downloads a document, whoever asks it to, and clients don't ask."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.server.service import finished, send
from tests.web import Web
from tests.web import web as web
from visar.client import AsyncClient, Client
from visar.errors import DocumentError


@pytest.fixture
def url(web: Web) -> str:
    return web.put("/a.pdf", b"%PDF-1.7", "application/pdf")


def test_an_upload_that_names_a_url_is_not_downloaded(
    http: httpx2.Client, web: Web, url: str
) -> None:
    for content in (url.encode(), b""):
        response = send(http, content, url)
        if response.status_code == 202:
            assert finished(http, response.json()["id"])["state"] == "failed"  # it is no PDF
    assert http.post("documents", json={"url": url, "path": url}).status_code == 422
    assert http.post("documents", params={"name": url, "path": url}).status_code == 422
    assert web.requests == []


@pytest.mark.parametrize("route", ["search", "ask"])
def test_a_question_about_a_url_is_not_a_download(
    http: httpx2.Client, web: Web, url: str, route: str
) -> None:
    response = http.post(route, json={"question": "Which colour?", "documents": [url]})
    assert response.status_code == 404
    assert web.requests == []


def test_clients_refuse_urls(address: str, http: httpx2.Client, web: Web, url: str) -> None:
    jobs = len(http.get("jobs").json())
    with Client(address) as client:
        with pytest.raises(DocumentError, match=url):
            client.add(url)
        assert [one.path for one in client.add_all([url]).refused] == [url]

    async def add() -> None:
        async with AsyncClient(address) as client:
            with pytest.raises(DocumentError, match=url):
                await client.add(url)
            assert [one.path for one in (await client.add_all([url])).refused] == [url]

    asyncio.run(add())
    assert len(http.get("jobs").json()) == jobs
    assert web.requests == []
