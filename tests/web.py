"""A web server on loopback for tests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest


@dataclass
class Page:
    """A response of the server."""

    body: bytes = b""
    type: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Web:
    """Pages by path, and the requests for them."""

    url: str
    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """Paths, with queries."""
    sent: list[dict[str, str]] = field(default_factory=list)
    """Headers of the requests, with lower-case names."""

    def put(self, path: str, body: bytes, type_: str = "", **headers: str) -> str:
        """Put a page at a path; return its URL. ``Content_Type`` stands for ``Content-Type``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[urlsplit(path).path] = Page(body, type_, 200, named)
        return f"{self.url}{path}"

    def fail(self, path: str, status: int, **headers: str) -> str:
        """Put an error or a redirect at a path; return its URL."""
        self.pages[path] = Page(status=status, headers=headers)
        return f"{self.url}{path}"


@contextmanager
def web_server() -> Iterator[Web]:
    """Serve pages that a test puts there."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests.append(self.path)
            served.sent.append({name.lower(): value for name, value in self.headers.items()})
            page = served.pages.get(urlsplit(self.path).path, Page(status=404))
            self.send_response(page.status)
            headers = {"Content-Length": str(len(page.body)), "Content-Type": page.type}
            for name, value in (headers | page.headers).items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(page.body)
            except OSError:  # the client has seen enough
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Web(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield served
        server.shutdown()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A web server that can be reached without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with web_server() as served:
        yield served
