"""Real HTTP servers on localhost: an encoder service, and a server scripted by a test."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from visar.encoders.encoder import Encoder
from visar.encoders.service import create_encoder_app
from visar.serving import http_server, listen


@contextmanager
def serving(
    encoder: Encoder,
    *,
    port: int = 0,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> Iterator[str]:
    """Run an encoder service, with TLS as added by a proxy, and yield its address."""
    listener = listen("127.0.0.1", port, token=token)
    server = http_server(create_encoder_app(encoder, token=token, **options))
    if tls:
        server.config.load()
        server.config.ssl = tls
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Says:
    """A response; without a status the connection is closed."""

    status: int | None
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def answering(answer: Callable[[Asked], Says]) -> Iterator[tuple[str, list[Asked]]]:
    """Run a server that responds as ``answer`` says; yield its address and its list of requests."""
    requests: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            requests.append(Asked(self.command, self.path, dict(self.headers.items()), body))
            said = answer(requests[-1])
            if said.status is None:
                return
            self.send_response(said.status)
            headers = {"Content-Length": str(len(said.body))} | said.headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.body)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Don't log: requests are in the list."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def like_the_hub(repositories: dict[str, tuple[str, Path]]) -> Callable[[Asked], Says]:
    """Return the responses of a fake Hugging Face hub with folders as repositories."""

    def answer(request: Asked) -> Says:
        path = unquote(urlsplit(request.path).path).removeprefix("/api/models").lstrip("/")
        name = "/".join(path.split("/")[:2])
        if name not in repositories:
            return Says(404, headers={"X-Error-Code": "RepoNotFound"})
        commit, folder = repositories[name]
        what, revision, *file = path.split("/")[2:]
        if revision not in ("main", commit):
            return Says(404, headers={"X-Error-Code": "RevisionNotFound"})
        if what == "resolve":
            return _file(folder / "/".join(file), commit)
        files = (each for each in folder.rglob("*") if each.is_file())
        names = sorted(each.relative_to(folder).as_posix() for each in files)
        said: Any = [
            {"type": "file", "path": each, "size": (folder / each).stat().st_size, "oid": each}
            for each in names
        ]
        if what == "revision":
            said = {"id": name, "sha": commit, "siblings": [{"rfilename": each} for each in names]}
        return Says(200, json.dumps(said).encode(), {"Content-Type": "application/json"})

    return answer


def _file(path: Path, commit: str) -> Says:
    headers = {"X-Repo-Commit": commit}
    if not path.is_file():
        return Says(404, headers=headers | {"X-Error-Code": "EntryNotFound"})
    content = path.read_bytes()
    return Says(200, content, headers | {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'})
