"""Documents at web addresses: their names, limits, redirects and errors."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.web import Web
from tests.web import web as web
from visar.documents import Limits, ReadOptions
from visar.errors import DocumentError
from visar.index import Index
from visar.ingest.downloads import download, is_web_url
from visar.results import Document

MakePdf = Callable[..., Path]


@pytest.fixture
def pdf(make_pdf: MakePdf) -> bytes:
    return make_pdf("small.pdf", "The lighthouse has a green door.").read_bytes()


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.open(tmp_path / "index", reader="none")


def refusal(url: str, limits: Limits | None = None) -> str:
    with pytest.raises(DocumentError) as refused, download(url, limits or Limits()):
        pass
    return str(refused.value)


def test_only_text_that_begins_with_http_is_a_url() -> None:
    assert is_web_url("http://example.com/a.pdf")
    assert is_web_url("HTTPS://example.com/a.pdf")
    for path in ("a.pdf", "s3://bucket/a.pdf", "file:///a.pdf", Path("https://example.com/a.pdf")):
        assert not is_web_url(path)


def test_a_document_is_added_from_a_url(index: Index, web: Web, pdf: bytes) -> None:
    url = web.put("/reports/door.pdf?year=2024", pdf, "application/pdf")
    steps: list[tuple[str, int, int]] = []
    added = index.add(f"{url}#page=1", progress=lambda *step: steps.append(step))
    assert (added.name, added.pages, added.source) == ("door.pdf", 1, url)
    assert steps[0] == ("downloading", len(pdf), len(pdf))
    assert "green" in index.ask("Which colour has the door?").text
    assert web.requests == ["/reports/door.pdf?year=2024"]
    # The index keeps its own copy: pages are shown without another download.
    assert index.image(added.id, 1).size[0] > 0
    assert len(web.requests) == 1


def test_the_content_is_the_identity(
    index: Index, web: Web, pdf: bytes, make_pdf: MakePdf, tmp_path: Path
) -> None:
    file = tmp_path / "local.pdf"
    file.write_bytes(pdf)
    stored = index.add(file)
    url = web.put("/door.pdf", pdf, "application/pdf")
    assert index.add(url).id == stored.id
    assert [one.name for one in index.documents()] == ["local.pdf"]
    # Other content at the same address replaces the document from there.
    url = web.put("/other.pdf", pdf + b"\n", "application/pdf")
    index.add(url)
    web.put("/other.pdf", make_pdf("new.pdf", "A red door.", "The end.").read_bytes())
    index.add(url)
    assert [(one.name, one.pages) for one in index.documents()] == [
        ("local.pdf", 1),
        ("other.pdf", 2),
    ]


def test_several_are_added_and_a_refusal_stops_no_other(
    index: Index, web: Web, pdf: bytes, tmp_path: Path
) -> None:
    url = web.put("/door.pdf", pdf, "application/pdf")
    (tmp_path / "notes.txt").write_text("The harbour is in Whitby.")
    results: dict[str, object] = {}
    additions = index.add_all(
        [f"{web.url}/missing.pdf", url, str(tmp_path / "notes.txt")], each=results.__setitem__
    )
    assert [one.name for one in additions.added] == ["door.pdf", "notes.txt"]
    assert [one.path for one in additions.refused] == [f"{web.url}/missing.pdf"]
    assert isinstance(results[url], Document)


@pytest.mark.parametrize(
    ("path", "type_", "disposition", "name"),
    [
        ("/report.pdf", "application/octet-stream", "", "report.pdf"),
        ("/annual%20report.pdf", "", "", "annual report.pdf"),
        ("/pdf/1706.03762", "application/pdf", "", "1706.03762.pdf"),
        ("/get", "application/pdf; charset=binary", 'attachment; filename="a b.pdf"', "a b.pdf"),
        ("/get", "", "attachment; filename*=UTF-8''na%C3%AFve.pdf", "naïve.pdf"),
        ("/get", "application/pdf", "attachment; filename=../../etc/passwd", "passwd.pdf"),
        ("/get", "application/pdf", 'attachment; filename="C:\\\\papers\\\\x.pdf"', "x.pdf"),
        ("/get", "application/pdf", 'attachment; filename=".."', "document.pdf"),
        ("/" + 300 * "x", "application/pdf", "", "document.pdf"),
        ("/", "application/pdf", "", "127.0.0.1.pdf"),
    ],
)
def test_the_name_comes_from_the_server_or_the_path(
    web: Web, pdf: bytes, path: str, type_: str, disposition: str, name: str
) -> None:
    url = web.put(path, pdf, type_, Content_Disposition=disposition)
    with download(url, Limits()) as file:
        assert file.name == name
        assert file.read_bytes() == pdf
    assert not file.exists()
    assert not file.parent.exists()


def test_an_html_page_is_an_html_document(index: Index, web: Web) -> None:
    body = b"<html><head><style>p {}</style></head><body><p>The door is green.</p></body></html>"
    added = index.add(web.put("/guide", body, "text/html; charset=utf-8"))
    assert added.name == "guide.html"
    assert [word.text for word in index.page(added.id, 1).words] == ["The", "door", "is", "green."]


def test_a_compressed_response_is_expanded(web: Web) -> None:
    text = 1000 * b"The door is green.\n"
    steps: list[tuple[str, int, int]] = []
    url = web.put("/a.txt", gzip.compress(text), "text/plain", Content_Encoding="gzip")
    with download(url, Limits(), lambda *step: steps.append(step)) as file:
        assert file.read_bytes() == text
    assert steps == [("downloading", len(text), 0)]
    assert "5,000 bytes" in refusal(url, Limits(max_bytes=5_000))
    url = web.put("/b.txt", b"...", "text/plain", Content_Encoding="br")
    assert "br" in refusal(url)


def test_the_size_is_limited(web: Web, pdf: bytes) -> None:
    url = web.put("/door.pdf", pdf)
    assert "100 bytes" in refusal(url, Limits(max_bytes=100))
    # A server that doesn't say how much it sends.
    web.pages["/door.pdf"].headers["Content-Length"] = ""
    assert "100 bytes" in refusal(url, Limits(max_bytes=100))


def test_an_unsupported_type_is_refused_after_its_first_bytes(web: Web) -> None:
    url = web.put("/film.mp4", b"\0\0\0\x18ftypmp42" + bytes(20_000_000), "video/mp4")
    message = refusal(url)
    assert "film.mp4" in message
    assert "PDF" in message


def test_redirects_are_followed_a_few_times(web: Web, pdf: bytes) -> None:
    web.put("/final.pdf", pdf, "application/pdf")
    url = web.fail("/start", 302, Location="/final.pdf")
    with download(url, Limits()) as file:
        assert file.name == "final.pdf"
    loop = web.fail("/loop", 301, Location="/loop")
    assert "5 redirects" in refusal(loop)
    assert web.requests.count("/loop") == 6


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a.pdf", "data:,x"])
def test_a_redirect_leads_nowhere_but_to_the_web(web: Web, target: str) -> None:
    assert "http" in refusal(web.fail("/start", 302, Location=target))


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500, 503, 599])
def test_an_error_of_the_server_is_named(web: Web, status: int) -> None:
    url = web.fail("/door.pdf", status)
    message = refusal(url)
    assert url in message
    assert str(status) in message


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/a.pdf"
        assert "refused" in refusal(url)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr("visar.ingest.downloads._SECONDS_TO_ANSWER", 0.2)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.pdf"
        assert url in refusal(url)


@pytest.mark.parametrize("url", ["http://", "http://[", "https://a b/c.pdf", "http://\x00/a"])
def test_an_address_that_is_none_is_refused(index: Index, url: str) -> None:
    with pytest.raises(DocumentError):
        index.add(url)
    assert len(index.add_all([url]).refused) == 1


def test_no_secret_is_stored_or_sent(
    index: Index, web: Web, pdf: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISAR_TOKEN", "correct-horse")
    web.put("/door.pdf", pdf, "application/pdf")
    url = web.url.replace("://", "://me:secret@")
    added = index.add(f"{url}/door.pdf")
    assert added.source == f"{web.url}/door.pdf"
    assert web.sent[0]["authorization"].startswith("Basic ")
    assert "correct-horse" not in str(web.sent)
    assert "secret" not in refusal(f"{url}/missing.pdf")


def test_the_limits_of_an_index_count(index: Index, web: Web, pdf: bytes) -> None:
    url = web.put("/door.pdf", pdf)
    small = ReadOptions(limits=Limits(max_bytes=100))
    with pytest.raises(DocumentError, match="100"):
        index.add(url, options=small)
    assert "100 bytes" in index.add_all([url], options=small).refused[0].reason
    assert index.documents() == []
