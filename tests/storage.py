"""Object storage on localhost: moto's server in a separate process."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

BUCKET = "s3://visar"


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def object_storage() -> Iterator[dict[str, str]]:
    """Run a server with the bucket `BUCKET`; yields the environment variables to access it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(f"{address}/visar")
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Address of a bucket, with the environment variables set to access it."""
    pytest.importorskip("lancedb")
    with object_storage() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield BUCKET


def _make_bucket(address: str) -> None:
    """Create the bucket as soon as the server responds."""
    for _ in range(300):
        try:
            request = urllib.request.Request(address, method="PUT")  # noqa: S310
            urllib.request.urlopen(request).close()  # noqa: S310
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server doesn't respond")


@dataclass
class Reads:
    """The number of requests to object storage, and of bytes read."""

    requests: int = 0
    bytes: int = 0

    def reset(self) -> None:
        """Start counting from zero."""
        self.requests = self.bytes = 0


@pytest.fixture
def reads(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Counts of all requests to the bucket, and of the bytes in the responses."""
    assert bucket
    with counted(os.environ["AWS_ENDPOINT_URL"]) as (address, reads):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield reads


@contextlib.contextmanager
def counted(endpoint: str) -> Iterator[tuple[str, Reads]]:
    """Run a proxy in front of a server; yields its address and the counts of its traffic."""
    host, port = endpoint.removeprefix("http://").split(":")
    reads, lock = Reads(), threading.Lock()

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server = http.client.HTTPConnection(host, int(port))
            with contextlib.closing(server):
                server.request(self.command, self.path, body, dict(self.headers))
                response = server.getresponse()
                content = response.read()
            with lock:
                reads.requests += 1
                reads.bytes += len(content)
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Proxy, f"do_{method}", Proxy.forward)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}", reads
        finally:
            proxy.shutdown()
            thread.join()
